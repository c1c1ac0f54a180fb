"""R1: recorders that run at the same time count nothing twice and lose nothing."""

import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from monitor.store import Store, TotalKey, moved
from monitor.store.rows import session_key
from tests.services.postgres import PostgresServer
from tests.unit.store.builders import RUBRICS, addendum, decision, judgement, unscored


def test_r1_the_same_records_from_several_recorders_count_once(url: str) -> None:
    records = [
        record
        for index in range(40)
        for record in (decision(f"s{index}"), unscored(f"s{index}"), judgement(f"s{index}"))
    ]
    opened = [Store.open(url, rubrics=RUBRICS) for _ in range(3)]

    def deliver(number: int) -> None:
        mine = random.Random(number).sample(records, len(records))
        for start in range(0, len(mine), 15):
            assert opened[number].record(mine[start : start + 15]).rejected == []

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(deliver, range(3)))

    totals = opened[0].totals()
    assert totals.sums[TotalKey("jobs_listed", "correction", stratum="base")] == 40
    assert totals.sums[TotalKey("verdicts", "correction", stratum="base")] == 40
    assert totals.pending == {}
    assert opened[1].rebuild_totals() == 2
    assert moved(opened[2].totals().sums) == moved(totals.sums)
    for store in opened:
        store.close()


def test_r5_two_recorders_never_count_two_segments_that_overlap(url: str) -> None:
    opened = [Store.open(url, rubrics=RUBRICS) for _ in range(2)]

    def deliver(number: int) -> None:
        for index in range(30):
            opened[number].record([decision(f"s{index}", f"segment{number}", events=("shared",))])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(deliver, range(2)))

    sums = opened[0].totals().sums
    assert sums[TotalKey("sessions_overlapping")] == 30
    for store in opened:
        store.close()


def test_r1_a_deadlock_with_another_writer_is_tried_again(postgres: PostgresServer) -> None:
    """Another program locks two sessions in the other order; it looks for deadlocks late, so it is no victim."""
    store = Store.open(postgres.emptied(), rubrics=RUBRICS)
    first, second = sorted(("a", "b"), key=lambda name: session_key("t", name))
    store.record([addendum("a", offset=1), addendum("b", offset=2)])
    lock = text("SELECT 1 FROM sessions WHERE session_key = :key FOR UPDATE")
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    with store._engine.connect() as looking, ThreadPoolExecutor(1) as pool:
        with store._engine.begin() as other:
            other.execute(text("SET LOCAL deadlock_timeout = '60s'"))
            other.execute(lock, {"key": session_key("t", second)})
            recording = pool.submit(store.record, [decision("a"), judgement("a"), decision("b")])
            while not looking.execute(waiting).scalar():
                assert not recording.done()
            other.execute(lock, {"key": session_key("t", first)})
        report = recording.result(30)
    assert (report.decisions, report.judgements, report.rejected) == (2, 1, [])
    assert store.totals().sums[TotalKey("jobs_listed", "correction", stratum="base")] == 2
    store.close()


def test_r4_a_rebuild_beside_a_recorder_loses_nothing(url: str) -> None:
    recorder, other = Store.open(url, rubrics=RUBRICS), Store.open(url, rubrics=RUBRICS)

    def deliver() -> None:
        for index in range(40):
            recorder.record([decision(f"s{index}"), judgement(f"s{index}")])

    with ThreadPoolExecutor(2) as pool:
        delivery = pool.submit(deliver)
        while not delivery.done():
            other.rebuild_totals()
        delivery.result()

    totals = recorder.totals()
    assert totals.sums[TotalKey("verdicts", "correction", stratum="base")] == 40
    other.rebuild_totals()
    assert moved(other.totals().sums) == moved(totals.sums)
    recorder.close()
    other.close()


def test_r4_totals_are_read_from_one_snapshot(sqlite_store: Store, tmp_path: Path) -> None:
    """Every reading between transactions holds the identity of R2."""
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(
            lambda: [
                sqlite_store.record([decision(f"s{i}"), *([judgement(f"s{i}")] * (i % 2))]) for i in range(60)
            ]
        )
        while not work.done():
            totals = sqlite_store.totals()
            listed = totals.sums.get(TotalKey("jobs_listed", "correction", stratum="base"), 0)
            ended = totals.sums.get(TotalKey("verdicts", "correction", stratum="base"), 0)
            assert listed == ended + sum(totals.pending.values())
        work.result()
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
