"""Lines: variants, typing, values."""

import random

from hypothesis import given
from hypothesis import strategies as st

from monitor.traffic.wording import capitalized, fill, mentions, mistyped, slots_in, spoken, typed, vary

WORDS = st.text("abcdefghijklmnop ", min_size=0, max_size=40)


@given(st.lists(st.text("abc", max_size=5), min_size=1, max_size=4), st.integers())
def test_vary_picks_one_of_the_alternatives(options: list[str], seed: int) -> None:
    assert vary(f"<[{'|'.join(options)}]>", random.Random(seed)) in {f"<{option}>" for option in options}


def test_an_empty_alternative_leaves_no_space() -> None:
    said = {vary("so [indeed|], yes [thank you|].", random.Random(seed)) for seed in range(40)}
    assert said == {"so indeed, yes thank you.", "so, yes thank you.", "so indeed, yes.", "so, yes."}


def test_fill_capitalizes_on_request() -> None:
    assert fill("{Thing}: {thing} {new}", {"thing": "the name", "new": "ann"}) == "The name: the name ann"


def test_values_are_not_taken_for_slots_or_variants() -> None:
    # What is filled in is never expanded again.
    assert spoken("it is {new}", {"new": "[a|b] {old}"}, random.Random(1)) == "It is [a|b] {old}"


@given(WORDS, st.integers())
def test_a_typo_swaps_two_letters_and_leaves_slots(text: str, seed: int) -> None:
    line = f"{text} {{longslotname}} {text}"
    wrong = mistyped(line, random.Random(seed))
    assert sorted(wrong) == sorted(line)
    assert slots_in(wrong) == {"longslotname"}
    assert sum(a != b for a, b in zip(line, wrong, strict=True)) in {0, 2}


@given(WORDS, st.sampled_from(["tidy", "lower", "typos"]), st.integers())
def test_values_survive_every_manner(text: str, manner: str, seed: int) -> None:
    line = typed(f"{text} {{new}}!", {"new": "12 May at 4:30 pm"}, manner, random.Random(seed))  # type: ignore[arg-type]
    assert mentions(line, "12 May at 4:30 pm")


def test_mentions_wants_the_whole_value() -> None:
    assert mentions("from the 2nd on", "the 2nd")
    assert not mentions("on 12 May", "2 May")
    assert not mentions("$1,150", "150x")
    assert mentions("ORDER T-1.", "order t-1")
    assert mentions("it costs £18.50.", "£18.50")


@given(st.text(max_size=10))
def test_capitalized_changes_the_first_letter_only(text: str) -> None:
    assert capitalized(text)[1:].endswith(text[1:])
