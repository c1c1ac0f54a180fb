"""The zero totals that a policy calls for, before the first decision counts under it (R3). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from monitor.decision import PolicyLoaded, StratumInfo
from monitor.judgement import SKIP_REASONS, UNSCORED_REASONS
from monitor.metrics import CATALOGUE
from monitor.store.ledger import AGREEMENTS, CLEAR_SUMS, FINDINGS, INF, SESSION_SUMS, SUM, TotalKey, bucket
from monitor.store.rows import RubricCounts, Screened

OTHER: Final = "other"


def policy_keys(
    policy: PolicyLoaded, rubrics: Mapping[str, RubricCounts], judge: str, screen: Screened | None = None
) -> Iterator[TotalKey]:
    """Give every total of stratum x scheduled rubric x measure x allow-listed label, for the configured judge."""
    yield TotalKey("sessions_overlapping")
    for stratum in policy.strata:
        for rubric in stratum.rubrics:
            yield from _work_keys(rubric, stratum)
            counts = rubrics.get(rubric, RubricCounts())
            screened = screen is not None and rubric in screen.rubrics
            yield from _repeat_keys(rubric, counts, judge)
            if screen is not None and screened:
                yield from _screen_keys(rubric, counts, screen.judge)
            for assistant, version in label_pairs(policy.assistants):
                labels = (assistant, version, stratum.name)
                yield TotalKey("sessions_finished", rubric, "", "", *labels)
                yield TotalKey("sessions_selected", rubric, "", "", *labels)
                yield from _judged_keys(rubric, counts, judge, labels, screened=screened)


def label_pairs(assistants: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Give the (assistant, version) pairs that an allow-list lets through, `other` included."""
    for assistant, versions in assistants.items():
        for version in dict.fromkeys((*versions, OTHER)):
            yield assistant, version
    if OTHER not in assistants:
        yield OTHER, OTHER


def _work_keys(rubric: str, stratum: StratumInfo) -> Iterator[TotalKey]:
    yield TotalKey("judgements_superseded", rubric)
    yield TotalKey("jobs_listed", rubric, stratum=stratum.name)
    yield TotalKey("verdicts", rubric, stratum=stratum.name)
    for reason in SKIP_REASONS:
        yield TotalKey("skipped", rubric, stratum=stratum.name, detail=reason)
    for reason in UNSCORED_REASONS:
        yield TotalKey("unscored", rubric, stratum=stratum.name, detail=reason)


def _repeat_keys(rubric: str, counts: RubricCounts, judge: str) -> Iterator[TotalKey]:
    for measure in counts.measures:
        for agreement in AGREEMENTS:
            yield TotalKey("judge_repeats", rubric, measure, judge, detail=agreement)


def _screen_keys(rubric: str, counts: RubricCounts, screen: str) -> Iterator[TotalKey]:
    for measure in counts.measures:
        for finding in FINDINGS:
            yield TotalKey("screen_findings", rubric, measure, screen, detail=finding)
            yield TotalKey("weighted_screen_findings", rubric, measure, screen, detail=finding)


def _judged_keys(
    rubric: str, counts: RubricCounts, judge: str, labels: tuple[str, str, str], *, screened: bool
) -> Iterator[TotalKey]:
    for reason in UNSCORED_REASONS:
        yield TotalKey("weighted_unscored", rubric, "", judge, *labels, reason)
    for measure in counts.measures:
        for metric in (*SESSION_SUMS, *(CLEAR_SUMS if screened else ())):
            yield TotalKey(metric, rubric, measure, judge, *labels)
    for score in counts.scores:
        metric, _, own = score.partition(":")
        for detail in (*map(bucket, CATALOGUE[metric].buckets), INF, SUM):
            yield TotalKey(metric, rubric, own, judge, *labels, detail)
