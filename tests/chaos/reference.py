"""A run without faults: the very log of the source topic through the pure parts, in order and in one piece."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from consumers import dead_letters
from consumers.kafka import event_key, partition_for
from monitor.assembly import Finished, Late, Orphan, Position, SessionAssembler
from monitor.assembly.open_session import AssemblyPolicy
from monitor.config import JudgeSettings
from monitor.decision import Job
from monitor.errors import InvalidEvent
from monitor.events import EventDecoder, Tick
from monitor.judgement import Attempt, Judgement
from monitor.judging.lexical import LexicalJudge
from monitor.judging.screen import Screens
from monitor.offline_judge import OfflineJudge, OfflineScreen
from monitor.rubrics import RUBRICS
from monitor.sampling.decide import Assistants, decide
from monitor.sampling.policy import Policy, parse_policy
from monitor.session import SessionRecord, session_view
from monitor.settings import ScreenSettings
from tests.chaos.settings import SCREEN

Segment: TypeAlias = tuple[str, str, str]
Place: TypeAlias = tuple[int, int]


class Decided(NamedTuple):
    """A decision and its jobs (by id), as they are written."""

    decision: bytes
    jobs: dict[str, bytes]


class Closed(msgspec.Struct, kw_only=True):
    """A finished segment as it has to be. `at` is the broker's time of the record that closed it (Unix ms)."""

    record: SessionRecord
    encoded: bytes
    at: int
    turns: frozenset[str]
    others: frozenset[str]


class Reference:
    """What has to come of the log. Feed it every record of the source topic, in order within each partition."""

    def __init__(
        self, topic: str, partitions: int, policy: AssemblyPolicy, *, salt: bytes, assistants: Assistants
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._salt = salt
        self._assistants = assistants
        self._decoder = EventDecoder()
        self._assemblers = [SessionAssembler(policy, number) for number in range(partitions)]
        screen = ScreenSettings(**SCREEN)
        self._judge = OfflineJudge(
            LexicalJudge(),
            RUBRICS,
            JudgeSettings(),
            screen=OfflineScreen(screens=Screens(screen, {}), model=LexicalJudge(), settings=screen),
        )
        self.answers: dict[str, Judgement] = {}
        self._decided: dict[tuple[Segment, str], Decided] = {}
        self.policies: dict[str, Policy] = {}
        self.prompts: set[str] = set()
        self.segments: dict[Segment, Closed] = {}
        self.addenda: dict[Place, bytes] = {}
        self.late: dict[tuple[str, str], set[str]] = {}
        self.letters: set[bytes] = set()
        self.twice: list[Segment] = []

    @property
    def open_sessions(self) -> int:
        """How many sessions the log leaves open."""
        return sum(assembler.open_sessions for assembler in self._assemblers)

    def add_policy(self, text: str) -> Policy:
        """Make a policy known that the samplers may decide by."""
        policy = parse_policy(text, source="campaign", rubrics=RUBRICS)
        self.policies[policy.version] = policy
        return policy

    # -- assembling ----------------------------------------------------------------------------------------

    def apply(self, record: Any) -> None:
        """Take in the next record of a partition."""
        assembler = self._assemblers[record.partition]
        size = len(record.value or b"")
        try:
            event, raw = self._decoder.decode(record.value or b"")
        except InvalidEvent:
            self._letter(record, record.offset)
            assembler.skip(record.offset, size)
            return
        if not isinstance(event, Tick) and not assembler.knows(event.tenant, event.session_id):
            key = event_key(event.tenant, event.session_id)
            if partition_for(key, self._partitions) != record.partition:
                assembler.skip(record.offset, size)  # the owner sends it on, and it comes by again (A8)
                return
        for output in assembler.on_event(event, raw, Position(record.offset, record.timestamp, size)):
            if isinstance(output, Finished):
                self._finished(output, record.timestamp)
            elif isinstance(output, Late):
                addendum = output.addendum
                self.addenda[addendum.partition, addendum.offset] = msgspec.json.encode(addendum)
                self._late(addendum.tenant, addendum.session_id, addendum.event)
            elif isinstance(output, Orphan):
                self._letter(record, output.offset)
                self._orphan(output)

    def _letter(self, record: Any, offset: int) -> None:
        placed = msgspec.structs.replace(_NOWHERE, topic=self._topic, partition=record.partition, offset=offset)
        key, _, _ = dead_letters.letter(placed, stage="", reason="", error="")
        self.letters.add(key)

    def _finished(self, finished: Finished, at: int) -> None:
        view = session_view(finished.record.content)
        segment = (view.tenant, view.session_id, view.segment)
        if segment in self.segments:
            self.twice.append(segment)
        turns = frozenset(_turn_ids(finished.record))
        self.segments[segment] = Closed(
            record=finished.record,
            encoded=msgspec.json.encode(finished.record),
            at=at,
            turns=turns,
            others=frozenset(view.event_ids) - turns,
        )

    def _late(self, tenant: str, session_id: str, raw: bytes | msgspec.Raw) -> None:
        event = msgspec.json.decode(raw)
        self.late.setdefault((tenant, session_id), set()).add(event["event_id"])

    def _orphan(self, orphan: Orphan) -> None:
        event = msgspec.json.decode(orphan.raw)
        self._late(event.get("tenant", "default"), event["session_id"], orphan.raw)

    # -- deciding and judging ------------------------------------------------------------------------------

    def decided(self, segment: Segment, policy: str) -> Decided:
        """Decide on a segment by a known policy."""
        found = self._decided.get((segment, policy))
        if found is None:
            decision, jobs = decide(
                self.segments[segment].record,
                self.policies[policy],
                salt=self._salt,
                assistants=self._assistants,
            )
            written = {job.job_id: msgspec.json.encode(job) for job in jobs}
            found = self._decided[segment, policy] = Decided(msgspec.json.encode(decision), written)
        return found

    async def judged(self, job: Job) -> Judgement:
        """Answer a job; times and the prompt's hash are those of no one."""
        if job.job_id not in self.answers:
            self.answers[job.job_id] = timeless(await self._judge.judge(job, 0))
        return self.answers[job.job_id]


class _Nowhere(msgspec.Struct):
    topic: str = ""
    partition: int = 0
    offset: int = 0
    key: bytes | None = None
    value: bytes | None = None


_NOWHERE = _Nowhere()


def timeless(judgement: Judgement) -> Judgement:
    """Leave out what differs between two runs, and what a rolling deploy changes: times and the prompt's hash."""
    screen = judgement.screen
    if screen is not None:
        screen = msgspec.structs.replace(screen, attempts=_timeless(screen.attempts), prompt_hash="")
    return msgspec.structs.replace(
        judgement,
        attempts=_timeless(judgement.attempts),
        screen=screen,
        prompt_hash="",
        started_at=0,
        finished_at=0,
    )


def _timeless(attempts: Iterable[Attempt]) -> list[Attempt]:
    return [msgspec.structs.replace(attempt, duration_ms=0, request_id=None) for attempt in attempts]


def _turn_ids(record: SessionRecord) -> set[str]:
    content = msgspec.json.decode(record.content)
    return {event["event_id"] for event in content["events"] if event["type"] == "turn"}
