"""The flow of one judgement (DESIGN section 5): repair once, enlarge once, never score what wasn't answered."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.decision import Job, job_id
from monitor.errors import JudgeUnavailable
from monitor.judgement import MAX_RAW_BYTES, Skipped, Unscored, Usage, Verdict, decode_judgement
from monitor.judging.flow import (
    EMPTY_ANSWER,
    Failure,
    Flow,
    Reply,
    WindowOutcome,
    failed_attempt,
    judge_flow,
    judgement,
    result_of,
    windows_of,
)
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion, JudgeRequest
from monitor.judging.prompt import load
from tests.unit.rubrics.build import RUBRIC, SEATS, chat, no_correction, reverted, seats

PROMPT = load("correction")
GOOD = Completion(
    text=json.dumps(reverted()), request_id="r1", duration_ms=7, usage=Usage(input_tokens=5, output_tokens=2)
)
BAD = Completion(text=json.dumps(reverted(rationale="")))
CUT = Completion(text='{"is_correction": tr', stop="max_tokens")
REFUSAL = Completion(text="", stop="refusal", refusal="cyber")
BUSY = Failure(error_type="rate_limit", message="429", duration_ms=3, request_id="r9")


def play(
    *replies: Reply, flow: Flow | None = None, max_tokens: int = 1000, cap: int = 4000
) -> tuple[list[JudgeRequest], WindowOutcome]:
    """Run a flow on scripted replies; all of them must be asked for."""
    flow = flow or judge_flow(RUBRIC, seats(), PROMPT, max_tokens=max_tokens, max_tokens_cap=cap)
    requests, left = [], list(replies)
    try:
        requests.append(next(flow))
        while True:
            requests.append(flow.send(left.pop(0)))
    except StopIteration as stop:
        assert not left, "the flow ended early"
        outcome: WindowOutcome = stop.value
        return requests, outcome


def kinds(outcome: WindowOutcome) -> list[str]:
    assert [attempt.number for attempt in outcome.attempts] == list(range(1, len(outcome.attempts) + 1))
    return [attempt.kind for attempt in outcome.attempts]


def test_a_valid_answer_ends_it() -> None:
    requests, outcome = play(GOOD)
    assert isinstance(outcome.result, Verdict)
    assert kinds(outcome) == ["valid"]
    attempt = outcome.attempts[0]
    assert (attempt.window, attempt.raw, attempt.request_id, attempt.duration_ms) == ("C1", GOOD.text, "r1", 7)
    assert attempt.usage == GOOD.usage
    (request,) = requests
    assert request.system == PROMPT.system
    assert request.schema == RUBRIC.schema(seats())
    assert request.window == seats()
    assert [message.role for message in request.messages] == ["user"]


def test_an_invalid_answer_is_asked_for_once_more_with_the_error_quoted() -> None:
    requests, outcome = play(BAD, GOOD)
    assert isinstance(outcome.result, Verdict)
    assert kinds(outcome) == ["invalid", "valid"]
    assert [message.role for message in requests[1].messages] == ["user", "assistant", "user"]
    assert requests[1].messages[1].text == BAD.text
    error = outcome.attempts[0].error
    assert error is not None
    assert json.dumps(error) in requests[1].messages[2].text
    assert requests[1].system == requests[0].system


def test_a_second_invalid_answer_is_unscored_and_keeps_both_raw_answers() -> None:
    _, outcome = play(BAD, Completion(text="x" * 50_000))
    assert isinstance(outcome.result, Unscored)
    assert outcome.result.reason == "invalid"
    assert kinds(outcome) == ["invalid", "invalid"]
    assert outcome.attempts[0].raw == BAD.text
    assert len(outcome.attempts[1].raw.encode()) <= MAX_RAW_BYTES
    assert "50000 bytes" in outcome.attempts[1].raw


def test_an_empty_answer_can_be_repaired() -> None:
    requests, _ = play(Completion(text=" "), GOOD)
    assert requests[1].messages[1].text == EMPTY_ANSWER


def test_a_long_garbage_answer_is_not_sent_back_whole() -> None:
    requests, _ = play(Completion(text="y" * 90_000), GOOD)
    assert len(requests[1].messages[1].text) <= MAX_RAW_BYTES


def test_truncation_gets_one_retry_with_twice_the_room() -> None:
    requests, outcome = play(CUT, GOOD)
    assert [request.max_tokens for request in requests] == [1000, 2000]
    assert requests[1].messages == requests[0].messages
    assert kinds(outcome) == ["truncated", "valid"]


def test_truncated_twice_is_unscored() -> None:
    _, outcome = play(CUT, CUT)
    assert outcome.result == Unscored(reason="truncated", note="the answer was cut off")


def test_the_room_is_bounded() -> None:
    requests, _ = play(CUT, CUT, max_tokens=3000, cap=4000)
    assert [request.max_tokens for request in requests] == [3000, 4000]
    requests, outcome = play(CUT, max_tokens=4000, cap=4000)
    assert isinstance(outcome.result, Unscored)
    assert len(requests) == 1


def test_a_truncated_answer_may_still_be_repaired_once() -> None:
    requests, outcome = play(CUT, BAD, GOOD)
    assert isinstance(outcome.result, Verdict)
    assert requests[2].max_tokens == 2000
    _, outcome = play(BAD, CUT, BAD)
    assert isinstance(outcome.result, Unscored)
    assert outcome.result.reason == "invalid"


def test_a_truncated_answer_is_not_read_even_if_it_parses() -> None:
    _, outcome = play(msgspec.structs.replace(GOOD, stop="max_tokens"), GOOD)
    assert kinds(outcome) == ["truncated", "valid"]


def test_a_refusal_is_unscored_at_once() -> None:
    _, outcome = play(REFUSAL)
    assert isinstance(outcome.result, Unscored)
    assert outcome.result.reason == "judge_refused"
    assert kinds(outcome) == ["refused"]
    assert outcome.result.note == "the judge refused to answer (cyber)"


def test_a_failure_is_noted_and_the_same_request_comes_again() -> None:
    requests, outcome = play(BUSY, BUSY, GOOD)
    assert requests[0] == requests[1] == requests[2]
    assert kinds(outcome) == ["failed", "failed", "valid"]
    failed = outcome.attempts[0]
    assert (failed.error_type, failed.error, failed.request_id, failed.duration_ms, failed.raw) == (
        "rate_limit",
        "429",
        "r9",
        3,
        "",
    )


@pytest.mark.parametrize("reason", ["timeout", "unavailable", "budget", "error"])
def test_a_final_failure_is_unscored_with_its_reason(reason: str) -> None:
    final = failed_attempt(JudgeUnavailable("timeout", "no answer in time"), final=reason, duration_ms=9)  # type: ignore[arg-type]
    _, outcome = play(BAD, final)
    assert isinstance(outcome.result, Unscored)
    assert outcome.result.reason == reason
    assert kinds(outcome) == ["invalid", "failed"]
    assert outcome.attempts[1].error_type == "timeout"


def test_a_skipped_answer_counts_as_valid() -> None:
    _, outcome = play(Completion(text=json.dumps(no_correction())))
    assert isinstance(outcome.result, Skipped)
    assert kinds(outcome) == ["valid"]


def test_preflight_spares_the_call() -> None:
    (window,) = RUBRIC.windows(chat(*SEATS[:3]))
    requests, outcome = play(flow=judge_flow(RUBRIC, window, PROMPT))
    assert requests == []
    assert outcome.result == Skipped(reason="no_response", note="no reply after the correction")
    assert outcome.attempts == ()


def _sent(flow: Flow, reply: Reply) -> WindowOutcome | None:
    try:
        flow.send(reply)
    except StopIteration as stop:
        outcome: WindowOutcome = stop.value
        return outcome
    return None


_REPLIES = st.lists(st.sampled_from([GOOD, BAD, CUT, REFUSAL, BUSY]), min_size=1, max_size=12)


@given(_REPLIES)
def test_every_script_ends_in_at_most_three_answers(replies: list[Reply]) -> None:
    flow = judge_flow(RUBRIC, seats(), PROMPT)
    next(flow)
    asked = 0
    for number, reply in enumerate([*replies, GOOD, GOOD, GOOD], 1):
        asked += isinstance(reply, Completion)
        outcome = _sent(flow, reply)
        if outcome is not None:
            assert len(outcome.attempts) == number
            assert isinstance(outcome.result, Verdict) == (outcome.attempts[-1].kind == "valid")
            break
    assert 1 <= asked <= 3


JOB = Job(
    job_id=job_id("acme", "s1", "e1", "correction"), tenant="acme", session_id="s1", segment="e1",
    rubric="correction",
    stratum="base", priority="routine", content_hash="0" * 32, content=msgspec.Raw(b"{}"),
)  # fmt: skip


def test_a_judgement_merges_the_windows_and_keeps_every_attempt() -> None:
    session = chat(*SEATS)
    assert [window.window_id for window in windows_of(RUBRIC, session)] == ["C1"]
    _, outcome = play(BUSY, BAD, GOOD)
    result = result_of(RUBRIC, session, [outcome])
    found = judgement(JOB, RUBRIC, PROMPT, LexicalJudge(), result, [outcome], started_at=1000, finished_at=1500)
    assert isinstance(found.result, Verdict)
    assert [attempt.kind for attempt in found.attempts] == ["failed", "invalid", "valid"]
    assert found.outcomes == RUBRIC.outcomes(found.result)
    assert found.outcomes.measures["reverted"].failures == 1
    assert (found.prompt_hash, found.prompt_version, found.rubric_version) == (PROMPT.prompt_hash, "v1", "1")
    assert (found.judge, found.provider, found.model, found.mode) == ("lexical", "lexical", "lexical-1", "event")
    assert (found.started_at, found.finished_at, found.content_hash, found.job_id) == (
        1000,
        1500,
        "0" * 32,
        JOB.job_id,
    )
    assert decode_judgement(msgspec.json.encode(found)) == found


def test_a_session_that_the_rubric_does_not_concern_is_skipped_without_windows() -> None:
    session = chat(("u", "Actually, hello"))
    assert windows_of(RUBRIC, session) == ()
    found = result_of(RUBRIC, session, [])
    assert isinstance(found, Skipped)
    assert found.reason == "not_applicable"


def test_one_lost_window_leaves_the_session_unscored() -> None:
    _, lost = play(BAD, BAD)
    result = result_of(RUBRIC, chat(*SEATS), [lost])
    found = judgement(JOB, RUBRIC, PROMPT, LexicalJudge(), result, [lost], started_at=1, finished_at=2)
    assert isinstance(found.result, Unscored)
    assert found.outcomes.measures == {}
    assert len(found.attempts) == 2
