"""`backslide judge FILE`: every session of a file, judged by one rubric and one judge, without any sampling.

Answers go to a file of judgements as they come. Whatever ends the command leaves that file whole, and it can be
gone on with: sessions that it holds an answer to aren't asked about again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from monitor.config import Settings
from monitor.decision import Job
from monitor.errors import InputError
from monitor.explain import Explanation, explain
from monitor.judge_summary import JudgeCounts, JudgeSummary
from monitor.judgement import Judgement
from monitor.judgement_file import JudgementFile
from monitor.judging.deferred import DeferredRuns
from monitor.judging.extract import prompt_of
from monitor.judging.model import JudgeModel
from monitor.judging.prices import FREE, Price
from monitor.offline_judge import Calls, OfflineJudge, checked_judge
from monitor.recorded import SessionFile, Spool, file_job
from monitor.rubrics import configured, named
from monitor.session import SessionRecord, session_view


class Progress(msgspec.Struct, kw_only=True, frozen=True):
    """How far it has come: `done` of `sessions` have a judgement, and what the judge was asked so far."""

    sessions: int
    done: int
    calls: Calls


OnProgress: TypeAlias = Callable[[Progress], None]
OnExplained: TypeAlias = Callable[[Explanation], None]


class FileJudge:
    """Judges sessions into a file of judgements; run it once. `counts` is what there is so far."""

    def __init__(
        self,
        model: JudgeModel,
        settings: Settings,
        rubric: str,
        out: JudgementFile,
        *,
        price: Price = FREE,
        on_progress: OnProgress | None = None,
        on_explained: OnExplained | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.counts = JudgeCounts(settings.sampling.assistants)
        self.known = 0
        self._rubrics = configured(settings.rubrics)
        self.judge = OfflineJudge(model, self._rubrics, settings.judge, price=price, sleep=sleep)
        self._runs = DeferredRuns(self._rubrics, self.judge.prompts, settings.judge.max_tokens)
        self._rubric = rubric
        self._settings = settings.judge
        self._out = out
        self._on_progress = on_progress
        self._on_explained = on_explained
        self._running: set[asyncio.Task[None]] = set()
        self._sessions = 0

    async def run(self, records: Iterable[SessionRecord], sessions: int) -> None:
        """Judge `sessions` records. Answers that came before a failure or a cancellation are in the file.

        Raises `JudgeFatal` or `JudgeUnavailable` when the judge can't be asked at all.
        """
        self._sessions = sessions
        self._tell()
        try:
            for record in records:
                await self._room(self._settings.concurrency)
                self._start(file_job(record, self._rubric), record)
            await self._room(1)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _room(self, limit: int) -> None:
        """Wait until fewer jobs than `limit` are under way. Raises what a job raised."""
        while len(self._running) >= limit:
            done, self._running = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            errors = [error for task in done if (error := task.exception()) is not None]
            if errors:
                raise errors[0]

    def _start(self, job: Job, record: SessionRecord) -> None:
        known = self._out.known_for(job)
        if known is None:
            self._running.add(asyncio.create_task(self._judged(job, record.span.closed_at)))
            return
        self._check(known, job)
        self.known += 1
        self._note(job, known)

    async def _judged(self, job: Job, closed_at: int) -> None:
        judgement = await self.judge.judge(job, closed_at)
        self._out.append(judgement)
        self._note(job, judgement)
        if self._on_explained is not None:
            self._on_explained(explain(judgement, self._runs.of(job)))

    def _note(self, job: Job, judgement: Judgement) -> None:
        self.counts.add(judgement, session_view(job.content))
        self._tell()

    def _tell(self) -> None:
        if self._on_progress is not None:
            progress = Progress(sessions=self._sessions, done=self.counts.judged, calls=self.judge.calls)
            self._on_progress(progress)

    def _check(self, known: Judgement, job: Job) -> None:
        """Refuse to go on with a file that another instrument began: its rates would mean nothing."""
        assistant = session_view(job.content).attributes.assistant
        rubric = self._rubrics[job.rubric]
        prompt = prompt_of(self.judge.prompts, rubric, assistant)
        now = (self.judge.model.name, rubric.version, prompt.prompt_hash)
        then = (known.judge, known.rubric_version, known.prompt_hash)
        if now != then:
            raise InputError(
                f"{self._out.path}: session {known.session_id!r} was judged by {known.judge}, "
                f"{known.rubric} {known.rubric_version}, prompt {known.prompt_version} ({known.prompt_hash}); "
                f"that can't be gone on with by {now[0]}, {now[1]}, prompt {prompt.version} ({now[2]}): "
                "name another file (--out)"
            )


async def judge_file(
    path: Path | str,
    settings: Settings,
    *,
    rubric: str,
    out: Path,
    resume: bool = False,
    mapping: Path | None = None,
    skip_invalid: bool = False,
    on_progress: OnProgress | None = None,
    on_explained: OnExplained | None = None,
) -> JudgeSummary:
    """Judge the sessions of a file (`-`: standard input) with the settings' judge, writing judgements to `out`.

    The whole input is read and checked before anything is asked. A cancellation ends it early: what there is by
    then is in `out` and in the summary, which says `canceled`. Raises `InputError` (with `skip_invalid` wrong
    lines are counted instead), `ConfigError`, `JudgeFatal` and `JudgeUnavailable`.
    """
    named(rubric)
    source = SessionFile(path, settings, mapping=mapping, skip_invalid=skip_invalid)
    canceled = False
    async with checked_judge(settings.judge) as (model, price):
        with Spool() as spool:
            spool.fill(source)
            with JudgementFile.resume(out, again=True) if resume else JudgementFile.create(out) as file:
                judging = FileJudge(
                    model, settings, rubric, file, price=price, on_progress=on_progress, on_explained=on_explained
                )
                try:
                    await judging.run(spool, spool.sessions)
                except asyncio.CancelledError:
                    canceled = True
    return JudgeSummary(
        rubric=rubric,
        judge=model.name,
        out=str(out),
        sessions=spool.sessions,
        known=judging.known,
        verdicts=judging.counts.verdicts,
        skipped=dict(judging.counts.skipped),
        unscored=dict(judging.counts.unscored),
        missing=spool.sessions - judging.counts.judged,
        rates=judging.counts.rates(),
        invalid=source.invalid,
        calls=dict(judging.judge.calls.by_error_type),
        tokens=dict(judging.judge.calls.tokens),
        cost_nusd=judging.judge.calls.cost_nusd,
        canceled=canceled,
    )
