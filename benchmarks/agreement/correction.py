"""The sets of the correction rubric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.agreement.rows import Row
from benchmarks.agreement.sets import Figure, LabelledSet, Record, Unit
from monitor.agreement import accuracy, macro_f1
from monitor.judgement import Judgement, Verdict


def given(records: list[Record]) -> list[Record]:
    """Give each session the correction events that its labels name: the judge is measured, not the extractor."""
    return [
        record
        | {
            "corrections": [
                {"turn_id": record["turns"][event["user_turn_index"]]["turn_id"]}
                for event in record["human"]["correction_events"]
            ]
        }
        for record in records
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
        yield Unit(kind="mode", source=source, truth=event["failure_mode"], said=mode)
        over = bool(found and found["over_corrected"])
        yield Unit(kind="over", source=source, truth=event["over_corrected"], said=over)


def judged_events(judgement: Judgement) -> dict[int, dict[str, Any]]:
    """Give the judged events of a verdict by the turn of their correction."""
    if not isinstance(judgement.result, Verdict):
        return {}
    return {event["correction_turn_index"]: event for event in judgement.result.data["events"]}


SETS = (
    LabelledSet(
        name="sgd_corrections",
        file="sgd_corrections.jsonl",
        rubric="correction",
        prepare=given,
        units=sgd_units,
        figures=(
            Figure(name="failure_mode_macro_f1", kind="mode", compare=macro_f1, goal=0.95),
            Figure(name="failure_mode_accuracy", kind="mode", compare=accuracy),
            Figure(name="over_corrected_accuracy", kind="over", compare=accuracy),
        ),
    ),
)
