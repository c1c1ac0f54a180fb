"""How a judgement came about, question by question: the rendered prompt, the raw answer, what the checks said.

Nothing of it is stored with the judgement. The prompts are rendered again by running the flows once more and
replying to them what the judge answered then, so what is shown is what was asked, byte for byte (except that of an
answer over 16 kB only the stored part is known).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from monitor.judgement import Attempt, AttemptKind, Judgement, Result
from monitor.judging.deferred import DeferredRun, Question
from monitor.judging.flow import Failure, Reply
from monitor.judging.model import Completion, Message, Stop

_STOPS: Final[dict[AttemptKind, Stop]] = {"truncated": "max_tokens", "refused": "refusal"}


class Step(msgspec.Struct, kw_only=True, frozen=True):
    """One question and its answer. `system` and `messages` are the prompt.

    `kind` is that of the attempt; `error` says what was wrong with the answer, None if nothing.
    """

    window: str
    number: int
    system: str
    messages: tuple[Message, ...]
    answer: str
    kind: AttemptKind
    error: str | None


class Explanation(msgspec.Struct, kw_only=True, frozen=True):
    """All that was asked about one session, in order, and the result."""

    session_id: str
    segment: str
    rubric: str
    judge: str
    prompt_version: str
    prompt_hash: str
    steps: list[Step]
    result: Result

    def to_text(self) -> str:
        """Lay it out for a terminal; it holds text of the session."""
        return "\n".join(_lines(self))


def explain(judgement: Judgement, run: DeferredRun) -> Explanation:
    """Explain a judgement by a fresh run of its job, which is used up.

    The steps end where the run asks something else than was asked then: after a change of prompt or rubric.
    """
    return Explanation(
        session_id=judgement.session_id,
        segment=judgement.segment,
        rubric=judgement.rubric,
        judge=judgement.judge,
        prompt_version=judgement.prompt_version,
        prompt_hash=judgement.prompt_hash,
        steps=list(_steps(judgement.attempts, run)),
        result=judgement.result,
    )


def _steps(attempts: list[Attempt], run: DeferredRun) -> Iterator[Step]:
    for attempt in attempts:
        question = _asked(run, attempt)
        if question is None:
            return
        yield Step(
            window=attempt.window,
            number=attempt.number,
            system=question.request.system,
            messages=question.request.messages,
            answer=attempt.raw,
            kind=attempt.kind,
            error=attempt.error,
        )
        run.answer(question.id, _reply(attempt))


def _asked(run: DeferredRun, attempt: Attempt) -> Question | None:
    return next((item for item in run.questions if item.request.window_id == attempt.window), None)


def _reply(attempt: Attempt) -> Reply:
    if attempt.kind == "failed":
        return Failure(error_type=attempt.error_type or "", message=attempt.error or "")
    return Completion(text=attempt.raw, stop=_STOPS.get(attempt.kind, "end"))


def _lines(found: Explanation) -> Iterator[str]:
    yield f"=== session {found.session_id}, segment {found.segment}: {found.rubric} by {found.judge}"
    system = ""
    for step in found.steps:
        if step.system != system:
            # The question that finds what the others are about has a prompt of its own.
            system = step.system
            yield f"--- system (prompt {found.prompt_version}, {found.prompt_hash})"
            yield system
        for message in step.messages:
            yield f"--- {step.window}, attempt {step.number}: {message.role}"
            yield message.text
        yield f"--- {step.window}, attempt {step.number}: answer ({step.kind})"
        yield step.answer or "(nothing)"
        yield f"--- {step.window}, attempt {step.number}: checks"
        yield step.error or "passed"
    yield "--- result"
    yield msgspec.json.format(msgspec.json.encode(found.result), indent=2).decode()
