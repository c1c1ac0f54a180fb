"""The lexical rules on conversations, each on the wording that it is for."""

from __future__ import annotations

import pytest

from monitor.judging.lexical import asking
from monitor.judging.lexical.conversation import answer
from monitor.judging.lexical.runs import foreign, wording
from monitor.judging.lexical.support import sentence
from monitor.rubrics.conversation import ConversationWindow
from tests.unit.rubrics.build import chat
from tests.unit.rubrics.conversation_build import passage, window_of

KNOWN = wording(["The harbor tour takes 90 minutes and starts at the old crane."])


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("The harbor tour takes 90 minutes", []),
        ("The harbor tours take 80 minutes", ["80"]),
        ("It starts at the old crane", ["It"]),
        ("Tickets of the crane", ["Tickets of the"]),
    ],
)
def test_runs_of_words_that_no_passage_has(text: str, runs: list[str]) -> None:
    assert foreign(text, KNOWN) == runs


@pytest.mark.parametrize(
    ("text", "earlier", "asked_back", "wanted"),
    [
        ("Thanks a lot!", "", False, "none"),
        ("", "", False, "none"),
        ("Does this library lend games?", "", False, "ambiguous"),
        ("Does this library lend games?", "The town library lends games and books.", False, "clear"),
        ("When does the fair open?", "", False, "clear"),
        ("When does the fair open?", "", True, "ambiguous"),
        ("When does Ada's fair open?", "", True, "clear"),
    ],
)
def test_what_a_question_is(text: str, earlier: str, asked_back: bool, wanted: str) -> None:
    assert asking.kind(text, earlier, asked_back=asked_back) == wanted


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("The tour takes 90 minutes.", True),
        ("Is there anything else?", False),
        ("I have no information on that.", False),
        ("I'm happy to help with the next step.", False),
        (
            "The guide doesn't say who built it, but the old crane was moved to the south quay in 1904.",
            True,
        ),
    ],
)
def test_which_sentences_state_something(text: str, states: bool) -> None:
    assert asking.states(sentence(text)) is states


def window(reply: str, evidence: str) -> ConversationWindow:
    said = (("u", "How long does the harbor tour take?"), ("a", reply))
    return window_of(chat(*said, evidence={1: passage(evidence) if evidence else ()}), 1)


TOUR = "The harbor tour takes 90 minutes and starts at the old crane."


@pytest.mark.parametrize(
    ("reply", "evidence", "stance", "sufficiency", "supports"),
    [
        ("The harbor tour takes 90 minutes.", TOUR, "answers", "sufficient", ["supported"]),
        ("The harbor tour takes 80 minutes.", TOUR, "answers", "sufficient", ["contradicted"]),
        ("Whales sing at night.", TOUR, "answers", "insufficient", ["unsupported"]),
        ("I'm sorry, I have no information on that.", TOUR, "abstains", "sufficient", []),
        ("I have no information on that.", "", "abstains", "insufficient", []),
        ("Which tour do you mean?", TOUR, "asks", "sufficient", []),
    ],
)
def test_what_a_reply_does(reply: str, evidence: str, stance: str, sufficiency: str, supports: list[str]) -> None:
    said = answer(window(reply, evidence))
    assert (said["stance"], said["evidence"]) == (stance, sufficiency)
    assert [item["support"] for item in said["statements"]] == supports


def test_a_statement_that_only_an_earlier_passage_has_is_carried_by_that() -> None:
    said = (("u", "Tell me about the tour."), ("a", "Sure."), ("u", "How long is it?"), ("a", TOUR))
    session = chat(*said, evidence={1: passage(TOUR), 3: passage("Bicycles can be rented nearby.", "p2")})
    assert answer(window_of(session, 3))["statements"][0]["passage_id"] == "E1.1"


def test_another_number_than_an_earlier_reply_had_contradicts_it() -> None:
    said = (("u", "How long?"), ("a", TOUR), ("u", "Sure?"), ("a", TOUR.replace("90", "70")))
    session = chat(*said, evidence={3: passage("Bicycles can be rented nearby.")})
    assert answer(window_of(session, 3))["settled_turn_index"] == 1


def test_a_citation_stands_for_the_statement_before_it() -> None:
    reply = "The harbor tour takes 90 minutes [1]. Whales sing at night. [1] Wine is served [7]."
    seen = answer(window(reply, TOUR))
    verdicts = [(item["statement_id"], item["verdict"]) for item in seen["citations"]]
    assert verdicts == [("S1", "right"), ("S2", "wrong"), ("S3", "fabricated")]
