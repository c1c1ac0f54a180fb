"""Conversations: text and label say the same."""

import random
import re

import pytest

from monitor.traffic.casting import Cast, Casting, casts
from monitor.traffic.labels import BEHAVIORS, FAILURES, Behavior
from monitor.traffic.script import Conversation, Corrected, perform
from monitor.traffic.templates import Domain, Phrases, load_domains, load_phrases
from monitor.traffic.wording import mentions


@pytest.fixture(scope="module")
def domains() -> tuple[Domain, ...]:
    return load_domains()


@pytest.fixture(scope="module")
def phrases() -> Phrases:
    return load_phrases()


def _all(domains: tuple[Domain, ...], behaviors: list[Behavior]) -> list[Cast]:
    return [cast for ways in casts(domains, behaviors) for cast in ways]


def _said(conversation: Conversation, role: str, after: int, until: int | None = None) -> list[str]:
    end = len(conversation.turns) if until is None else until
    return [turn.text for turn in conversation.turns[after + 1 : end] if turn.role == role]


def _named(texts: list[str], value: str) -> bool:
    return any(mentions(text, value) for text in texts)


def check_text(conversation: Conversation) -> None:
    assert [turn.role for turn in conversation.turns] == ["user", "assistant"] * (len(conversation.turns) // 2)
    for turn in conversation.turns:
        assert turn.text
        assert not re.search(r"[{}\[\]|]|  | [.,]|^\s|\s$|\bNone\b", turn.text), turn.text


def check_label(conversation: Conversation, correction: Corrected) -> None:
    """Hold one correction's label against the text."""
    user = conversation.turns[correction.turn]
    assert user.role == "user"
    assert mentions(user.text, correction.new)
    assert correction.old != correction.new
    assert _named(
        [turn.text for turn in conversation.turns[: correction.turn] if turn.role == "assistant"], correction.old
    )
    later = _said(conversation, "assistant", correction.turn + 1)
    CHECKS[correction.behavior](conversation, correction, later)
    assert (correction.reversion_turn is not None) == (correction.behavior == "reverted")
    assert (correction.spill is not None) == (correction.behavior == "over_applied")
    if correction.behavior != "superseded":
        # Nothing a user says later asks for either value: whatever comes back comes back unprompted.
        asked = _said(conversation, "user", correction.turn)
        assert not _named(asked, correction.old)
        assert not _named(asked, correction.new)


def _taken(_: Conversation, correction: Corrected, later: list[str]) -> None:
    assert _named(later, correction.new)
    assert not _named(later, correction.old)


def _not_taken(conversation: Conversation, correction: Corrected, later: list[str]) -> None:
    assert _named(later, correction.old)
    assert not _named(later, correction.new)
    if correction.behavior == "ignored":
        assert not mentions(conversation.turns[correction.turn + 1].text, correction.new)
    else:
        assert mentions(conversation.turns[correction.turn + 1].text, correction.old)


def _partial(_: Conversation, correction: Corrected, later: list[str]) -> None:
    assert not _named(later, correction.new)
    assert not _named(later, correction.old)


def _reverted(conversation: Conversation, correction: Corrected, later: list[str]) -> None:
    turn = correction.reversion_turn
    assert turn is not None
    assert mentions(conversation.turns[correction.turn + 1].text, correction.new)
    kept = _said(conversation, "assistant", correction.turn + 1, turn)
    assert _named(kept, correction.new)
    assert not _named(kept, correction.old)
    back = conversation.turns[turn]
    assert back.role == "assistant"
    assert mentions(back.text, correction.old)
    assert not _named(_said(conversation, "assistant", turn - 1), correction.new)
    assert later


def _superseded(conversation: Conversation, correction: Corrected, _: list[str]) -> None:
    (second,) = [c for c in conversation.corrections if c.slot == correction.slot and c is not correction]
    assert (second.old, second.behavior) == (correction.new, "taken")
    between = _said(conversation, "assistant", correction.turn + 1, second.turn)
    assert _named(between, correction.new)
    assert not _named(between, correction.old)


def _over_applied(conversation: Conversation, correction: Corrected, later: list[str]) -> None:
    _taken(conversation, correction, later)
    assert correction.spill is not None
    assert _named(later, correction.spill)
    assert not _named([turn.text for turn in conversation.turns[: correction.turn + 2]], correction.spill)


CHECKS = {
    "taken": _taken,
    "ignored": _not_taken,
    "disputed": _not_taken,
    "partial": _partial,
    "reverted": _reverted,
    "superseded": _superseded,
    "over_applied": _over_applied,
}


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_every_template_shows_every_behavior_it_can(
    behavior: Behavior, domains: tuple[Domain, ...], phrases: Phrases
) -> None:
    found = _all(domains, [behavior])
    assert len({cast.template.name for cast in found}) >= (20 if behavior == "partial" else 42)
    for number, cast in enumerate(found):
        for seed in range(3):
            conversation = perform(cast, phrases, random.Random(f"{number}/{seed}"))
            check_text(conversation)
            assert conversation.corrections[0].behavior == behavior
            for correction in conversation.corrections:
                check_label(conversation, correction)


@pytest.mark.parametrize("seed", range(150))
def test_several_corrections_keep_their_labels(seed: int, domains: tuple[Domain, ...], phrases: Phrases) -> None:
    rng = random.Random(seed)
    behaviors: list[Behavior] = rng.choices(BEHAVIORS, k=rng.choice((2, 3)))
    cast = Casting(domains).pick(behaviors, rng)
    if cast is None:
        assert len(behaviors) == 3 or "over_applied" in behaviors or "partial" in behaviors
        return
    conversation = perform(cast, phrases, rng, escalated=seed % 2 == 0)
    check_text(conversation)
    drawn = sorted(behaviors + ["taken"] * behaviors.count("superseded"))
    assert sorted(correction.behavior for correction in conversation.corrections) == drawn
    for correction in conversation.corrections:
        check_label(conversation, correction)
    assert (conversation.handoff_turn is not None) == (seed % 2 == 0)


def test_plain_sessions_of_every_template(domains: tuple[Domain, ...], phrases: Phrases) -> None:
    for domain in domains:
        for template in domain.templates:
            for seed in range(4):
                conversation = perform(
                    Cast(domain, template, {}), phrases, random.Random(seed), abandoned=seed == 3
                )
                check_text(conversation)
                assert not conversation.corrections
                assert 2 <= len(conversation.turns) <= 14


def test_turns_that_may_be_cut_hold_no_corrected_value(domains: tuple[Domain, ...], phrases: Phrases) -> None:
    for seed, cast in enumerate(_all(domains, ["taken"])):
        conversation = perform(cast, phrases, random.Random(seed))
        (correction,) = conversation.corrections
        for turn in conversation.turns:
            assert not (
                turn.aside and (mentions(turn.text, correction.old) or mentions(turn.text, correction.new))
            )


def test_wordings_differ_from_session_to_session(domains: tuple[Domain, ...], phrases: Phrases) -> None:
    cast = _all(domains, ["taken"])[0]
    corrections = set()
    for seed in range(60):
        conversation = perform(cast, phrases, random.Random(seed))
        (correction,) = conversation.corrections
        text = conversation.turns[correction.turn].text.lower()
        corrections.add(text.replace(correction.old.lower(), "OLD").replace(correction.new.lower(), "NEW"))
    assert len(corrections) > 20


def test_a_partial_correction_needs_a_value_with_parts(domains: tuple[Domain, ...]) -> None:
    for cast in _all(domains, ["partial"]):
        (at,) = cast.parts
        assert len(cast.domain.kinds[cast.template.slots[cast.template.fixes[at].slot]].parts) > 1


def test_failures_are_the_behaviors_that_are_not_right() -> None:
    assert set(FAILURES) == set(BEHAVIORS) - {"taken", "superseded"}
