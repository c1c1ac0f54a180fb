"""What judging cost, by day; and what there is to judge."""

from typing import Any

from monitor.decision import Decision
from monitor.judgement import Attempt, Usage
from monitor.session import LogSpan
from monitor.store import Store
from monitor.store.costs import DAY_MS
from tests.unit.store.builders import decision, judgement

DAY = 1_700_000_000_000 // DAY_MS * DAY_MS
BIG = 123_456_789_012_345_678


def at(day: int) -> int:
    return DAY + day * DAY_MS + 1_000


def test_costs_are_summed_exactly_by_day_judge_and_rubric(store: Store) -> None:
    other: dict[str, Any] = {"judge": "anthropic:x", "started_at": at(1)}
    store.record(
        [
            decision("s1"),
            decision("s2"),
            judgement("s1", started_at=at(0), cost_nusd=BIG),
            judgement("s2", started_at=at(0), cost_nusd=1),
            judgement("s2", cost_nusd=7, **other),  # the second answer to one job: uncounted, but paid for
            judgement("s3", cost_nusd=20, **other),  # before its decision
        ]
    )
    found = store.costs(DAY / 1000)
    assert [(item.day, item.judge, item.rubric, item.judgements, item.cost_nusd) for item in found] == [
        (DAY + DAY_MS, "anthropic:x", "correction", 2, 27),
        (DAY, "lexical", "correction", 2, BIG + 1),
    ]
    assert [item.judge for item in store.costs(at(1) / 1000)] == ["anthropic:x"]
    assert store.costs(at(2) / 1000) == []


def test_a_forgotten_session_keeps_its_cost(store: Store) -> None:
    attempt = Attempt(window="C1", number=1, kind="valid", raw="secret", usage=Usage(input_tokens=1), cost_nusd=9)
    store.record([decision("s1"), judgement("s1", attempts=[attempt], cost_nusd=9)])
    assert store.forget("t", "s1")
    assert [item.cost_nusd for item in store.costs(0)] == [9]


def test_volumes_by_stratum(store: Store) -> None:
    def closed(session_id: str, day: int, **more: Any) -> Decision:
        return decision(session_id, span=LogSpan(partition=0, first=1, last=9, closed_at=at(day)), **more)

    store.record(
        [
            closed("s1", 3),
            closed("s2", 4),
            closed("s3", 5, selected=False),
            closed("s4", 5, stratum="other", selected=False),
            closed("old", 1),
            judgement("old", cost_nusd=1_000_000),
            judgement("s1", cost_nusd=30),
            judgement("s2", cost_nusd=12, judge="anthropic:x"),
        ]
    )
    found = {volume.stratum: volume for volume in store.volumes(at(2) / 1000, "lexical")}
    stratum = decision().stratum
    assert (found[stratum].finished, found[stratum].selected, found[stratum].first) == (3, 2, at(3))
    rubric = found[stratum].judged["correction"]
    assert (rubric.judgements, rubric.mine, rubric.cost_nusd) == (2, 1, 30)
    assert (found["other"].finished, found["other"].selected, found["other"].judged) == (1, 0, {})
