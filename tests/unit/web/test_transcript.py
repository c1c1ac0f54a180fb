"""Turns with the marks of findings, and long stretches folded."""

from typing import Any

import pytest

from monitor.session import session_view
from monitor.web.report import Part, Place, Quote, Report, Tone
from monitor.web.transcript import UNFOLDED, Fold, Transcript, TurnView, transcript
from tests.unit.web.judged import text_of

TURNS: list[dict[str, Any]] = [
    {"role": "user", "text": "Two seats"},
    {"role": "assistant", "text": "Two seats at 19:00", "evidence": [{"id": "p", "text": "Seats at 19:00."}]},
    {"role": "user", "text": "No, at 20:00"},
    {"role": "assistant", "text": "Right, 20:00 for two"},
]


def quote(words: str, turn: int, passage: int | None = None, **other: Any) -> Quote:
    values = {"anchor": "j0-0", "label": "C1", "shows": "what it shows", "tone": "bad"} | other
    return Quote(words=words, places=(Place(turn=turn, passage=passage),), **values)


def shown(*quotes: Quote, parts: tuple[Part, ...] = (), turns: list[dict[str, Any]] = TURNS) -> Transcript:
    report = Report(anchor="j0", headline="", tone="plain", quotes=quotes, parts=parts)
    return transcript(session_view(text_of("s1", turns)), [report])


def views(found: Transcript) -> list[TurnView]:
    turns: list[TurnView] = []
    for item in found.items:
        turns += item.turns if isinstance(item, Fold) else [item]
    return turns


def part(turn: int, tone: Tone = "bad") -> Part:
    return Part(anchor="j0-0", label="C1", turn=turn, says="reversion", tone=tone)


def test_words_are_marked_in_their_turn_and_lead_both_ways() -> None:
    found = shown(quote("Right, 20:00", 3))
    (located,) = found.quotes["j0-0"]
    turn = views(found)[3]
    assert [piece.text for piece in turn.text.pieces if piece.marks] == ["Right, 20:00"]
    (mark,) = turn.text.marks
    assert (mark.anchor, mark.finding) == (located.mark, "j0-0")
    assert located.place == Place(turn=3)


def test_words_are_marked_in_their_passage_of_evidence() -> None:
    found = shown(quote("at  19:00", 1, 0))
    turn = views(found)[1]
    assert [piece.text for piece in turn.passages[0].pieces if piece.marks] == ["at 19:00"]
    assert not turn.text.marks
    assert turn.marked_passages == turn.passages[0].marks


@pytest.mark.parametrize("place", [(3, None), (9, None), (-1, None), (1, 5), (1, -1), (0, 0)])
def test_j2_what_is_not_there_is_marked_nowhere_and_said_to_have_no_place(place: tuple[int, int | None]) -> None:
    found = shown(quote("nine seats", *place))
    (located,) = found.quotes["j0-0"]
    assert located.place is None
    assert located.mark is None
    assert not any(turn.text.marks for turn in views(found))


def test_words_of_the_judge_are_marked_where_they_happen_to_stand_and_missed_nowhere() -> None:
    found = shown(quote("20:00", 2, told=True), quote("eight in the evening", 2, told=True))
    assert [item.quote.words for item in found.quotes["j0-0"]] == ["20:00"]
    assert [mark.shows for mark in views(found)[2].text.marks] == ["what it shows"]


def test_of_several_places_the_first_that_has_the_words_is_marked() -> None:
    places = (Place(turn=0), Place(turn=2), Place(turn=3))
    asked = Quote(anchor="j0-0", label="C1", words="20:00", shows="", tone="info", places=places)
    (located,) = shown(asked).quotes["j0-0"]
    assert located.place == Place(turn=2)


def test_the_same_words_of_a_finding_carry_one_mark_that_says_both() -> None:
    found = shown(quote("20:00", 3, shows="accuracy", tone="info"), quote("20:00", 3, shows="evidence"))
    (mark,) = views(found)[3].text.marks
    assert (mark.shows, mark.tone) == ("accuracy, evidence", "bad")
    assert {item.mark for item in found.quotes["j0-0"]} == {mark.anchor}


def test_overlapping_words_of_two_findings_carry_a_mark_each() -> None:
    found = shown(quote("Right, 20:00", 3), quote("20:00 for", 3, anchor="j0-1", tone="good"))
    text = views(found)[3].text
    assert [(piece.text, len(piece.marks)) for piece in text.pieces] == [
        ("Right, ", 1),
        ("20:00", 2),
        (" for", 1),
        (" two", 0),
    ]
    assert [text.tone(piece) for piece in text.pieces] == ["bad", "bad", "good", "plain"]


def test_the_worst_part_gives_a_turn_its_tone() -> None:
    turns = views(shown(parts=(part(3, "good"), part(3), part(1, "warn"))))
    assert [turn.tone for turn in turns] == ["plain", "warn", "plain", "bad"]


def long(turns: int) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[place % 2], "text": f"Turn {place}"} for place in range(turns)]


def test_a_long_session_is_folded_but_for_what_stands_out_and_what_is_near() -> None:
    found = shown(quote("Turn 100", 100), parts=(part(300), part(200, "good")), turns=long(500))
    open_ = [item.turn.index for item in found.items if isinstance(item, TurnView)]
    assert open_ == [*range(3), *range(98, 103), *range(298, 303), *range(497, 500)]
    assert [turn.turn.index for turn in views(found)] == list(range(500))


def test_a_session_of_ordinary_length_is_shown_whole() -> None:
    assert not any(isinstance(item, Fold) for item in shown(turns=long(UNFOLDED)).items)


def test_short_stretches_are_not_worth_a_fold() -> None:
    found = shown(parts=tuple(part(turn) for turn in range(0, 60, 8)), turns=long(60))
    assert not any(isinstance(item, Fold) for item in found.items)
