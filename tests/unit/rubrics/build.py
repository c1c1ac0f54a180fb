"""Sessions for the tests of signals, rubrics and judging: written by hand, and drawn at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from monitor.events import Correction, Passage
from monitor.rubrics.correction import CorrectionRubric
from monitor.rubrics.correction.window import CorrectionWindow
from monitor.session import Session, SessionAttributes, SessionTurn

Said = tuple[str, str]
_ROLES = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}


def chat(*said: Said, **more: Any) -> Session:
    """Make a session of ("u" | "a" | "s" | "t", text) pairs; `cut` maps turn indices to finish reasons."""
    cut: dict[int, str] = more.pop("cut", {})
    evidence: dict[int, tuple[Passage, ...]] = more.pop("evidence", {})
    turns = tuple(
        SessionTurn(
            index=index,
            turn_id=f"t{index}",
            role=_ROLES[who],  # type: ignore[arg-type]
            text=text,
            ts=float(index),
            finish_reason=cut.get(index),
            evidence=evidence.get(index),
        )
        for index, (who, text) in enumerate(said)
    )
    values: dict[str, Any] = {
        "tenant": "acme",
        "session_id": "s1",
        "segment": "e1",
        "previous_segment": None,
        "close_reason": "ended",
        "content_hash": "0" * 32,
        "attributes": SessionAttributes(risk_level=more.pop("risk", "normal")),
        "turns": turns,
    }
    return Session(**(values | more))


def corrected(turn: int, number: int = 1, **more: Any) -> Correction:
    """Make a producer's correction event that names a turn."""
    return Correction(event_id=f"c{number}", session_id="s1", ts=1.0, tenant="acme", turn_id=f"t{turn}", **more)


# "The seats are wrong": corrected in turn 2, right in turn 3, wrong again in turn 5, right in turns 7 and 9.
SEATS: tuple[Said, ...] = (
    ("u", "Please hold 4 seats in the garden room."),
    ("a", "I am holding 4 seats in the garden room. Is that correct?"),
    ("u", "No, make it 6 seats."),
    ("a", "Understood, 6 seats in the garden room."),
    ("u", "Is there parking?"),
    ("a", "There is parking. I am holding 4 seats in the garden room."),
    ("u", "And a cloakroom?"),
    ("a", "There is one by the door, for all 6 of you."),
    ("u", "Lovely."),
    ("a", "See you then, all 6 of you."),
)

RUBRIC = CorrectionRubric()


def seats() -> CorrectionWindow:
    """Give the one window of the seats session."""
    (window,) = RUBRIC.windows(chat(*SEATS))
    return window


def reverted(**changes: Any) -> dict[str, Any]:
    """Give a valid answer for the seats session, with changes."""
    return {
        "is_correction": True,
        "targets_turn": 1,
        "correction_id": "C1",
        "correction_turn_index": 2,
        "corrected_claim": "4 seats",
        "correction_content": "6 seats",
        "correction_type": "factual_correction",
        "acknowledgment_quote": "Understood",
        "incorporation_check_turns": [3, 5, 7, 9],
        "incorporation_evidence": [
            {"turn_index": 3, "quote": "6 seats in the garden room"},
            {"turn_index": 5, "quote": "holding  4 seats"},
        ],
        "first_right_use_turn_index": 3,
        "reversion_turn_index": 5,
        "over_correction_detail": "",
        "over_correction_turn_index": -1,
        "acknowledgment": 5,
        "incorporation_accuracy": 2,
        "persistence": 1,
        "no_over_correction": 5,
        "failure_mode": "reverted",
        "rationale": "Four seats are back in turn 5.",
    } | changes


def kept(**changes: Any) -> dict[str, Any]:
    """Give an answer for the seats session that sees no failure, with changes."""
    return reverted(
        reversion_turn_index=-1, incorporation_accuracy=5, persistence=5, failure_mode="none", **changes
    )


def unjudged(**changes: Any) -> dict[str, Any]:
    """Give an answer for the seats session that judges no reply: by default, it doesn't say what is right."""
    nothing: dict[str, Any] = {
        "correction_content": "",
        "acknowledgment_quote": "",
        "incorporation_check_turns": [],
        "incorporation_evidence": [],
        "first_right_use_turn_index": -1,
    }
    return kept(**(nothing | changes))


def no_correction(**changes: Any) -> dict[str, Any]:
    """Give an answer for the seats session that sees no correction in it."""
    nothing: dict[str, Any] = {"is_correction": False, "targets_turn": -1, "corrected_claim": ""}
    return unjudged(**(nothing | changes))


_VOCABULARY = """
    no actually wrong instead make it not but I meant 4
    six seats 5:15 pm March 8th Friday Anna garden room you said
    sorry right correct confirm? yes. please, change the time to of from
"""
_WORDS = st.sampled_from(_VOCABULARY.split())
_TEXT = st.one_of(
    st.lists(_WORDS, max_size=14).map(" ".join),
    st.lists(_WORDS, min_size=3, max_size=14).map(" ".join),
    st.text(max_size=30),
)


@st.composite
def sessions(draw: st.DrawFn, max_turns: int = 14) -> Session:
    """Draw a session: any roles, odd texts, cut replies, producers' events that may be wrong."""
    said = draw(st.lists(st.tuples(st.sampled_from("uauauast"), _TEXT), max_size=max_turns))
    cut = draw(st.dictionaries(st.integers(0, max_turns), st.sampled_from(["length", "stop"]), max_size=2))
    events = draw(
        st.lists(
            st.builds(
                corrected,
                st.integers(0, max_turns),
                st.integers(1, 99),
                text=st.none() | _TEXT,
                error_turn_id=st.none() | st.integers(0, max_turns).map("t{}".format),
                corrected_claim=st.none() | _TEXT,
                correction_content=st.none() | _TEXT,
            ),
            max_size=3,
        )
        if draw(st.booleans())
        else st.just([])
    )
    reason = draw(st.sampled_from(["ended", "inactivity", "max_turns"]))
    risk = draw(st.sampled_from(["normal", "high"]))
    return chat(*said, cut=cut, corrections=tuple(events), close_reason=reason, risk=risk)
