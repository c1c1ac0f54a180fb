"""R5: text goes, numbers stay; what was forgotten is not stored again."""

import pytest

from monitor.session import LogSpan
from monitor.store import Record, SessionFilter, Store, moved
from tests.unit.store.builders import addendum, content, decision, judgement

NOW = 1_800_000_000.0


def filled(store: Store, name: str = "s1") -> None:
    text = content(name, "my secret", "noted")
    stored = decision(name, text=text)
    store.record([stored, judgement(name, hash_=stored.content_hash), addendum(name, offset=hash(name) % 1000)])


def test_r5_forget_removes_text_and_keeps_the_numbers(store: Store) -> None:
    filled(store)
    before = store.totals()

    assert store.forget("t", "s1")

    found = store.session("t", "s1", "e0")
    assert found is not None
    assert found.view is None
    assert found.judgements[0].judgement is None
    assert [item.event for item in found.addenda] == [None]
    assert store.totals() == before
    store.rebuild_totals()
    assert store.totals().sums == before.sums


def test_r5_what_comes_later_of_a_forgotten_session_has_no_text_but_counts(store: Store) -> None:
    assert not store.forget("t", "s1")
    filled(store)

    found = store.session("t", "s1", "e0")
    assert found is not None
    assert found.view is None
    assert found.judgements[0].judgement is None
    assert [item.event for item in found.addenda] == [None]
    assert found.judgements[0].standing == "counted"


def test_r5_a_session_can_be_forgotten_by_the_id_that_pages_show(store: Store) -> None:
    filled(store, "a\0b")
    assert store.forget("t", "a\u2400b")
    filled(store, "a\0b")
    store.record([addendum("a\0b", offset=2000)])

    found = store.session("t", "a\u2400b", "e0")
    assert found is not None
    assert found.view is None
    assert [item.event for item in found.addenda] == [None, None]


def test_r5_redelivery_does_not_bring_text_back(store: Store) -> None:
    filled(store)
    store.expire(text_before=NOW + 1, rows_before=0)
    filled(store)

    found = store.session("t", "s1", "e0")
    assert found is not None
    assert found.view is None
    assert found.judgements[0].judgement is None


def test_r5_expiry_spares_what_is_newer(store: Store) -> None:
    filled(store)
    assert store.expire(text_before=NOW, rows_before=NOW).segments == 0
    found = store.session("t", "s1", "e0")
    assert found is not None
    assert found.view is not None


def test_r5_old_rows_go_and_the_totals_stay(store: Store) -> None:
    for name in ("a", "b"):
        filled(store, name)
    store.record([decision("pending")])
    before = store.totals()

    expired = store.expire(text_before=NOW + 1, rows_before=NOW + 1)

    assert expired.segments == 2
    assert store.session("t", "a", "e0") is None
    assert store.sessions(SessionFilter()).rows == ()
    assert store.totals() == before
    store.rebuild_totals()
    assert moved(store.totals().sums) == moved(before.sums)


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["decision-first", "judgement-first"])
def test_r5_what_retention_dropped_comes_again_without_effect(
    store: Store, order: tuple[int, int], forgotten: bool
) -> None:
    """It counts once and brings no text back; what is newer than the rows that went is taken in."""
    stored = decision(text=content("s1", "my secret"))
    records: list[Record] = [stored, judgement(hash_=stored.content_hash)]
    store.record(records)
    if forgotten:
        store.forget("t", "s1")
    store.expire(text_before=NOW + 1, rows_before=NOW + 1)
    before = store.totals()

    for place in order:
        report = store.record([records[place]])
        assert (report.duplicates, report.decisions, report.judgements) == (1, 0, 0)

    assert store.session("t", "s1", "e0") is None
    assert store.totals() == before
    fresh = decision(segment="e7", span=LogSpan(partition=0, first=1, last=2, closed_at=round(NOW * 1000) + 1_000))
    assert store.record([fresh]).decisions == 1
    late = judgement("s2", started_at=round(NOW * 1000) + 1_000)
    assert store.record([late]).standings == {"waiting": 1}


def test_r5_a_row_goes_when_all_of_it_is_old(store: Store) -> None:
    """By its own time too: what comes again is told by that."""
    newer = round(NOW * 1000) + 60_000
    store.record(
        [decision("late", span=LogSpan(partition=0, first=1, last=2, closed_at=newer)), judgement("late")]
    )
    store.record([decision("judged"), judgement("judged", started_at=newer)])
    assert store.expire(text_before=NOW + 1, rows_before=NOW + 1).segments == 0
    assert store.expire(text_before=NOW + 1, rows_before=NOW + 61).segments == 2


def test_r5_the_time_before_which_rows_went_never_goes_back(store: Store) -> None:
    """As when retention is made longer between two runs."""
    late = decision("late", span=LogSpan(partition=0, first=1, last=2, closed_at=round(NOW * 1000) + 1_000))
    store._clock = lambda: NOW - 1_000
    store.record([decision("waits")])
    store.record([late, judgement("late")])
    assert store.expire(text_before=0, rows_before=NOW + 2).segments == 1
    store.record([judgement("waits")])
    assert store.expire(text_before=0, rows_before=NOW - 200).segments == 1

    assert store.record([late]).duplicates == 1


def test_r5_judgements_and_late_events_without_a_decision_go_too(store: Store) -> None:
    store.record([judgement("lost"), addendum("lost"), decision("kept"), judgement("kept")])
    store.expire(text_before=NOW + 1, rows_before=NOW)
    assert store.session("t", "lost", "e0") is not None
    store.expire(text_before=NOW + 1, rows_before=NOW + 1)
    assert store.session("t", "lost", "e0") is None
    with store._engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM judgement_failures").scalar() == 0


def test_r5_a_session_that_waits_for_its_verdict_is_kept(store: Store) -> None:
    store.record([decision("pending")])
    assert store.expire(text_before=NOW + 1, rows_before=NOW + 1).segments == 0
    store.record([judgement("pending")])
    assert store.totals().pending == {}
