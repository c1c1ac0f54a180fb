"""Sampling policies (S1): ordered strata with a predicate, a rate, a priority and rubrics, read from YAML.

A policy is checked in full when it is read, and named by a hash of what it says: comments and layout don't count.
`default.yaml` is the built-in policy and documents the format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import resources
from typing import Annotated, Any, Final

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from monitor.decision import PolicyLoaded, Priority, StratumInfo
from monitor.errors import PolicyError
from monitor.sampling.coin import quantize
from monitor.sampling.predicate import Predicate, PredicateError
from monitor.sampling.yaml_lines import YamlLines

ERROR_STRATUM: Final = "error"
TRUNCATED_STRATUM: Final = "truncated"
RESERVED_STRATA: Final = (ERROR_STRATUM, TRUNCATED_STRATUM)
MIN_RATE: Final = 0.001
NAME_PATTERN: Final = r"^[a-z][a-z0-9_]{0,39}$"
DEFAULT_SOURCE: Final = "default.yaml (built in)"

_Loc = tuple[int | str, ...]


class Stratum(msgspec.Struct, kw_only=True, frozen=True):
    """A stratum ready for use. `when` is None in the base stratum, which takes every session that is left."""

    name: str
    when: Predicate | None
    weight16: int
    priority: Priority
    rubrics: tuple[str, ...]

    @property
    def rate(self) -> float:
        """The probability in force: the rate of the file, quantized so that 16/rate is whole (S2)."""
        return 16 / self.weight16

    def takes(self, document: dict[str, Any]) -> bool:
        """Say whether a session falls into this stratum, given that none before took it."""
        return self.when is None or self.when.matches(document)


class Policy(msgspec.Struct, kw_only=True, frozen=True):
    """A policy ready for use. `holdout16` is the weight of the hold-out coin in sixteenths; None turns it off."""

    version: str
    strata: tuple[Stratum, ...]
    holdout16: int | None

    def published(self, assistants: Mapping[str, Sequence[str]]) -> PolicyLoaded:
        """Give the record that says that this policy is in force (R3)."""
        return PolicyLoaded(
            policy=self.version,
            strata=[
                StratumInfo(
                    name=stratum.name,
                    rate=stratum.rate,
                    weight16=stratum.weight16,
                    priority=stratum.priority,
                    rubrics=list(stratum.rubrics),
                )
                for stratum in self.strata
            ],
            holdout=16 / self.holdout16 if self.holdout16 else 0.0,
            assistants={name: list(versions) for name, versions in assistants.items()},
        )


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_Rate = Annotated[float, Field(strict=True, ge=MIN_RATE, le=1.0)]


class _StratumSpec(_Part):
    name: str = Field(pattern=NAME_PATTERN)
    when: str | None = None
    rate: _Rate
    priority: Priority = "routine"
    rubrics: list[str]


class _PolicySpec(_Part):
    strata: list[_StratumSpec] = Field(min_length=1, max_length=20)
    holdout: _Rate | Annotated[float, Field(strict=True, ge=0.0, le=0.0)] = 0.01


def parse_policy(text: str, *, source: str, rubrics: Collection[str]) -> Policy:
    """Read a policy from YAML text; `source` names it in errors, `rubrics` are the names that it may use.

    Raises `PolicyError` with a line per mistake: file, line, stratum, key, value and what is allowed.
    """
    lines = YamlLines(text, source)
    try:
        spec = _PolicySpec.model_validate(lines.values)
    except ValidationError as error:
        raise PolicyError("\n".join(_structure(error, lines))) from None
    predicates: dict[int, Predicate] = {}
    mistakes = [
        lines.describe(loc, message)
        for index, stratum in enumerate(spec.strata)
        for loc, message in _mistakes(spec, index, stratum, rubrics, predicates)
    ]
    if mistakes:
        raise PolicyError("\n".join(mistakes))
    return _build(spec, predicates)


def default_text() -> str:
    """Give the YAML of the built-in policy."""
    return resources.files("monitor.sampling").joinpath("default.yaml").read_text(encoding="utf-8")


def default_policy(rubrics: Collection[str]) -> Policy:
    """Give the built-in policy."""
    return parse_policy(default_text(), source=DEFAULT_SOURCE, rubrics=rubrics)


def _build(spec: _PolicySpec, predicates: Mapping[int, Predicate]) -> Policy:
    strata = tuple(
        Stratum(
            name=stratum.name,
            when=predicates.get(index),
            weight16=quantize(stratum.rate),
            priority=stratum.priority,
            rubrics=tuple(stratum.rubrics),
        )
        for index, stratum in enumerate(spec.strata)
    )
    return Policy(
        version=_version(spec), strata=strata, holdout16=quantize(spec.holdout) if spec.holdout > 0 else None
    )


def _version(spec: _PolicySpec) -> str:
    values = spec.model_dump(mode="json")
    for stratum in values["strata"]:
        stratum["when"] = stratum["when"].strip() if stratum["when"] is not None else None
    normal = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(normal.encode(), digest_size=8).hexdigest()


def _structure(error: ValidationError, lines: YamlLines) -> Iterator[str]:
    seen = set()
    for item in error.errors(include_url=False):
        # A union reports each of its arms under a key of its own; the file knows only the key before.
        loc = item["loc"][:1] if item["loc"][:1] == ("holdout",) else item["loc"]
        message = item["msg"]
        if item["type"] == "extra_forbidden":
            keys = _PolicySpec.model_fields if len(loc) == 1 else _StratumSpec.model_fields
            message = f"unknown key; allowed: {', '.join(keys)}"
        if loc and loc[-1] in {"rate", "holdout"} and item["type"] != "missing":
            message = f"must be a number from {MIN_RATE} to 1" + (", or 0" if loc[-1] == "holdout" else "")
        if (loc, message) not in seen:
            seen.add((loc, message))
            yield lines.describe(loc, message)


def _mistakes(
    spec: _PolicySpec,
    index: int,
    stratum: _StratumSpec,
    rubrics: Collection[str],
    predicates: dict[int, Predicate],
) -> Iterator[tuple[_Loc, str]]:
    """Find what the structure alone doesn't show, and compile the predicate."""
    here: _Loc = ("strata", index)
    if stratum.name in RESERVED_STRATA:
        yield (*here, "name"), "is reserved for sessions that can't be evaluated"
    if any(other.name == stratum.name for other in spec.strata[:index]):
        yield (*here, "name"), "is used twice; names must differ"
    for place, name in enumerate(stratum.rubrics):
        if name not in rubrics:
            yield (*here, "rubrics", place), f"unknown rubric; allowed: {', '.join(sorted(rubrics))}"
        elif name in stratum.rubrics[:place]:
            yield (*here, "rubrics", place), "is listed twice"
    yield from _predicate_mistakes(spec, index, stratum, predicates)


def _predicate_mistakes(
    spec: _PolicySpec, index: int, stratum: _StratumSpec, predicates: dict[int, Predicate]
) -> Iterator[tuple[_Loc, str]]:
    here: _Loc = ("strata", index)
    if index == len(spec.strata) - 1:
        if stratum.when is not None:
            yield (*here, "when"), "the last stratum is the base and takes what is left: it must have no 'when'"
        elif not stratum.rubrics:
            yield (*here, "rubrics"), "the base stratum must have a rubric, or most sessions are never judged"
    elif stratum.when is None:
        yield here, "needs a 'when'; only the last stratum, the base, goes without"
    else:
        try:
            predicates[index] = Predicate(stratum.when)
        except PredicateError as error:
            yield (*here, "when"), str(error)
