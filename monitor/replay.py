"""The whole pipeline over recorded events, in one process and without a broker.

    summary = await run_replay(Path("sessions.jsonl"), settings)
    summary = await replay_events(raws, settings, policy, store, model, salt=b"...", census=True)

Events go through the same assembler (see `recorded`), policy, coin, judge flow and store as in production. The
same input, policy, salt and allow-list give the same decisions and judgements, byte for byte, with a judge that
answers the same.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from monitor.assembly import Duplicate, Finished, Late, Orphan, Output
from monitor.config import Settings
from monitor.decision import Decision, Job, job_id
from monitor.ingest import EventFile, by_time, load_mapping
from monitor.judgement import Judgement, Skipped, Verdict
from monitor.judging.model import JudgeModel
from monitor.judging.prices import FREE, Price
from monitor.offline_judge import OfflineJudge, OfflineScreen, checked_judge, checked_screen
from monitor.recorded import Recording
from monitor.replay_summary import Census, Rate, ReplaySummary, StratumSummary, rates
from monitor.rubrics import RUBRICS, configured
from monitor.sampling.decide import decide
from monitor.sampling.policy import Policy
from monitor.sampling.policy_file import PolicyFile
from monitor.session import Addendum, SessionRecord
from monitor.store import Record, RecordReport, RubricCounts, Store

_MAX_WAITING: Final = 2_048
_MAX_REJECTIONS: Final = 10

Observe = Callable[[Record], None]


class _Entry(msgspec.Struct, kw_only=True, eq=False):
    """A record on its way to the store, in the order of the input, with the answers that it waits for."""

    record: Decision | Addendum
    answers: list[asyncio.Task[Judgement]] = []
    census: list[asyncio.Task[Judgement]] = []

    @property
    def tasks(self) -> list[asyncio.Task[Judgement]]:
        return self.answers + self.census


class Replay:
    """One replay into one store; run it once.

    `salt` decides the coin, `price` what calls cost, `screen` is asked before the judge. With `census` every
    finished session in a rubric's frame is judged as well, without being stored, which shows what the sampled
    rates should have been. `observe` sees every record that goes to the store, in order.
    """

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        store: Store,
        model: JudgeModel,
        *,
        price: Price = FREE,
        screen: OfflineScreen | None = None,
        salt: bytes = b"",
        census: bool = False,
        observe: Observe | None = None,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._store = store
        self._salt = salt
        self._observe = observe
        self._recording = Recording(settings)
        self._judge = OfflineJudge(model, configured(settings.rubrics), settings.judge, price=price, screen=screen)
        self._screened = screen is not None
        self._waiting: deque[_Entry] = deque()
        self._running: set[asyncio.Task[Judgement]] = set()
        self._batch: list[Record] = []
        self._stored = RecordReport()
        self._census = Census() if census else None
        self._strata = {
            stratum.name: StratumSummary(name=stratum.name, probability=stratum.rate) for stratum in policy.strata
        }
        self._orphans: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        self._duplicates = self._late = 0

    async def run(self, events: Iterable[bytes]) -> ReplaySummary:
        """Take in events in order, each as JSON; one that can't be decoded is counted.

        Raises `StoreError`, and `JudgeFatal` or `JudgeUnavailable` when the judge can't be asked at all; no job in
        the store lacks its answer then.
        """
        before = self._store.totals()
        self._store.record([self._policy.published(self._settings.sampling.assistants)])
        try:
            for output in self._recording.outputs(events):
                await self._handle(output)
            while self._waiting:
                await self._settle_first()
        finally:
            for task in self._running:
                task.cancel()
        self._record(everything=True)
        return self._summary(rates(before, self._store.totals(), self._judge.model.name))

    async def _handle(self, output: Output) -> None:
        match output:
            case Finished():
                self._closed[output.reason] += 1
                self._waiting.append(self._decided(output.record))
                await self._make_room()
            case Late():
                self._late += 1
                self._waiting.append(_Entry(record=output.addendum))
            case Orphan():
                self._orphans[output.kind] += 1
            case Duplicate():
                self._duplicates += 1

    def _decided(self, record: SessionRecord) -> _Entry:
        assistants = self._settings.sampling.assistants
        decision, jobs = decide(record, self._policy, salt=self._salt, assistants=assistants)
        stratum = self._strata.setdefault(
            decision.stratum, StratumSummary(name=decision.stratum, probability=None)
        )
        stratum.finished += 1
        stratum.selected += decision.selected
        # A session that was screened out has no answer of the judge, so the census asks about all anew.
        needed = self._census is not None and (self._screened or not jobs)
        unpicked = _census_jobs(decision, record) if needed else []
        return _Entry(
            record=decision,
            answers=[self._start(job, record) for job in jobs],
            census=[self._start(job, record) for job in unpicked],
        )

    def _start(self, job: Job, record: SessionRecord) -> asyncio.Task[Judgement]:
        task = asyncio.create_task(self._judge.judge(job, record.span.closed_at))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _make_room(self) -> None:
        """Let answers come in until no more are under way than the settings allow."""
        if self._running:
            await asyncio.sleep(0)
        while len(self._running) >= self._settings.judge.concurrency:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        while self._waiting and (
            len(self._waiting) > _MAX_WAITING or all(task.done() for task in self._waiting[0].tasks)
        ):
            await self._settle_first()

    async def _settle_first(self) -> None:
        """Wait for the oldest entry's answers, and pass it on to the store, the decision first."""
        entry = self._waiting[0]
        answers = [await task for task in entry.answers]
        unpicked = [await task for task in entry.census]
        self._waiting.popleft()
        self._batch += [entry.record, *answers]
        if isinstance(entry.record, Decision):
            for answer in answers:
                self._count(self._strata[entry.record.stratum], answer)
            self._count_census(entry.record, unpicked if self._screened else answers + unpicked)
        self._record(everything=False)

    def _count(self, stratum: StratumSummary, judgement: Judgement) -> None:
        match judgement.result:
            case Verdict():
                stratum.verdicts += 1
            case Skipped(reason=reason):
                stratum.skipped[reason] = stratum.skipped.get(reason, 0) + 1
            case unscored:
                stratum.unscored[unscored.reason] = stratum.unscored.get(unscored.reason, 0) + 1

    def _count_census(self, decision: Decision, judgements: list[Judgement]) -> None:
        if self._census is not None:
            for judgement in judgements:
                self._census.add(judgement, decision.labels, RUBRICS[judgement.rubric].measures)

    def _record(self, *, everything: bool) -> None:
        if not self._batch or not (everything or len(self._batch) >= self._settings.store.batch):
            return
        batch, self._batch = self._batch, []
        if self._observe is not None:
            for record in batch:
                self._observe(record)
        report = self._store.record(batch)
        self._stored.duplicates += report.duplicates
        self._stored.overlaps += report.overlaps
        self._stored.rejected += report.rejected

    def _summary(self, found: list[Rate]) -> ReplaySummary:
        return ReplaySummary(
            policy=self._policy.version,
            judge=self._judge.model.name,
            events=self._recording.events,
            invalid=dict(self._recording.invalid),
            passed_over=0,
            duplicates=self._duplicates,
            late=self._late,
            orphans=dict(self._orphans),
            finished=self._closed.total(),
            closed=dict(self._closed),
            strata=list(self._strata.values()),
            rates=found,
            calls=dict(self._judge.calls.by_error_type),
            tokens=dict(self._judge.calls.tokens),
            cost_nusd=self._judge.calls.cost_nusd,
            already_stored=self._stored.duplicates,
            overlaps=self._stored.overlaps,
            rejected=len(self._stored.rejected),
            rejections=[item.error for item in self._stored.rejected[:_MAX_REJECTIONS]],
            census=None if self._census is None else self._census.rates(),
            census_unscored=0 if self._census is None else self._census.unscored,
        )


async def replay_events(
    events: Iterable[bytes],
    settings: Settings,
    policy: Policy,
    store: Store,
    model: JudgeModel,
    *,
    price: Price = FREE,
    screen: OfflineScreen | None = None,
    salt: bytes = b"",
    census: bool = False,
    observe: Observe | None = None,
) -> ReplaySummary:
    """Replay events (JSON, in the order of their delivery) into a store; see `Replay`."""
    replay = Replay(
        settings,
        policy,
        store,
        model,
        price=price,
        screen=screen,
        salt=salt,
        census=census,
        observe=observe,
    )
    return await replay.run(events)


async def run_replay(
    path: Path | str,
    settings: Settings,
    *,
    mapping: Path | None = None,
    store_url: str | None = None,
    skip_invalid: bool = False,
    census: bool = False,
    observe: Observe | None = None,
) -> ReplaySummary:
    """Replay a file (`-`: standard input), merged by time.

    Policy, salt, allow-list, judge and screen are those of the settings.
    Without `store_url` a database in a temporary folder is used and removed. With one, records that it holds
    already are not counted again, and `rates` cover only what was added. Raises `InputError` that names file, line
    and field (with `skip_invalid` such lines are counted instead), `ConfigError`, `PolicyError`, `StoreError`,
    `JudgeFatal` and `JudgeUnavailable`.
    """
    policy = PolicyFile(settings.sampling.policy, rubrics=RUBRICS).policy
    source = EventFile(
        path,
        mapping=None if mapping is None else load_mapping(mapping),
        max_event_bytes=settings.assembly.max_event_bytes,
        skip_invalid=skip_invalid,
    )
    secret = settings.sampling.salt
    async with checked_judge(settings.judge) as (model, price), checked_screen(settings.judge) as screen:
        with _store(store_url, model.name) as store:
            summary = await replay_events(
                by_time(source),
                settings,
                policy,
                store,
                model,
                price=price,
                screen=screen,
                salt=secret.get_secret_value().encode() if secret else b"",
                census=census,
                observe=observe,
            )
    invalid = dict(source.invalid + Counter(summary.invalid))
    return msgspec.structs.replace(summary, invalid=invalid, passed_over=source.passed_over)


@contextmanager
def _store(url: str | None, judge: str) -> Iterator[Store]:
    counts = {
        name: RubricCounts(measures=rubric.measures, scores=rubric.scores) for name, rubric in RUBRICS.items()
    }
    with tempfile.TemporaryDirectory(prefix="backslide-replay-") as folder:
        store = Store.open(url or f"sqlite:///{folder}/replay.sqlite", rubrics=counts, judge=judge)
        try:
            yield store
        finally:
            store.close()


def _census_jobs(decision: Decision, record: SessionRecord) -> list[Job]:
    """Make a job for each rubric whose frame a session that wasn't picked is in."""
    return [
        Job(
            job_id=job_id(decision.tenant, decision.session_id, decision.segment, rubric, "census"),
            tenant=decision.tenant,
            session_id=decision.session_id,
            segment=decision.segment,
            rubric=rubric,
            stratum=decision.stratum,
            priority=decision.priority,
            content_hash=decision.content_hash,
            content=record.content,
            run="file",
        )
        for rubric in decision.frame
    ]
