"""Plans and labels: shares come out, rates count what they say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from monitor.traffic.labels import (
    BEHAVIORS,
    FAILURES,
    MEASURES,
    Behavior,
    CorrectionLabel,
    SessionLabel,
    counts,
    true_rate,
)
from monitor.traffic.plan import BehaviorMix, Release, TrafficPlan


def _label(version: str, *behaviors: Behavior) -> SessionLabel:
    return SessionLabel(
        session_id="s",
        tenant="t",
        assistant="concierge",
        assistant_version=version,
        domain="d",
        template="x",
        corrections=tuple(
            CorrectionLabel(turn_index=2, turn_id="t2", behavior=behavior, old="a", new="b")
            for behavior in behaviors
        ),
        escalated=False,
    )


@given(st.floats(0, 0.15), st.floats(0, 0.3), st.floats(1, 2), st.floats(0, 1), st.floats(0, 1))
def test_the_shares_of_the_mix_come_out_over_all_events(
    reverted: float, superseded: float, heaviness: float, several: float, third: float
) -> None:
    mix = BehaviorMix(
        reverted=reverted, superseded=superseded, ignored=0.02, partial=0.02, disputed=0, over_applied=0
    )
    plan = TrafficPlan(
        heaviness=heaviness, several=several, third=third, releases=(Release(version="1", mix=mix),) * 2
    )
    drawn = {False: 1 - several, True: several * (2 + third)}
    odds = {heavy: dict(zip(BEHAVIORS, plan.odds(mix, heavy=heavy), strict=True)) for heavy in drawn}
    events = sum(number * (1 + odds[heavy]["superseded"]) for heavy, number in drawn.items())
    for name in (*FAILURES, "superseded"):
        found = sum(number * odds[heavy][name] for heavy, number in drawn.items())
        assert found / events == pytest.approx(mix.share(name), abs=1e-9)
    for heavy in drawn:
        assert sum(odds[heavy].values()) == pytest.approx(1)
    assert odds[True]["reverted"] == pytest.approx(heaviness * odds[False]["reverted"])


def test_the_second_release_reverts_clearly_more() -> None:
    first, second = TrafficPlan().releases
    assert (first.version, second.version) == ("2026.10", "2026.11")
    assert second.mix.reverted >= 2.5 * first.mix.reverted


def test_impossible_mixes_are_refused() -> None:
    with pytest.raises(ValidationError, match="too little"):
        BehaviorMix(ignored=0.9)
    with pytest.raises(ValidationError, match="more than one failure"):
        TrafficPlan(
            heaviness=9, releases=(Release(version="1"), Release(version="2", mix=BehaviorMix(reverted=0.4)))
        )
    with pytest.raises(ValidationError):
        TrafficPlan.model_validate({"session": 3})


def test_a_rate_counts_corrections_of_its_version() -> None:
    labels = [_label("1", "reverted", "taken"), _label("1"), _label("2", "reverted"), _label("1", "disputed")]
    assert counts(labels, "1") == (1, 3)
    assert true_rate(labels, "2") == 1
    assert true_rate(labels, "1", "contradicted") == pytest.approx(1 / 3)
    assert true_rate(labels, "3") is None
    with pytest.raises(KeyError):
        true_rate(labels, "1", "nope")


def test_a_superseded_correction_is_a_trial_and_no_failure() -> None:
    labels = [_label("1", "superseded", "taken")]
    assert all(counts(labels, "1", measure) == (0, 2) for measure in MEASURES)
