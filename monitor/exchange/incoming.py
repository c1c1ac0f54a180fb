"""`backslide judge import`: answers that came by file, through the same parser, checks and audit as any other.

Each job is run anew: first it gets the replies of earlier rounds, then those that came now, as far as it asks for
them. What is done is written as a judgement; what still asks goes into the next export, with its replies so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from monitor.config import JudgeSettings, Settings
from monitor.errors import ConfigError, InputError
from monitor.exchange.answers import Answer, read_answers
from monitor.exchange.forms import FileJudge, Form, file_judge
from monitor.exchange.outgoing import QuestionFile
from monitor.exchange.report import ImportSummary, Refused, RefusedState, Unused, UnusedReason
from monitor.exchange.state import Head, Pending, Told, read_head, read_pending, state_path
from monitor.judge_summary import JudgeCounts, JudgeSummary
from monitor.judgement import Attempt, AttemptKind, Judgement, Result, Unscored
from monitor.judgement_file import JudgementFile
from monitor.judging.accounting import TOKEN_TYPES
from monitor.judging.deferred import DeferredRun, DeferredRuns, Question, attempt_of
from monitor.judging.prices import FREE, Price, price_of
from monitor.judging.prompt import Prompts
from monitor.recorded import SessionFile, Spool, file_job
from monitor.rubrics import configured, named
from monitor.session import SessionRecord


class Answers:
    """The answers at hand, by the ids of their questions. The first answer to a question holds."""

    def __init__(self, paths: Iterable[Path], model: str) -> None:
        self.read = 0
        self.unused: list[Unused] = []
        self._left: dict[str, Answer] = {}
        for answer in chain.from_iterable(read_answers(path, model) for path in paths):
            self.read += 1
            if answer.id in self._left:
                self.unused.append(_unused(answer, "duplicate"))
            else:
                self._left[answer.id] = answer

    def take(self, question_id: str) -> Answer | None:
        """Give the answer to a question, once."""
        return self._left.pop(question_id, None)

    def set_aside(self, question_id: str) -> None:
        """Leave out an answer that counted in an earlier round."""
        if (answer := self.take(question_id)) is not None:
            self.unused.append(_unused(answer, "told"))

    def unknown(self) -> list[Unused]:
        """Give the answers that nobody asked for."""
        return [_unused(answer, "unknown") for answer in self._left.values()]


class Round:
    """One import: takes in the answers to jobs one after the other, and keeps account of them."""

    def __init__(
        self,
        settings: Settings,
        judge: FileJudge,
        price: Price,
        runs: DeferredRuns,
        answers: Answers,
        out: JudgementFile,
        repairs: QuestionFile | None,
    ) -> None:
        self.counts = JudgeCounts(settings.sampling.assistants)
        self.tokens: Counter[str] = Counter()
        self.refused: list[Refused] = []
        self.sessions = self.known = self.used = self.open = self.never_answered = self.asked_next = 0
        self.cost_nusd = 0
        self._judge = judge
        self._price = price
        self._runs = runs
        self._answers = answers
        self._out = out
        self._repairs = repairs

    def take_in(self, pending: Pending, source: str) -> None:
        """Take in what there is for a job. Raises `InputError` when it isn't the job that was exported."""
        self.sessions += 1
        run = self._resumed(pending, source)
        asked = {question.id for question in run.questions}
        refused: list[tuple[Answer, Attempt]] = []
        told = [*pending.told, *self._answered(run, refused)]
        self.refused += [_refused(answer, run, attempt) for answer, attempt in refused]
        if not run.done:
            self.open += len(run.questions)
            self.never_answered += sum(question.id in asked for question in run.questions)
            self.asked_next += sum(question.id not in asked and question.number == 1 for question in run.questions)
            if self._repairs is not None:
                self._repairs.add(run, pending.closed_at, told)
            return
        judgement = run.judgement(
            self._judge,
            started_at=pending.closed_at,
            finished_at=pending.closed_at,
            prices=self._price.version,
        )
        if self._out.known_for(run.job) is None:
            self._out.append(judgement)
        else:
            self.known += 1
        self.counts.add(judgement, run.session)
        self.tokens.update(_tokens(judgement))
        self.cost_nusd += judgement.cost_nusd

    def _resumed(self, pending: Pending, source: str) -> DeferredRun:
        run = self._runs.of(pending.job)
        changed = pending.prompt_hash not in {None, run.prompt.prompt_hash}
        try:
            for told in () if changed else pending.told:
                run.answer(told.id, told.reply)
                self._answers.set_aside(told.id)
        except KeyError:
            changed = True
        if changed:
            raise InputError(
                f"{source}: session {pending.job.session_id!r} would be asked something else now: the prompt, "
                "judge.constraints or the rubric have changed since the export; import with those of then"
            )
        return run

    def _answered(self, run: DeferredRun, refused: list[tuple[Answer, Attempt]]) -> Iterator[Told]:
        while (found := self._next(run)) is not None:
            question, answer = found
            cost = self._price.cost(answer.reply.usage, batch=True)
            reply = msgspec.structs.replace(answer.reply, cost_nusd=cost)
            attempt = run.answer(question.id, reply)
            self.used += 1
            if attempt.kind != "valid":
                refused.append((answer, attempt))
            yield Told.of(question.id, reply)

    def _next(self, run: DeferredRun) -> tuple[Question, Answer] | None:
        for question in run.questions:
            if (answer := self._answers.take(question.id)) is not None:
                return question, answer
        return None


class Source:
    """Where the jobs of an import come from: the state of an export, or the sessions themselves once more."""

    def __init__(self, name: str, head: Head, pending: Iterable[Pending], invalid: Mapping[str, int]) -> None:
        self.name = name
        self.head = head
        self.pending = pending
        self.invalid = invalid


def exported(questions: Path) -> Source:
    """Give the jobs of an export by its file of questions. Raises `InputError`."""
    state = state_path(questions)
    return Source(str(state), read_head(state), read_pending(state), {})


def recorded(
    sessions: Path | str,
    settings: Settings,
    spool: Spool,
    *,
    rubric: str,
    form: Form,
    judge: str | None,
    mapping: Path | None = None,
    skip_invalid: bool = False,
) -> Source:
    """Give the jobs of a file of sessions, as a first export would have. Raises `InputError` and `ConfigError`."""
    found = named(rubric, configured(settings.rubrics))
    file = SessionFile(sessions, settings, mapping=mapping, skip_invalid=skip_invalid)
    spool.fill(file)
    head = Head(
        rubric=rubric,
        rubric_version=found.version,
        form=form,
        judge=file_judge(form, judge, settings.judge),
        max_tokens=settings.judge.max_tokens,
    )
    return Source(str(sessions), head, (_fresh(record, rubric) for record in spool), file.invalid)


def import_answers(
    paths: Sequence[Path],
    settings: Settings,
    source: Source,
    *,
    out: Path,
    resume: bool = False,
    judge: str | None = None,
    repairs: Path | None = None,
) -> ImportSummary:
    """Read answers, write judgements to `out` and what is still to be asked to `repairs`.

    `judge` says who answered, if not who was to. Raises `InputError` that names a file and a line, and
    `ConfigError`. Nothing is written before all answers could be read.
    """
    rubrics = configured(settings.rubrics)
    named(source.head.rubric, rubrics)
    by = file_judge(source.head.form, judge or source.head.judge.name, settings.judge)
    answers = Answers(paths, by.model)
    head = msgspec.structs.replace(source.head, judge=by)
    runs = DeferredRuns(rubrics, Prompts(settings.judge.constraints), head.max_tokens)
    with ExitStack() as files:
        again = None if repairs is None else files.enter_context(QuestionFile(repairs, head, settings.judge))
        file = files.enter_context(JudgementFile.resume(out, again=False) if resume else JudgementFile.create(out))
        undo = files.enter_context(ExitStack())
        if not resume:
            undo.callback(out.unlink)
        taken = Round(settings, by, _price(by, settings.judge), runs, answers, file, again)
        for pending in source.pending:
            taken.take_in(pending, source.name)
        undo.pop_all()
    return ImportSummary(
        answers=answers.read,
        used=taken.used,
        refused=taken.refused,
        unused=answers.unused + answers.unknown(),
        open=taken.open,
        never_answered=taken.never_answered,
        asked_next=taken.asked_next,
        repairs=str(repairs) if again is not None and again.questions else None,
        judged=_judged(taken, head, out, source.invalid),
    )


def _judged(taken: Round, head: Head, out: Path, invalid: Mapping[str, int]) -> JudgeSummary:
    return JudgeSummary(
        rubric=head.rubric,
        judge=head.judge.name,
        out=str(out),
        sessions=taken.sessions,
        known=taken.known,
        verdicts=taken.counts.verdicts,
        skipped=dict(taken.counts.skipped),
        unscored=dict(taken.counts.unscored),
        missing=taken.sessions - taken.counts.judged,
        rates=taken.counts.rates(),
        invalid=dict(invalid),
        cost_nusd=taken.cost_nusd,
        tokens={name: count for name, count in taken.tokens.items() if count},
    )


def _price(judge: FileJudge, settings: JudgeSettings) -> Price:
    """Give the price of who answered; a person, or a model that no table knows, is free here."""
    try:
        return price_of(judge.name, settings.prices)
    except ConfigError:
        return FREE


def _tokens(judgement: Judgement) -> dict[str, int]:
    usages = [attempt.usage for attempt in judgement.attempts]
    return {name: sum(getattr(usage, f"{name}_tokens") for usage in usages) for name in TOKEN_TYPES}


def _fresh(record: SessionRecord, rubric: str) -> Pending:
    return Pending(job=file_job(record, rubric), closed_at=record.span.closed_at)


def _unused(answer: Answer, reason: UnusedReason) -> Unused:
    return Unused(place=answer.place, id=answer.id, reason=reason, attempt=attempt_of(answer.id))


def _refused(answer: Answer, run: DeferredRun, attempt: Attempt) -> Refused:
    return Refused(
        place=answer.place,
        id=answer.id,
        session_id=run.job.session_id,
        segment=run.job.segment,
        window=attempt.window,
        attempt=attempt.number,
        kind=attempt.kind,
        error=attempt.error or _WHY[attempt.kind],
        now=_now(run.result(attempt.window)),
    )


def _now(result: Result | None) -> RefusedState:
    if result is None:
        return "open"
    return "unscored" if isinstance(result, Unscored) else "repaired"


_WHY: Final[Mapping[AttemptKind, str]] = {"truncated": "the answer was cut off", "refused": "the judge refused"}
