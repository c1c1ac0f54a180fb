"""What becomes of a judgement that the broker finds too large (J5)."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from consumers.delivery import DATA_LEFT_OUT, kind, shrinking
from monitor.judgement import Attempt, Judgement, Outcomes, Result, Skipped, Tally, Unscored, Verdict

RESULTS: st.SearchStrategy[Result] = st.one_of(
    st.just(Verdict(data={"events": ["x" * 400] * 10}, note="n")),
    st.just(Skipped(reason="not_applicable")),
    st.just(Unscored(reason="invalid", note="why")),
)


def judgement(result: Result, raws: list[str]) -> Judgement:
    return Judgement(
        job_id="j", tenant="t", session_id="s", segment="e", content_hash="h", rubric="correction", mode="event",
        rubric_version="1", prompt_version="v1", prompt_hash="p", judge="lexical", provider="lexical",
        model="lexical-1", result=result, outcomes=Outcomes(measures={"reverted": Tally(trials=3, failures=1)}),
        attempts=[Attempt(window="C1", number=at, kind="valid", raw=raw) for at, raw in enumerate(raws, 1)],
        started_at=1, finished_at=2,
    )  # fmt: skip


@given(RESULTS, st.lists(st.text(min_size=40, max_size=200), min_size=1, max_size=5))
def test_each_is_smaller_and_counts_the_same(result: Result, raws: list[str]) -> None:
    first = judgement(result, raws)
    whole, stub, bare = shrinking(first)
    assert whole is first
    sizes = [len(msgspec.json.encode(item)) for item in (whole, stub, bare)]
    assert sizes[0] > sizes[1] > sizes[2]
    assert {kind(item) for item in (whole, stub, bare)} == {kind(first)}
    assert [item.outcomes for item in (stub, bare)] == [first.outcomes] * 2
    assert stub.result == result
    assert [attempt.raw for attempt in stub.attempts] == [
        f"[left out: {len(raw.encode('utf-8', 'replace'))} bytes]" for raw in raws
    ]
    assert bare.attempts == []
    assert bare.result == (Verdict(data={}, note=DATA_LEFT_OUT) if isinstance(result, Verdict) else result)


def test_an_attempt_without_an_answer_stays_without() -> None:
    _, stub, _ = shrinking(judgement(Skipped(reason="no_evidence"), [""]))
    assert stub.attempts[0].raw == ""
