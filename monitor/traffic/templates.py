"""Conversation templates: read from the package's TOML files, and checked so that labels follow from the text.

A domain file has `assistant`, `tenant`, `risk_level`, `[kinds]`, `[[template]]` and `[[filler]]`. A script is a
list of steps: `["user", line, ...]`, `["bot", line, ...]`, `["evidence", passage, ...]` (of the bot step before
it; no passage means that retrieval found nothing) and `["fix", slot, thing, line, ...]`: a place where the user
may correct a slot.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from monitor.errors import ConfigError
from monitor.events import RiskLevel
from monitor.traffic.wording import slots_in

Family: TypeAlias = Literal["time", "name", "amount", "place", "item"]
Value: TypeAlias = tuple[str, ...]
DOMAINS: Final = ("banking", "clinic", "cooking", "itsupport", "shopping", "travel")

_SPARE = 3  # a slot may need an old, a new and a still newer value


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the values of a slot come from: `values`, or `parts` that are put together by `join`.

    A `fact` (a date of birth) can be wrong, but nobody changes their mind about it.
    """

    family: Family
    values: tuple[str, ...] = ()
    join: str = "{}"
    parts: tuple[tuple[str, ...], ...] = ()
    fact: bool = False

    @property
    def pools(self) -> tuple[tuple[str, ...], ...]:
        """The values to draw from, part by part."""
        return self.parts or (self.values,)

    def text(self, value: Value) -> str:
        """Write a value out."""
        return self.join.format(*value)


class Say(msgspec.Struct, frozen=True):
    """A line of one side, in several wordings. `evidence` is None when no evidence event belongs to it."""

    role: Literal["user", "assistant"]
    lines: tuple[str, ...]
    evidence: tuple[str, ...] | None = None

    @property
    def slots(self) -> frozenset[str]:
        """The slots that every wording names."""
        return frozenset.intersection(*(slots_in(line) for line in self.lines))


class Fix(msgspec.Struct, frozen=True):
    """A place where the user may correct a slot. `heard`: the user had named the value before."""

    slot: str
    thing: str
    lines: tuple[str, ...]
    heard: bool = False


Step: TypeAlias = Say | Fix


class Template(msgspec.Struct, frozen=True):
    """One conversation skeleton."""

    domain: str
    name: str
    slots: dict[str, str]
    script: tuple[Step, ...]

    @property
    def fixes(self) -> dict[int, Fix]:
        """The places of corrections, by their place in the script."""
        return {at: step for at, step in enumerate(self.script) if isinstance(step, Fix)}

    def replies(self, slot: str, *, after: int = -1, before: int | None = None) -> list[int]:
        """Give the places of the assistant's lines that name a slot in every wording."""
        places = range(after + 1, len(self.script) if before is None else before)
        return [at for at in places if _names(self.script[at], "assistant", slot)]


class Filler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question on the side and its answer."""

    user: tuple[str, ...]
    bot: tuple[str, ...]
    evidence: tuple[str, ...] | None = None


class _TemplateFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    slots: dict[str, str]
    script: tuple[Annotated[tuple[str, ...], msgspec.Meta(min_length=1)], ...]


class _DomainFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    assistant: str
    tenant: str
    kinds: dict[str, Kind]
    template: tuple[_TemplateFile, ...]
    filler: tuple[Filler, ...]
    risk_level: RiskLevel = "normal"


class Domain(msgspec.Struct, frozen=True):
    """Everything about one domain."""

    name: str
    assistant: str
    tenant: str
    risk_level: RiskLevel
    kinds: dict[str, Kind]
    templates: tuple[Template, ...]
    fillers: tuple[Filler, ...]


class Phrases(msgspec.Struct, frozen=True):
    """The wordings that all domains share: group (`any`, a family, ...) -> use -> lines."""

    groups: dict[str, dict[str, tuple[str, ...]]]

    def lines(self, use: str, family: str | None = None) -> tuple[str, ...]:
        """Give the lines for a use: the general ones and those of the family."""
        return self.groups["any"].get(use, ()) + self.groups.get(family or "", {}).get(use, ())


def load_phrases() -> Phrases:
    """Read the shared wordings."""
    return Phrases(groups=msgspec.convert(_read("common"), dict[str, dict[str, tuple[str, ...]]]))


def load_domains() -> tuple[Domain, ...]:
    """Read and check all domains. Raises `ConfigError` that names the file and the template."""
    return tuple(domain(name, _read(name)) for name in DOMAINS)


def domain(name: str, raw: dict[str, Any]) -> Domain:
    """Check one domain file. Raises `ConfigError` that names the domain and the template."""
    try:
        file = msgspec.convert(raw, _DomainFile)
    except msgspec.ValidationError as error:
        raise ConfigError(f"traffic domain {name}: {error}") from None
    for kind_name, kind in file.kinds.items():
        if any(len(set(pool)) < _SPARE for pool in kind.pools):
            raise ConfigError(f"traffic domain {name}: kind {kind_name} needs {_SPARE} different values at least")
    templates = tuple(_template(name, item, file.kinds) for item in file.template)
    return Domain(name, file.assistant, file.tenant, file.risk_level, file.kinds, templates, file.filler)


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(
        (resources.files("monitor.traffic") / "data" / f"{name}.toml").read_text(encoding="utf-8")
    )


def _template(domain_name: str, file: _TemplateFile, kinds: dict[str, Kind]) -> Template:
    template = Template(domain_name, file.name, file.slots, _steps(file.script))
    if problem := _problem(template, kinds):
        raise ConfigError(f"traffic domain {domain_name}: template {file.name}: {problem}")
    return template


def _steps(script: tuple[tuple[str, ...], ...]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for word, *rest in script:
        if word == "evidence" and steps and isinstance(said := steps[-1], Say):
            steps[-1] = Say(said.role, said.lines, tuple(rest))
        elif word == "fix" and len(rest) > 1:
            heard = any(_names(step, "user", rest[0]) for step in steps)
            steps.append(Fix(rest[0], rest[1], tuple(rest[2:]), heard))
        elif word in {"user", "bot"} and rest:
            steps.append(Say("user" if word == "user" else "assistant", tuple(rest)))
        else:
            raise ConfigError(f"traffic: step {word!r} is unknown, out of place or lacks lines")
    return tuple(steps)


def _problem(template: Template, kinds: dict[str, Kind]) -> str | None:
    """Say why labels wouldn't follow from the text of a template, or None."""
    if unknown := [kind for kind in template.slots.values() if kind not in kinds]:
        return f"unknown kind {unknown[0]}"
    if len(set(template.slots.values())) < len(template.slots):
        return "two slots of one kind could get the same value"
    said = [step for step in template.script if isinstance(step, Say)]
    if [step.role for step in said] != ["user", "assistant"] * (len(said) // 2):
        return "lines must alternate and end with the assistant"
    loose = {name for step in said for line in step.lines for name in slots_in(line)} - set(template.slots)
    if loose:
        return f"unknown slot {min(loose)}"
    return next(filter(None, (_fix_problem(template, at, fix) for at, fix in template.fixes.items())), None)


def _fix_problem(template: Template, at: int, fix: Fix) -> str | None:
    before, after = template.script[:at], template.script[at + 1 :]
    if not template.replies(fix.slot, before=at):
        return f"{fix.slot} is corrected before the assistant has named it"
    if len(template.replies(fix.slot, after=at)) < 2:  # noqa: PLR2004 - one to use the correction, one to lose it
        return f"{fix.slot} is named less than twice after its correction"
    if not fix.heard and any(fix.slot in slots_in(line) for step in before for line in _user_lines(step)):
        return f"{fix.slot} is named by the user in some wordings only"
    if any(slots_in(line) for step in after for line in _user_lines(step)):
        return "the user names a value after a correction: coming back to it would be prompted"
    return None


def _user_lines(step: Step) -> tuple[str, ...]:
    return step.lines if isinstance(step, Say) and step.role == "user" else ()


def _names(step: Step, role: str, slot: str) -> bool:
    return isinstance(step, Say) and step.role == role and slot in step.slots
