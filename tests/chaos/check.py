"""What came out, held against the run without faults and against what producers sent. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from monitor.decision import Decision, Job, PolicyLoaded, decode_decision, decode_job
from monitor.judgement import decode_judgement
from monitor.session import Addendum, decode_content, decode_record
from tests.chaos.load import Truth
from tests.chaos.reference import Place, Reference, Segment, timeless

SHOWN: Final = 5

Digest = bytes


def digest(value: bytes) -> Digest:
    """Name bytes."""
    return hashlib.blake2b(value, digest_size=16).digest()


class Copy(msgspec.Struct, frozen=True):
    """One copy of a decision, and the policy by which it was made."""

    digest: Digest
    policy: str


class Observed:
    """Every record of the topics that Backslide writes; copies are told apart by their bytes."""

    def __init__(self) -> None:
        self.sessions: dict[Segment, Counter[Digest]] = {}
        self.addenda: dict[Place, Counter[Digest]] = {}
        self.decisions: dict[Segment, list[Copy]] = {}
        self.decided_addenda: dict[Place, Counter[Digest]] = {}
        self.policies: dict[bytes, PolicyLoaded] = {}
        self.jobs: dict[str, dict[Digest, Job]] = {}
        self.job_copies = 0
        self.answers: dict[str, dict[Digest, Digest]] = {}
        self.prompts: set[str] = set()
        self.letters: Counter[bytes] = Counter()

    def session(self, value: bytes) -> None:
        """Take in a record of the sessions topic."""
        record = decode_record(value)
        if isinstance(record, Addendum):
            self.addenda.setdefault((record.partition, record.offset), Counter())[digest(value)] += 1
            return
        content = decode_content(record.content)
        segment = (content.tenant, content.session_id, content.segment)
        self.sessions.setdefault(segment, Counter())[digest(value)] += 1

    def decision(self, value: bytes) -> None:
        """Take in a record of the decisions topic. Copies of one decision come in the order of their partition."""
        record = decode_decision(value)
        if isinstance(record, Decision):
            segment = (record.tenant, record.session_id, record.segment)
            self.decisions.setdefault(segment, []).append(Copy(digest(value), record.policy))
        elif isinstance(record, Addendum):
            self.decided_addenda.setdefault((record.partition, record.offset), Counter())[digest(value)] += 1
        else:
            self.policies[value] = record

    def job(self, value: bytes) -> None:
        """Take in a record of one of the jobs topics."""
        job = decode_job(value)
        self.job_copies += 1
        self.jobs.setdefault(job.job_id, {})[digest(value)] = job

    def judgement(self, value: bytes) -> None:
        """Take in a record of the judgements topic."""
        judgement = decode_judgement(value)
        self.prompts.add(judgement.prompt_hash)
        bare = digest(msgspec.json.encode(timeless(judgement)))
        self.answers.setdefault(judgement.job_id, {})[digest(value)] = bare

    def letter(self, record: Any) -> None:
        """Take in a dead letter."""
        self.letters[record.key or b""] += 1


class Report(msgspec.Struct):
    """What is wrong: whole things lost, turns cut off, contents that differ, things that count twice.

    Not wrong: `copies`, byte-equal repeats that the next stage absorbs; `redecided`, a replay that met a newer
    policy (the first decision counts); `superseded`, second answers of a judge, kept and not counted; `splits`,
    sessions that the log itself divides.
    """

    lost: int = 0
    truncated: int = 0
    differing: int = 0
    doubled: int = 0
    copies: int = 0
    redecided: int = 0
    superseded: int = 0
    splits: int = 0
    findings: list[str] = msgspec.field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def add(self, kind: str, what: str, which: Iterable[object]) -> None:
        """Count what is wrong under `lost`, `truncated`, `differing` or `doubled`, and say which."""
        found = list(which)
        if found:
            setattr(self, kind, getattr(self, kind) + len(found))
            shown = ", ".join(map(_name, found[:SHOWN]))
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            self.findings.append(f"{kind}: {len(found)} {what}: {shown}{more}")


def compare(reference: Reference, observed: Observed, truth: Truth) -> Report:
    """Compare everything. `reference` must have judged every job in `observed`."""
    report = Report()
    _compare_truth(reference, truth, report)
    _compare_sessions(reference, observed, report)
    _compare_addenda(reference, observed, report)
    _compare_decisions(reference, observed, report)
    _compare_jobs(reference, observed, report)
    _compare_answers(reference, observed, report)
    report.add("lost", "dead letters", reference.letters - observed.letters.keys())
    report.add("differing", "dead letters for nothing", observed.letters.keys() - reference.letters)
    report.copies += sum(observed.letters.values()) - len(observed.letters)
    return report


def missing(reference: Reference, observed: Observed) -> Iterator[str]:
    """Say what is still to come, so that waiting may end when nothing is."""
    if reference.open_sessions:
        yield f"{reference.open_sessions} sessions are open"
    places = (
        ("finished sessions", reference.segments, observed.sessions),
        ("addenda", reference.addenda, observed.addenda),
        ("decisions", reference.segments, observed.decisions),
        ("decided addenda", reference.addenda, observed.decided_addenda),
        ("jobs", _wanted_jobs(reference, observed), observed.jobs),
        ("judgements", observed.jobs, observed.answers),
        ("dead letters", reference.letters, observed.letters),
    )
    for name, wanted, found in places:
        if count := len(set(wanted) - set(found)):
            yield f"{count} {name} are missing"


def _wanted_jobs(reference: Reference, observed: Observed) -> set[str]:
    known = reference.policies
    return {
        job_id
        for segment, copies in observed.decisions.items()
        for copy in copies
        if segment in reference.segments and copy.policy in known
        for job_id in reference.decided(segment, copy.policy).jobs
    }


def _compare_truth(reference: Reference, truth: Truth, report: Report) -> None:
    """Every turn that was sent is in one segment; everything else is in one, late for one, or an orphan."""
    turns: dict[tuple[str, str], Counter[str]] = {}
    others: dict[tuple[str, str], set[str]] = {}
    segments: Counter[tuple[str, str]] = Counter()
    for (tenant, session_id, _), closed in reference.segments.items():
        key = (tenant, session_id)
        segments[key] += 1
        turns.setdefault(key, Counter()).update(closed.turns)
        others.setdefault(key, set()).update(closed.others)
    with_turns = {key for key, events in truth.sent.items() if any(events.values())}
    report.add("lost", "sent sessions", with_turns - segments.keys())
    cut, twice, gone = set(), set(), set()
    for key, events in truth.sent.items():
        known = others.get(key, set()) | reference.late.get(key, set())
        for event_id, is_turn in events.items():
            count = turns.get(key, Counter())[event_id]
            if is_turn and not count and key in segments:
                cut.add((*key, event_id))
            elif is_turn and count > 1:
                twice.add((*key, event_id))
            elif not is_turn and event_id not in known:
                gone.add((*key, event_id))
    report.add("truncated", "turns in no segment", sorted(cut))
    report.add("doubled", "turns in two segments", sorted(twice))
    report.add("lost", "sent events other than turns", sorted(gone))
    report.add("differing", "sessions that nobody sent", sorted(segments.keys() - truth.sent.keys()))
    report.add("doubled", "segments closed twice under one id", reference.twice)
    report.splits = sum(count - 1 for count in segments.values())


def _compare_sessions(reference: Reference, observed: Observed, report: Report) -> None:
    report.add("lost", "finished sessions", sorted(reference.segments.keys() - observed.sessions.keys()))
    differing = [
        segment
        for segment, copies in observed.sessions.items()
        if segment not in reference.segments or set(copies) != {digest(reference.segments[segment].encoded)}
    ]
    report.add("differing", "finished sessions", sorted(differing))
    report.copies += _repeats(observed.sessions.values())


def _compare_addenda(reference: Reference, observed: Observed, report: Report) -> None:
    for name, found in (("addenda", observed.addenda), ("decided addenda", observed.decided_addenda)):
        report.add("lost", name, sorted(reference.addenda.keys() - found.keys()))
        differing = [
            place for place, copies in found.items() if set(copies) != _digests(reference.addenda.get(place))
        ]
        report.add("differing", name, sorted(differing))
        report.copies += _repeats(found.values())


def _compare_decisions(reference: Reference, observed: Observed, report: Report) -> None:
    report.add("lost", "decisions", sorted(reference.segments.keys() - observed.decisions.keys()))
    differing = []
    for segment, copies in observed.decisions.items():
        if segment not in reference.segments or any(copy.policy not in reference.policies for copy in copies):
            differing.append(segment)
            continue
        wanted = {digest(reference.decided(segment, copy.policy).decision) for copy in copies}
        if {copy.digest for copy in copies} != wanted:
            differing.append(segment)
        policies = len({copy.policy for copy in copies})
        report.redecided += policies - 1
        report.copies += len(copies) - policies
    report.add("differing", "decisions", sorted(differing))


def _compare_jobs(reference: Reference, observed: Observed, report: Report) -> None:
    listed = _wanted_jobs(reference, observed)
    report.add("lost", "jobs that decisions list", sorted(listed - observed.jobs.keys()))
    differing = []
    for job_id, jobs in observed.jobs.items():
        for found, job in jobs.items():
            # Whoever was killed between a job and its decision, and then met a newer policy, leaves a job that
            # no decision lists. Under one policy there is none such.
            if found not in _jobs_of(reference, (job.tenant, job.session_id, job.segment), job_id):
                differing.append(job_id)
    report.add("differing", "jobs", sorted(differing))
    if len(reference.policies) == 1:
        report.add("differing", "jobs that no decision lists", sorted(observed.jobs.keys() - listed))
    report.copies += observed.job_copies - sum(map(len, observed.jobs.values()))


def _jobs_of(reference: Reference, segment: Segment, job_id: str) -> set[Digest]:
    if segment not in reference.segments:
        return set()
    jobs = (reference.decided(segment, policy).jobs for policy in reference.policies)
    return {digest(found[job_id]) for found in jobs if job_id in found}


def _compare_answers(reference: Reference, observed: Observed, report: Report) -> None:
    report.add("lost", "judgements", sorted(observed.jobs.keys() - observed.answers.keys()))
    report.add("differing", "judgements without a job", sorted(observed.answers.keys() - observed.jobs.keys()))
    differing = []
    for job_id in observed.jobs.keys() & observed.answers.keys():
        judgement = reference.answers.get(job_id)
        wanted = digest(msgspec.json.encode(judgement)) if judgement is not None else b""
        if set(observed.answers[job_id].values()) != {wanted}:
            differing.append(job_id)
    report.add("differing", "judgements", sorted(differing))
    report.add("differing", "prompts that nobody deployed", sorted(observed.prompts - reference.prompts))


def _digests(value: bytes | None) -> set[Digest]:
    return set() if value is None else {digest(value)}


def _repeats(copies: Iterable[Counter[Digest]]) -> int:
    return sum(sum(counter.values()) - len(counter) for counter in copies)


def _name(found: object) -> str:
    parts = found if isinstance(found, tuple) else (found,)
    return "/".join(part.decode() if isinstance(part, bytes) else str(part) for part in parts)
