"""Settings of the way from the broker to a decision."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import Field, SecretStr, model_validator

from monitor.settings.section import Section

SaslMechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


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
