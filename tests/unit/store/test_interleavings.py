"""R1, R4, R5, J4: two connections, interleaved at every statement, in both orders, on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from monitor.session import LogSpan
from monitor.store import Record, Store, Sums, Totals, moved
from monitor.store.connect import reading
from monitor.store.ledger import add
from monitor.store.tables import PRUNED
from monitor.store.totals import _read, row_sums
from tests.unit.store.builders import addendum, content, decision, judgement, unscored
from tests.unit.store.interleave import Pair, Work

NOW = 1_800_000_000.0


@pytest.fixture
def pair(url: str) -> Iterator[Pair]:
    opened = Pair(url, lambda: NOW)
    yield opened
    opened.close()


def recording(*records: Record) -> Work:
    def work(store: Store) -> None:
        assert store.record(records).rejected == []

    return work


def every_step(pair: Pair, run: Callable[[str], tuple[Work, Work]], check: Callable[[str], None]) -> None:
    """Interleave what `run` gives for a session name at every statement, each with a session of its own."""
    for at in count():
        name = f"s{at}"
        first, second = run(name)
        stopped = pair.interleave(at, first, second)
        check(name)
        assert counts_what_the_rows_say(pair.looking), at
        if not stopped:
            assert at > 3, "there was nothing to interleave"
            return


def counts_what_the_rows_say(store: Store) -> bool:
    """R2, R3: totals are the sum over the rows and the baseline, and no job is lost between them."""
    totals, sums = store.totals(), Sums()
    with reading(store._engine) as connection:
        add(sums, _read(connection, PRUNED.select()))
        add(sums, row_sums(connection))
    return moved(sums) == moved(totals.sums) and keeps_the_identity(totals)


def keeps_the_identity(totals: Totals) -> bool:
    """R2: jobs listed are verdicts, skipped, unscored and pending."""
    ended = sum(value for key, value in totals.sums.items() if key.name in {"verdicts", "skipped", "unscored"})
    listed = sum(value for key, value in totals.sums.items() if key.name == "jobs_listed")
    return listed == ended + sum(totals.pending.values())


def standings(store: Store, name: str, segment: str = "e0") -> list[str]:
    found = store.session("t", name, segment)
    assert found is not None
    return sorted(item.standing for item in found.judgements)


@pytest.mark.parametrize("decision_first", [False, True], ids=["judgement-first", "decision-first"])
def test_r1_a_judgement_and_its_decision_count_once(pair: Pair, decision_first: bool) -> None:
    def run(name: str) -> tuple[Work, Work]:
        # The row to lock is there already: inserting it would be a lock by itself.
        pair.looking.record([addendum(name, offset=int(name[1:]))])
        works = recording(judgement(name)), recording(decision(name))
        return (works[1], works[0]) if decision_first else works

    every_step(pair, run, lambda name: require(standings(pair.looking, name) == ["counted"]))
    assert pair.looking.totals().pending == {}


def test_r1_of_two_decisions_the_first_stored_wins(pair: Pair) -> None:
    def run(name: str) -> tuple[Work, Work]:
        return (
            recording(decision(name, stratum="escalated", weight16=16), judgement(name)),
            recording(decision(name, stratum="base", weight16=320), judgement(name)),
        )

    every_step(pair, run, lambda name: require(standings(pair.looking, name) == ["counted"]))
    finished = [v for key, v in pair.looking.totals().sums.items() if key.name == "sessions_finished"]
    assert len(finished) == 2, "neither order was seen"


@pytest.mark.parametrize("verdict_first", [False, True], ids=["unscored-first", "verdict-first"])
def test_j4_of_a_failure_and_a_verdict_the_verdict_counts(pair: Pair, verdict_first: bool) -> None:
    def run(name: str) -> tuple[Work, Work]:
        pair.looking.record([decision(name)])
        works = recording(unscored(name)), recording(judgement(name))
        return (works[1], works[0]) if verdict_first else works

    every_step(pair, run, lambda name: require(standings(pair.looking, name) == ["counted", "superseded"]))
    sums = moved(pair.looking.totals().sums)
    assert not [key for key in sums if key.name in {"unscored", "weighted_unscored"}]


def test_r5_of_two_segments_that_overlap_one_counts(pair: Pair) -> None:
    def run(name: str) -> tuple[Work, Work]:
        return (
            recording(decision(name, "e0", events=("x", "shared")), judgement(name, "e0")),
            recording(decision(name, "e5", events=("shared", "y")), judgement(name, "e5")),
        )

    def check(name: str) -> None:
        both = standings(pair.looking, name, "e0") + standings(pair.looking, name, "e5")
        assert sorted(both) == ["counted", "overlap"]

    every_step(pair, run, check)


@pytest.mark.parametrize("forget_first", [False, True], ids=["record-first", "forget-first"])
def test_r5_no_text_is_left_of_a_session_that_is_forgotten_meanwhile(pair: Pair, forget_first: bool) -> None:
    def run(name: str) -> tuple[Work, Work]:
        text = content(name, "my secret", "noted")
        stored = decision(name, text=text)
        records = stored, judgement(name, hash_=stored.content_hash), addendum(name, offset=int(name[1:]))
        works = recording(*records), lambda store: store.forget("t", name)
        return (works[1], works[0]) if forget_first else works

    def check(name: str) -> None:
        found = pair.looking.session("t", name, "e0")
        assert found is not None
        assert (found.view, found.judgements[0].judgement, found.addenda[0].event) == (None, None, None)
        assert standings(pair.looking, name) == ["counted"]

    every_step(pair, run, check)


@pytest.mark.parametrize("rebuild_first", [False, True], ids=["record-first", "rebuild-first"])
def test_r4_a_rebuild_meanwhile_loses_nothing(pair: Pair, rebuild_first: bool) -> None:
    def run(name: str) -> tuple[Work, Work]:
        works = recording(decision(name), judgement(name)), lambda store: store.rebuild_totals()
        return (works[1], works[0]) if rebuild_first else works

    every_step(pair, run, lambda name: require(standings(pair.looking, name) == ["counted"]))
    assert not pair.looking.totals().rebuilding


def test_r4_a_reading_is_of_one_moment(pair: Pair) -> None:
    """Jobs and totals are read by several statements; a pair recorded between two of them is in all or none."""
    seen: list[Totals] = []

    def run(name: str) -> tuple[Work, Work]:
        return lambda store: seen.append(store.totals()), recording(
            decision(name), decision(f"{name}x"), judgement(name)
        )

    every_step(pair, run, lambda _: require(keeps_the_identity(seen[-1])))
    assert len({sum(totals.pending.values()) for totals in seen}) > 2


@pytest.mark.parametrize("prune_first", [False, True], ids=["record-first", "prune-first"])
def test_r5_what_retention_drops_meanwhile_is_not_counted_again(pair: Pair, prune_first: bool) -> None:
    """Also the row that is locked goes meanwhile, and no text comes back with the second delivery."""
    clock = iter(range(1_700_000_000, 1_800_000_000, 1_000))

    def run(name: str) -> tuple[Work, Work]:
        closed = next(clock)
        text = content(name, "my secret", "noted")
        span = LogSpan(partition=0, first=1, last=9, closed_at=closed * 1000)
        stored = decision(name, text=text, span=span)
        judged = judgement(name, hash_=stored.content_hash, started_at=closed * 1000)
        for store in (pair.first, pair.second, pair.looking):
            store._clock = lambda: closed + 1.0
        pair.looking.record([stored, judged])
        limit = closed + 2.0
        works = recording(judged, stored), lambda store: store.expire(text_before=limit, rows_before=limit)
        return (works[1], works[0]) if prune_first else works

    def check(name: str) -> None:
        assert pair.looking.session("t", name, "e0") is None
        finished = sum(v for key, v in pair.looking.totals().sums.items() if key.name == "sessions_finished")
        assert finished == int(name[1:]) + 1

    every_step(pair, run, check)


@pytest.mark.parametrize("prune_first", [False, True], ids=["record-first", "prune-first"])
def test_r5_a_verdict_that_comes_while_its_row_goes_is_counted_once_or_not(pair: Pair, prune_first: bool) -> None:
    """J4: before the row goes it replaces the failure, in totals and baseline alike; after that it is left out."""

    def run(name: str) -> tuple[Work, Work]:
        works = recording(judgement(name)), lambda store: store.expire(text_before=NOW + 1, rows_before=NOW + 1)
        with pair.looking._engine.begin() as connection:  # or `name` would be taken for dropped already
            connection.exec_driver_sql("DELETE FROM meta WHERE name = 'pruned_before'")
        pair.looking.record([decision(name), unscored(name)])
        return (works[1], works[0]) if prune_first else works

    every_step(pair, run, lambda name: require(pair.looking.session("t", name, "e0") is None))


def require(holds: bool) -> None:
    assert holds
