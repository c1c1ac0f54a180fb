"""`assemble` step by step on a simulated broker: ticks, routing, holes in the log, stalls, over-size sessions."""

from __future__ import annotations

import asyncio
from itertools import count, pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumers.assemble import AssemblerStalled
from consumers.kafka import event_key, partition_for
from consumers.offsets import encode_note
from monitor.errors import TopicError
from monitor.events import EventDecoder, Tick, Turn
from monitor.session import CloseReason, SessionRecord, decode_content, decode_record
from tests.simulation.assembling import PARTITIONS, START_S, Bench
from tests.simulation.virtual_time import simulate
from tests.unit.consumers.test_assemble_crashes import homes, outcome, run, story, turn, written

# Closing by ticks, in a few seconds of virtual time.
TICKING = {"gap_s": 6.0, "grace_s": 2.0, "tick_interval_s": 1.0, "commit_interval_s": 0.3}


def reasons(bench: Bench) -> list[tuple[str, CloseReason]]:
    found = [decode_record(value) for value in bench.sessions()]
    contents = [decode_content(record.content) for record in found if isinstance(record, SessionRecord)]
    return [(content.session_id, content.close_reason) for content in contents]


def ticks(bench: Bench, partition: int) -> list[tuple[float, float]]:
    """Give the broker's time and the stated time of a partition's ticks, both in seconds of virtual time."""
    decoded = [
        (record, EventDecoder().decode(record.value or b"")[0])
        for record in bench.broker.logs[bench.source(partition)].records
    ]
    return [
        (record.timestamp / 1000 - START_S, event.ts - START_S)
        for record, event in decoded
        if isinstance(event, Tick)
    ]


# -- A1: ticks ---------------------------------------------------------------------------------------------


def test_a1_an_idle_partition_closes_by_ticks_that_go_on_from_the_time_of_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, **TICKING)
        session_id, behind = homes(0)[0], -3_600.0
        bench.say(turn(session_id, 1, behind), at=0)
        async with bench.process() as worker:
            await worker.until(lambda: bench.contents() != [])
            assert 6.0 < asyncio.get_running_loop().time() < 9.0, "closed by its gap of silence, and no sooner"
            await asyncio.sleep(5)
        # In steps of an interval, from the hour at which the producer is; and none when nothing is open.
        times = [0.0, *(stated - behind for _, stated in ticks(bench, 0))]
        assert all(1.0 <= after - before < 1.6 for before, after in pairwise(times))
        assert 6.0 < times[-1] < 7.5
        assert ticks(bench, 1) == []

    simulate(main())


def test_a1_an_outage_of_the_broker_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tick is under way at a time, and carries two intervals at most."""

    async def main() -> None:
        bench = Bench(monkeypatch, **TICKING)
        bench.say(turn(homes(0)[0], 1, 0))
        async with bench.process() as worker:
            await worker.until(lambda: worker.value("events_total", event_type="tick") == 1)
            bench.broker.present.clear()
            await asyncio.sleep(60)
            assert len(ticks(bench, 0)) == 1
            bench.broker.present.set()
            await worker.until(lambda: len(ticks(bench, 0)) == 3)
            assert bench.contents() == []
        (_, first), (_, second), (_, third) = ticks(bench, 0)
        assert second - first < 2.5
        assert third - second < 2.5

    simulate(main())


def test_a1_a_process_that_was_stopped_counts_no_silence_of_the_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, **TICKING)
        bench.say(turn(homes(0)[0], 1, 0))
        async with bench.process() as worker:
            await worker.until(lambda: worker.value("events_total", event_type="tick") == 1)
            assert worker.assemble is not None
            now = asyncio.get_running_loop().time
            worker.assemble._clock = lambda: now() + 60  # SIGSTOP for a minute
            await worker.until(lambda: len(ticks(bench, 0)) == 2)
        (_, first), (_, second) = ticks(bench, 0)
        assert 0 < second - first <= 2.0

    simulate(main())


def test_a1_one_event_dated_2030_closes_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = outcome(monkeypatch, ())

    async def main() -> None:
        bench = Bench(monkeypatch)
        odd = homes(0)[9]
        year_2030 = Turn(
            event_id="odd", session_id=odd, ts=1_893_456_000, turn_id="odd", role="user", text="from the future"
        )
        for partition in range(PARTITIONS):
            for number, event in enumerate(story(partition)):
                bench.say(event, partition=partition)
                if partition == 0 and number == 5:
                    bench.say(year_2030, at=15)
        await run(bench, ())
        contents = [item for item in bench.contents() if item[0] != odd]
        assert contents == sorted(contents_of(whole[0]))
        assert [name for name, _ in bench.contents()].count(odd) == 1

    simulate(main())


def contents_of(values: list[bytes]) -> list[tuple[str, list[bytes]]]:
    found = [decode_record(value) for value in values]
    contents = [decode_content(record.content) for record in found if isinstance(record, SessionRecord)]
    return [(content.session_id, [bytes(raw) for raw in content.events]) for content in contents]


# -- A4: commits -------------------------------------------------------------------------------------------


def test_a4_without_metadata_every_start_is_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = outcome(monkeypatch, ())

    async def main() -> None:
        bench = written(Bench(monkeypatch))
        bench.settings = bench.settings.model_copy(
            update={"kafka": bench.settings.kafka.model_copy(update={"commit_metadata": False})}
        )
        await run(bench, [7, 12])
        assert (sorted(set(bench.sessions())), sorted(set(bench.letters()))) == whole

    simulate(main())


def test_a4_a_commit_without_metadata_is_no_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that drops it, or another program: without stream time and bound, only the start will do."""
    whole, _ = outcome(monkeypatch, ())

    async def main() -> None:
        bench = written(Bench(monkeypatch))
        bench.commit(0, 9, "")
        bench.commit(1, 9, '{"by":"someone"}')
        await run(bench, ())
        assert (bench.sessions(), bench.letters()) == whole

    simulate(main())


def test_a4_a_restart_reads_back_no_more_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound follows: with nothing open and nothing remembered it is the end of the sessions topic."""

    async def main() -> None:
        bench = written(Bench(monkeypatch))
        await run(bench, ())
        for partition, (offset, note) in bench.commits().items():
            assert note is not None
            assert offset == bench.broker.logs[bench.source(partition)].end
            assert note.partitions == PARTITIONS
            written_there = [record.offset for record in bench.records(bench.settings.topics.sessions, partition)]
            # Only the two sessions that the last record closed are still remembered there.
            assert note.bound == written_there[-2]
        for partition in range(PARTITIONS):
            bench.say(Tick(ts=START_S + 2_300), partition=partition)
        async with bench.process() as worker:
            await worker.until(bench.all_committed)
        for partition, (_, note) in bench.commits().items():
            assert note is not None
            assert note.bound == len(bench.records(bench.settings.topics.sessions, partition))

    simulate(main())


# -- A8: routing -------------------------------------------------------------------------------------------


def misrouted(bench: Bench) -> Bench:
    """Every other event of each session in the wrong partition."""
    for number in range(3):
        for partition in range(PARTITIONS):
            for session_id in homes(partition)[:3]:
                wrong = (partition + number) % PARTITIONS
                bench.say(turn(session_id, number, number), partition=wrong, at=number)
    return bench


def test_a8_misrouted_events_end_up_in_one_session_whatever_step_a_crash_comes_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def crashed(steps: int) -> bool:
        bench = misrouted(Bench(monkeypatch, **TICKING))
        names = {name for partition in range(PARTITIONS) for name in homes(partition)[:3]}
        async with bench.process(steps) as worker:
            await worker.until(lambda: len(bench.contents()) >= len(names), every=0.2)
            died = worker.dead
        async with bench.process() as worker:
            await worker.until(lambda: {name for name, _ in bench.contents()} == names, every=0.2)
        for value in set(bench.sessions()):
            content = decode_content(decoded(value).content)
            ids = [EventDecoder().decode(bytes(raw))[0] for raw in content.events]
            assert [getattr(event, "event_id", "") for event in ids] == [
                f"{content.session_id}-{number}" for number in range(3)
            ], f"a crash behind step {steps}"
        for partition in range(PARTITIONS):
            for record in bench.records(bench.settings.topics.sessions, partition):
                name = decode_content(decoded(record.value).content).session_id
                assert partition_for(event_key("default", name), PARTITIONS) == partition
        return died

    for steps in count():
        if not simulate(crashed(steps)):
            break
    assert steps > 15


def decoded(value: bytes | None) -> SessionRecord:
    record = decode_record(value or b"")
    assert isinstance(record, SessionRecord)
    return record


def test_a8_a_misrouted_event_is_counted_and_the_remedy_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> float:
        bench = misrouted(Bench(monkeypatch, **TICKING))
        async with bench.process() as worker:
            await worker.until(lambda: len(bench.contents()) == 6, every=0.2)
            return worker.value("events_rerouted_total")

    with capture_logs() as logs:
        assert simulate(main()) == 6
    warnings = [entry for entry in logs if entry["event"] == "event_in_wrong_partition"]
    assert len(warnings) == PARTITIONS
    assert "murmur2_random" in warnings[0]["remedy"]


def test_a8_a_partition_count_that_changes_while_it_runs_ends_it_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        bench = written(Bench(monkeypatch))
        async with bench.process() as worker:
            await worker.until(lambda: worker.has_taken(9))
            bench.broker.partitions[bench.settings.topics.events] = PARTITIONS + 1
            await worker.until(lambda: False)

    with pytest.raises(TopicError, match=r"has 3 partitions, had 2; .*move to a new topic"):
        simulate(main())


def test_a8_a_partition_count_that_changed_since_the_commit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = written(Bench(monkeypatch))
        await run(bench, ())
        before = bench.commits()
        note = before[0][1]
        assert note is not None
        bench.commit(0, before[0][0], encode_note(type(note)(time=note.time, partitions=7, bound=note.bound)))
        with pytest.raises(TopicError, match=r"had 7 partitions at the last commit, has 2 now; .*a new topic"):
            async with bench.process() as worker:
                await worker.until(lambda: False)
        assert bench.commits()[1] == before[1]

    simulate(main())


# -- A9: holes in the log ----------------------------------------------------------------------------------


def holed(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Make a log whose start has passed the commit, with a session behind the hole."""
    bench = Bench(monkeypatch)
    tp, name = bench.source(0), homes(0)[0]
    for number in range(4):
        bench.say(turn(name, number, number))
    bench.commit(0, 1, '{"time":1000000000,"partitions":2,"bound":0}')
    bench.broker.logs[tp].start = 2
    return bench


def test_a9_behind_a_hole_nothing_is_committed_before_the_first_event_and_sessions_are_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        bench = holed(monkeypatch)
        log = bench.broker.logs[bench.source(0)]
        log.start = log.end  # nothing is left, for now
        async with bench.process() as worker:
            await worker.until(lambda: worker.value("commits_below_log_start_total") == 1)
            await asyncio.sleep(3)
        assert bench.commits()[0][0] == 1
        log.start = 2
        async with bench.process() as worker:
            await worker.until(lambda: bench.commits()[0][1] != holed_note(bench))
            assert worker.value("commits_below_log_start_total") == 1
        offset, note = bench.commits()[0]
        assert (offset, note is not None and note.truncated_until is not None) == (2, True)
        bench.say(Tick(ts=START_S + 500), partition=0)
        async with bench.process() as worker:
            await worker.until(lambda: bench.contents() != [])
            assert worker.value("commits_below_log_start_total") == 0
        assert reasons(bench) == [(homes(0)[0], "truncated")]

    simulate(main())


def holed_note(bench: Bench) -> Any:
    note = bench.commits()[0][1]
    return note if bench.commits()[0][0] == 1 else None


# -- A10: stalls -------------------------------------------------------------------------------------------


def test_a10_lag_without_progress_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, stall_timeout_s=30, commit_interval_s=1)
        bench.say(turn(homes(0)[0], 1, 0))
        async with bench.process() as worker:
            await worker.until(lambda: worker.value("events_total", event_type="turn") == 1)
            await asyncio.sleep(100)
            assert not worker.task.done(), "to have nothing to do is no stall"
            worker.consumer.stuck = True
            bench.say(turn(homes(0)[0], 2, 1))
            await worker.until(lambda: False, 45, every=1)

    with pytest.raises(AssemblerStalled, match=r"chat.events\[0\]: lag and no progress for 3\d s"):
        simulate(main())


# -- J5: sizes ---------------------------------------------------------------------------------------------


def test_j5_an_over_size_session_is_a_stub_whatever_step_a_crash_comes_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def crashed(steps: int) -> tuple[bool, list[bytes]]:
        bench = written(Bench(monkeypatch))
        bench.broker.largest[bench.settings.topics.sessions] = 600
        died = await run(bench, [steps])
        return died, sorted(set(bench.sessions()))

    whole, _ = outcome(monkeypatch, ())
    expected = simulate(crashed(10**6))[1]
    stubs = [value for value in expected if value not in whole[0]]
    assert stubs != []
    assert len(stubs) == sum(len(value) > 600 for value in whole[0])
    for value in stubs:
        (original,) = [one for one in whole[0] if b'"span"' in one and decoded(one).span == decoded(value).span]
        content, full = decode_content(decoded(value).content), decode_content(decoded(original).content)
        assert (content.session_id, content.segment, content.events) == (full.session_id, full.segment, [])
    for steps in count():
        died, found = simulate(crashed(steps))
        assert found == expected, f"a crash behind step {steps}"
        if not died:
            break
    assert steps > 15
