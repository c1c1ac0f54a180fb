"""S3, J5: the sampler killed at every step, with every order in which its records can reach the broker."""

from __future__ import annotations

import asyncio
from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from consumers.sample import SamplerFailed
from monitor.decision import Decision, Job
from monitor.judgement import Judgement
from monitor.sampling.policy import Policy, parse_policy
from monitor.sampling.policy_file import Reload
from monitor.store import Record, Store
from monitor.store.ledger import DecisionFacts, JudgementFacts
from monitor.store.rows import prepare
from monitor.store.segment import Segment
from tests.consumers.sample_place import session
from tests.unit.consumers.explore import Choose, explore
from tests.unit.consumers.sampler_steps import TOPICS, Broker, Process
from tests.unit.store.builders import RUBRICS, judgement

NAMES = {"correction", "refusal", "hallucination"}


def policy(escalated: str, base: str, rate: float = 1.0) -> Policy:
    text = (
        f"{{strata: [{{name: escalated, when: 'signals.escalations > 0', rate: 1, priority: urgent,"
        f" rubrics: [{escalated}]}}, {{name: base, rate: {rate}, rubrics: [{base}]}}], holdout: 0}}"
    )
    return parse_policy(text, source="p", rubrics=NAMES)


OLD = policy("correction, refusal", "correction")
NEW = policy("refusal, hallucination", "correction", rate=0.001)
# The first is escalated: two jobs under both policies, one of them the same. The second has one under the old.
SESSIONS: list[bytes | None] = [msgspec.json.encode(session(number)) for number in (50, 1)]


def is_sound(broker: Broker) -> None:
    """S3: whatever a decision lists is there already, and what is committed has its decision."""
    jobs = {(job.job_id, job.content_hash) for job in broker.jobs()}
    for decision in broker.decisions():
        assert {(ref.job_id, decision.content_hash) for ref in decision.jobs} <= jobs
    decided = {decision.session_id for decision in broker.decisions()}
    done = broker.sessions[: broker.committed]
    assert {name for name, raw in zip(("s50", "s1"), SESSIONS, strict=True) if raw in done} <= decided


async def play(process: Process, broker: Broker, choose: Choose) -> bool:
    """Let things arrive as chosen; True when the choice was to kill it, False when nothing is left to arrive."""
    while pending := await process.settle():
        choice = choose(len(pending) + 1)
        if choice == len(pending):
            return True
        process.step(choice)
        is_sound(broker)
    return False


@pytest.mark.parametrize("second", [OLD, NEW], ids=["same-policy", "other-policy"])
async def test_s3_a_kill_at_any_step_loses_nothing_and_orphans_count_nowhere(
    monkeypatch: pytest.MonkeyPatch, second: Policy, tmp_path: Path
) -> None:
    ends: dict[bytes, Broker] = {}

    async def life(choose: Choose) -> None:
        broker = Broker(SESSIONS)
        process = Process(monkeypatch, broker, OLD)
        killed = await play(process, broker, choose)
        await process.kill()
        if killed:
            process = Process(monkeypatch, broker, second)
            await process.run()
            await process.kill()
        is_sound(broker)
        assert broker.committed == len(SESSIONS)
        ends.setdefault(msgspec.json.encode(broker.records), broker)

    runs = await explore(life)
    assert runs > 100
    assert len(ends) > 20
    if second is NEW:
        assert any(len(of(broker, "s50")[0]) == 2 for broker in ends.values()), "no session was decided twice"
    for broker in ends.values():
        for name in ("s50", "s1"):
            counts_what_the_first_decision_lists(*of(broker, name))
    store = Store.open(f"sqlite:///{tmp_path}/store.sqlite", rubrics=RUBRICS)
    try:
        the_store_agrees(store, list(ends.values()))
    finally:
        store.close()


def of(broker: Broker, name: str) -> tuple[list[Decision], list[Job]]:
    """Give the distinct decisions and jobs of a session, in the order of the log."""
    decisions = {msgspec.json.encode(item): item for item in broker.decisions() if item.session_id == name}
    jobs = {job.job_id: job for job in broker.jobs() if job.session_id == name}
    return list(decisions.values()), list(jobs.values())


def answered(job: Job) -> Judgement:
    return msgspec.structs.replace(
        judgement(job.session_id, job.segment, tenant=job.tenant, hash_=job.content_hash),
        job_id=job.job_id,
        rubric=job.rubric,
    )


def counts_what_the_first_decision_lists(decisions: list[Decision], jobs: list[Job]) -> None:
    """R1: in whatever order judgements and decisions are recorded; decisions keep theirs, as in the log."""
    listed = {ref.job_id for ref in decisions[0].jobs}
    items: list[Record] = [*decisions, *map(answered, jobs)]
    for order in permutations(range(len(items))):
        if [place for place in order if place < len(decisions)] != list(range(len(decisions))):
            continue
        segment = Segment()
        for place in order:
            facts = prepare(items[place], RUBRICS, 0)
            if isinstance(facts.decision, DecisionFacts):
                segment.decide(facts.decision)
            elif isinstance(facts.judgement, JudgementFacts):
                segment.judge(facts.judgement)
        assert {item.job_id for item in segment.judgements if item.standing == "counted"} == listed
        assert set(segment.jobs) == listed
        assert "pending" not in segment.jobs.values()
        assert segment.decision is not None
        assert segment.decision.stratum == decisions[0].stratum


def the_store_agrees(store: Store, ends: list[Broker]) -> None:
    """Check that over the real store: each log as a tenant of its own, its judgements before or after."""
    listed = 0
    for number, broker in enumerate(ends):
        tenant = f"t{number}"
        decisions = [msgspec.structs.replace(item, tenant=tenant) for item in broker.decisions()]
        answers = [msgspec.structs.replace(answered(job), tenant=tenant) for job in broker.jobs()]
        batch: list[Record] = [*decisions, *answers] if number % 2 else [*answers, *decisions]
        assert store.record(batch).rejected == []
        firsts = {item.session_id: item for item in reversed(decisions)}
        listed += sum(len(item.jobs) for item in firsts.values())
    sums = store.totals().sums
    assert sum(value for key, value in sums.items() if key.name == "jobs_listed") == listed
    assert sum(value for key, value in sums.items() if key.name == "verdicts") == listed
    assert store.totals().pending == {}


@pytest.mark.parametrize(
    ("topic", "stratum", "selected", "content", "jobs"),
    [(TOPICS.jobs_urgent, "error", False, False, 0), (TOPICS.decisions, "escalated", True, False, 2)],
    ids=["job", "decision"],
)
async def test_j5_a_record_that_is_too_large_is_sent_once(
    monkeypatch: pytest.MonkeyPatch, topic: str, stratum: str, selected: bool, content: bool, jobs: int
) -> None:
    """In every order, and killed at every step: the stub goes on, and nothing is sent again for ever."""

    async def life(choose: Choose) -> None:
        broker = Broker(SESSIONS[:1], limits={topic: 1_500})
        process = Process(monkeypatch, broker, OLD)
        killed = await play(process, broker, choose)
        await process.kill()
        if killed:
            process = Process(monkeypatch, broker, OLD)
            await process.run()
            await process.kill()
        assert broker.committed == 1
        for decision in broker.decisions():
            assert (decision.stratum, decision.selected, decision.content is not None, len(decision.jobs)) == (
                stratum, selected, content, jobs,
            )  # fmt: skip
        # A life: the policy, two jobs, the decision, its smaller copy.
        assert broker.sends <= 5 * (1 + killed)

    assert await explore(life) > 5


@pytest.mark.parametrize("topic", [TOPICS.jobs_urgent, TOPICS.jobs_routine, TOPICS.decisions])
async def test_s3_nothing_is_committed_past_a_send_that_failed(
    monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """Whatever arrives in what order: the process ends, and the session comes again."""
    place = 1 if topic == TOPICS.jobs_routine else 0

    async def life(choose: Choose) -> None:
        broker = Broker(SESSIONS)
        process = Process(monkeypatch, broker, OLD)
        await process.settle()
        process.step(0)  # the policy
        await process.starting
        broker.fails = topic
        killed = await play(process, broker, choose)
        if not killed:
            with pytest.raises(SamplerFailed):
                await asyncio.wait_for(process.sampler.run_until(asyncio.Event()), 5)
        await process.kill()
        assert broker.committed <= place
        assert ("s50", "s1")[place] not in {item.session_id for item in broker.decisions()}
        broker.fails = None
        process = Process(monkeypatch, broker, OLD)
        await process.run()
        await process.kill()
        assert broker.committed == 2

    assert await explore(life) > 5


async def test_r3_the_policy_is_published_before_its_first_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(SESSIONS)
    process = Process(monkeypatch, broker, OLD)
    (publication,) = await process.settle()
    assert broker.records == {}
    process.step(0)
    assert [item.policy for item in broker.policies()] == [OLD.version]
    assert publication not in await process.settle()
    await process.run()
    assert broker.committed == 2

    taking = asyncio.create_task(process.sampler._take(Reload(result="loaded", policy=NEW)))
    await process.settle()
    assert process.sampler._policy is OLD
    process.step(0)
    await taking
    assert process.sampler._policy is NEW
    assert [item.policy for item in broker.policies()] == [OLD.version, NEW.version]
    await process.kill()


async def test_s3_what_is_no_session_is_acknowledged_after_its_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    async def life(choose: Choose) -> None:
        broker = Broker([b"no session", SESSIONS[1], None])
        process = Process(monkeypatch, broker, OLD)
        killed = await play(process, broker, choose)
        letters = len(broker.records.get(TOPICS.dead_letters, []))
        assert letters >= (broker.committed > 0) + (broker.committed > 2)
        await process.kill()
        if killed:
            process = Process(monkeypatch, broker, OLD)
            await process.run()
            await process.kill()
        assert broker.committed == 3
        assert set(broker.records[TOPICS.dead_letters]) == {b"no session", b""}

    assert await explore(life) > 20
