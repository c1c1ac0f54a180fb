"""Quotes are found as they were checked, and marking changes no letter."""

from hypothesis import given
from hypothesis import strategies as st

from monitor.rubrics.answers import contains, plain
from monitor.web.quotes import Haystack, Span, cut

texts = st.text(
    st.one_of(st.characters(), st.sampled_from("ab \n\t\u2019'\"\u201c\u200b\x1c\x85\xa0\0\u3000")), max_size=60
)
places = st.integers(-2, 25)
spans = st.lists(st.builds(Span, start=places, end=places, mark=st.integers(0, 5)), max_size=6)


@given(texts, texts)
def test_j2_a_quote_is_found_where_the_check_finds_it_and_nowhere_else(text: str, quote: str) -> None:
    assert (Haystack(text).find(quote) is not None) == contains(text, quote)


@given(texts, st.data())
def test_j2_what_is_found_are_the_words_of_the_quote(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    quote = text[start : data.draw(st.integers(start, len(text)))]
    found = Haystack(text).find(quote)
    if plain(quote):
        assert found is not None
        assert plain(text[found[0] : found[1]]) == plain(quote)


@given(st.text(max_size=20), st.text("abc d'", min_size=1).filter(str.strip), st.text(max_size=20))
def test_a_quote_is_found_whatever_its_white_space(before: str, quoted: str, after: str) -> None:
    text = before + quoted.replace(" ", "\n  ").replace("'", "\u2019") + after
    assert Haystack(text).find(quoted) is not None


def test_a_quote_of_whole_words_comes_before_a_part_of_a_word() -> None:
    text = "The party has art."
    assert Haystack(text).find("art") == (14, 17)
    assert Haystack("The party.").find("art") == (5, 8)


@given(st.text(max_size=20), spans)
def test_marking_leaves_the_text_as_it_is(text: str, found: list[Span]) -> None:
    assert "".join(piece.text for piece in cut(text, found)) == text


@given(st.text(max_size=20), spans)
def test_each_span_is_all_of_its_marked_pieces_whatever_overlaps(text: str, found: list[Span]) -> None:
    numbered = [Span(start=span.start, end=span.end, mark=number) for number, span in enumerate(found)]
    pieces = cut(text, numbered)
    for span in numbered:
        fits = 0 <= span.start < span.end <= len(text)
        marked = "".join(piece.text for piece in pieces if span.mark in piece.marks)
        assert marked == (text[span.start : span.end] if fits else "")
        assert sum(piece.begins.count(span.mark) for piece in pieces) == int(fits)
        assert sum(piece.ends.count(span.mark) for piece in pieces) == int(fits)
