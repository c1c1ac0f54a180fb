"""S1: a policy is read in full or refused with file, line, stratum, value and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.errors import PolicyError
from monitor.sampling.policy import Policy, default_policy, default_text, parse_policy
from monitor.sampling.policy_file import PolicyFile
from monitor.sampling.predicate import FIELDS, ROOTS, Predicate, PredicateError

RUBRICS = {"correction", "refusal"}
DEFAULT = ("correction", "refusal", "hallucination", "conversation")
GOOD = """\
strata:
  - name: loud
    when: signals.thumbs_down > 0
    rate: 1
    priority: urgent
    rubrics: [correction, refusal]
  - name: base
    rate: 0.05
    rubrics: [correction]
holdout: 0.01
"""


def parse(text: str) -> Policy:
    return parse_policy(text, source="policy.yaml", rubrics=RUBRICS)


def test_the_built_in_policy_has_the_documented_defaults() -> None:
    """DESIGN section 9."""
    policy = default_policy(DEFAULT)
    assert [(s.name, s.rate, s.priority, s.rubrics) for s in policy.strata] == [
        ("escalated", 1.0, "urgent", DEFAULT),
        ("corrected", 0.5, "routine", DEFAULT),
        ("base", 0.05, "routine", DEFAULT),
    ]
    assert policy.holdout16 == 1_600
    whens = [s.when.source if s.when else None for s in policy.strata]
    assert whens == ["signals.escalations > 0", "signals.corrections >= 2", None]


def test_the_built_in_policy_documents_every_variable() -> None:
    text = default_text()
    for root in ROOTS:
        assert root in text
    for field in (*FIELDS["signals"], *FIELDS["attributes"]):
        assert re.search(rf"\.{field}\b", text), field


def test_a_policy_is_read() -> None:
    policy = parse(GOOD)
    loud, base = policy.strata
    assert loud.weight16 == 16
    assert loud.rubrics == ("correction", "refusal")
    assert base.priority == "routine"
    assert base.when is None
    assert base.rate == 0.05


def test_rates_are_published_as_they_act() -> None:
    """R3 and S2: what is published is the quantized rate."""
    record = parse(GOOD.replace("0.05", "0.3")).published({"concierge": ["1", "2"]})
    assert [(s.name, s.weight16, s.rate) for s in record.strata] == [("loud", 16, 1.0), ("base", 53, 16 / 53)]
    assert record.assistants == {"concierge": ["1", "2"]}
    assert record.holdout == 0.01


@pytest.mark.parametrize(
    ("old", "new", "line", "parts"),
    [
        ("rate: 0.05", "rate: 0", 8, ["stratum 'base'", "rate = 0", "from 0.001 to 1"]),
        ("rate: 0.05", "rate: 0.0009", 8, ["stratum 'base'", "0.0009", "from 0.001 to 1"]),
        ("rate: 0.05", "rate: 1.01", 8, ["stratum 'base'", "1.01", "from 0.001 to 1"]),
        ("rate: 0.05", "rate: .nan", 8, ["nan", "from 0.001 to 1"]),
        ("rate: 0.05", "rate: yes", 8, ["True", "from 0.001 to 1"]),
        ("rate: 0.05", "rate: '0.05'", 8, ["'0.05'", "from 0.001 to 1"]),
        ("    rate: 0.05\n", "", 7, ["stratum 'base'", "rate", "required"]),
        ("name: loud", "name: error", 2, ["'error'", "reserved"]),
        ("name: loud", "name: base", 7, ["'base'", "used twice"]),
        ("name: loud", "name: Loud", 2, ["'Loud'", "^[a-z]"]),
        ("name: loud", "name: " + "a" * 41, 2, ["^[a-z]"]),
        ("urgent", "high", 5, ["stratum 'loud'", "'high'", "'urgent' or 'routine'"]),
        ("refusal]", "tone]", 6, ["'tone'", "unknown rubric", "correction, refusal"]),
        ("refusal]", "correction]", 6, ["listed twice"]),
        ("rubrics: [correction]", "rubrics: []", 9, ["stratum 'base'", "must have a rubric"]),
        ("rubrics: [correction]", "rubrics: correction", 9, ["list"]),
        ("thumbs_down", "thumb_down", 3, ["unknown field 'signals.thumb_down'", "thumbs_down"]),
        ("signals.thumbs_down", "thumbs_down", 3, ["unknown variable 'thumbs_down'", "signals"]),
        ("signals.thumbs_down > 0", "signals.thumbs_down", 3, ["true or false", "int"]),
        ("thumbs_down > 0", "thumbs_down >", 3, ["not valid CEL", "1:22"]),
        ("holdout: 0.01", "holdout: 2", 10, ["holdout = 2", "or 0"]),
        ("holdout: 0.01", "hold_out: 0.01", 10, ["hold_out", "unknown key", "holdout"]),
        ("rate: 1\n", "rate: 1\n    weight: 3\n", 5, ["weight = 3", "unknown key", "rate"]),
        ("rate: 1\n", "rate: 1\n    rate: 0.5\n", 5, ["rate", "twice"]),
        ("    rate: 0.05", "    when: 'true'\n    rate: 0.05", 8, ["stratum 'base'", "must have no 'when'"]),
        ("    when: signals.thumbs_down > 0\n", "", 2, ["stratum 'loud'", "needs a 'when'"]),
        ("strata:", "strata: {", 0, ["not valid YAML"]),
    ],
)
def test_a_mistake_is_named_with_its_line(old: str, new: str, line: int, parts: list[str]) -> None:
    assert old in GOOD
    with pytest.raises(PolicyError) as caught:
        parse(GOOD.replace(old, new, 1))
    message = str(caught.value)
    assert message.startswith(f"policy.yaml:{line or ''}")
    for part in parts:
        assert part in message


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(PolicyError) as caught:
        parse(GOOD.replace("thumbs_down", "nope").replace("refusal]", "tone]"))
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == ["policy.yaml:6", "policy.yaml:3"]


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "strata: []", "strata: &a [*a]", "? {a: 1}\n: 2", "a: !!python/object:os.x {}"]
)
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(PolicyError, match=r"policy\.yaml"):
        parse(text)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_arbitrary_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except PolicyError:
        return


@settings(deadline=None)
@given(st.text(alphabet="signals.corrections>=<&|!()[]'\"12 atribue_\\r//{}:?,", max_size=60))
def test_an_arbitrary_predicate_is_compiled_or_refused(source: str) -> None:
    try:
        predicate = Predicate(source)
    except PredicateError:
        return
    assert predicate.source == source.strip()


@pytest.mark.parametrize(
    ("source", "holds"),
    [
        ("signals.corrections >= 2 && signals.turns < 100", True),
        ("attributes.risk_level == 'high'", False),
        ("attributes.model.startsWith('m') || tenant in ['acme']", True),
        ("['acme', 'other'].exists(name, name == tenant)", True),
        ("close_reason != 'ended' // a comment with signals.nope", False),
        ("tenant == r'signals.nope\\'", False),
        ('attributes.channel == "attributes.nope"', False),
        ("size(attributes.channel) == 0", True),
        ("tenant.matches('^ac')", True),
    ],
)  # fmt: skip
def test_predicates_see_the_documented_variables(source: str, holds: bool) -> None:
    values = {
        "signals": dict.fromkeys(FIELDS["signals"], 2),
        "attributes": dict.fromkeys(FIELDS["attributes"], "") | {"model": "m-1", "risk_level": "normal"},
        "tenant": "acme",
        "close_reason": "ended",
    }
    assert Predicate(source).matches(values) is holds


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("signals.corrections > 1 || signals.bogus > 1", "unknown field 'signals.bogus'"),
        ("signals.corrections > 1 || bogus", "unknown variable 'bogus'"),
        ("true || foo(tenant)", "unknown function 'foo'"),
        ("signals['corrections'] > 1", "'signals' needs a field"),
        ("signals != null", "'signals' needs a field"),
        ("has(attributes.nope)", "unknown field 'attributes.nope'"),
        ("signals.corrections / signals.turns > 1", "every count is 0"),
        ("signals.corrections > 0 && signals.turns", "operand types"),
        ("signals.corrections > 'a'", "fails"),
        ("tenant.matches('(')", "not a valid regex"),
        ("true" + " " * 3_000 + "|| true", "at most 2000"),
        ("", "not valid CEL"),
    ],
)
def test_a_wrong_predicate_is_refused_even_where_evaluation_never_gets(source: str, part: str) -> None:
    with pytest.raises(PredicateError, match=re.escape(part)):
        Predicate(source)


def test_the_version_names_what_a_policy_says() -> None:
    same = "# other words\n" + GOOD.replace("signals.thumbs_down > 0", "' signals.thumbs_down > 0 '").replace(
        "rate: 1\n", "rate: 1.0\n"
    ).replace("    rubrics: [correction]", "    priority: routine\n    rubrics:\n      - correction")
    assert parse(same).version == parse(GOOD).version
    for old, new in [
        ("rate: 0.05", "rate: 0.06"),
        ("name: loud", "name: lout"),
        ("> 0", "> 1"),
        ("urgent", "routine"),
        (", refusal", ""),
        ("holdout: 0.01", "holdout: 0"),
    ]:
        assert parse(GOOD.replace(old, new)).version != parse(GOOD).version, old


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    file = PolicyFile(path, rubrics=RUBRICS)
    first = file.policy
    assert file.poll() is None

    path.write_text("# a comment\n" + GOOD)
    reload = file.poll()
    assert reload is not None
    assert (reload.result, reload.policy) == ("unchanged", first)

    path.write_text(GOOD.replace("0.05", "0.1"))
    reload = file.poll()
    assert reload is not None
    assert reload.result == "loaded"
    assert reload.policy is file.policy
    assert file.policy.strata[-1].rate == 0.1
    assert file.policy.version != first.version
    assert file.poll() is None


def test_a_broken_new_policy_is_refused_once_and_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    file = PolicyFile(path, rubrics=RUBRICS)
    first = file.policy

    path.write_text(GOOD.replace("0.05", "5"))
    reload = file.poll()
    assert reload is not None
    assert (reload.result, reload.policy) == ("refused", first)
    assert reload.reason is not None
    assert f"{path}:8: stratum 'base': rate = 5" in reload.reason
    assert file.poll() is None

    path.unlink()
    reload = file.poll()
    assert reload is not None
    assert reload.result == "refused"
    assert "can't be read" in str(reload.reason)
    assert file.poll() is None
    assert file.policy is first

    path.write_bytes(b"\xff")
    reload = file.poll()
    assert reload is not None
    assert "not UTF-8" in str(reload.reason)

    path.write_text(GOOD)
    reload = file.poll()
    assert reload is not None
    assert reload.result == "unchanged"


def test_a_broken_first_policy_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="can't be read"):
        PolicyFile(tmp_path / "none.yaml", rubrics=RUBRICS)


def test_the_built_in_policy_never_changes() -> None:
    file = PolicyFile(None, rubrics=DEFAULT)
    assert file.policy.version == default_policy(DEFAULT).version
    assert file.poll() is None
