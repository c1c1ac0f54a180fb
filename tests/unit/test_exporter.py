"""R2 to R4: the exposition is the store's totals, exactly, and says nothing when it can't be sure."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from monitor.decision import repeat_id
from monitor.exporter import Exposition, families, mode_of
from monitor.judgement import SKIP_REASONS, UNSCORED_REASONS, Skipped
from monitor.metrics import CATALOGUE, QUALITY
from monitor.rubrics import RUBRICS as ALL
from monitor.session import LogSpan
from monitor.store import Record, RubricCounts, Store, TotalKey, Totals
from monitor.store.ledger import INF, SESSION_SUMS, bucket
from tests.unit.store.builders import RUBRICS, decision, judgement, policy, unscored

NOW = 1_800_000_000.0
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/store.sqlite", rubrics=RUBRICS, clock=lambda: NOW)
    yield opened
    opened.close()


def scrape(store: Store, later: float = 0.0) -> tuple[str, Samples]:
    body, _ = Exposition(store, clock=lambda: NOW + later).render()
    text = body.decode()
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return text, samples


def value(samples: Samples, name: str, **labels: str) -> float:
    """Give the one sample that has these labels among its own."""
    found = [v for (n, own), v in samples.items() if n == f"backslide_{name}" and set(labels.items()) <= set(own)]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def filled(store: Store) -> None:
    scores = {"correction_response_score": [0.05, 0.5, 1.0], "criterion_score:persistence": [1.0, 5.0]}
    store.record([policy()])
    store.record([decision("a", weight16=17), judgement("a", trials=3, failures=2, scores=scores)])
    store.record([decision("b"), judgement("b", result=Skipped(reason="no_response"))])
    store.record([decision("c"), unscored("c"), decision("d"), decision("e", selected=False)])


def test_r3_values_are_exact(store: Store) -> None:
    filled(store)
    _, samples = scrape(store)
    own = {"measure": "reverted", "assistant_version": "v1"}

    assert value(samples, "weighted_sessions_total", **own) == (17 + 320) / 16
    assert value(samples, "weighted_failures_total", **own) == 2 * 17 / 16
    assert value(samples, "weight2_trials2_total", **own) == (3 * 17 / 16) ** 2
    assert value(samples, "weight2_total", **own) == (17 / 16) ** 2 + 20**2
    assert value(samples, "judged_failures_total", **own) == 2
    assert (
        value(samples, "weighted_unscored_total", reason="timeout", assistant="shop", assistant_version="v1") == 20
    )
    assert value(samples, "sessions_finished_total", assistant="shop", assistant_version="v1") == 5
    assert value(samples, "sessions_selected_total", assistant="shop", assistant_version="v1") == 4


@pytest.mark.parametrize("rubric", ALL)
def test_r3_every_total_of_a_rubric_is_zero_before_anything_is_judged(tmp_path: Path, rubric: str) -> None:
    counts = {name: RubricCounts(measures=item.measures, scores=item.scores) for name, item in ALL.items()}
    store = Store.open(f"sqlite:///{tmp_path}/store.sqlite", rubrics=counts, judge="lexical")
    store.record([policy(rubrics=(rubric,))])
    _, samples = scrape(store)
    store.close()
    shown, mode = mode_of(rubric)
    own = {"rubric": shown, "mode": mode, "assistant_version": "v1", "stratum": "base"}
    for measure in ALL[rubric].measures:
        for metric in SESSION_SUMS:
            assert value(samples, f"{metric}_total", measure=measure, **own) == 0
        repeats = {"rubric": shown, "mode": mode, "measure": measure, "agreement": "both_failed"}
        assert value(samples, "judge_repeats_total", **repeats) == 0
    for score in ALL[rubric].scores:
        name, _, of = score.partition(":")
        labels = own | ({CATALOGUE[name].labels[-1]: of} if of else {})
        assert value(samples, f"{name}_count", **labels) == 0
    for reason in UNSCORED_REASONS:
        assert value(samples, "weighted_unscored_total", reason=reason, **own) == 0
        assert value(samples, "unscored_total", reason=reason, rubric=shown, mode=mode) == 0
    for skipped in SKIP_REASONS:
        assert value(samples, "skipped_total", reason=skipped, rubric=shown, mode=mode) == 0


def test_r2_the_identity_holds_in_the_exposition(store: Store) -> None:
    filled(store)
    _, samples = scrape(store, later=90.0)

    ended = ("verdicts", "skipped", "unscored")
    total = sum(v for (name, _), v in samples.items() if name in {f"backslide_{part}_total" for part in ended})
    assert value(samples, "jobs_listed_total") == 4 == total + value(samples, "jobs_pending")
    assert value(samples, "oldest_pending_job_seconds") == 90.0


def judged_twice(store: Store, name: str, first: int, second: int) -> None:
    """Record a session that failed or not, as the first and the second judgement of it say."""
    live = judgement(name, trials=1, failures=first)
    again = msgspec.structs.replace(
        judgement(name, trials=1, failures=second), job_id=repeat_id(live.job_id), run="repeat"
    )
    store.record([decision(name), live, again])


def test_a_judge_that_agrees_with_itself_by_chance_has_a_kappa_of_its_own(store: Store) -> None:
    """The worked example of tests/unit/test_agreement.py at a fifth: 0.7 agree, and 0.4 of what chance leaves."""
    for place, (first, second) in enumerate([(1, 1)] * 4 + [(1, 0)] + [(0, 1)] * 2 + [(0, 0)] * 3):
        judged_twice(store, f"s{place}", first, second)
    text, samples = scrape(store)
    mine = {"rubric": "correction", "mode": "event", "measure": "reverted", "judge": "lexical"}
    assert value(samples, "judge_agreement_ratio", **mine) == pytest.approx(0.7)
    assert value(samples, "judge_agreement_kappa", **mine) == pytest.approx(0.4)
    # The other measure never failed: agreement is whole, and beyond chance there is nothing to tell.
    assert value(samples, "judge_agreement_ratio", **mine | {"measure": "ignored"}) == 1
    assert 'judge_agreement_kappa{judge="lexical",measure="ignored"' not in text


def test_without_two_judgements_there_is_no_agreement_to_show(store: Store) -> None:
    store.record([policy(), decision("a"), judgement("a")])
    live = judgement("b", trials=1)
    failed = msgspec.structs.replace(unscored("b"), job_id=repeat_id(live.job_id), run="repeat")
    store.record([decision("b"), live, failed])
    text, _ = scrape(store)
    assert "# TYPE backslide_judge_agreement_ratio gauge" in text
    assert "backslide_judge_agreement_ratio{" not in text
    assert "backslide_judge_agreement_kappa{" not in text


def test_r4_a_batch_that_comes_an_hour_late_breaks_nothing(store: Store) -> None:
    """Ages count from the recording (lag is shown apart), the oldest job speaks, and no counter goes back."""
    store.record([policy(), decision("early", stratum="corrected")])
    _, before = scrape(store)
    old = LogSpan(partition=0, first=1, last=9, closed_at=round((NOW - 3_600) * 1000))
    store._clock = lambda: NOW + 60
    late: list[Record] = [decision(name, span=old) for name in ("late", "later")]
    store.record([*late, judgement("late", started_at=round((NOW - 3_500) * 1000))])
    _, after = scrape(store, later=90.0)
    assert value(after, "oldest_pending_job_seconds") == 90.0
    assert {v for (name, _), v in after.items() if name == "backslide_jobs_pending"} == {1}
    counters = {key for key in before if key[0].endswith(("_total", "_bucket", "_count", "_sum"))}
    assert all(after[key] >= before[key] for key in counters)
    store.record([judgement("early")])
    assert value(scrape(store, later=90.0)[1], "oldest_pending_job_seconds") == 30.0


def test_pending_goes_back_to_zero(store: Store) -> None:
    store.record([policy(), decision(), judgement()])
    _, samples = scrape(store)
    assert value(samples, "jobs_pending") == 0
    assert value(samples, "oldest_pending_job_seconds") == 0


def test_histograms_are_cumulative(store: Store) -> None:
    filled(store)
    _, samples = scrape(store)
    own = {"assistant_version": "v1"}
    name = "correction_response_score"

    assert value(samples, f"{name}_bucket", le="0.1", **own) == 1
    assert value(samples, f"{name}_bucket", le="0.5", **own) == 2
    assert value(samples, f"{name}_bucket", le="+Inf", **own) == 3
    assert value(samples, f"{name}_count", **own) == 3
    assert value(samples, f"{name}_sum", **own) == pytest.approx(1.55, abs=1e-12)
    assert value(samples, "criterion_score_bucket", le="4.0", criterion="persistence", **own) == 1


def test_r4_a_restart_resets_nothing_and_a_rebuild_bumps_the_generation(store: Store, tmp_path: Path) -> None:
    filled(store)
    before, _ = scrape(store)
    again = Store.open(f"sqlite:///{tmp_path}/store.sqlite", clock=lambda: NOW)
    assert scrape(again)[0] == before

    again.rebuild_totals()
    assert scrape(again)[0] == before.replace('generation="1"', 'generation="2"')
    again.close()


def test_r4_no_quality_families_while_rebuilding(store: Store) -> None:
    filled(store)
    with store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE meta SET value = 1 WHERE name = 'rebuilding'")
    text, samples = scrape(store)
    assert samples == {("backslide_store_up", ()): 1.0}
    assert "weighted" not in text


def test_a_store_that_is_down_still_answers(store: Store) -> None:
    filled(store)
    with store._engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE totals")
    text, samples = scrape(store)
    assert samples == {("backslide_store_up", ()): 0.0}
    assert "weighted" not in text


def test_r3_zero_series_are_there_once_a_policy_is_loaded(store: Store) -> None:
    store.record([policy("base", "corrected")])
    _, samples = scrape(store)
    labels = {"rubric": "correction", "measure": "ignored", "stratum": "corrected", "assistant": "other"}
    assert value(samples, "weight2_trials_failures_total", **labels) == 0
    assert value(samples, "correction_response_score_count", stratum="corrected", assistant="other") == 0
    assert value(samples, "stratum_rate_ratio", stratum="base") == 0.05
    assert value(samples, "sessions_overlapping_total") == 0


def test_every_family_of_the_catalogue_is_rendered_with_its_labels(store: Store) -> None:
    filled(store)
    body, _ = Exposition(store).render()
    found = {family.name: family for family in text_string_to_metric_families(body.decode())}
    for metric in QUALITY:
        family = found[metric.full_name]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels), sample


def test_r3_counting_adds_no_series(store: Store) -> None:
    """A series that comes late is invisible to a difference over time."""
    store.record([policy()])
    before = set(scrape(store)[1])
    scores = {"correction_response_score": [0.5], "criterion_score:persistence": [3.0]}
    store.record([decision(), judgement(scores=scores)])
    assert set(scrape(store)[1]) == before


def test_open_metrics_when_a_scraper_asks_for_it(store: Store) -> None:
    body, content_type = Exposition(store).render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_promtool_finds_nothing_to_complain_about(store: Store, promtool: Path) -> None:
    filled(store)
    for name, first, second in (("x", 1, 1), ("y", 0, 0), ("z", 1, 0)):
        judged_twice(store, name, first, second)
    body, _ = Exposition(store).render()
    done = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


bounds = st.sampled_from([*map(bucket, CATALOGUE["criterion_score"].buckets), INF])


@settings(max_examples=100)
@given(st.dictionaries(bounds, st.integers(0, 10**12)))
def test_buckets_never_fall_and_end_at_the_count(parts: dict[str, int]) -> None:
    sums = {TotalKey("criterion_score", "r", "c", "j", "a", "v", "s", detail): n for detail, n in parts.items()}
    totals = Totals(generation=1, rebuilding=False, sums=sums, pending={}, oldest_pending=None, rates={})
    rendered = next(family for family in families(totals, NOW) if family.name == "backslide_criterion_score")
    counts = [sample.value for sample in rendered.samples if sample.name.endswith("_bucket")]
    assert counts == sorted(counts)
    if parts:
        assert counts[-1] == sum(parts.values())
