"""Settings: one YAML file, overridden by environment variables (`BACKSLIDE_KAFKA__BOOTSTRAP_SERVERS=...`).

`load` turns every mistake into one `ConfigError` that names the key, the value and what is allowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from monitor.errors import ConfigError
from monitor.assembly.open_session import AssemblyPolicy

ENV_PREFIX: Final = "BACKSLIDE_"
_SECRET: Final = re.compile("password|key|salt|secret|token|url", re.IGNORECASE)

SaslMechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class Section(BaseModel):
    """A part of the settings; unknown keys are refused, so that a typo is seen."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class KafkaSettings(Section):
    """How to reach the brokers; the same for aiokafka and Faust."""

    bootstrap_servers: str = "127.0.0.1:9092"
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: SaslMechanism = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    idempotent: bool = Field(
        default=True, description="Idempotent producers; off only for the embedded broker of the demo."
    )
    commit_metadata: bool = Field(
        default=True, description="Whether the broker keeps commit metadata; the embedded one does not."
    )
    session_timeout_s: float = Field(default=10.0, ge=1.0, le=300.0)
    group_prefix: str = Field(default="backslide", pattern=r"^[A-Za-z0-9._-]+$")
    instance_id: str | None = Field(default=None, description="Static membership: a stable name of this replica.")

    @model_validator(mode="after")
    def _sasl_complete(self) -> KafkaSettings:
        if self.security_protocol.startswith("SASL") and not (self.sasl_username and self.sasl_password):
            raise ValueError("sasl_username and sasl_password are needed with a SASL security_protocol")
        return self


class TopicSettings(Section):
    """Names and shapes of the topics."""

    events: str = "chat.events"
    prefix: str = Field(default="backslide.", description="Prefix of the topics that Backslide writes.")
    event_partitions: int = Field(default=12, ge=1, le=10_000)
    job_partitions: int = Field(default=12, ge=1, le=10_000)
    replication_factor: int = Field(default=1, ge=1, le=10)
    events_retention_h: float = Field(default=168.0, gt=0)
    max_message_bytes: int = Field(
        default=2_097_152, ge=65_536, le=67_108_864, description="Limit of the topics that Backslide writes."
    )
    max_event_message_bytes: int = Field(default=8_388_608, ge=65_536, le=67_108_864)
    check: bool = Field(default=True, description="Check topics at start; off only for the embedded broker.")

    @property
    def sessions(self) -> str:
        """Finished sessions."""
        return f"{self.prefix}sessions"

    @property
    def jobs_urgent(self) -> str:
        """Jobs that are judged first."""
        return f"{self.prefix}jobs.urgent"

    @property
    def jobs_routine(self) -> str:
        """All other jobs."""
        return f"{self.prefix}jobs.routine"

    @property
    def decisions(self) -> str:
        """Decisions, addenda and loaded policies."""
        return f"{self.prefix}decisions"

    @property
    def judgements(self) -> str:
        """Answers to jobs."""
        return f"{self.prefix}judgements"

    @property
    def dead_letters(self) -> str:
        """What no stage could take in."""
        return f"{self.prefix}dead-letters"


class AssemblySettings(Section):
    """When a session is over (A2), in seconds of stream time."""

    gap_s: float = Field(default=900.0, gt=0, description="Silence that ends a session.")
    grace_s: float = Field(default=60.0, ge=0, description="Time for stragglers after an explicit end.")
    max_age_s: float = Field(default=14_400.0, gt=0)
    max_turns: int = Field(default=500, ge=2)
    max_bytes: int = Field(default=400_000, ge=1_000)
    max_pinned_offsets: int = Field(default=2_000_000, ge=1)
    memory_s: float = Field(default=3_600.0, ge=0, description="How long a closed session is remembered.")
    allowed_skew_s: float = Field(
        default=60.0, ge=0, description="How far event time may run ahead of the broker."
    )
    max_event_bytes: int = Field(default=262_144, ge=1_000)
    tick_interval_s: float = Field(default=5.0, gt=0, description="Idle time after which a partition gets a tick.")
    commit_interval_s: float = Field(default=1.0, gt=0)
    load_timeout_s: float = Field(default=60.0, gt=0, description="Deadline of the read-back after an assignment.")
    stall_timeout_s: float = Field(
        default=120.0, gt=0, description="No progress with lag for so long ends the process."
    )
    dead_letter_limit: float = Field(
        default=0.5, gt=0, le=1, description="Share of undecodable events in 1,000 that stops the process."
    )


class SamplingSettings(Section):
    """Which sessions are judged."""

    policy: Path | None = Field(default=None, description="Policy file; without one the built-in policy is used.")
    salt: SecretStr | None = Field(default=None, description="Secret of the coin; required in production.")
    assistants: dict[str, list[str]] = Field(
        default_factory=dict,
        description="Allow-list of label values: assistant -> versions; everything else is `other`.",
    )
    reload_interval_s: float = Field(default=5.0, gt=0)
    window: int = Field(default=64, ge=1, le=4_096, description="Sessions in flight.")


class JudgeSettings(Section):
    """Who judges, how many at a time, and for how long."""

    model: str = Field(default="lexical", description="`lexical`, or `anthropic:<model>`.")
    concurrency: int = Field(default=32, ge=1, le=1_024)
    deadline_s: float = Field(default=120.0, gt=0, description="For all calls of a job, started at its first.")
    attempt_timeout_s: float = Field(default=60.0, gt=0, description="For one call.")
    drain_s: float = Field(default=60.0, ge=0)
    max_tokens: int = Field(default=8_192, ge=256, le=64_000)
    effort: Literal["low", "medium", "high"] = "low"
    cache_ttl: Literal["5m", "1h"] = "1h"
    base_url: str | None = None
    api_key: SecretStr | None = None
    retry_after_cap_s: float = Field(default=30.0, gt=0)
    constraints: dict[str, str] = Field(
        default_factory=dict, description="Free text per assistant that goes into every prompt; `*` is for all."
    )


class StoreSettings(Section):
    """Where verdicts and totals live."""

    url: str = Field(default="sqlite:///backslide-data/backslide.sqlite", description="SQLAlchemy URL.")
    batch: int = Field(default=200, ge=1, le=10_000)


class WebSettings(Section):
    """Pages and the quality metrics."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65_535)
    metrics_host: str = "0.0.0.0"  # noqa: S104 - a scrape target has to be reachable; it shows numbers only
    metrics_port: int = Field(default=9464, ge=0, le=65_535)


class HealthSettings(Section):
    """`/metrics`, `/healthz` and `/readyz` of each process."""

    host: str = "0.0.0.0"  # noqa: S104 - probes and scrapes come from outside the pod
    supervisor_port: int = Field(default=9470, ge=0, le=65_535)
    assemble_port: int = Field(default=9471, ge=0, le=65_535)
    sample_port: int = Field(default=9472, ge=0, le=65_535)
    judge_port: int = Field(default=9473, ge=0, le=65_535)
    record_port: int = Field(default=9474, ge=0, le=65_535)


class LogSettings(Section):
    """How logs look."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console", "auto"] = "auto"


class Settings(BaseSettings):
    """All settings of Backslide."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )

    production: bool = Field(default=False, description="Demands what production needs: a salt of the coin.")
    kafka: KafkaSettings = KafkaSettings()
    topics: TopicSettings = TopicSettings()
    assembly: AssemblySettings = AssemblySettings()
    sampling: SamplingSettings = SamplingSettings()
    judge: JudgeSettings = JudgeSettings()
    store: StoreSettings = StoreSettings()
    web: WebSettings = WebSettings()
    health: HealthSettings = HealthSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _session_fits_a_message(self) -> Settings:
        # J5: the hard cap is twice max_bytes, and a session may take half of what the broker accepts.
        largest = 2 * self.assembly.max_bytes + self.assembly.max_event_bytes
        if largest > self.topics.max_message_bytes * 0.6:
            raise ValueError(
                f"topics.max_message_bytes = {self.topics.max_message_bytes} is too small for sessions of up to "
                f"{largest} bytes (2 x assembly.max_bytes + assembly.max_event_bytes); allowed is at least "
                f"{round(largest / 0.6)}"
            )
        return self

    @model_validator(mode="after")
    def _salt_in_production(self) -> Settings:
        if self.production and self.sampling.salt is None:
            raise ValueError(
                "sampling.salt is required with production: true (a long random secret, kept for ever)"
            )
        return self

    @classmethod
    def settings_customise_sources(  # the signature is pydantic's
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment win over the file, whose values come in as init arguments."""
        return env_settings, init_settings


def load(path: Path | None = None, overrides: dict[str, Any] | None = None) -> Settings:
    """Read settings from a YAML file and the environment. Raises `ConfigError`."""
    values = read_yaml(path) if path else {}
    for dotted, value in (overrides or {}).items():
        _put(values, dotted.split("."), value)
    try:
        return Settings(**values)
    except ValidationError as error:
        where = str(path) if path else "settings"
        raise ConfigError(explain(error, where, model=Settings, environ=os.environ)) from None
    except SettingsError as error:
        raise ConfigError(f"environment ({ENV_PREFIX}*): {error}; sections and maps are given as JSON") from None


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
        key = ".".join(path) or "(whole file)"
        variable = ENV_PREFIX + "__".join(path).upper()
        source = variable if variable in (environ or {}) else where
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


__all__ = ["Settings", "assembly_policy", "explain", "load", "read_yaml"]
