"""The sets of the correction rubric.

`sgd_corrections`: one corrected value a session, most edited by a program, so the failure mode is known exactly. A
regression floor: a rule of ten lines gets far on it.

`sgd_corrections_whole`: the same sessions in whole mode. No correction is named here: the judge finds them itself,
and one that it doesn't find counts as wrong in `failure_mode_*`; `failure_mode_of_found_*` are of those it found.

`star_corrections`: two people, one of whom was told to correct the other; what the assistant's later lookups say
tells whether it was taken. Failures are `ignored`, `reverted` and `other_value`; `late` counts as taken, since it
was used in the end, and `unverifiable` is left out. About half of the labels other than `incorporated` don't hold
when read (of 35 such events in the whole set 17 do), which bounds kappa. Judged twice: on what was said, and with
the results of lookups shown beneath the replies that rest on them.

`taskmaster_reward`: people marked the last reply good or bad. The last user turn is judged as a correction where
it has a signal of one, so only those rows can be told apart; figures stand by collection (TM-3, TM-4), which
differ in how many replies are good.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from benchmarks.agreement.rows import Row
from benchmarks.agreement.sets import Figure, LabelledSet, Record, Unit
from monitor.agreement import accuracy, balanced_accuracy, kappa, macro_f1, precision, recall
from monitor.judgement import Judgement, Verdict
from monitor.signals import correction_turns

STAR_OUTCOMES: Final = {
    "incorporated": False, "late": False, "ignored": True, "reverted": True, "other_value": True,
}  # fmt: skip
_NEAR: Final = 1


def given(records: list[Record]) -> list[Record]:
    """Give each session the correction events that its labels name: the judge is measured, not the extractor."""
    return [_named(record, [event["user_turn_index"] for event in _labels(record)]) for record in records]


def with_lookups(records: list[Record]) -> list[Record]:
    """Give the events as `given` does, and show each reply with the results of lookups that it rests on."""
    return [record | {"turns": [_shown(turn) for turn in record["turns"]]} for record in given(records)]


def last_corrects(records: list[Record]) -> list[Record]:
    """Give each session its last user turn as a correction where that has a signal of one, else no event."""
    return [
        _named(record, [_last_user(record)] if record["human"]["last_user_turn_has_correction_signal"] else [])
        for record in records
        if _last_user(record) is not None
    ]


def sgd_source(session_id: str) -> str:
    """Give the dialogue that an edited session was made of: its id without turn and edit."""
    return session_id.rsplit("-", 2)[0]


def sgd_units(row: Row, judgement: Judgement) -> Iterator[Unit]:
    """Compare the failure mode of the labelled event; an event without a verdict counts as wrong."""
    source = sgd_source(row.session.session_id)
    events = judged_events(judgement)
    for event in row.human["correction_events"]:
        found = events.get(event["user_turn_index"])
        mode = found["failure_mode"] if found else "unjudged"
        yield Unit(kind="mode", source=source, truth=event["failure_mode"], said=mode, trivial="none")
        over = bool(found and found["over_corrected"])
        yield Unit(kind="over", source=source, truth=event["over_corrected"], said=over)
        if event["failure_mode"] == "reverted":
            back = found["reversion_turn_index"] if found else None
            yield Unit(kind="back", source=source, truth=True, said=back == event["edited_turns"][0])
    yield from detection(row, source)


def whole_units(row: Row, judgement: Judgement) -> Iterator[Unit]:
    """Compare the failure mode where the judge has to find the corrections; what it finds besides has no label."""
    source = sgd_source(row.session.session_id)
    found = judged_events(judgement)
    for event in row.human["correction_events"]:
        truth, said = event["failure_mode"], found.get(event["user_turn_index"])
        yield Unit(kind="found", source=source, truth=True, said=said is not None)
        mode = said["failure_mode"] if said else "unfound"
        yield Unit(kind="mode", source=source, truth=truth, said=mode, trivial="none")
        if said is not None:
            yield Unit(kind="found_mode", source=source, truth=truth, said=mode)


def star_units(row: Row, judgement: Judgement) -> Iterator[Unit]:
    """Compare whether the correction failed."""
    source = row.session.session_id
    events = judged_events(judgement)
    for event in row.human["correction_events"]:
        failed = STAR_OUTCOMES.get(event["outcome_from_wizard_queries"])
        found = events.get(event["user_turn_index"])
        if failed is not None and found is not None:
            said = found["failure_mode"] != "none"
            yield Unit(kind="failed", source=source, truth=failed, said=said, trivial=False)
    yield from detection(row, source)


def reward_units(row: Row, judgement: Judgement) -> Iterator[Unit]:
    """Compare whether the last reply is good; without a judged event it is said to be."""
    source = row.session.session_id
    kind = "tm3" if "TM-3" in row.human["collection"] else "tm4"
    events = judged_events(judgement)
    fine = all(event["failure_mode"] == "none" and not event["over_corrected"] for event in events.values())
    truth = row.human["final_turn_ok"]
    yield Unit(kind=kind, source=source, truth=truth, said=fine, trivial=True)
    if events:
        yield Unit(kind="corrected", source=source, truth=truth, said=fine, trivial=True)


def detection(row: Row, source: str) -> Iterator[Unit]:
    """Compare the turns that wording rules take for corrections with the labelled ones, give or take one."""
    truth = [event["user_turn_index"] for event in row.human["correction_events"]]
    found = correction_turns(msgspec.structs.replace(row.session, corrections=()))
    for turn in truth:
        yield Unit(kind="labelled", source=source, truth=True, said=any(abs(turn - at) <= _NEAR for at in found))
    for at in found:
        yield Unit(kind="fired", source=source, truth=any(abs(turn - at) <= _NEAR for turn in truth), said=True)


def judged_events(judgement: Judgement) -> dict[int, dict[str, Any]]:
    """Give the judged events of a verdict by the turn of their correction."""
    if not isinstance(judgement.result, Verdict):
        return {}
    return {event["correction_turn_index"]: event for event in judgement.result.data["events"]}


def _labels(record: Record) -> list[dict[str, Any]]:
    return list(record["human"]["correction_events"])


def _named(record: Record, indices: list[Any]) -> Record:
    human = record["human"] | {"collection": record.get("source", "")}
    named = [{"turn_id": record["turns"][index]["turn_id"]} for index in indices]
    return record | {"human": human, "corrections": named}


def _last_user(record: Record) -> int | None:
    return next((turn["turn_index"] for turn in reversed(record["turns"]) if turn["role"] == "user"), None)


def _shown(turn: dict[str, Any]) -> dict[str, Any]:
    results = [passage["text"] for passage in turn.get("evidence") or []]
    return turn | {"text": "\n".join([turn["text"], *results])}


_DETECTION: Final = (
    Figure(name="detection_recall", kind="labelled", compare=recall),
    Figure(name="detection_precision", kind="fired", compare=precision),
)
_FAILED: Final = (
    Figure(name="failed_kappa", kind="failed", compare=kappa),
    Figure(name="failed_recall", kind="failed", compare=recall),
    Figure(name="failed_precision", kind="failed", compare=precision),
    Figure(name="failed_accuracy", kind="failed", compare=accuracy, trivial=True),
)
SETS = (
    LabelledSet(
        name="sgd_corrections",
        file="sgd_corrections.jsonl",
        rubric="correction",
        prepare=given,
        units=sgd_units,
        table="mode",
        figures=(
            Figure(name="failure_mode_macro_f1", kind="mode", compare=macro_f1, goal=0.95, trivial=True),
            Figure(name="failure_mode_accuracy", kind="mode", compare=accuracy, trivial=True),
            Figure(name="over_corrected_kappa", kind="over", compare=kappa),
            Figure(name="over_corrected_recall", kind="over", compare=recall),
            Figure(name="over_corrected_precision", kind="over", compare=precision),
            Figure(name="reverted_turn_exact", kind="back", compare=recall),
            *_DETECTION,
        ),
    ),
    LabelledSet(
        name="sgd_corrections_whole",
        file="sgd_corrections.jsonl",
        rubric="correction_whole",
        units=whole_units,
        table="mode",
        figures=(
            Figure(name="found_recall", kind="found", compare=recall),
            Figure(name="failure_mode_macro_f1", kind="mode", compare=macro_f1, trivial=True),
            Figure(name="failure_mode_of_found_macro_f1", kind="found_mode", compare=macro_f1),
            Figure(name="failure_mode_of_found_accuracy", kind="found_mode", compare=accuracy),
        ),
    ),
    LabelledSet(
        name="star_corrections",
        file="star_corrections.jsonl",
        rubric="correction",
        prepare=given,
        units=star_units,
        table="failed",
        figures=(*_FAILED, *_DETECTION),
    ),
    LabelledSet(
        name="star_corrections_with_lookups",
        file="star_corrections.jsonl",
        rubric="correction",
        prepare=with_lookups,
        units=star_units,
        table="failed",
        figures=_FAILED,
    ),
    LabelledSet(
        name="taskmaster_reward",
        file="taskmaster_reward.jsonl",
        rubric="correction",
        prepare=last_corrects,
        units=reward_units,
        figures=(
            Figure(name="tm3_balanced_accuracy", kind="tm3", compare=balanced_accuracy, trivial=True),
            Figure(name="tm4_balanced_accuracy", kind="tm4", compare=balanced_accuracy, trivial=True),
            Figure(name="corrected_balanced_accuracy", kind="corrected", compare=balanced_accuracy, trivial=True),
            Figure(name="corrected_kappa", kind="corrected", compare=kappa),
        ),
    ),
)
