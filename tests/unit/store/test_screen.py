"""What a screened session adds: to the sums, to those of its kind, to what the screen missed, and to the costs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from monitor.exporter import Exposition
from monitor.judgement import Judgement, Outcomes, Screening, Skipped, Stage, Unscored
from monitor.store import Screened, Store, TotalKey, moved
from monitor.store.ledger import CLEAR_SUMS, FINDINGS, SESSION_SUMS
from monitor.store.zeros import policy_keys
from monitor.summary import summaries
from tests.unit.store.builders import RUBRICS, decision, judgement, policy, unscored

CHEAP = "anthropic:cheap"


def screened(full: Judgement, verdict: Any, *, one_in: int = 1, audited: bool = False, cost: int = 0) -> Judgement:
    screen = Screening(
        judge=CHEAP,
        provider="anthropic",
        model="cheap",
        prompt_version="v1",
        prompt_hash="h",
        verdict=verdict,
        one_in=one_in,
        audited=audited,
        cost_nusd=cost,
    )
    stage = Stage(found=one_in if audited else 1)
    return msgspec.structs.replace(
        full, screen=screen, outcomes=msgspec.structs.replace(full.outcomes, stage=stage)
    )


def out(session_id: str, **more: Any) -> Judgement:
    full = judgement(session_id, result=Skipped(reason="screened_out"), outcomes=Outcomes(), attempts=[])
    return screened(full, "clear", one_in=20, **more)


def value(store: Store, name: str, detail: str = "", **labels: str) -> int:
    names = {"rubric": "correction", "measure": "reverted"} | labels
    return sum(
        number
        for key, number in store.totals().sums.items()
        if (key.name, key.detail, key.rubric, key.measure) == (name, detail, names["rubric"], names["measure"])
    )


@pytest.fixture
def filled(store: Store) -> Store:
    """Weight 20 each: one looked at, two passed over, one of their kind judged all the same, one failed."""
    names = ("look", "out1", "out2", "audit", "failed")
    store.record([decision(name) for name in names])
    store.record(
        [
            screened(judgement("look", trials=2, failures=1), "look", cost=5),
            out("out1", cost=5),
            out("out2", cost=5),
            screened(judgement("audit", trials=3, failures=2, cost_nusd=100), "clear", one_in=20, audited=True),
            screened(judgement("failed", trials=1, failures=1), "failed"),
        ]
    )
    return store


def test_an_audited_session_stands_for_those_that_were_passed_over(filled: Store) -> None:
    sums = {name: value(filled, name) for name in (*SESSION_SUMS, *CLEAR_SUMS)}
    assert sums["scored_sessions"] == 5
    assert sums["weighted_sessions"] == 5 * 320
    assert sums["judged_trials"] == 2 + 3 + 1
    assert sums["weighted_trials"] == 320 * (2 + 3 * 20 + 1)
    assert sums["weighted_failures"] == 320 * (1 + 2 * 20 + 1)
    assert sums["weight2_trials2"] == 320**2 * (2**2 + (3 * 20) ** 2 + 1)
    assert sums["weighted_clear_sessions"] == 3 * 320
    assert sums["weighted_clear_trials"] == 320 * 3 * 20
    assert sums["weighted_clear_failures"] == 320 * 2 * 20
    assert sums["weight2_clear"] == 3 * 320**2
    assert sums["weight2_clear_trials"] == 320**2 * 3 * 20
    assert sums["weight2_clear_trials_failures"] == 320**2 * (3 * 20) * (2 * 20)
    assert sums["weight2_clear_failures2"] == (320 * 2 * 20) ** 2
    assert filled.totals().sums[TotalKey("skipped", "correction", stratum="base", detail="screened_out")] == 2


def test_what_the_screen_missed_is_told_from_what_it_saw(filled: Store) -> None:
    assert {name: value(filled, "screen_findings", name) for name in FINDINGS} == {
        "look_failure": 1,
        "look_trial": 0,
        "look_nothing": 0,
        "clear_failure": 1,
        "clear_trial": 0,
        "clear_nothing": 0,
    }
    assert value(filled, "weighted_screen_findings", "look_failure") == 320
    assert value(filled, "weighted_screen_findings", "clear_failure") == 320 * 20
    # The other measure of the rubric had no trial in any of them.
    assert value(filled, "screen_findings", "clear_nothing", measure="ignored") == 1


def test_it_is_exported_under_the_name_of_the_screen(filled: Store) -> None:
    text = Exposition(filled).render()[0].decode()
    labels = 'finding="clear_failure",measure="reverted",mode="event",rubric="correction",screen="anthropic:cheap"'
    lines = {line.replace(" ", "") for line in text.splitlines()}
    found = [line for line in text.splitlines() if line.startswith("backslide_weighted_screen_findings_total{")]
    assert any(sorted(line.split("{")[1].split("}")[0].split(",")) == labels.split(",") and line.endswith(" 400.0")
               for line in found), lines  # fmt: skip


def test_a_rebuild_finds_the_same(filled: Store) -> None:
    before = moved(filled.totals().sums)
    filled.rebuild_totals()
    assert moved(filled.totals().sums) == before


def test_j4_an_audit_that_failed_counts_once_it_is_judged(store: Store) -> None:
    store.record([decision("a")])
    store.record([screened(unscored("a"), "clear", one_in=20, audited=True)])
    assert value(store, "weighted_clear_sessions") == value(store, "screen_findings", "clear_failure") == 0
    full = screened(judgement("a", trials=1, failures=1), "clear", one_in=20, audited=True)
    store.record([full])
    assert value(store, "weighted_failures") == value(store, "weighted_clear_failures") == 320 * 20
    assert value(store, "screen_findings", "clear_failure") == 1


def test_the_two_kinds_of_sessions_have_bounds_of_their_own(filled: Store) -> None:
    (row,) = summaries(filled.totals(), "reverted")
    rate = (1 + 1 + 2 * 20) / (2 + 1 + 3 * 20)
    assert row.interval.rate == pytest.approx(rate)
    assert row.interval.low < 0.2
    assert row.interval.high > 0.9


def test_first_looks_have_a_price_of_their_own(filled: Store) -> None:
    found = [(item.judge, item.judgements, item.cost_nusd) for item in filled.costs(0)]
    assert found == [(CHEAP, 5, 15), ("lexical", 5, 100)]
    (volume,) = filled.volumes(0, "lexical")
    assert volume.judged["correction"].cost_nusd == 115


def test_r3_a_policy_has_zero_totals_for_the_screen_that_is_set_up() -> None:
    plain = set(policy_keys(policy(), RUBRICS, "lexical"))
    other = set(policy_keys(policy(), RUBRICS, "lexical", Screened(judge=CHEAP, rubrics=("refusal",))))
    mine = set(policy_keys(policy(), RUBRICS, "lexical", Screened(judge=CHEAP, rubrics=("correction",))))
    assert other == plain < mine
    assert {key.name for key in mine - plain} == {*CLEAR_SUMS, "screen_findings", "weighted_screen_findings"}


def test_a_share_that_cannot_be_is_refused(store: Store) -> None:
    store.record([decision("a")])
    bad = screened(judgement("a"), "clear", one_in=0)  # not audited: its stage is that of any other
    report = store.record([bad])
    assert [item.error for item in report.rejected] == ["screen: one in 0 audited"]


def test_a_screen_that_did_not_decide_is_in_no_sum_of_its_own(store: Store) -> None:
    store.record([decision("a"), screened(judgement("a", result=Unscored(reason="invalid")), "failed")])
    assert not [key for key in store.totals().sums if key.name in {*CLEAR_SUMS, "screen_findings"}]
