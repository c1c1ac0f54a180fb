"""Rebalances while `assemble` runs: handed over, thrown out, loaded slowly, loaded twice, not loaded (A6)."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest
from aiokafka import TopicPartition

from consumers import assemble
from consumers.read_back import Loaded, load
from tests.simulation.assembling import PARTITIONS, AssembleProcess, Bench
from tests.simulation.virtual_time import simulate
from tests.unit.consumers.test_assemble_crashes import outcome, turn, written


def test_a6_a_member_that_joins_at_any_step_changes_nothing_and_nothing_is_said_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (whole, letters), _ = outcome(monkeypatch, ())

    async def joined(steps: int) -> bool:
        bench = written(Bench(monkeypatch))
        async with bench.process() as one:
            await one.until(lambda: one.has_taken(steps) or bench.all_committed())
            late = bench.all_committed()
            async with bench.process() as two:
                await two.until(lambda: bench.all_committed() and shared(one, two))
                two.stop.set()
                await two.until(lambda: False)
            await one.until(lambda: len(one.consumer.assignment()) == PARTITIONS)
            assert [one.value("commits_failed_total"), two.value("commits_failed_total")] == [0, 0]
            assert one.consumer.logged == two.consumer.logged == []
        assert bench.sessions() == whole, f"joined behind step {steps}"
        assert sorted(set(bench.letters())) == letters  # keyed by position: a replay may write them again
        return late

    for steps in count():
        if simulate(joined(steps)):
            break
    assert steps > 20


def shared(*processes: AssembleProcess) -> bool:
    return all(len(process.consumer.assignment()) == 1 for process in processes)


def test_a6_a_member_that_was_thrown_out_at_any_step_says_the_same_again_or_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after SIGSTOP and SIGCONT: it reads and sends on for a while, and its commits fail."""
    whole, _ = outcome(monkeypatch, ())

    async def thrown_out(steps: int) -> tuple[float, bool]:
        bench = written(Bench(monkeypatch))
        async with bench.process() as one:
            await one.until(lambda: one.has_taken(steps) or bench.all_committed())
            late = bench.all_committed()
            one.consumer.expire()
            async with bench.process() as two:
                await two.until(bench.all_committed)
                await asyncio.sleep(0.05)
                one.consumer.rejoin()
                await two.until(lambda: shared(one, two))
                await asyncio.sleep(0.05)
                assert bench.all_committed(), f"thrown out behind step {steps}"
            failures = one.value("commits_failed_total")
        found = sorted(set(bench.sessions())), sorted(set(bench.letters()))
        assert found == whole, f"thrown out behind step {steps}"
        return failures, late

    failed = 0.0
    for steps in count():
        failures, late = simulate(thrown_out(steps))
        failed += failures
        if late:
            break
    assert steps > 20
    assert failed > 20


class Gate:
    """Loading that begins at once and ends when told, each time by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[asyncio.Event] = []
        monkeypatch.setattr(assemble, "load", self._load)

    async def _load(self, *args: Any) -> Loaded:
        done = asyncio.Event()
        self.calls.append(done)
        loaded = await load(*args)
        await done.wait()
        return loaded


def test_a6_while_a_partition_loads_the_callback_has_returned_and_no_record_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Heartbeats stop until the callback returns; records are handed out before it begins."""
    whole, _ = outcome(monkeypatch, ())

    async def main() -> None:
        bench = written(Bench(monkeypatch))
        async with bench.process(12) as dying:
            await dying.until(lambda: False)
        positions = {number: offset for number, (offset, _) in bench.commits().items()}
        assert min(positions.values()) > 0
        gate = Gate(monkeypatch)
        async with bench.process() as worker:
            await worker.until(lambda: len(gate.calls) == PARTITIONS)
            assert worker.consumer.callbacks_running == 0
            await asyncio.sleep(30)
            # What was handed out too soon is read again: nothing moves until the partition is loaded.
            assert worker.steps == []
            assert worker.value("events_total", event_type="turn") == 0
            for done in gate.calls:
                done.set()
            await worker.until(bench.all_committed)
        assert (sorted(set(bench.sessions())), sorted(set(bench.letters()))) == whole

    simulate(main())


def test_a6_a_loading_that_a_second_assignment_overtook_comes_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = outcome(monkeypatch, ())

    async def main() -> None:
        bench, gate = written(Bench(monkeypatch)), Gate(monkeypatch)
        async with bench.process() as worker:
            await worker.until(lambda: len(gate.calls) == PARTITIONS)
            await worker.process.run(worker.consumer.assign_members_share(set(worker.consumer.assignment())))
            await worker.until(lambda: len(gate.calls) == 2 * PARTITIONS)
            for done in gate.calls[PARTITIONS:]:
                done.set()
            await worker.until(lambda: worker.value("events_total", event_type="turn") > 10)
            for done in gate.calls[:PARTITIONS]:
                done.set()
            await worker.until(bench.all_committed)
        assert (bench.sessions(), bench.letters()) == whole, "nothing is read a second time"

    simulate(main())


def test_a6_a_partition_that_goes_while_it_loads_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench, gate = written(Bench(monkeypatch)), Gate(monkeypatch)
        async with bench.process() as worker:
            await worker.until(lambda: len(gate.calls) == PARTITIONS)
            await worker.process.run(worker.consumer.revoke())
            for done in gate.calls:
                done.set()
            await asyncio.sleep(1)
            assert worker.assemble is not None
            assert worker.assemble._states == {}
            assert worker.consumer.paused() == worker.consumer.assignment()

    simulate(main())


@pytest.mark.parametrize("fails", ["load", "commit", "callback"])
def test_a6_whatever_fails_while_loading_ends_the_process_without_a_commit(
    monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        for partition in range(PARTITIONS):
            bench.say(turn("any", 1, 0), partition=partition)
        bad = bench.source(1)

        async def broken_load(*args: Any) -> Loaded:
            if args[2] == bad.partition:
                await asyncio.sleep(5)
                raise OSError("no such read-back")
            return await load(*args)

        def broken_seek(consumer: Any, tp: TopicPartition, offset: int) -> None:
            if tp == bad:
                raise OSError("no such offset")

        async def broken_commit(*_: Any) -> None:
            raise OSError("no such commit")

        if fails == "load":
            monkeypatch.setattr(assemble, "load", broken_load)
        elif fails == "commit":
            monkeypatch.setattr(assemble, "last_commit", broken_commit)
        else:
            monkeypatch.setattr("tests.simulation.clients.SimulatedConsumer.seek", broken_seek)
        with pytest.raises(OSError, match="no such"):
            async with bench.process() as worker:
                await worker.until(lambda: False)
        assert worker.value("commits_failed_total") == 0
        assert bench.commits().keys() <= {0}

    simulate(main())


def test_a6_what_is_taken_away_is_committed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = written(Bench(monkeypatch, commit_interval_s=1e6))
        async with bench.process() as one:
            await one.until(lambda: one.value("events_total", event_type="tick") == 6)
            assert bench.commits() == {}
            async with bench.process() as two:
                await two.until(lambda: shared(one, two))
                assert bench.all_committed()

    simulate(main())


def test_a7_an_outbox_that_was_closed_has_not_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was unsent is dropped, so that nothing past it may be committed."""

    async def main() -> None:
        bench = written(Bench(monkeypatch, commit_interval_s=1e6))
        bench.broker.present.clear()
        async with bench.process() as worker:
            await worker.until(lambda: worker.value("sessions_closed_total", reason="ended") >= 2)
            assert worker.assemble is not None
            state = worker.assemble._states[bench.source(0)]
            waiting = worker.process.run(state.commitable())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            state.outbox.close()
            assert await waiting is None

    simulate(main())


def test_a7_a_commit_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the position is the same: there is nothing else to come."""

    async def main() -> None:
        bench = written(Bench(monkeypatch, commit_interval_s=5))
        bench.broker.refused_commits = 3
        async with bench.process() as worker:
            await worker.until(bench.all_committed)
            assert bench.broker.refused_commits == 0

    simulate(main())


def test_a7_a_partition_that_went_does_not_spoil_the_commit_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may go while the outbox of another one drains."""

    async def main() -> None:
        bench = written(Bench(monkeypatch, commit_interval_s=1e6))
        async with bench.process() as worker:
            await worker.until(lambda: worker.value("events_total", event_type="tick") == 6)
            assert worker.assemble is not None
            states = dict(worker.assemble._states)
            await worker.until(lambda: not any(len(state.outbox) for state in states.values()))
            gone = worker.consumer._positions.pop(bench.source(0))
            await worker.process.run(worker.assemble._commit_states(states))
            worker.consumer._positions[bench.source(0)] = gone
            assert worker.value("commits_failed_total") == 0
        assert bench.commits().keys() == {1}

    simulate(main())


def test_a10_a_read_back_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench, gate = Bench(monkeypatch, load_timeout_s=20), Gate(monkeypatch)
        with pytest.raises(TimeoutError):
            async with bench.process() as worker:
                await worker.until(lambda: False, 30)
        assert len(gate.calls) == PARTITIONS

    simulate(main())
