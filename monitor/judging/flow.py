"""The flow of one judgement, without I/O: what to ask, what to make of the answer, when to ask again.

A driver runs it like this:

    flow = judge_flow(rubric, window, prompt)
    try:
        request = next(flow)              # ends at once when the window must not be sent
        while True:
            request = flow.send(reply)    # Completion, or Failure for a provider's error
    except StopIteration as stop:
        outcome = stop.value              # WindowOutcome

A driver catches provider errors itself. For each failed try it sends a `Failure` (see `failed_attempt`): the flow
notes the attempt and yields the same request again, and the driver waits before it sends it. A `Failure` with
`final` ends the flow as `Unscored(final)`. So attempts are numbered in one place, in the order in which they were
made. An error that no reason fits (`JudgeFatal`) is the driver's to raise to its caller: close the flow.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from monitor.decision import Job
from monitor.errors import InvalidVerdict, JudgeError
from monitor.judgement import (
    Attempt,
    AttemptKind,
    Judgement,
    Outcomes,
    Result,
    Unscored,
    UnscoredReason,
    Usage,
    cut_raw,
)
from monitor.judging.model import Completion, Instrument, JudgeRequest, Message
from monitor.judging.prompt import Prompt
from monitor.rubrics.base import Constrained, Rubric, Window, WindowResult
from monitor.session import Session

MAX_TOKENS: Final = 8_192
MAX_TOKENS_CAP: Final = 32_768
EXTRACT: Final = "extract"
"""Id of the window that finds what the others are about (`monitor.judging.extract`)."""
EMPTY_ANSWER: Final = "(empty answer)"


class Failure(msgspec.Struct, kw_only=True, frozen=True):
    """A try that gave no answer. With `final` the flow gives up: the window is `Unscored(final)`.

    `message` must hold neither prompt text nor secrets: it is stored. `error_type` is a closed-set label value.
    """

    error_type: str
    message: str
    final: UnscoredReason | None = None
    request_id: str | None = None
    duration_ms: int = 0
    usage: Usage = Usage()
    cost_nusd: int = 0


class WindowOutcome(msgspec.Struct, kw_only=True, frozen=True):
    """What became of one window, and every attempt that led there."""

    window_id: str
    result: Result
    attempts: tuple[Attempt, ...] = ()


Reply: TypeAlias = Completion | Failure
Flow: TypeAlias = Generator[JudgeRequest, Reply, WindowOutcome]


def failed_attempt(
    error: JudgeError,
    *,
    final: UnscoredReason | None = None,
    duration_ms: int = 0,
    cost_nusd: int = 0,
) -> Failure:
    """Describe a provider's error to the flow; `final` is the reason when the driver gives up on the window."""
    return Failure(
        error_type=error.error_type,
        message=str(error),
        final=final,
        request_id=error.request_id,
        duration_ms=duration_ms,
        usage=error.usage or Usage(),
        cost_nusd=cost_nusd,
    )


def judge_flow(
    rubric: Rubric,
    window: Window,
    prompt: Prompt,
    *,
    max_tokens: int = MAX_TOKENS,
    max_tokens_cap: int = MAX_TOKENS_CAP,
    attempts: list[Attempt] | None = None,
) -> Flow:
    """Ask about one window until there is a result; a generator of requests that is sent replies.

    An answer that breaks the rubric is asked for once more with the error quoted, a truncated one once more with
    twice the room (at most `max_tokens_cap`). A second invalid answer is `Unscored(invalid)`, a second truncated
    one (or one that can't get more room) `Unscored(truncated)`, a refusal `Unscored(judge_refused)`. Every raw
    answer is kept in the attempts, cut to 16 kB (J5); `attempts` shows them while the flow is under way.
    """
    if isinstance(window, Constrained):
        window = window.under(prompt.constraints)
    skipped = rubric.preflight(window)
    if skipped is not None:
        return WindowOutcome(window_id=window.window_id, result=skipped)
    attempts = [] if attempts is None else attempts
    request = _first_request(rubric, window, prompt, max_tokens)
    repaired = enlarged = False
    while True:
        reply = yield request
        if isinstance(reply, Failure):
            attempts.append(_failed(window, len(attempts) + 1, reply))
            if reply.final is not None:
                return _outcome(window, Unscored(reason=reply.final, note=reply.message), attempts)
            continue
        kind, result, error = _read(rubric, window, reply)
        attempts.append(_attempt(window, len(attempts) + 1, reply, kind, error))
        if kind == "invalid" and not repaired:
            repaired, request = True, _repair(request, prompt, reply.text, error or "")
        elif kind == "truncated" and not enlarged and request.max_tokens < max_tokens_cap:
            enlarged = True
            request = msgspec.structs.replace(request, max_tokens=min(2 * request.max_tokens, max_tokens_cap))
        else:
            return _outcome(window, result, attempts)


def windows_of(rubric: Rubric, session: Session) -> tuple[Window, ...]:
    """Give the windows of a session to run flows for; none when the rubric doesn't concern it."""
    return () if rubric.applies(session) is not None else tuple(rubric.windows(session))


def result_of(rubric: Rubric, session: Session, outcomes: Sequence[WindowOutcome]) -> Result:
    """Merge the outcomes of a session's windows into one result; skipped when the rubric doesn't concern it."""
    skipped = rubric.applies(session)
    if skipped is not None:
        return skipped
    return rubric.merge(session, results(outcomes))


def results(outcomes: Sequence[WindowOutcome]) -> list[WindowResult]:
    """Give what a rubric sees of the windows that are done: results, no attempts.

    Of the one that found what the others are about it sees only that the judge failed on it.
    """
    return [
        WindowResult(window_id=item.window_id, result=item.result)
        for item in outcomes
        if item.window_id != EXTRACT or isinstance(item.result, Unscored)
    ]


def judgement(
    job: Job,
    rubric: Rubric,
    prompt: Prompt,
    judge: Instrument,
    result: Result,
    outcomes: Sequence[WindowOutcome],
    *,
    started_at: int,
    finished_at: int,
    prices: str = "",
) -> Judgement:
    """Make the answer to a job from its result and what led there.

    Times are Unix milliseconds; `prices` is the version of the prices at which the attempts were charged.
    """
    attempts = [attempt for item in outcomes for attempt in item.attempts]
    return Judgement(
        job_id=job.job_id,
        tenant=job.tenant,
        session_id=job.session_id,
        segment=job.segment,
        content_hash=job.content_hash,
        rubric=rubric.name,
        mode=rubric.mode,
        rubric_version=rubric.version,
        prompt_version=prompt.version,
        prompt_hash=prompt.prompt_hash,
        judge=judge.name,
        provider=judge.provider,
        model=judge.model,
        result=result,
        # A failure adds nothing (J1), also where the rubric itself is what failed.
        outcomes=Outcomes() if isinstance(result, Unscored) else rubric.outcomes(result),
        attempts=attempts,
        started_at=started_at,
        finished_at=finished_at,
        run=job.run,
        cost_nusd=sum(attempt.cost_nusd for attempt in attempts),
        prices=prices,
    )


def _first_request(rubric: Rubric, window: Any, prompt: Prompt, max_tokens: int) -> JudgeRequest:
    return JudgeRequest(
        rubric=rubric.name,
        window_id=window.window_id,
        system=prompt.system,
        messages=(Message(role="user", text=prompt.user_text(rubric.fields(window))),),
        schema=rubric.schema(window),
        max_tokens=max_tokens,
        window=window,
    )


def _repair(request: JudgeRequest, prompt: Prompt, raw: str, error: str) -> JudgeRequest:
    # Providers refuse an empty message; an endless answer isn't worth paying for again.
    answer = cut_raw(raw) if raw.strip() else EMPTY_ANSWER
    again = (Message(role="assistant", text=answer), Message(role="user", text=prompt.repair_text(error)))
    return msgspec.structs.replace(request, messages=request.messages + again)


def _read(rubric: Rubric, window: Any, completion: Completion) -> tuple[AttemptKind, Result, str | None]:
    if completion.stop == "refusal":
        category = f" ({completion.refusal})" if completion.refusal else ""
        return "refused", Unscored(reason="judge_refused", note=f"the judge refused to answer{category}"), None
    if completion.stop == "max_tokens":
        return "truncated", Unscored(reason="truncated", note="the answer was cut off"), None
    try:
        return "valid", rubric.parse(completion.text, window), None
    except InvalidVerdict as error:
        return "invalid", Unscored(reason="invalid", note=str(error)), str(error)


def _attempt(window: Window, number: int, completion: Completion, kind: AttemptKind, error: str | None) -> Attempt:
    return Attempt(
        window=window.window_id,
        number=number,
        kind=kind,
        raw=cut_raw(completion.text),
        error=error,
        request_id=completion.request_id,
        duration_ms=completion.duration_ms,
        usage=completion.usage,
        cost_nusd=completion.cost_nusd,
    )


def _failed(window: Window, number: int, failure: Failure) -> Attempt:
    return Attempt(
        window=window.window_id,
        number=number,
        kind="failed",
        raw="",
        error=failure.message,
        error_type=failure.error_type,
        request_id=failure.request_id,
        duration_ms=failure.duration_ms,
        usage=failure.usage,
        cost_nusd=failure.cost_nusd,
    )


def _outcome(window: Window, result: Result, attempts: Sequence[Attempt]) -> WindowOutcome:
    return WindowOutcome(window_id=window.window_id, result=result, attempts=tuple(attempts))
