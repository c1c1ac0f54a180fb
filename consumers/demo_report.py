"""What the demo found, beside what the generator knows and what a census says."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec
from aiokafka import TopicPartition

from consumers.kafka import consumer
from monitor.config import Settings
from monitor.decision import Job, job_id
from monitor.estimate import Z_95, Interval, StratumTotals, interval, parts, raw_rate
from monitor.judgement import Judgement, decode_judgement
from monitor.judging.open import open_judge
from monitor.offline_judge import OfflineJudge
from monitor.rubrics import configured
from monitor.session import SessionRecord, content_hash, decode_content, decode_record, session_view
from monitor.store import Store, TotalKey, Totals
from monitor.summary import CLEAR, SUMS
from monitor.traffic import SessionLabel, true_rate

RUBRIC: Final = "correction"
MEASURE: Final = "reverted"


class VersionReport(msgspec.Struct, kw_only=True, frozen=True):
    """One assistant version. Rates are reverted corrections per correction.

    `true_rate` comes from the generator's labels, `census_rate` from the judge on all sessions, `raw_rate` from
    the judged sessions as they are; `weighted_rate` and `interval` (95 %) weigh them by 1/probability.
    """

    version: str
    true_rate: float | None
    census_rate: float | None
    raw_rate: float | None
    weighted_rate: float | None
    interval: tuple[float, float]
    finished: int
    judged: int
    calls: int


class DemoReport(msgspec.Struct, kw_only=True, frozen=True):
    """The whole demo: nothing may be lost, nothing may be counted twice."""

    versions: list[VersionReport]
    finished: int
    lost: int
    duplicated: int

    def as_json(self) -> str:
        """Encode it as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()

    def as_text(self) -> str:
        """Lay it out for a terminal."""
        return "\n".join(_lines(self))


class Results(msgspec.Struct, kw_only=True, frozen=True):
    """What the topics hold at the end: one copy of each finished segment, and of each judgement."""

    finished: list[SessionRecord]
    judgements: list[Judgement]


async def read_results(settings: Settings) -> Results:
    """Read all finished sessions and judgements from the broker."""
    names = settings.topics
    finished: dict[tuple[str, str, str], SessionRecord] = {}
    for raw in await _read_all(settings, names.sessions, names.event_partitions):
        record = decode_record(raw)
        if isinstance(record, SessionRecord):
            content = decode_content(record.content)
            finished[content.tenant, content.session_id, content.segment] = record
    judgements = [
        decode_judgement(raw) for raw in await _read_all(settings, names.judgements, names.job_partitions)
    ]
    by_job = {judgement.job_id: judgement for judgement in judgements}
    return Results(finished=list(finished.values()), judgements=list(by_job.values()))


async def _read_all(settings: Settings, topic: str, count: int) -> list[bytes]:
    reader = consumer(settings, None, auto_offset_reset="earliest")
    await reader.start()
    try:
        partitions = [TopicPartition(topic, number) for number in range(count)]
        reader.assign(partitions)
        await reader.seek_to_beginning(*partitions)
        values: list[bytes] = []
        # The embedded broker understates the end of a partition, so silence is what ends the reading.
        while batch := await reader.getmany(timeout_ms=1_500):
            values.extend(record.value for records in batch.values() for record in records)
        return values
    finally:
        await reader.stop()


def build_report(store: Store, results: Results, labels: Iterable[SessionLabel], settings: Settings) -> DemoReport:
    """Compare the store with the labels and with a census of the finished sessions."""
    known = list(labels)
    totals = store.totals()
    census = asyncio.run(_census(results.finished, settings))
    versions = sorted({label.assistant_version for label in known})
    segments = Counter(_session_key(record) for record in results.finished)
    sent = {(label.tenant, label.session_id) for label in known}
    stored = finished_sessions(totals)
    return DemoReport(
        versions=[
            _version(version, totals, census[version], known, _calls(version, results, known))
            for version in versions
        ],
        finished=stored,
        lost=len(sent - segments.keys()) + max(len(segments) - stored, 0),
        duplicated=sum(count - 1 for count in segments.values()) + max(stored - len(segments), 0),
    )


def finished_sessions(totals: Totals) -> int:
    """Count the sessions in the store: each once, though every rubric of the policy has it in its frame."""
    return sum(
        value for key, value in totals.sums.items() if (key.name, key.rubric) == ("sessions_finished", RUBRIC)
    )


def _session_key(record: SessionRecord) -> tuple[str, str]:
    content = decode_content(record.content)
    return content.tenant, content.session_id


async def _census(finished: list[SessionRecord], settings: Settings) -> dict[str, tuple[int, int]]:
    """Judge every session; give (failures, trials) of the measure by assistant version."""
    judge = OfflineJudge(open_judge(settings.judge), configured(settings.rubrics), settings.judge)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for record in finished:
        session = session_view(record.content)
        key = (session.tenant, session.session_id, session.segment)
        job = Job(
            job_id=job_id(*key, RUBRIC, "census"),
            tenant=session.tenant,
            session_id=session.session_id,
            segment=session.segment,
            rubric=RUBRIC,
            stratum="census",
            priority="routine",
            content_hash=content_hash(record.content),
            content=record.content,
        )
        judgement = await judge.judge(job, record.span.closed_at)
        tally = judgement.outcomes.measures.get(MEASURE)
        if tally is not None:
            count = counts[session.attributes.assistant_version or ""]
            count[0] += tally.failures
            count[1] += tally.trials
    return defaultdict(lambda: (0, 0), {version: (count[0], count[1]) for version, count in counts.items()})


def _version(
    version: str, totals: Totals, census: tuple[int, int], labels: list[SessionLabel], calls: int
) -> VersionReport:
    found = _interval(totals, version)
    failures, trials = census
    return VersionReport(
        version=version,
        true_rate=true_rate(labels, version, MEASURE),
        census_rate=raw_rate(trials, failures),
        raw_rate=raw_rate(_sum(totals, "judged_trials", version), _sum(totals, "judged_failures", version)),
        weighted_rate=found.rate,
        interval=(found.low, found.high),
        finished=_sum(totals, "sessions_finished", version, measure=""),
        judged=_sum(totals, "scored_sessions", version),
        calls=calls,
    )


def _calls(version: str, results: Results, labels: list[SessionLabel]) -> int:
    """Count the answers of the judge to sessions of a version."""
    sessions = {(label.tenant, label.session_id) for label in labels if label.assistant_version == version}
    return sum(
        len(judgement.attempts)
        for judgement in results.judgements
        if judgement.rubric == RUBRIC and (judgement.tenant, judgement.session_id) in sessions
    )


def _interval(totals: Totals, version: str) -> Interval:
    """Weigh the strata of a version over all its assistants."""
    strata = sorted({key.stratum for key in totals.sums if key.name == "sessions_finished"})
    values: list[StratumTotals] = []
    for stratum in strata:
        whole, clear = (
            {field: _sum(totals, name, version, stratum=stratum) / unit for field, (name, unit) in names.items()}
            for names in (SUMS, CLEAR)
        )
        count = _sum(totals, "sessions_finished", version, measure="", stratum=stratum)
        values += parts(StratumTotals(finished=count, **whole), StratumTotals(finished=0, **clear))
    return interval([item for item in values if item.finished], Z_95)


def _sum(totals: Totals, name: str, version: str, *, measure: str = MEASURE, stratum: str | None = None) -> int:
    def wanted(key: TotalKey) -> bool:
        return (
            (key.name, key.rubric, key.measure, key.assistant_version) == (name, RUBRIC, measure, version)
        ) and stratum in {None, key.stratum}

    return sum(value for key, value in totals.sums.items() if wanted(key))


_HEADS: Final = (
    "version",
    "true",
    "census",
    "raw",
    "weighted",
    "95 % interval",
    "sessions",
    "judged",
    "calls",
)


def _lines(report: DemoReport) -> Iterable[str]:
    yield ""
    yield "Reversion rate: corrections that were taken and later undone, per correction"
    yield ""
    rows = [_HEADS, *(_cells(item) for item in report.versions)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADS))]
    for row in rows:
        yield "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
    yield ""
    yield "  true      what the generator of this traffic knows"
    yield "  census    the same judge on every session; census minus true is the judge's own error"
    yield "  raw       share among the judged sessions: biased, since trouble is judged more often"
    yield "  weighted  each judged session counts for one over its probability: what the metrics give"
    yield ""
    yield f"  {report.finished:,} sessions finished, {report.lost} lost, {report.duplicated} counted twice"


def _cells(item: VersionReport) -> tuple[str, ...]:
    low, high = item.interval
    return (
        item.version,
        _percent(item.true_rate),
        _percent(item.census_rate),
        _percent(item.raw_rate),
        _percent(item.weighted_rate),
        f"{100 * low:.1f} to {100 * high:.1f} %",
        f"{item.finished:,}",
        f"{item.judged:,}",
        f"{item.calls:,}",
    )


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.1f} %"
