"""The notes on batches: whoever reads them, in whatever state, a question belongs to one claim."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitor.judging.batch_book import BatchBook, Claim, Dropped, Note, Opened

KEYS = st.sampled_from(["k1", "k2", "k3", "k4"])
IDS = st.lists(st.sampled_from("abcdef"), max_size=5)
NOTES: st.SearchStrategy[Note] = st.one_of(
    st.builds(Claim, key=KEYS, at=st.floats(0, 100), ids=IDS),
    st.builds(Opened, key=KEYS, batch=st.sampled_from(["b1", "b2", "b3"])),
    st.builds(Dropped, key=KEYS),
)


def read(notes: list[Note]) -> BatchBook:
    book = BatchBook()
    for note in notes:
        book.apply(note)
    return book


@given(st.lists(NOTES))
def test_a_question_belongs_to_one_claim_which_asked_for_it(notes: list[Note]) -> None:
    book = read(notes)
    entries = [entry for key in ("k1", "k2", "k3", "k4") if (entry := book.entry(key)) is not None]
    owned = [(item, entry) for entry in entries for item in entry.ids]
    assert len({item for item, _ in owned}) == len(owned)
    for item in "abcdef":
        assert book.entry_of(item) is dict(owned).get(item)


@given(st.lists(NOTES))
def test_a_note_that_comes_twice_changes_nothing(notes: list[Note]) -> None:
    once, twice = BatchBook(), BatchBook()
    for note in notes:
        once.apply(note)
        twice.apply(note)
        twice.apply(note)
    for item in "abcdef":
        one, two = once.entry_of(item), twice.entry_of(item)
        assert (one and (one.key, one.batch)) == (two and (two.key, two.batch))


def test_the_first_claim_holds_until_it_is_dropped() -> None:
    book = read([Claim(key="k1", at=1, ids=["a", "b"]), Claim(key="k2", at=2, ids=["b", "c"])])
    second = book.entry("k2")
    assert second is not None
    assert second.ids == ("c",)
    book.apply(Dropped(key="k1"))
    assert book.entry_of("a") is None
    book.apply(Claim(key="k3", at=3, ids=["a", "b", "c"]))
    third = book.entry("k3")
    assert third is not None
    assert third.ids == ("a", "b")


def test_a_batch_that_is_there_is_not_dropped_and_stays_the_first() -> None:
    book = read([Claim(key="k1", at=1, ids=["a"]), Opened(key="k1", batch="b1"), Dropped(key="k1")])
    book.apply(Opened(key="k1", batch="b2"))
    entry = book.entry_of("a")
    assert entry is not None
    assert entry.batch == "b1"
    assert book.batches() == {"b1"}
    book.prune(1.5)
    assert book.entry_of("a") is None
    assert book.batches() == set()
