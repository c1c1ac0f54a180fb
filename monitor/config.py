"""Settings: one YAML file, overridden by environment variables (`BACKSLIDE_KAFKA__BOOTSTRAP_SERVERS=...`).

`load` turns every mistake into one `ConfigError` that names the key, the value and what is allowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import (
    SettingsError,
)

from monitor.assembly.open_session import AssemblyPolicy
from monitor.errors import ConfigError
from monitor.settings import (
    ENV_PREFIX,
    AssemblySettings,
    HealthSettings,
    JudgeSettings,
    KafkaSettings,
    LogSettings,
    SamplingSettings,
    Settings,
    StoreSettings,
    TopicSettings,
    WebSettings,
)

_SECRET: Final = re.compile("password|key|salt|secret|token|url", re.IGNORECASE)


def load(path: Path | None = None, overrides: dict[str, Any] | None = None) -> Settings:
    """Read settings from a YAML file and the environment. Raises `ConfigError`."""
    values = read_yaml(path) if path else {}
    _check_variables(os.environ)
    for dotted, value in (overrides or {}).items():
        _put(values, dotted.split("."), value)
    try:
        return Settings(**values)
    except ValidationError as error:
        where = str(path) if path else "settings"
        raise ConfigError(explain(error, where, model=Settings, environ=os.environ)) from None
    except SettingsError as error:
        raise ConfigError(f"environment ({ENV_PREFIX}*): {error}; sections and maps are given as JSON") from None


def _check_variables(environ: Mapping[str, str]) -> None:
    """Refuse a variable of an unknown section: a mistyped one would do nothing, without a word.

    Only names with `__` look like a setting; Kubernetes itself injects BACKSLIDE_PORT for a Service of our name.
    """
    for name in sorted(environ):
        section, _, key = name.removeprefix(ENV_PREFIX).lower().partition("__")
        if name.startswith(ENV_PREFIX) and key and section not in Settings.model_fields:
            allowed = ", ".join(sorted(Settings.model_fields))
            raise ConfigError(f"{name}: unknown section {section!r}; allowed are {allowed}")


def assembly_policy(settings: Settings) -> AssemblyPolicy:
    """Give the settings of assembly in milliseconds."""
    section = settings.assembly
    return AssemblyPolicy(
        gap=round(section.gap_s * 1000),
        grace=round(section.grace_s * 1000),
        max_age=round(section.max_age_s * 1000),
        max_turns=section.max_turns,
        max_bytes=section.max_bytes,
        max_pinned=section.max_pinned_offsets,
        max_pinned_bytes=section.max_pinned_bytes,
        memory=round(section.memory_s * 1000),
        allowed_skew=round(section.allowed_skew_s * 1000),
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping. Raises `ConfigError` that names the file, and the line where YAML breaks."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {_yaml_problem(error)}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values, not {type(values).__name__}")
    wrong = next((key for key in values if not isinstance(key, str)), None)
    if wrong is not None:
        raise ConfigError(f"{path}: {wrong!r}: keys must be text, not {type(wrong).__name__}")
    return values


def _yaml_problem(error: yaml.MarkedYAMLError) -> str:
    # Without the snippet that PyYAML shows: the line may hold a password.
    mark = error.problem_mark
    place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{error.problem or error.context}{place}"


def explain(
    error: ValidationError,
    where: str,
    *,
    model: type[BaseModel] | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Say in a line per mistake which key is wrong, what it holds and what is allowed; secrets stay hidden.

    With `model`, an unknown key is told those that are allowed; with `environ`, a value that came from a variable
    is shown under its name.
    """
    lines = []
    for item in error.errors(include_url=False):
        path = tuple(str(part) for part in item["loc"])
        key = ".".join(path)
        variable = ENV_PREFIX + "__".join(path).upper()
        source = variable if variable in (environ or {}) else where
        if not key:
            # Keys that don't go together: the message names them.
            lines.append(f"{source}: {_allowed(item, path, model)}")
            continue
        lines.append(f"{source}: {key}{_shown(item, key)}: {_allowed(item, path, model)}")
    return "\n".join(lines)


def _shown(item: Any, key: str) -> str:
    # What stands under an unknown key, or where a section should be, may well be a mistyped secret.
    hidden = item["type"] == "extra_forbidden" or item["type"].startswith("model")
    if hidden or _SECRET.search(key) or isinstance(item["input"], dict | list | SecretStr):
        return ""
    return f" = {item['input']!r}"


def _allowed(item: Any, path: tuple[str, ...], model: type[BaseModel] | None) -> str:
    if item["type"] == "extra_forbidden":
        names = _keys(model, path[:-1]) if model else []
        return f"unknown key; allowed are {', '.join(names)}" if names else "unknown key"
    if item["type"].startswith("model"):
        kind = "empty" if item["input"] is None else f"a {type(item['input']).__name__}"
        return f"must be a mapping of keys to values; it is {kind}"
    return str(item["msg"]).removeprefix("Value error, ")


def _keys(model: type[BaseModel], path: tuple[str, ...]) -> list[str]:
    for name in path:
        field = model.model_fields.get(name)
        if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
            return []
        model = field.annotation
    return list(model.model_fields)


def _put(values: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        values = values.setdefault(key, {})
    values[keys[-1]] = value


__all__ = [
    "AssemblySettings",
    "HealthSettings",
    "JudgeSettings",
    "KafkaSettings",
    "LogSettings",
    "SamplingSettings",
    "Settings",
    "StoreSettings",
    "TopicSettings",
    "WebSettings",
    "assembly_policy",
    "explain",
    "load",
    "read_yaml",
]
