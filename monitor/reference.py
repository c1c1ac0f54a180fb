"""Reference pages, made from the declarations themselves: settings and metrics. A test keeps docs/ up to date."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from monitor.config import Settings
from monitor.metrics import PIPELINE, QUALITY, Metric


def metrics_reference() -> str:
    """Give docs/metrics.md: every metric with kind, labels and meaning."""
    return "\n".join(_metrics()) + "\n"


def settings_reference() -> str:
    """Give the tables of docs/configuration.md: every key with type, default and meaning."""
    return "\n".join(_settings()) + "\n"


def _metrics() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield "Made by `backslide reference metrics`; don't edit."
    yield "Label values come from closed sets; ids are never labels."
    yield ""
    yield "## Quality: the metrics port of `web`, read from the store"
    yield ""
    yield "Weighted sums are what rates are computed from (docs/sampling.md). They never reset: use differences,"
    yield "not `rate()` or `increase()`, which take a restored store for a burst."
    yield ""
    yield from _table(QUALITY)
    yield ""
    yield "## Pipeline: each process on its own port"
    yield ""
    yield from _table(PIPELINE)


def _table(metrics: tuple[Metric, ...]) -> Iterator[str]:
    yield "| name | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for metric in metrics:
        suffix = "_total" if metric.kind == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.full_name}{suffix}` | {metric.kind} | {labels} | {metric.help} |"


def _settings() -> Iterator[str]:
    yield "# Settings"
    yield ""
    yield "Made by `backslide reference settings`; don't edit."
    yield ""
    yield "Settings come from one YAML file (`--config`), overridden by the environment:"
    yield "`BACKSLIDE_KAFKA__BOOTSTRAP_SERVERS` sets `kafka.bootstrap_servers`."
    yield "A wrong key or value is one error that names it, and exit status 2."
    yield ""
    yield from _section("", Settings)
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield ""
            yield f"## `{name}`"
            yield ""
            yield (section.__doc__ or "").strip().splitlines()[0]
            yield ""
            yield from _section(f"{name}.", section)


def _section(prefix: str, section: type[BaseModel]) -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    yield from _rows(prefix, section, deep=bool(prefix))


def _rows(prefix: str, section: type[BaseModel], *, deep: bool) -> Iterator[str]:
    """Give the rows of a section; `deep` those of the sections inside it too, such as one of each rubric."""
    for name, field in section.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            yield f"| `{prefix}{name}` | {_type(field)} | {_default(field)} | {field.description or ''} |"
        elif deep:
            yield from _rows(f"{prefix}{name}.", field.annotation, deep=True)


def _type(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    if get_origin(annotation) is dict:
        return "mapping"
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    for noise in (
        "typing.",
        "pydantic.types.",
        "pathlib._local.",
        "pathlib.",
        "Literal",
        "[",
        "]",
        "'",
        " | None",
    ):
        text = text.replace(noise, "")
    return text.replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    return "" if value in (None, "", {}) else f"`{value}`"
