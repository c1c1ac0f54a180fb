"""Template files: what is there, and what is refused."""

from typing import Any

import pytest

from monitor.errors import ConfigError
from monitor.traffic.templates import DOMAINS, Say, domain, load_domains, load_phrases


def _raw(**changes: Any) -> dict[str, Any]:
    template = {
        "name": "t",
        "slots": {"day": "day", "who": "who"},
        "script": [
            ["user", "{day} please"],
            ["bot", "{day} with {who}"],
            ["fix", "day", "the day"],
            ["user", "and?"],
            ["bot", "{day}"],
            ["evidence", "a rule"],
            ["user", "ok"],
            ["bot", "{day}, {who}"],
        ],
        **changes,
    }
    return {
        "assistant": "concierge",
        "tenant": "x",
        "kinds": {
            "day": {"family": "time", "values": ["Monday", "Tuesday", "Friday"]},
            "who": {"family": "name", "values": ["Ann", "Bob", "Cy"]},
        },
        "template": [template],
        "filler": [],
    }


def test_there_are_enough_templates_in_each_domain() -> None:
    domains = load_domains()
    assert [domain.name for domain in domains] == list(DOMAINS)
    assert all(len(domain.templates) >= 8 for domain in domains)
    names = [(domain.name, template.name) for domain in domains for template in domain.templates]
    assert len(set(names)) == len(names) >= 48
    assert {domain.assistant for domain in domains} == {"concierge", "helpdesk"}


def test_every_line_has_more_than_one_wording() -> None:
    for found in load_domains():
        for template in found.templates:
            for step in template.script:
                assert not isinstance(step, Say) or len(step.lines) > 1, (template.name, step)


def test_some_retrievals_find_nothing() -> None:
    for found in load_domains():
        assert any(filler.evidence == () for filler in found.fillers)
        assert any(filler.evidence is None for filler in found.fillers)
        assert any(filler.evidence for filler in found.fillers)


def test_shared_lines_exist_for_every_use() -> None:
    phrases = load_phrases()
    for use in ("neutral", "misheard", "slip", "change", "assumed", "ack", "silent", "ignore", "dispute", "again"):
        assert len(phrases.lines(use)) >= 3
    for line in phrases.lines("ack", "time") + phrases.lines("silent"):
        assert "{value}" in line
    for use in ("neutral", "misheard", "slip", "change", "assumed", "again", "recheck"):
        assert all("{new}" in line for line in phrases.lines(use, "place"))


def test_a_sound_domain_is_read() -> None:
    found = domain("x", _raw())
    (template,) = found.templates
    assert template.fixes[2].heard
    assert template.replies("day", after=2) == [4, 6]
    assert template.replies("who") == [1, 6]
    assert template.script[4].evidence == ("a rule",)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([["user", "{day}"], ["bot", "{day} {nope}"]], "unknown slot nope"),
        ([["user", "{day}"], ["user", "x"]], "alternate"),
        ([["user", "a"], ["bot", "b"], ["fix", "day", "the day"]], "before the assistant has named it"),
        (
            [["user", "a"], ["bot", "{day}"], ["fix", "day", "the day"], ["user", "x"], ["bot", "{day}"]],
            "less than twice",
        ),
        (
            [
                ["user", "a", "{day}"],
                ["bot", "{day}"],
                ["fix", "day", "d"],
                *[["user", "x"], ["bot", "{day}"]] * 2,
            ],
            "in some wordings only",
        ),
        (
            [["user", "a"], ["bot", "{day}"], ["fix", "day", "d"], *[["user", "{day}?"], ["bot", "{day}"]] * 2],
            "prompted",
        ),
        ([["shout", "a"]], "'shout' is unknown"),
        ([["evidence", "a"]], "'evidence' is unknown, out of place"),
        ([["fix", "day"]], "'fix' is unknown, out of place or lacks lines"),
    ],
)
def test_a_script_whose_labels_would_not_follow_is_refused(script: list[list[str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        domain("x", _raw(script=script))


def test_other_mistakes_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown kind"):
        domain("x", _raw(slots={"day": "nope"}))
    with pytest.raises(ConfigError, match="two slots of one kind"):
        domain("x", _raw(slots={"day": "day", "who": "day"}))
    with pytest.raises(ConfigError, match=r"domain x: .*unknown field"):
        domain("x", {**_raw(), "more": 1})
    few = _raw()
    few["kinds"]["day"]["values"] = ["Monday", "Monday", "Friday"]
    with pytest.raises(ConfigError, match="kind day needs 3 different values"):
        domain("x", few)
