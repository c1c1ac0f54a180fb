"""The lexical rules on claims, each on the wording that it is for."""

from __future__ import annotations

import pytest

from monitor.events import Passage
from monitor.judging.lexical.hallucination import answer
from tests.unit.rubrics.build import chat
from tests.unit.rubrics.hallucination_build import only_window

CRANE = Passage(id="crane", text="The old crane on the north quay was built in 1904 and lifts 12 tons.")


def statuses(*replies: str) -> list[tuple[int, str]]:
    said = [line for reply in replies for line in (("u", "Go on, please."), ("a", reply))]
    evidence = {2 * number + 1: (CRANE,) for number in range(len(replies))}
    found = answer(only_window(chat(*said, evidence=evidence)))
    return [(claim["turn_index"], claim["status"]) for claim in found["claims"]]


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("The harbor master painted every bench yellow last summer.", 1),
        ("Would you like the harbor master to paint every bench yellow?", 0),
        ("It is hard to say whether the harbor master painted every bench.", 0),
        ("I could not find which bench the harbor master painted yellow.", 0),
        ("The documents do not tell which benches were painted yellow.", 0),
        ("Painted yellow.", 0),
    ],
)
def test_which_sentences_are_claims(text: str, claims: int) -> None:
    assert len(statuses(text)) == claims


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("The old crane on the north quay lifts 12 tons.", "grounded"),
        ("The old crane on the north quay was built in 1894.", "contradicts_evidence"),
        ("The old crane on the north quay was not built in 1904 and lifts 12 tons.", "contradicts_evidence"),
        ("Visitors climb a wooden staircase beside the lighthouse museum.", "unsupported"),
        ("It has a wooden staircase and lifts 12 tons of north quay freight.", "grounded"),
    ],
)
def test_what_a_claim_is_worth(text: str, status: str) -> None:
    assert statuses(text) == [(1, status)]


def test_an_unfounded_claim_that_comes_back_is_led_to_its_origin() -> None:
    climbing = "Visitors climb a wooden staircase beside the lighthouse museum."
    again = f"As mentioned before, {climbing[0].lower()}{climbing[1:]}"
    assert statuses(climbing, again) == [(1, "unsupported"), (3, "propagated_hallucination")]
