"""Settings of the judge: which one, at which price, within which limits, in batches, behind a screen."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import Field, SecretStr, field_validator

from monitor.settings.section import Section

# A smaller share would let one session stand for so many that it alone is the rate.
SMALLEST_AUDIT: Final = 0.001
Effort: TypeAlias = Literal["default", "low", "medium", "high", "xhigh", "max"]
CacheTtl: TypeAlias = Literal["5m", "1h"]
AnswerFormat: TypeAlias = Literal["auto", "json_schema", "json_object", "text"]
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
