"""One partition of the source topic while this process owns it: its assembler, its outbox, its progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.structs import OffsetAndMetadata

from consumers import dead_letters
from consumers.kafka import event_key, partition_for
from consumers.offsets import CommitNote, encode_note
from consumers.outbox import Outbox, Outgoing
from monitor.assembly import Duplicate, Finished, Late, Orphan, Output, SessionAssembler, Skewed
from monitor.config import Settings
from monitor.errors import InvalidEvent
from monitor.events import TAGS, Event, EventDecoder, SessionEvent, Tick, encode
from monitor.metrics import Meters
from monitor.session import CLOSE_REASONS, Addendum, EventIds, SessionRecord, decode_content

STAGE: Final = "assemble"
JUDGED_AFTER: Final = 200  # records before the share of bad ones means anything
LOOK_BACK: Final = 1_000


class TooManyInvalid(InvalidEvent):
    """Most of the topic can't be read; somebody has to look before it is all put aside."""


class PartitionState:
    """Applies records to the assembler and fills the outbox. Its methods never wait, but for `commitable`."""

    def __init__(
        self,
        *,
        settings: Settings,
        meters: Meters,
        producer: AIOKafkaProducer,
        assembler: SessionAssembler,
        partition: int,
        partitions: int,
        sessions_end: int,
        truncated: bool,
        fail: Callable[[BaseException], None],
        now: float,
    ) -> None:
        self._settings = settings
        self._meters = meters
        self._assembler = assembler
        self._partition = partition
        self._partitions = partitions
        self._sessions = settings.topics.sessions
        self._sessions_end = sessions_end
        self._decode = EventDecoder(max_bytes=settings.assembly.max_event_bytes).decode
        self._events = {kind: meters.counter("events", event_type=tag) for kind, tag in TAGS.items()}
        self._closed = {reason: meters.counter("sessions_closed", reason=reason) for reason in CLOSE_REASONS}
        self._valid: deque[bool] = deque(maxlen=LOOK_BACK)
        self._log = structlog.get_logger().bind(process=STAGE, partition=partition)
        # A line a session would cost more than its assembly; even one that is thrown away costs a tenth of it.
        self._verbose = settings.log.level == "debug"
        self._warned_of_routing = False
        self._committed: OffsetAndMetadata | None = None
        self._behind_gap = truncated
        self._ticking = False
        self.outbox = Outbox(producer, fail)
        self.last_timestamp: int | None = None
        self.active_at = now
        self.silent_since = now

    @property
    def open_sessions(self) -> int:
        """How many sessions are open here."""
        return self._assembler.open_sessions

    def apply(self, records: Sequence[Any], now: float) -> None:
        """Apply fetched records in order. `now` is monotonic seconds. Raises `TooManyInvalid`."""
        self.active_at = now
        self.last_timestamp = records[-1].timestamp
        kinds = dict.fromkeys(self._events, 0)
        try:
            for record in records:
                kind = self._apply(record)
                if kind is not None:
                    kinds[kind] += 1
                # The silence that a tick stands for was counted when it was sent; more may have passed since.
                if kind is not Tick:
                    self.silent_since = now
        finally:
            # A counter costs as much as all else that is done for an event: once a batch.
            for kind, count in kinds.items():
                if count:
                    self._events[kind].inc(count)

    def tick(self, now: float) -> None:
        """Append a tick, so that time goes on in a partition where nothing is said (A1).

        It goes on from where the log's own time stands, by as long as the silence lasted. With the wall clock
        instead, a producer that is a minute behind would see its sessions closed at each pause. One tick is under
        way at a time and carries two intervals at most: in an outage of the broker, and while this process is
        stopped, the producers may be cut off as well, and that is no silence of theirs.
        """
        stream_time = self._assembler.stream_time
        if self._ticking or stream_time is None:
            return
        self._ticking = True
        silence = min(now - self.silent_since, 2 * self._settings.assembly.tick_interval_s)
        value = encode(Tick(ts=stream_time / 1000 + silence))
        self.outbox.put(Outgoing(topic=self._settings.topics.events, value=value, partition=self._partition))
        self.silent_since = now

    async def commitable(self) -> OffsetAndMetadata | None:
        """Take the safe position, wait for the outbox, give what may be committed; None when it is committed."""
        if self._behind_gap:
            return None  # how far the gap reaches is known with the first event (A9)
        position = self._assembler.safe_position()
        if not await self.outbox.drain():
            return None
        bound = self._assembler.read_back_bound(position)
        note = CommitNote(
            time=position.stream_time,
            partitions=self._partitions,
            bound=self._sessions_end if bound is None else bound,
            truncated_until=position.truncated_until,
        )
        offset = OffsetAndMetadata(position.offset, encode_note(note))
        return None if offset == self._committed else offset

    def committed(self, offset: OffsetAndMetadata) -> None:
        """Note that a commit took place."""
        self._committed = offset

    # -- one record ----------------------------------------------------------------------------------------

    def _apply(self, record: Any) -> type[Event] | None:
        """Apply a record; gives the type of its event, None when it can't be accepted."""
        value = record.value or b""
        try:
            event, raw = self._decode(value)
        except InvalidEvent as error:
            self._put_aside(record, error)
            return None
        self._valid.append(True)
        kind = type(event)
        if isinstance(event, Tick):
            self._ticking = False
        elif not self._assembler.knows(event.tenant, event.session_id) and self._reroute(event, raw, record):
            self._assembler.skip(record.offset, len(value))
            return kind
        self._behind_gap = False
        timestamp = record.timestamp
        position = (record.offset, timestamp if timestamp is not None and timestamp >= 0 else None, len(value))
        for output in self._assembler.on_event(event, raw, position):
            self._emit(output, record)
        return kind

    def _put_aside(self, record: Any, error: InvalidEvent) -> None:
        self._valid.append(False)
        self._meters.counter("events_invalid", reason=error.reason).inc()
        self._dead_letter(record, error.reason, str(error))
        self._assembler.skip(record.offset, len(record.value or b""))
        bad = len(self._valid) - sum(self._valid)
        limit = self._settings.assembly.dead_letter_limit
        if len(self._valid) >= JUDGED_AFTER and bad > limit * len(self._valid):
            raise TooManyInvalid(
                error.reason,
                f"{bad} of the last {len(self._valid)} events of {record.topic}[{record.partition}] up to offset "
                f"{record.offset} can't be accepted (assembly.dead_letter_limit = {limit}), the last for "
                f"{error.reason}; the dead letters say what is wrong with each",
            )

    def _dead_letter(self, record: Any, reason: str, error: str, session: tuple[str, str] | None = None) -> None:
        key, value, headers = dead_letters.letter(record, stage=STAGE, reason=reason, error=error, session=session)
        self._meters.counter("dead_letters", stage=STAGE).inc()
        topic = self._settings.topics.dead_letters
        self.outbox.put(Outgoing(topic=topic, value=value, key=key, headers=headers))

    def _reroute(self, event: SessionEvent, raw: bytes, record: Any) -> bool:
        """Send an event of another partition's session on to its partition (A8)."""
        key = event_key(event.tenant, event.session_id)
        right = partition_for(key, self._partitions)
        if right == self._partition:
            return False
        self._meters.counter("events_rerouted").inc()
        if not self._warned_of_routing:
            self._warned_of_routing = True
            self._log.warning(
                "event_in_wrong_partition",
                offset=record.offset,
                right_partition=right,
                remedy="key events by `tenant/session_id`; in librdkafka clients set `partitioner=murmur2_random`",
            )
        topic = self._settings.topics.events
        self.outbox.put(Outgoing(topic=topic, value=raw, key=key, partition=right))
        return True

    # -- what comes of it ----------------------------------------------------------------------------------

    def _emit(self, output: Output, record: Any) -> None:
        if isinstance(output, Finished):
            self._finished(output)
        elif isinstance(output, Late):
            self._late(output.addendum)
        elif isinstance(output, Duplicate):
            self._meters.counter("events_duplicate").inc()
        elif isinstance(output, Skewed):
            self._meters.counter("events_clock_skew", direction=output.direction).inc()
        elif isinstance(output, Orphan):
            self._orphan(output, record)

    def _finished(self, finished: Finished) -> None:
        self._closed[finished.reason].inc()
        if self._verbose:
            self._log_closed(finished)
        outgoing = self._to_sessions(finished, finished.record)
        outgoing.stub = partial(self._stub, finished)
        self.outbox.put(outgoing)

    def _to_sessions(self, finished: Finished, record: SessionRecord) -> Outgoing:
        return Outgoing(
            topic=self._sessions,
            value=msgspec.json.encode(record),
            key=event_key(*finished.key),
            partition=self._partition,
            acknowledged=partial(self._acknowledged, finished),
        )

    def _acknowledged(self, finished: Finished, offset: int) -> None:
        self._note_end(offset)
        self._assembler.acknowledge(finished, offset)

    def _log_closed(self, finished: Finished) -> None:
        span = finished.record.span
        self._log.debug(
            "session_closed",
            tenant=finished.key[0],
            session_id=finished.key[1],
            segment=finished.closed.segment,
            reason=finished.reason,
            turns=finished.turns,
            first=span.first,
            last=span.last,
        )

    def _late(self, addendum: Addendum) -> None:
        self._meters.counter("events_late").inc()
        self.outbox.put(
            Outgoing(
                topic=self._sessions,
                value=msgspec.json.encode(addendum),
                key=event_key(addendum.tenant, addendum.session_id),
                partition=self._partition,
                acknowledged=self._note_end,
            )
        )

    def _note_end(self, offset: int) -> None:
        self._sessions_end = max(self._sessions_end, offset + 1)

    def _stub(self, finished: Finished) -> Outgoing:
        """Make what stands for a session too large for the broker: who and where, ids instead of events (J5)."""
        record = finished.record
        content = decode_content(record.content)
        self._log.error("session_too_large", segment=content.segment, size=len(record.content))
        bare = SessionRecord(
            content=msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(content, events=[]))), span=record.span
        )
        ids = tuple(msgspec.json.decode(raw, type=EventIds) for raw in content.events)
        stub = self._to_sessions(finished, msgspec.structs.replace(bare, omitted=ids))
        # A topic that takes in next to nothing: better without the ids than not at all.
        stub.stub = lambda: self._to_sessions(finished, bare)
        return stub

    def _orphan(self, orphan: Orphan, record: Any) -> None:
        self._meters.counter("events_orphaned", event_type=orphan.kind).inc()
        held = _Held(record.topic, record.partition, orphan.offset, None, orphan.raw)
        error = f"{orphan.kind} without any turn of its session within the grace time"
        self._dead_letter(held, "orphan", error, orphan.key)


class _Held(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
