"""The correction rubric, before the judge: events, windows, preflight (facts/rubrics.md "correction")."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given

from monitor.rubrics.correction import CorrectionRubric
from monitor.rubrics.correction.events import events, sample
from monitor.rubrics.correction.window import CorrectionWindow, change
from monitor.session import Session
from tests.unit.rubrics.build import RUBRIC, SEATS, chat, corrected, seats, sessions


def windows(session: Session, rubric: CorrectionRubric = RUBRIC) -> tuple[CorrectionWindow, ...]:
    return tuple(rubric.windows(session))


def shown(window: CorrectionWindow) -> list[int]:
    return [turn.index for turn in window.turns]


def reason(session: Session) -> str | None:
    (window,) = windows(session)
    skipped = RUBRIC.preflight(window)
    return None if skipped is None else skipped.reason


def test_a_session_of_one_turn_is_not_applicable() -> None:
    skipped = RUBRIC.applies(chat(("s", "Be kind."), ("u", "Actually, no.")))
    assert skipped is not None
    assert skipped.reason == "not_applicable"
    assert RUBRIC.applies(chat(*SEATS)) is None


def test_a_session_without_a_correction_has_no_windows() -> None:
    assert windows(chat(("u", "Hello"), ("a", "Hello!"))) == ()


def test_a_window_shows_error_correction_and_four_replies_with_what_was_asked() -> None:
    window = seats()
    assert (window.window_id, window.event.turn, window.event.error) == ("C1", 2, 1)
    assert shown(window) == list(range(10))
    assert window.replies == (3, 5, 7, 9)
    assert not window.unobserved


def test_the_error_turn_may_be_a_users_or_none() -> None:
    (window,) = windows(
        chat(("u", "My name is Bo Tarn."), ("a", "Thanks."), ("u", "Sorry, I meant Bo Farn."), ("a", "Noted."))
    )
    assert window.event.error == 0
    (window,) = windows(chat(("u", "Hi"), ("a", "Hello!"), ("u", "I'd prefer short answers"), ("a", "Sure.")))
    assert window.event.error is None


LONG = (
    *SEATS,
    ("u", "Can I bring a dog?"),
    ("a", "Dogs are welcome."),
    ("u", "Remind me?"),
    ("a", "You have 4 seats."),
)


def test_a_later_turn_that_names_the_old_value_is_shown_with_its_question() -> None:
    (window,) = windows(chat(*LONG))
    assert shown(window) == [*range(10), 12, 13]
    assert window.replies == (3, 5, 7, 9, 13)


def test_a_later_turn_that_names_the_new_value_is_shown_too() -> None:
    (window,) = windows(chat(*LONG[:-1], ("a", "You have 6 seats.")))
    assert shown(window) == [*range(10), 12, 13]


def test_a_far_error_turn_is_shown_without_all_that_lies_between() -> None:
    filler = (("u", "How is the weather?"), ("a", "It is sunny."), ("u", "Lovely."), ("a", "Quite."))
    session = chat(SEATS[0], SEATS[1], *filler, *SEATS[2:4], corrections=(corrected(6, error_turn_id="t1"),))
    (window,) = windows(session)
    assert shown(window) == [1, 4, 5, 6, 7]


def test_persistence_is_unobserved_when_fewer_replies_are_there() -> None:
    (window,) = windows(chat(*SEATS[:8]))
    assert window.replies == (3, 5, 7)
    assert window.unobserved


def test_a_later_correction_of_the_same_ends_the_window() -> None:
    first, second = windows(chat(*SEATS[:4], ("u", "Sorry, not 6 seats but 8."), ("a", "8 seats, then.")))
    assert (first.superseded_by, shown(first), first.unobserved) == (4, [0, 1, 2, 3], True)
    assert second.superseded_by is None


def test_a_later_correction_of_something_else_does_not() -> None:
    first, second = windows(
        chat(*SEATS[:4], ("u", "No, in the library, not the garden room."), ("a", "6 seats in the library."))
    )
    assert first.superseded_by is None
    assert first.replies == (3, 5)
    assert second.event.turn == 4


def test_insisting_on_the_same_value_does_not_supersede() -> None:
    first, _ = windows(chat(*SEATS[:3], ("a", "4 seats. Correct?"), ("u", "No, 6 seats!"), ("a", "6 seats.")))
    assert first.superseded_by is None
    assert first.replies == (3, 5)


def test_superseded_before_any_reply() -> None:
    first, second = windows(chat(*SEATS[:3], ("u", "Sorry, not 6 but 8 seats."), ("a", "8 seats, then.")))
    assert first.skip is not None
    assert first.skip.reason == "superseded"
    assert second.skip is None


def test_no_reply() -> None:
    assert reason(chat(*SEATS[:3])) == "no_response"
    assert reason(chat(*SEATS[:3], ("a", " \u200b\n"))) == "no_response"


def test_a_reply_that_was_cut_off_is_unevaluable() -> None:
    assert reason(chat(*SEATS, cut={3: "length"})) == "cut_off"
    (window,) = windows(chat(*SEATS, cut={5: "cancelled"}))
    assert window.skip is None
    assert window.replies == (3, 7, 9)


def test_the_last_event_of_a_session_that_we_cut() -> None:
    said = (*SEATS[:4], ("u", "No, in the library, not the garden room."), ("a", "6 seats in the library."))
    skips = [window.skip for window in windows(chat(*said, close_reason="max_turns"))]
    assert [skip and skip.reason for skip in skips] == [None, "cut_off"]
    assert all(window.skip is None for window in windows(chat(*said, close_reason="inactivity")))


def test_producers_events_come_before_wording() -> None:
    session = chat(
        *SEATS[:4], ("u", "On a Monday"), ("a", "Monday, then."), corrections=(corrected(4, text="a Monday"),)
    )
    assert [(event.turn, event.text) for event in events(session)] == [(4, "a Monday")]


def test_two_events_of_a_producer_in_one_turn_are_separate() -> None:
    said = (*SEATS[:2], ("u", "No, 6 seats in the library."), ("a", "6 seats in the library."))
    found = events(
        chat(*said, corrections=(corrected(2, 1, text="6 seats"), corrected(2, 2, text="in the library")))
    )
    assert [(event.event_id, event.text) for event in found] == [("C1", "6 seats"), ("C2", "in the library")]


def test_two_correcting_sentences_in_one_turn_are_separate_events() -> None:
    said = (
        *SEATS[:2],
        ("u", "No, make it 6 seats. And it's not the garden room, it's the Library."),
        ("a", "Done."),
    )
    assert [event.text for event in events(chat(*said))] == [
        "No, make it 6 seats.",
        "And it's not the garden room, it's the Library.",
    ]


@pytest.mark.parametrize(
    "event",
    [
        corrected(99),
        corrected(3),
        corrected(2, text="make it 9 seats"),
        corrected(2, error_turn_id="t88"),
        corrected(2, error_turn_id="t5"),
        corrected(2, error_turn_id="t1", corrected_claim="a terrace with heating"),
        corrected(8),
    ],
    ids=[
        "no such turn",
        "not the user's",
        "other words",
        "no such error turn",
        "error turn later",
        "other claim",
        "no signal",
    ],
)
def test_preflight_finds_misaligned_events(event: object) -> None:
    assert reason(chat(*SEATS, corrections=(event,))) == "misaligned"


def test_preflight_finds_an_error_turn_that_is_a_tools() -> None:
    said = (SEATS[0], ("t", "4 seats"), *SEATS[2:4])
    assert reason(chat(*said, corrections=(corrected(2, error_turn_id="t1"),))) == "misaligned"


def test_preflight_passes_a_producers_event_that_lines_up() -> None:
    event = corrected(
        2, text="make it  6 seats", error_turn_id="t1", corrected_claim="4 seats", correction_content="6 seats"
    )
    (window,) = windows(chat(*SEATS, corrections=(event,)))
    assert window.skip is None
    assert window.event.error_named
    assert RUBRIC.fields(window)["event"]["corrected_claim"] == "4 seats"


def many(number: int) -> Session:
    said = [("u", "Count."), ("a", "1")]
    for index in range(number):
        said += [("u", f"No, I meant {index + 10}."), ("a", f"Sorry, {index + 10}.")]
    return chat(*said)


def test_at_most_eight_events_are_drawn_by_a_coin_over_session_and_event() -> None:
    session = many(20)
    picked = [window.window_id for window in windows(session)]
    assert len(picked) == 8
    assert picked == [window.window_id for window in windows(session)]
    assert set(picked) <= {f"C{number}" for number in range(1, 21)}
    assert len(windows(many(8))) == 8
    others = {
        tuple(w.window_id for w in windows(msgspec.structs.replace(session, session_id=f"s{i}"))) for i in range(5)
    }
    assert len(others) == 5


def test_every_event_is_drawn_equally_often() -> None:
    session, counts = many(12), dict.fromkeys((f"C{number}" for number in range(1, 13)), 0)
    found = events(session)
    for index in range(1500):
        for event in sample(msgspec.structs.replace(session, session_id=f"s{index}"), found, 8):
            counts[event.event_id] += 1
    # 1500 draws of 8 in 12: 1000 each, standard deviation 18; five of them is a chance of 7e-6 for all twelve.
    assert all(abs(count - 1000) < 92 for count in counts.values()), counts


def test_settings_change_the_window() -> None:
    (window,) = windows(chat(*SEATS), CorrectionRubric(replies=1))
    # Later turns that name a value stay in view.
    assert window.replies == (3, 5, 7, 9)
    (window,) = windows(
        chat(*SEATS[:5], ("a", "There is."), ("u", "Good."), ("a", "Bye.")), CorrectionRubric(replies=1)
    )
    assert window.replies == (3,)


def test_what_changes_is_told_old_and_new() -> None:
    (part,) = change(seats())
    assert (part.new.text, part.old and part.old.text) == ("6", "4")


@given(sessions())
def test_windows_stay_inside_their_session(session: Session) -> None:
    found = RUBRIC.windows(session)
    assert len(found) <= 8
    assert len({window.window_id for window in found}) == len(found)
    for window in found:
        assert [session.turns[turn.index] for turn in window.turns] == list(window.turns)
        assert shown(window) == sorted(set(shown(window)))
        assert all(session.turns[index].role == "assistant" for index in window.replies)
        assert all(window.event.turn < index for index in window.replies)
        assert set(window.replies) <= set(shown(window))
        if window.skip is None:
            assert window.replies
            assert session.turns[window.event.turn].role == "user"
            assert window.event.error is None or window.event.error < window.event.turn
        if window.superseded_by is not None:
            assert shown(window)[-1] < window.superseded_by
    assert found == RUBRIC.windows(session)


def test_a_long_session_is_cut_into_windows_quickly() -> None:
    said = [("u", "Count."), ("a", "1")]
    for index in range(125):
        said += [
            ("u", f"No, I meant {index}."),
            ("a", f"Sorry, {index}."),
            ("u", "And then?"),
            ("a", "A few more words on it."),
        ]
    start = time.process_time()
    assert len(windows(chat(*said))) == 8
    assert time.process_time() - start < 3.0


@pytest.mark.parametrize(
    "piece", ["no, make it 4. ", "not a from ", "Anna Ulm ", "a.b", "'x' ", "to be for ", "5 pm ", "\u200b"]
)
def test_a_long_paste_does_not_take_seconds(piece: str) -> None:
    text = "No, make it 5. " + piece * (100_000 // len(piece))
    start = time.process_time()
    windows(chat(("u", text), ("a", text), ("u", text), ("a", text)))
    assert time.process_time() - start < 3.0
