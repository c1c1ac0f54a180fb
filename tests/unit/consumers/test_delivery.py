"""What becomes of a judgement that the broker finds too large (J5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from aiokafka.errors import UnknownError
from hypothesis import given
from hypothesis import strategies as st

from consumers.delivery import DATA_LEFT_OUT, Delivery, RawAnswer, kind, shrinking
from consumers.job_queue import Work
from consumers.kafka import TOO_LARGE
from monitor.config import TopicSettings
from monitor.decision import Job
from monitor.judgement import Attempt, Judgement, Outcomes, Result, Skipped, Tally, Unscored, Verdict
from monitor.metrics import Meters

TOPICS = TopicSettings()
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


class Producer:
    """A broker that takes only records of up to `limit` bytes on the topic of judgements."""

    def __init__(self, limit: int, error: type[Exception]) -> None:
        self.limit = limit
        self.error = error
        self.sent: list[tuple[str, bytes]] = []
        self.tried = 0

    async def send_and_wait(self, topic: str, value: bytes, **_: Any) -> None:
        self.tried += 1
        if topic == TOPICS.judgements and len(value) > self.limit:
            raise self.error
        self.sent.append((topic, value))


@pytest.mark.parametrize("error", TOO_LARGE)
async def test_j5_a_judgement_that_is_too_large_shrinks(
    error: type[Exception],
) -> None:
    whole = judgement(Verdict(data={"events": ["x" * 400] * 10}), ["raw " * 500])
    sizes = [len(msgspec.json.encode(item)) for item in shrinking(whole)]
    source = Job(
        job_id="j", tenant="t", session_id="s", segment="e", rubric="correction", stratum="s", priority="routine",
        content_hash="h", content=msgspec.Raw(b"{}"),
    )  # fmt: skip
    record = RawAnswer(topic="jobs", partition=0, offset=7, key=None, value=b"the job")
    for tries, limit in enumerate([*sizes, min(sizes) - 1], 1):
        producer = Producer(limit, error)
        meters = Meters(("judgements", "dead_letters"), version="test", process="judge")
        work = Work(job=source, record=record, urgent=False, claims=[])
        await Delivery(TOPICS, producer, meters).judgement(work, whole)
        if tries <= len(sizes):
            assert [(topic, len(value)) for topic, value in producer.sent] == [(TOPICS.judgements, limit)]
            assert producer.tried == tries
        else:  # not even the stub: the job is put aside
            assert producer.sent == [(TOPICS.dead_letters, b"the job")]
            assert producer.tried == tries


async def test_j5_any_other_refusal_comes_out() -> None:
    producer = Producer(0, UnknownError)
    delivery = Delivery(TOPICS, producer, Meters(("judgements", "dead_letters"), version="test", process="judge"))
    with pytest.raises(UnknownError):
        await delivery._send(judgement(Skipped(reason="no_evidence"), ["raw"]))
    assert producer.tried == 1
