"""The settings themselves: what can be set, its default, what is allowed. `monitor.config` loads them."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from monitor.settings.judge import (
    SMALLEST_AUDIT,
    AnswerFormat,
    BatchSettings,
    CacheTtl,
    Dollars,
    Effort,
    InstrumentSettings,
    JudgeSettings,
    PriceSettings,
    ScreenSettings,
    TierSettings,
    TokenPrices,
)
from monitor.settings.pipeline import (
    AssemblySettings,
    KafkaSettings,
    SamplingSettings,
    SaslMechanism,
    TopicSettings,
)
from monitor.settings.rubrics import (
    ConversationSettings,
    CorrectionSettings,
    CorrectionWholeSettings,
    HallucinationSettings,
    RefusalSettings,
    RubricSettings,
)
from monitor.settings.section import Section

ENV_PREFIX: Final = "BACKSLIDE_"


class StoreSettings(Section):
    """Where verdicts and totals live."""

    url: str = Field(default="sqlite:///backslide-data/backslide.sqlite", description="SQLAlchemy URL.")
    batch: int = Field(default=200, ge=1, le=10_000, description="Records in a transaction.")
    text_retention_d: float = Field(default=30.0, gt=0, description="Days after which text is removed.")
    verdict_retention_d: float = Field(default=400.0, gt=0, description="Days after which rows are removed.")


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
    rubrics: RubricSettings = RubricSettings()
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
    def _rows_outlive_the_log(self) -> Settings:
        # R5: what is older than the rows that went is left out, so nothing that old may still wait to be recorded.
        hours = 3 * (self.topics.events_retention_h + self.assembly.max_age_s / 3600)
        if self.store.verdict_retention_d * 24 < hours:
            raise ValueError(
                f"store.verdict_retention_d = {self.store.verdict_retention_d:g} is too short: a session may wait "
                f"in three topics, each for topics.events_retention_h; allowed is at least {hours / 24:.1f}"
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


__all__ = [
    "ENV_PREFIX",
    "SMALLEST_AUDIT",
    "AnswerFormat",
    "AssemblySettings",
    "BatchSettings",
    "CacheTtl",
    "ConversationSettings",
    "CorrectionSettings",
    "CorrectionWholeSettings",
    "Dollars",
    "Effort",
    "HallucinationSettings",
    "HealthSettings",
    "InstrumentSettings",
    "JudgeSettings",
    "KafkaSettings",
    "LogSettings",
    "PriceSettings",
    "RefusalSettings",
    "RubricSettings",
    "SamplingSettings",
    "SaslMechanism",
    "ScreenSettings",
    "Section",
    "Settings",
    "StoreSettings",
    "TierSettings",
    "TokenPrices",
    "TopicSettings",
    "WebSettings",
]
