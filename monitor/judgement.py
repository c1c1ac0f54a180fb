"""What judging a session gives: `Verdict | Skipped | Unscored`, with every attempt that led there (J1).

There are no sentinel numbers: a session that the rubric doesn't concern is `Skipped`, one on which the judge
failed is `Unscored`, and neither is ever a score.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

SkipReason: TypeAlias = Literal[
    "not_applicable", "no_evidence", "no_response", "cut_off", "misaligned", "superseded", "screened_out"
]
UnscoredReason: TypeAlias = Literal[
    "invalid", "truncated", "judge_refused", "timeout", "budget", "unavailable", "error"
]
AttemptKind: TypeAlias = Literal["valid", "invalid", "truncated", "refused", "failed"]
ScreenVerdict: TypeAlias = Literal["look", "clear", "failed"]
SKIP_REASONS: Final = get_args(SkipReason)
UNSCORED_REASONS: Final = get_args(UnscoredReason)

MAX_RAW_BYTES: Final = 16_384


class Usage(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens of one call, by type. What was sent is `input_tokens` + `cache_read_tokens` + `cache_write_tokens`.

    `cache_write_1h_tokens` are those of `cache_write_tokens` that the provider keeps for an hour (they cost more),
    `thinking_tokens` those of `output_tokens` that were spent on thinking. `estimated`: the provider told nothing,
    and the figures come from the lengths of the texts.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    thinking_tokens: int = 0
    estimated: bool = False


class Attempt(msgspec.Struct, kw_only=True, frozen=True):
    """One answer of the judge, or one failure to answer. `raw` is at most 16 kB (J5); `cost_nusd` is in 1e-9 $."""

    window: str
    number: int
    kind: AttemptKind
    raw: str
    error: str | None = None
    error_type: str | None = None
    request_id: str | None = None
    duration_ms: int = 0
    usage: Usage = Usage()
    cost_nusd: int = 0


class Verdict(msgspec.Struct, kw_only=True, frozen=True, tag_field="kind", tag="verdict"):
    """A validated answer. `data` is the rubric's own (see its module); `note` says what isn't in it."""

    data: dict[str, Any]
    note: str | None = None


class Skipped(msgspec.Struct, kw_only=True, frozen=True, tag_field="kind", tag="skipped"):
    """The rubric doesn't concern this session."""

    reason: SkipReason
    note: str | None = None


class Unscored(msgspec.Struct, kw_only=True, frozen=True, tag_field="kind", tag="unscored"):
    """The judge failed on this session."""

    reason: UnscoredReason
    note: str | None = None


Result: TypeAlias = Verdict | Skipped | Unscored


class Tally(msgspec.Struct, kw_only=True, frozen=True):
    """Trials and failures of one measure in one session."""

    trials: int
    failures: int


class Stage(msgspec.Struct, kw_only=True, frozen=True):
    """Sampling inside a session: `judged` of the `found` units were put to the judge, a simple random sample.

    So each had the probability `judged / found`, and stands for `found / judged` units.
    """

    found: int = 1
    judged: int = 1


class Outcomes(msgspec.Struct, kw_only=True, frozen=True):
    """What a result adds to the totals: tallies by measure, values by histogram and criterion.

    `scores` maps a histogram's name to its values: `correction_response_score`, or with the value of its own label
    `criterion_score:<criterion>`, `groundedness_ratio:<turn band>`. `stage` is the second stage of the sampling.
    """

    measures: dict[str, Tally] = {}
    scores: dict[str, list[float]] = {}
    skipped_events: dict[str, int] = {}
    stage: Stage = Stage()


class Screening(msgspec.Struct, kw_only=True, frozen=True):
    """What a screen said of a session before its judge was asked, and what followed.

    `look`: judged in full. `clear`: judged in full all the same if `audited`, drawn with the probability
    `1 / one_in`; else skipped as `screened_out`. `failed` (`reason` says how): judged in full. `quote` is the
    evidence of a `look`, verbatim. `one_in` is 1 unless the verdict is `clear`. Other fields as in `Judgement`.
    """

    judge: str
    provider: str
    model: str
    prompt_version: str
    prompt_hash: str
    verdict: ScreenVerdict
    reason: UnscoredReason | None = None
    quote: str = ""
    audited: bool = False
    one_in: int = 1
    attempts: list[Attempt] = []
    cost_nusd: int = 0
    prices: str = ""

    @property
    def probability(self) -> float:
        """With which probability the session was judged in full, given the verdict."""
        return 1 / self.one_in

    @property
    def out(self) -> bool:
        """Whether the session is not judged."""
        return self.verdict == "clear" and not self.audited


class Judgement(msgspec.Struct, kw_only=True, frozen=True):
    """The answer to one job. `judge` names the instrument, e.g. `lexical` or `anthropic:claude-haiku-5-5`.

    `cost_nusd` is what all its attempts cost by the prices of version `prices`, in 1e-9 $. Times are Unix
    milliseconds. `prompt_hash` covers everything that the prompt is rendered from but the window. `screen` is what
    a screen said first; its calls are not among `attempts`, and its cost not in `cost_nusd`.
    """

    job_id: str
    tenant: str
    session_id: str
    segment: str
    content_hash: str
    rubric: str
    mode: str
    rubric_version: str
    prompt_version: str
    prompt_hash: str
    judge: str
    provider: str
    model: str
    result: Result
    outcomes: Outcomes
    attempts: list[Attempt]
    started_at: int
    finished_at: int
    run: str = "live"
    cost_nusd: int = 0
    prices: str = ""
    screen: Screening | None = None


_JUDGEMENT = msgspec.json.Decoder(Judgement)


def decode_judgement(raw: bytes) -> Judgement:
    """Decode a record of the judgements topic. Raises `msgspec.DecodeError` on anything else."""
    return _JUDGEMENT.decode(raw)


def cut_raw(text: str, limit: int = MAX_RAW_BYTES) -> str:
    """Cut a judge's raw answer to `limit` bytes of UTF-8, and say how long it was and what it hashed to (J5)."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    mark = f"\n[cut: {len(raw)} bytes, blake2b {hashlib.blake2b(raw, digest_size=16).hexdigest()}]"
    return raw[: limit - len(mark)].decode("utf-8", "ignore") + mark
