"""A log of one partition for the assembler, and a simulated broker that can be cut and restarted anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.assembly import Duplicate, Finished, Late, Orphan, Output, Position, SessionAssembler
from monitor.assembly.open_session import AssemblyPolicy, Key
from monitor.events import Event, EventDecoder, encode
from monitor.session import FinishedRecord, SessionRecord

POLICY = AssemblyPolicy(
    gap=900, grace=60, max_age=5_000, max_turns=6, max_bytes=5_000, max_pinned=40, memory=2_000, allowed_skew=100
)


@dataclass(frozen=True)
class LogRecord:
    """One record: an event, and the broker's timestamp in milliseconds."""

    event: Event
    timestamp: int | None = None


@dataclass(frozen=True)
class Commit:
    """What a commit stores: offset, stream time, read-back bound."""

    offset: int = 0
    stream_time: int | None = None
    bound: int = 0


@dataclass
class Broker:
    """The log, the sessions topic (finished sessions and addenda as written), and the last commit."""

    log: list[LogRecord]
    policy: AssemblyPolicy = POLICY
    topic: list[tuple[Key, FinishedRecord]] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    commit: Commit = Commit()

    @property
    def sessions(self) -> list[tuple[Key, SessionRecord]]:
        return [(key, record) for key, record in self.topic if isinstance(record, SessionRecord)]

    def run(self, until: int, *, commit_at: int | None = None, flushed: bool = True) -> None:
        """Start a worker from the last commit, stop it dead behind offset `until`.

        It commits once, behind offset `commit_at` or never. Without `flushed`, what it finished behind its
        commit never reached the sessions topic.
        """
        assembler = SessionAssembler(self.policy, stream_time=self.commit.stream_time)
        for offset in range(self.commit.bound, len(self.topic)):
            assembler.restore(self.topic[offset][1], offset)
        assembler.resume_at(self.commit.offset)
        decoder = EventDecoder()
        start, committed = self.commit.offset, commit_at is None
        outbox: list[Finished | Late] = []
        for offset in range(start, until):
            if commit_at is not None and offset >= commit_at and not committed:
                self._commit(assembler, outbox)
                committed = True
            record = self.log[offset]
            raw = encode(record.event)
            event, kept = decoder.decode(raw)
            outputs = assembler.on_event(event, kept, Position(offset, record.timestamp))
            self.outputs.extend(outputs)
            outbox.extend(output for output in outputs if isinstance(output, Finished | Late))
        if flushed:
            self._flush(assembler, outbox)

    def _flush(self, assembler: SessionAssembler, outbox: list[Finished | Late]) -> None:
        for output in outbox:
            if isinstance(output, Finished):
                assembler.acknowledge(output, len(self.topic))
                self.topic.append((output.key, output.record))
            else:
                addendum = output.addendum
                self.topic.append(((addendum.tenant, addendum.session_id), addendum))
        outbox.clear()

    def _commit(self, assembler: SessionAssembler, outbox: list[Finished | Late]) -> None:
        position = assembler.safe_position()
        self._flush(assembler, outbox)
        bound = assembler.read_back_bound(position)
        end = len(self.topic)
        self.commit = Commit(position.offset, position.stream_time, end if bound is None else bound)


def run_whole(log: list[LogRecord], policy: AssemblyPolicy = POLICY) -> Broker:
    """Run a log without any fault."""
    broker = Broker(log, policy)
    broker.run(len(log))
    return broker


def finished(outputs: list[Output]) -> list[Finished]:
    return [output for output in outputs if isinstance(output, Finished)]


def kinds(outputs: list[Output]) -> list[str]:
    names = {Finished: "finished", Late: "late", Orphan: "orphan", Duplicate: "duplicate"}
    return [names[type(output)] for output in outputs if type(output) in names]
