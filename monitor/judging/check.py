"""Is the judge that is set up one that can judge? Asked of the provider before the first call and now and then.

A wrong name, a retired model or one without structured output is one clear error at the start, not a failed call
per session. A provider that can't be asked, or doesn't tell, is no error: the calls themselves will show.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from monitor.errors import ConfigError
from monitor.judging.model import JudgeModel
from monitor.settings import InstrumentSettings

Lifecycle: TypeAlias = Literal["active", "deprecated", "retired"]

CHECK_TIMEOUT_S: Final = 10.0
_SHOWN: Final = 8


class ModelFacts(msgspec.Struct, kw_only=True, frozen=True):
    """What a provider says of a model; None where it says nothing.

    `known` is False when the provider answers, has a list of models, and this one isn't in it; `offers` is that
    list. `efforts` are the levels that the model takes, empty if it takes none. `retires_at` is Unix time.
    """

    known: bool | None = None
    offers: tuple[str, ...] = ()
    lifecycle: Lifecycle | None = None
    retires_at: float | None = None
    structured_outputs: bool | None = None
    efforts: frozenset[str] | None = None
    max_tokens: int | None = None
    takes_any_name: bool = False


@runtime_checkable
class Describes(Protocol):
    """A judge whose provider can be asked about its model."""

    async def describe(self, *, timeout: float) -> ModelFacts | None:  # noqa: ASYNC109 - as with `complete`
        """Ask within `timeout` seconds; None when the provider has no such endpoint. Raises `JudgeError`."""
        ...


class Checked(msgspec.Struct, kw_only=True, frozen=True):
    """A judge that can be used as far as anyone knows, with what someone should hear all the same."""

    facts: ModelFacts
    warnings: tuple[str, ...] = ()


async def check_judge(
    model: JudgeModel,
    settings: InstrumentSettings,
    *,
    timeout: float = CHECK_TIMEOUT_S,  # noqa: ASYNC109 - handed on
) -> Checked:
    """Ask the judge's provider whether it fits the settings.

    Raises `ConfigError` that names the setting and what to do when it certainly doesn't, and `JudgeError` when the
    provider could not be asked.
    """
    if not isinstance(model, Describes):
        return Checked(facts=ModelFacts())
    facts = await model.describe(timeout=timeout)
    if facts is None:
        told = f"{model.name}: this address doesn't tell about models, so nothing was checked"
        return Checked(facts=ModelFacts(), warnings=(told,))
    wrong = next(_faults(model, settings, facts), None)
    if wrong is not None:
        raise ConfigError(wrong)
    return Checked(facts=facts, warnings=tuple(_warnings(model, facts)))


def _faults(model: JudgeModel, settings: InstrumentSettings, facts: ModelFacts) -> Iterator[str]:
    where = settings.where
    named = f"{where}.model = {model.name!r}"
    if facts.known is False and not facts.takes_any_name:
        yield f"{named}: the provider has no such model. Set {where}.model to one that it has{_list(facts.offers)}"
    if facts.lifecycle == "retired":
        yield f"{named}: this model is retired{_date(facts.retires_at, ' since')}. Set {where}.model to another"
    if facts.structured_outputs is False:
        yield f"{named}: this model has no structured output, which judging needs. Set {where}.model to another"
    if facts.efforts is not None and settings.effort not in {"default", *facts.efforts}:
        allowed = ", ".join(sorted({"default", *facts.efforts}))
        yield f"{where}.effort = {settings.effort!r}: {model.model} doesn't take it; allowed is {allowed}"
    if facts.max_tokens is not None and settings.max_tokens > facts.max_tokens:
        yield f"{where}.max_tokens = {settings.max_tokens}: {model.model} writes at most {facts.max_tokens}"


def _warnings(model: JudgeModel, facts: ModelFacts) -> Iterator[str]:
    if facts.lifecycle == "deprecated":
        when = _date(facts.retires_at, " and retires on")
        yield f"{model.name} is deprecated{when}; a new model starts new series, so let both judge for a while"
    if facts.known is False and facts.takes_any_name:
        yield f"{model.name}: the server names its models otherwise{_list(facts.offers)}; it may still answer"


def _list(offers: tuple[str, ...]) -> str:
    more = ", ..." if len(offers) > _SHOWN else ""
    return f" ({', '.join(offers[:_SHOWN])}{more})" if offers else ""


def _date(unix: float | None, before: str) -> str:
    return "" if unix is None else f"{before} {datetime.fromtimestamp(unix, UTC):%Y-%m-%d}"
