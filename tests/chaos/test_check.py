"""The campaign's own checker: silent on a run without faults, and loud about everything that can go wrong."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from sqlalchemy import delete, update

from consumers.kafka import partition_for
from consumers.record import rubric_counts
from monitor.assembly.open_session import AssemblyPolicy
from monitor.decision import Decision, Job, decode_decision
from monitor.events import Tick, encode
from monitor.exporter import Exposition
from monitor.rubrics import RUBRICS
from monitor.session import SessionRecord, decode_content, decode_record
from monitor.store import Store
from monitor.store.connect import writing
from monitor.store.tables import ADDENDA, DECISIONS, JOBS, TOTALS
from tests.chaos.check import Observed, Report, compare, digest, missing
from tests.chaos.load import Load, Truth
from tests.chaos.reference import Reference, Segment
from tests.chaos.settings import ASSISTANTS, POLICY
from tests.chaos.stores import Stores

PARTITIONS = 4
TIMES = AssemblyPolicy(gap=5_000, grace=1_500, max_age=600_000, memory=400_000)
BASE = 1_800_000_000.0


class LogRecord(NamedTuple):
    """A record of the source topic, as the tap gives it."""

    partition: int
    offset: int
    timestamp: int
    value: bytes


class Run:
    """A run without faults, and what a pipeline without faults has written of it."""

    def __init__(self) -> None:
        self.truth = Truth()
        self.reference = Reference("chat.events", PARTITIONS, TIMES, salt=b"salt", assistants=ASSISTANTS)
        self.policy = self.reference.add_policy(POLICY.format(corrected=0.9, base=0.5))
        self.reference.prompts = {"prompt"}
        for record in self._log(Load(5, "r0", 8.0, PARTITIONS)):
            self.reference.apply(record)
        self.observed = Observed()
        for segment in self.reference.segments:
            self.write(segment)
        for addendum in self.reference.addenda.values():
            self.observed.session(addendum)
            self.observed.decision(addendum)
        self.observed.letters.update(self.reference.letters)

    def _log(self, load: Load) -> Iterator[LogRecord]:
        ends: defaultdict[int, int] = defaultdict(int)

        def append(partition: int, value: bytes, at: float) -> LogRecord:
            ends[partition] += 1
            return LogRecord(partition, ends[partition] - 1, round(at * 1000), value)

        for parcel in load.parcels(BASE):
            self.truth.note(parcel)
            right = partition_for(parcel.key, PARTITIONS)
            placed = right if parcel.partition is None else parcel.partition
            yield append(placed, parcel.value, BASE + parcel.at)
            if placed != right and parcel.event_id is not None:
                yield append(right, parcel.value, BASE + parcel.at)  # as its first reader sends it on
        for number in range(1, 20):
            for partition in range(PARTITIONS):
                at = BASE + 60 + number
                yield append(partition, encode(Tick(ts=at)), at)

    def write(self, segment: Segment) -> None:
        """Let a segment go all the way."""
        self.observed.session(self.reference.segments[segment].encoded)
        decided = self.reference.decided(segment, self.policy.version)
        for job in decided.jobs.values():
            self.observed.job(job)
            judgement = asyncio.run(self.reference.judged(msgspec.json.decode(job, type=Job)))
            self.observed.judgement(msgspec.json.encode(msgspec.structs.replace(judgement, prompt_hash="prompt")))
        self.observed.decision(decided.decision)

    def copy(self) -> Run:
        """Give a copy to spoil."""
        run = copy(self)
        run.truth, run.observed = deepcopy(self.truth), deepcopy(self.observed)
        run.reference = copy(self.reference)
        for name in ("segments", "addenda", "letters", "policies", "twice"):
            setattr(run.reference, name, copy(getattr(self.reference, name)))
        return run

    def report(self) -> Report:
        """Compare."""
        return compare(self.reference, self.observed, self.truth)

    @property
    def judged(self) -> Segment:
        """Some segment with a job."""
        return next(s for s in self.reference.segments if self.reference.decided(s, self.policy.version).jobs)


@pytest.fixture(scope="module")
def whole() -> Run:
    return Run()


@pytest.fixture
def run(whole: Run) -> Run:
    return whole.copy()


def changed(encoded: bytes) -> bytes:
    """Give a finished session without its last event."""
    record = decode_record(encoded)
    assert isinstance(record, SessionRecord)
    content = decode_content(record.content)
    shorter = msgspec.structs.replace(content, events=content.events[:-1])
    return msgspec.json.encode(msgspec.structs.replace(record, content=msgspec.Raw(msgspec.json.encode(shorter))))


def test_a_run_without_faults_is_clean(run: Run) -> None:
    report = run.report()
    assert report.findings == []
    assert (report.lost, report.truncated, report.differing, report.doubled, report.copies) == (0, 0, 0, 0, 0)
    assert list(missing(run.reference, run.observed)) == []
    # Nothing would show in an empty run.
    assert len(run.reference.segments) > 40
    assert len(run.observed.jobs) > 20
    assert run.reference.addenda
    assert run.reference.letters
    assert len({session for _, session, _ in run.reference.segments}) < len(run.reference.segments)


def lose_session(run: Run) -> None:
    del run.observed.sessions[run.judged]


def lose_decision(run: Run) -> None:
    del run.observed.decisions[run.judged]


def lose_job(run: Run) -> None:
    run.observed.jobs.popitem()


def lose_judgement(run: Run) -> None:
    run.observed.answers.popitem()


def lose_addendum(run: Run) -> None:
    run.observed.addenda.popitem()


def lose_decided_addendum(run: Run) -> None:
    run.observed.decided_addenda.popitem()


def lose_letter(run: Run) -> None:
    run.observed.letters.popitem()


LOSSES = (
    lose_session,
    lose_decision,
    lose_job,
    lose_judgement,
    lose_addendum,
    lose_decided_addendum,
    lose_letter,
)


@pytest.mark.parametrize("lose", LOSSES)
def test_a_loss_is_found_and_waited_for(run: Run, lose: Callable[[Run], None]) -> None:
    lose(run)
    assert run.report().lost
    assert list(missing(run.reference, run.observed))


def test_a_sent_session_that_no_log_has_is_lost(run: Run) -> None:
    run.truth.sent["acme", "never read"] = {"e1": True}
    assert run.report().lost == 1


def test_a_sent_event_that_got_nowhere_is_lost(run: Run) -> None:
    next(iter(run.truth.sent.values()))["a rating"] = False
    assert run.report().lost == 1


def test_a_turn_that_no_segment_has_is_truncation(run: Run) -> None:
    next(iter(run.truth.sent.values()))["another turn"] = True
    assert run.report().truncated == 1


def test_a_turn_in_two_segments_is_doubled(run: Run) -> None:
    tenant, session_id, _ = run.judged
    closed = run.reference.segments[run.judged]
    run.reference.segments[tenant, session_id, "twin"] = closed
    assert run.report().doubled >= len(closed.turns)


def test_a_truncated_copy_differs_even_beside_a_whole_one(run: Run) -> None:
    encoded = run.reference.segments[run.judged].encoded
    run.observed.session(changed(encoded))
    report = run.report()
    assert report.differing == 1
    assert "finished sessions" in report.findings[0]


def test_a_session_that_nobody_sent_differs(run: Run) -> None:
    content = decode_content(run.reference.segments[run.judged].record.content)
    twin = msgspec.structs.replace(content, segment="a truncated twin")
    record = run.reference.segments[run.judged].record
    raw = msgspec.Raw(msgspec.json.encode(twin))
    run.observed.session(msgspec.json.encode(msgspec.structs.replace(record, content=raw)))
    assert run.report().differing == 1


def test_equal_copies_are_counted_and_are_no_fault(run: Run) -> None:
    run.write(run.judged)
    report = run.report()
    assert report.clean
    assert report.copies == 3  # session, decision, job; the same judgement is one answer


def test_a_decision_with_another_probability_differs(run: Run) -> None:
    written = decode_decision(run.reference.decided(run.judged, run.policy.version).decision)
    assert isinstance(written, Decision)
    run.observed.decision(msgspec.json.encode(msgspec.structs.replace(written, weight16=written.weight16 + 1)))
    assert run.report().differing == 1


def test_a_decision_by_a_policy_that_was_never_in_force_differs(run: Run) -> None:
    written = decode_decision(run.reference.decided(run.judged, run.policy.version).decision)
    assert isinstance(written, Decision)
    run.observed.decision(msgspec.json.encode(msgspec.structs.replace(written, policy="another")))
    assert run.report().differing == 1


def test_a_decision_made_again_by_a_newer_policy_is_told_apart(run: Run) -> None:
    newer = run.reference.add_policy(POLICY.format(corrected=1.0, base=0.9))
    run.observed.decision(run.reference.decided(run.judged, newer.version).decision)
    report = run.report()
    assert report.clean
    assert report.redecided == 1


def test_a_job_that_no_decision_lists_differs(run: Run) -> None:
    job = next(iter(next(iter(run.observed.jobs.values())).values()))
    run.observed.job(msgspec.json.encode(msgspec.structs.replace(job, job_id="unlisted")))
    assert run.report().differing


def test_another_job_under_the_same_id_differs(run: Run) -> None:
    job = next(iter(next(iter(run.observed.jobs.values())).values()))
    run.observed.job(msgspec.json.encode(msgspec.structs.replace(job, stratum="other")))
    assert run.report().differing == 1


def test_a_second_answer_that_says_something_else_differs(run: Run) -> None:
    run.observed.answers[next(iter(run.observed.jobs))][b"again"] = digest(b"something else")
    assert run.report().differing == 1


def test_an_answer_by_a_prompt_that_nobody_deployed_differs(run: Run) -> None:
    run.observed.prompts.add("unknown")
    assert run.report().differing == 1


def test_a_dead_letter_for_a_good_event_differs(run: Run) -> None:
    run.observed.letters[b"chat.events/0/0"] += 1
    assert run.report().differing == 1


# -- the store -------------------------------------------------------------------------------------------------


class Recorded:
    """A run whose records are all in a store."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run = run
        url = f"sqlite:///{folder / 'store.sqlite'}"
        self.store = Store.open(url, rubrics=rubric_counts(RUBRICS))
        published = self.run.policy.published(ASSISTANTS)
        self.run.observed.policies[msgspec.json.encode(published)] = published
        self.store.record([published])
        for segment in self.run.reference.segments:
            self.record(segment)
        self.store.record([decode_decision(addendum) for addendum in self.run.reference.addenda.values()])
        self.stores = Stores(url, f"sqlite:///{folder / 'reference.sqlite'}")

    def record(self, segment: Segment) -> None:
        decided = self.run.reference.decided(segment, self.run.policy.version)
        answers = [self.run.reference.answers[job_id] for job_id in decided.jobs]
        answers = [msgspec.structs.replace(answer, prompt_hash="prompt") for answer in answers]
        self.store.record([decode_decision(decided.decision), *answers])

    def report(self) -> Report:
        report = Report()
        self.stores.feed(self.run.reference, self.run.observed)
        self.stores.compare(self.run.reference, self.run.observed, report)
        body, _ = Exposition(self.store).render()
        self.stores.compare_metrics(body.decode(), report)
        return report

    def change(self, statement: object) -> None:
        with writing(self.store._engine) as connection:
            connection.execute(statement)  # type: ignore[call-overload]


@pytest.fixture
def recorded(run: Run, tmp_path: Path) -> Iterator[Recorded]:
    place = Recorded(run, tmp_path)
    yield place
    place.store.close()
    place.stores.close()


def test_a_store_of_a_run_without_faults_is_clean(recorded: Recorded) -> None:
    assert recorded.report().findings == []
    assert list(recorded.stores.waiting(recorded.run.reference, recorded.run.observed)) == []


def test_a_second_answer_is_counted_apart(recorded: Recorded) -> None:
    reference, observed = recorded.run.reference, recorded.run.observed
    answer = next(iter(reference.answers.values()))
    again = msgspec.structs.replace(answer, finished_at=1, prompt_hash="prompt")
    observed.judgement(msgspec.json.encode(again))
    assert list(recorded.stores.waiting(reference, observed))
    assert not recorded.report().clean
    recorded.store.record([again])
    report = recorded.report()
    assert report.clean
    assert report.superseded == 1


def test_a_lost_row_is_found(recorded: Recorded) -> None:
    for table in (DECISIONS, JOBS, ADDENDA):
        row = recorded.store._engine.connect().execute(table.select()).first()
        assert row is not None
        recorded.change(delete(table).where(table.c.segment_key == row.segment_key))
    assert recorded.report().lost >= 3


def test_a_changed_row_is_found(recorded: Recorded) -> None:
    recorded.change(update(DECISIONS).values(turns=DECISIONS.c.turns + 1))
    assert recorded.report().doubled


def test_a_job_that_stays_pending_is_found(recorded: Recorded) -> None:
    recorded.change(update(JOBS).values(state="pending"))
    report = recorded.report()
    assert any("pending" in finding for finding in report.findings)


def test_a_total_that_is_one_too_many_is_found(recorded: Recorded) -> None:
    recorded.change(update(TOTALS).where(TOTALS.c.name == "verdicts").values(value=TOTALS.c.value + 1))
    findings = " ".join(recorded.report().findings)
    for what in ("totals:", "R2", "sum of the rows"):
        assert what in findings


def test_a_rebuild_that_gives_something_else_is_found(recorded: Recorded) -> None:
    assert recorded.stores.rebuild() == []
    recorded.change(update(TOTALS).where(TOTALS.c.name == "verdicts").values(value=TOTALS.c.value + 1))
    assert "after a rebuild" in recorded.stores.rebuild()[0]


def test_metrics_that_are_behind_are_found(recorded: Recorded) -> None:
    body, _ = Exposition(recorded.store).render()
    recorded.change(update(TOTALS).where(TOTALS.c.name == "judged_trials").values(value=TOTALS.c.value + 1))
    report = Report()
    recorded.stores.compare_metrics(body.decode(), report)
    assert report.differing == 1
