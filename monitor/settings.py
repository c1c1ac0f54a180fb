"""The settings themselves: what can be set, its default, what is allowed. `monitor.config` loads them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

ENV_PREFIX: Final = "BACKSLIDE_"
# A smaller share would let one session stand for so many that it alone is the rate.
SMALLEST_AUDIT: Final = 0.001
Effort: TypeAlias = Literal["default", "low", "medium", "high", "xhigh", "max"]
CacheTtl: TypeAlias = Literal["5m", "1h"]
AnswerFormat: TypeAlias = Literal["auto", "json_schema", "json_object", "text"]
SaslMechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class Section(BaseModel):
    """A part of the settings; unknown keys are refused, so that a typo is seen."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class KafkaSettings(Section):
    """How to reach the brokers; the same for aiokafka and Faust."""

    bootstrap_servers: str = Field(default="127.0.0.1:9092", description="Brokers, separated by commas.")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: SaslMechanism = "SCRAM-SHA-512"
    sasl_username: str | None = Field(default=None, description="Needed with SASL.")
    sasl_password: SecretStr | None = Field(
        default=None, description="Needed with SASL; set it in the environment."
    )
    ssl_cafile: Path | None = Field(default=None, description="CA certificates (PEM); else those of the system.")
    ssl_certfile: Path | None = Field(default=None, description="Client certificate (PEM).")
    ssl_keyfile: Path | None = Field(default=None, description="Its key (PEM).")
    commit_metadata: bool = Field(
        default=True, description="Whether the broker keeps commit metadata; the embedded one does not."
    )
    session_timeout_s: float = Field(
        default=10.0, ge=1.0, le=300.0, description="Silence after which a member's partitions go to others."
    )
    group_prefix: str = Field(default="backslide", pattern=r"^[A-Za-z0-9._-]+$")
    instance_id: str | None = Field(default=None, description="Static membership: a stable name of this replica.")

    @model_validator(mode="after")
    def _sasl_complete(self) -> KafkaSettings:
        if self.security_protocol.startswith("SASL") and not (self.sasl_username and self.sasl_password):
            raise ValueError("sasl_username and sasl_password are needed with a SASL security_protocol")
        return self


class TopicSettings(Section):
    """Names and shapes of the topics."""

    events: str = Field(default="chat.events", description="The source topic.")
    prefix: str = Field(default="backslide.", description="Prefix of the topics that Backslide writes.")
    event_partitions: int = Field(
        default=12, ge=1, le=10_000, description="Of the source topic and of sessions: bounds assemble and sample."
    )
    job_partitions: int = Field(
        default=12, ge=1, le=10_000, description="Of jobs, decisions and judgements: bounds judge."
    )
    replication_factor: int = Field(default=1, ge=1, le=10, description="Of topics to create; 3 in production.")
    events_retention_h: float = Field(default=168.0, gt=0, description="Hours; at least twice the maximum age.")
    max_message_bytes: int = Field(
        default=2_097_152, ge=65_536, le=67_108_864, description="Limit of the topics that Backslide writes."
    )
    max_event_message_bytes: int = Field(
        default=8_388_608,
        ge=65_536,
        le=67_108_864,
        description="Limit of the source topic; larger than max_event_bytes, so that what is too large is seen.",
    )
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
    def batches(self) -> str:
        """Which question went into which batch."""
        return f"{self.prefix}batches"

    @property
    def dead_letters(self) -> str:
        """What no stage could take in."""
        return f"{self.prefix}dead-letters"


class AssemblySettings(Section):
    """When a session is over (A2), in seconds of stream time."""

    gap_s: float = Field(default=900.0, gt=0, description="Silence that ends a session.")
    grace_s: float = Field(default=60.0, ge=0, description="Time for stragglers after an explicit end.")
    max_age_s: float = Field(default=14_400.0, gt=0, description="Age at which a session is closed.")
    max_turns: int = Field(default=500, ge=2, description="Splits before a user turn; twice as many before any.")
    max_bytes: int = Field(default=400_000, ge=1_000, description="The same, in bytes of raw events.")
    max_pinned_offsets: int = Field(
        default=2_000_000,
        ge=1,
        description="Records that an open session may keep from being committed; also how long one is remembered.",
    )
    max_pinned_bytes: int = Field(
        default=536_870_912,
        ge=1_000_000,
        description="The same in bytes of the log: bounds the open sessions of a partition, and its replay.",
    )
    memory_s: float = Field(default=3_600.0, ge=0, description="How long a closed session is remembered.")
    allowed_skew_s: float = Field(
        default=60.0, ge=0, description="How far event time may run ahead of the broker."
    )
    max_event_bytes: int = Field(default=262_144, ge=1_000, description="Larger events are dead letters.")
    tick_interval_s: float = Field(default=5.0, gt=0, description="Idle time after which a partition gets a tick.")
    commit_interval_s: float = Field(default=1.0, gt=0, description="Time between commits.")
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
    reload_interval_s: float = Field(default=5.0, gt=0, description="Time between looks at the policy file.")
    window: int = Field(default=64, ge=1, le=4_096, description="Sessions in flight.")


Dollars: TypeAlias = Annotated[Decimal, Field(ge=0, le=100_000, decimal_places=6)]


class TokenPrices(Section):
    """Dollars a million tokens."""

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write_5m: Dollars | None = None
    cache_write_1h: Dollars | None = None


class TierSettings(TokenPrices):
    """The price of calls with more than so many tokens of prompt."""

    tokens: int = Field(ge=1)


class PriceSettings(TokenPrices):
    """The price of a model."""

    above: TierSettings | None = None
    batch: Decimal = Field(default=Decimal(1), gt=0, le=1, decimal_places=2)


class BatchSettings(Section):
    """Routine jobs by the provider's batches: half the price, answers within a day, mostly within an hour."""

    enabled: bool = Field(default=False, description="Only with an anthropic judge; urgent jobs stay calls.")
    max_requests: int = Field(default=1_000, ge=1, le=10_000, description="Questions in a batch.")
    max_wait_s: float = Field(default=300.0, gt=0, description="For a batch to fill: after that it goes as it is.")
    poll_s: float = Field(default=30.0, gt=0, description="Time between looks at a batch.")
    max_in_flight: int = Field(
        default=2_000,
        ge=1,
        le=50_000,
        description="Routine jobs that wait in a process, each with its transcript.",
    )
    on_shutdown: Literal["keep", "cancel"] = Field(
        default="keep", description="`keep`: batches go on, and a restart reads them; `cancel`: they end."
    )


class InstrumentSettings(Section):
    """Which model answers, how many calls at a time, and for how long."""

    where: ClassVar[str] = "judge"
    """The section's own place, for messages."""

    model: str = Field(
        default="lexical", description="`lexical`, `anthropic:<model>` or `openai_compatible:<model>`."
    )
    concurrency: int = Field(
        default=32, ge=1, le=1_024, description="Jobs in flight, and so the most calls at a time."
    )
    start_concurrency: int = Field(
        default=16, ge=1, le=1_024, description="Calls at a time at the start; it grows while the provider allows."
    )
    requests_per_minute: float | None = Field(default=None, gt=0, description="Quota of calls.")
    input_tokens_per_minute: float | None = Field(
        default=None, gt=0, description="Quota of tokens sent, those read from the cache aside."
    )
    output_tokens_per_minute: float | None = Field(default=None, gt=0, description="Quota of tokens received.")
    deadline_s: float = Field(default=120.0, gt=0, description="For all calls of a job, started at its first.")
    attempt_timeout_s: float = Field(default=60.0, gt=0, description="For one call.")
    max_tokens: int = Field(default=8_192, ge=256, le=64_000, description="Of an answer.")
    effort: Effort = Field(
        default="low", description="How hard the model thinks; `default` leaves it to the model."
    )
    cache_ttl: CacheTtl = Field(default="1h", description="How long the provider keeps a prefix.")
    base_url: str | None = Field(
        default=None, description="Address of the API: needed for openai_compatible, another one for anthropic."
    )
    api_key: SecretStr | None = Field(default=None, description="Needed for anthropic; best from the environment.")
    key_header: str = Field(
        default="authorization",
        pattern=r"^[A-Za-z0-9-]+$",
        description="openai_compatible: header of the key: `authorization` (a bearer token), Azure has `api-key`.",
    )
    headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="openai_compatible: further headers of each call."
    )
    query: dict[str, str] = Field(
        default_factory=dict, description="openai_compatible: query of each call, such as Azure's `api-version`."
    )
    answer_format: AnswerFormat = Field(
        default="auto",
        description="openai_compatible: how JSON is asked for; `auto` finds the strictest that the server takes.",
    )
    retry_after_cap_s: float = Field(
        default=30.0, gt=0, description="A longer wish of the provider puts the job off instead."
    )


class ScreenSettings(InstrumentSettings):
    """A cheap model that looks at sessions first, so that the judge need not judge each in full."""

    where: ClassVar[str] = "judge.screen"

    model: str = Field(default="", description="Named as `judge.model` is; empty: nothing is screened.")
    max_tokens: int = Field(default=2_048, ge=256, le=64_000, description="Of an answer.")
    rubrics: tuple[str, ...] = Field(default=(), description="The rubrics that are screened; empty: all.")
    audit_share: float = Field(
        default=0.05,
        description="Share of the sessions screened out that are judged in full all the same: the nearest 1/n.",
    )

    @field_validator("audit_share")
    @classmethod
    def _audits(cls, share: float) -> float:
        if not SMALLEST_AUDIT <= share <= 1:
            raise ValueError(
                f"must be from {SMALLEST_AUDIT} to 1: without an audit nobody knows what the screen misses, and "
                "no weight can mend a rate that it has bent"
            )
        return share

    @property
    def one_in(self) -> int:
        """How many sessions that were screened out one audited session stands for."""
        return round(1 / self.audit_share)


class JudgeSettings(InstrumentSettings):
    """Who judges, how many at a time, and for how long."""

    prices: dict[str, PriceSettings | Literal["free"]] = Field(
        default_factory=dict,
        description="By judge, before the shipped table: `free`, or dollars a million tokens as {input, output, "
        "cache_read, cache_write_5m, cache_write_1h, batch, above: {tokens, input, ...}}.",
    )
    drain_s: float = Field(default=60.0, ge=0, description="Time to finish what is under way at SIGTERM.")
    batch: BatchSettings = BatchSettings()
    screen: ScreenSettings = ScreenSettings()
    repeat_share: float = Field(
        default=0.02,
        ge=0,
        le=1,
        description="Share of jobs judged twice, for the agreement of the judge with itself.",
    )
    constraints: dict[str, str] = Field(
        default_factory=dict, description="Free text per assistant that goes into every prompt; `*` is for all."
    )


class CorrectionSettings(Section):
    """The correction rubric."""

    extractor: Literal["lexical", "model"] = Field(
        default="lexical",
        description="Who finds corrections that no producer names: wording rules, which miss 15 to 50 % of them, "
        "or the judge, for one more call a session that shows it the whole transcript.",
    )
    replies: int = Field(default=4, ge=1, le=50, description="Assistant turns that an event's window follows up.")
    max_events: int = Field(default=8, ge=1, le=100, description="Corrections judged in a session.")
    review_score: float = Field(
        default=0.7, ge=0, le=1, description="Response score under which corrections are candidates for review."
    )
    high_risk_composite: float = Field(
        default=3.0, ge=1, le=5, description="Composite under which one of a high-risk session goes to a person."
    )


class HallucinationSettings(Section):
    """The hallucination rubric."""

    evidence_scope: Literal["session", "turn"] = Field(
        default="session", description="Whether passages of earlier turns support a claim, or only the turn's own."
    )
    window_turns: int = Field(default=20, ge=2, le=100, description="Assistant turns in one question.")
    overlap_turns: int = Field(
        default=4, ge=0, le=50, description="Of those, shown again from the question before."
    )
    min_groundedness: float = Field(default=0.8, ge=0, le=1, description="A session below it is a failing one.")

    @model_validator(mode="after")
    def _windows_go_on(self) -> HallucinationSettings:
        if self.overlap_turns >= self.window_turns:
            raise ValueError(
                f"overlap_turns = {self.overlap_turns} must be less than window_turns = {self.window_turns}"
            )
        return self


class ConversationSettings(Section):
    """The conversation rubric."""

    max_answers: int = Field(default=6, ge=1, le=100, description="Answers judged in a session.")
    pass_score: int = Field(default=4, ge=2, le=5, description="Score from which a dimension passes.")
    review_score: float = Field(
        default=0.7, ge=0, le=1, description="Overall score under which a high-risk answer goes to a person."
    )
    review_share: float = Field(
        default=0.1, ge=0, le=1, description="Share of the other failing answers that go to a person."
    )
    citation_forms: tuple[Literal["number", "id", "url"], ...] = Field(
        default=("number", "id", "url"),
        description="Which marks in a reply are citations: [1], [kb-17], URLs.",
    )
    citation_required: bool = Field(default=False, description="Whether each factual statement needs a citation.")
    context_turns: int = Field(default=60, ge=1, le=1_000, description="Turns shown from before an answer.")
    older_passages: int = Field(
        default=20, ge=0, le=200, description="Passages of earlier turns shown beside an answer's own."
    )


class CorrectionWholeSettings(Section):
    """The correction rubric over whole transcripts."""

    max_turns: int = Field(default=200, ge=2, description="Longer sessions are skipped: they fit no prompt.")
    replies: int = Field(
        default=4, ge=1, le=50, description="With fewer replies after a correction its persistence is unobserved."
    )
    review_score: float = Field(
        default=0.7, ge=0, le=1, description="Response score under which corrections are candidates for review."
    )
    high_risk_composite: float = Field(
        default=3.0, ge=1, le=5, description="Composite under which one of a high-risk session goes to a person."
    )


class RefusalSettings(Section):
    """The refusal rubric."""

    max_turns: int = Field(default=400, ge=2, description="Longer sessions are skipped: they fit no prompt.")


class RubricSettings(Section):
    """Thresholds of the rubrics."""

    conversation: ConversationSettings = ConversationSettings()
    correction: CorrectionSettings = CorrectionSettings()
    hallucination: HallucinationSettings = HallucinationSettings()
    correction_whole: CorrectionWholeSettings = CorrectionWholeSettings()
    refusal: RefusalSettings = RefusalSettings()


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
