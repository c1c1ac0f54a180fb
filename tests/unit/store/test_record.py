"""R1 to R3, J4: what counts, what is kept without counting, and that redelivery is free."""

import random
from typing import Any

import msgspec
import pytest

from monitor.decision import repeat_id
from monitor.judgement import Judgement, Outcomes, Skipped, Tally, Unscored, Verdict
from monitor.store import Record, RecordReport, SessionFilter, Store, TotalKey, moved
from monitor.store.ledger import SESSION_SUMS
from tests.services.postgres import PostgresServer
from tests.unit.store.builders import RUBRICS, addendum, content, decision, judgement, policy, unscored

LABELS = {"judge": "lexical", "assistant": "shop", "assistant_version": "v1", "stratum": "base"}


def total(store: Store, name: str, measure: str = "", detail: str = "", rubric: str = "correction") -> int:
    """Sum a metric over every label that isn't given."""
    sums = store.totals().sums
    return sum(
        value
        for key, value in sums.items()
        if (key.name, key.measure, key.detail, key.rubric) == (name, measure, detail, rubric)
    )


def eight_sums(store: Store) -> dict[str, float]:
    """Give the sums of `reverted` in real units."""
    shift = {"weighted": 16, "weight2": 256}
    names = [name for name in SESSION_SUMS if name.split("_")[0] in shift]
    return {name: total(store, name, "reverted") / shift[name.split("_")[0]] for name in names}


def test_r3_sums_of_one_session_are_those_of_the_statistics(store: Store) -> None:
    store.record([decision(weight16=320), judgement(trials=3, failures=2)])

    w, t, f = 20.0, 3, 2
    assert eight_sums(store) == {
        "weighted_sessions": w,
        "weighted_trials": w * t,
        "weighted_failures": w * f,
        "weight2": w**2,
        "weight2_trials": w**2 * t,
        "weight2_trials2": (w * t) ** 2,
        "weight2_trials_failures": w**2 * t * f,
        "weight2_failures2": (w * f) ** 2,
    }
    assert total(store, "judged_trials", "reverted") == 3
    assert total(store, "judged_failures", "reverted") == 2


def test_a_session_without_a_trial_of_a_measure_is_a_scored_session(store: Store) -> None:
    store.record([decision(), judgement()])

    assert total(store, "scored_sessions", "ignored") == 1
    assert total(store, "weighted_sessions", "ignored") == 320
    assert total(store, "weighted_trials", "ignored") == 0


def test_a_skipped_session_is_scored_without_trials_and_an_unscored_one_is_not(store: Store) -> None:
    store.record([decision("a"), judgement("a", result=Skipped(reason="not_applicable"))])
    store.record([decision("b"), unscored("b")])

    assert total(store, "scored_sessions", "reverted") == 1
    assert total(store, "skipped", detail="not_applicable") == 1
    assert total(store, "unscored", detail="timeout") == 1
    assert total(store, "weighted_unscored", detail="timeout") == 320


@pytest.mark.parametrize("judgement_first", [False, True])
@pytest.mark.parametrize("one_batch", [False, True])
def test_r1_whoever_completes_the_pair_counts_it(store: Store, judgement_first: bool, one_batch: bool) -> None:
    pair: list[Record] = [judgement(), decision()] if judgement_first else [decision(), judgement()]
    if one_batch:
        store.record(pair)
    else:
        store.record(pair[:1])
        store.record(pair[1:])

    assert total(store, "scored_sessions", "reverted") == 1
    assert total(store, "verdicts") == 1
    assert store.totals().pending == {}


def test_r1_a_judgement_waits_uncounted(store: Store) -> None:
    assert store.record([judgement()]).standings == {"waiting": 1}
    assert moved(store.totals().sums) == {}


def test_r1_the_first_decision_wins(store: Store) -> None:
    store.record([decision(weight16=16, stratum="escalated")])
    report = store.record([decision(weight16=320, version="v9"), judgement()])

    assert report.duplicates == 1
    assert total(store, "weighted_sessions", "reverted") == 16
    assert {key.stratum for key in moved(store.totals().sums)} == {"escalated"}
    assert {key.assistant_version for key in moved(store.totals().sums)} <= {"v1", ""}


@pytest.mark.parametrize(
    "stray",
    [
        judgement(hash_="other content"),
        judgement(job_id="not in the decision"),
        judgement(run="replay", job_id="replayed"),
    ],
)
def test_r1_a_judgement_that_the_decision_does_not_know_is_superseded(store: Store, stray: Judgement) -> None:
    report = store.record([decision(), stray])

    assert report.standings == {"superseded": 1}
    assert total(store, "judgements_superseded") == 1
    assert total(store, "scored_sessions", "reverted") == 0
    assert store.totals().pending == {("correction", "base"): 1}


def test_r1_a_judgement_of_an_unselected_session_never_counts(store: Store) -> None:
    """Even when the stored decision names its job."""
    jobs = decision().jobs
    store.record([judgement("s1"), decision("s1", selected=False, jobs=jobs), judgement("s1", failures=0)])

    assert total(store, "sessions_finished") == 1
    assert total(store, "sessions_selected") == 0
    assert total(store, "jobs_listed") == 0
    assert total(store, "scored_sessions", "reverted") == 0
    assert total(store, "judgements_superseded") == 2


def test_r1_redelivery_is_free(store: Store) -> None:
    records: list[Record] = [policy(), judgement("b"), decision("a"), judgement("a"), decision("b"), addendum("a")]
    store.record(records)
    before = store.totals()

    report = store.record(records)

    assert report.duplicates == len(records)
    assert store.totals() == before


def test_a_second_verdict_of_a_job_is_superseded(store: Store) -> None:
    store.record([decision(), judgement(failures=0)])
    store.record([judgement(failures=2)])

    assert total(store, "judged_failures", "reverted") == 0
    assert total(store, "judgements_superseded") == 1


@pytest.mark.parametrize("later", [Verdict(data={}), Skipped(reason="misaligned")])
def test_j4_an_unscored_job_may_still_get_its_result(store: Store, later: Verdict | Skipped) -> None:
    store.record([decision(), unscored()])
    store.record([judgement(result=later)])

    assert total(store, "weighted_unscored", detail="timeout") == 0
    assert total(store, "unscored", detail="timeout") == 0
    assert total(store, "scored_sessions", "reverted") == 1
    assert total(store, "judgements_superseded") == 1
    assert total(store, "jobs_listed") == 1


@pytest.mark.parametrize("first", [Verdict(data={}), Skipped(reason="misaligned")])
def test_j4_no_other_transition(store: Store, first: Verdict | Skipped) -> None:
    store.record([decision(), judgement(result=first, started_at=1)])
    before = moved(store.totals().sums)
    store.record([judgement(result=Unscored(reason="error"), started_at=2)])
    store.record([judgement(result=Verdict(data={"other": 1}), started_at=3)])

    after = moved(store.totals().sums)
    assert after.pop(TotalKey("judgements_superseded", "correction")) == 2
    assert after == before


def test_j4_holds_for_judgements_that_came_before_the_decision(store: Store) -> None:
    store.record([unscored(), judgement(), decision()])

    assert total(store, "verdicts") == 1
    assert total(store, "unscored", detail="timeout") == 0


def test_r5_a_session_that_shares_an_event_with_a_stored_segment_is_not_counted(store: Store) -> None:
    store.record([decision(segment="e0", events=("x", "y")), judgement(segment="e0")])
    report = store.record([judgement(segment="e5"), decision(segment="e5", events=("z", "y"))])
    store.record([judgement(segment="e5", failures=0)])

    assert report.overlaps == 1
    assert total(store, "sessions_overlapping", rubric="") == 1
    assert total(store, "sessions_finished") == 1
    assert total(store, "scored_sessions", "reverted") == 1
    assert total(store, "jobs_listed") == 1
    assert store.totals().pending == {}


def test_r5_the_same_event_id_in_another_session_is_no_overlap(store: Store) -> None:
    store.record([decision("a", events=("x",)), decision("b", events=("x",))])

    assert total(store, "sessions_overlapping", rubric="") == 0
    assert total(store, "sessions_finished") == 2


def test_r5_within_one_batch_the_first_of_the_log_is_counted(store: Store) -> None:
    segments = ("later", "sooner")
    store.record([decision(segment=name, events=("x",), stratum=name) for name in segments])

    counted = {key.stratum for key in moved(store.totals().sums) if key.name == "sessions_finished"}
    assert counted == {"later"}


def test_r2_jobs_listed_are_verdicts_skipped_unscored_and_pending(store: Store) -> None:
    store.record([decision(name) for name in "abcd"])
    store.record([judgement("a"), judgement("b", result=Skipped(reason="no_response")), unscored("c")])

    assert total(store, "jobs_listed") == 4
    ended = total(store, "verdicts") + total(store, "skipped", detail="no_response")
    assert ended + total(store, "unscored", detail="timeout") == 3
    assert store.totals().pending == {("correction", "base"): 1}
    assert store.totals().oldest_pending == 1_800_000_000_000


def test_histograms_hold_bucket_counts_and_sums_in_millionths(store: Store) -> None:
    scores = {"correction_response_score": [0.0, 0.1, 0.15, 1.0], "criterion_score:persistence": [5.0, 2.5]}
    store.record([decision(), judgement(scores=scores)])

    name = "correction_response_score"
    assert [total(store, name, detail=detail) for detail in ("0.1", "0.2", "1.0", "+Inf")] == [2, 1, 1, 0]
    assert total(store, name, detail="sum") == 1_250_000
    assert total(store, "criterion_score", "persistence", detail="3.0") == 1


def test_addenda_are_stored_before_their_decision_and_once(store: Store) -> None:
    first = store.record([addendum(offset=7)])
    again = store.record([addendum(offset=7), addendum(offset=8)])

    assert (first.addenda, again.addenda, again.duplicates) == (1, 1, 1)
    found = store.session("t", "s1", "e0")
    assert found is not None
    assert found.decision is None
    assert [item.offset for item in found.addenda] == [7, 8]


# Nothing that a compression of the database makes small.
LONG = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=6_000))
BAD = [
    decision("bad", weight16=0),
    decision("bad", weight16=2**40),
    decision("bad", error="\ud800"),
    decision("bad", fingerprints=["abc"]),
    decision("bad", turns=2**80),
    judgement("bad", trials=1, failures=2),
    judgement("bad", trials=10**9, failures=0),
    judgement("bad", scores={"no_such_histogram": [1.0]}),
    judgement("bad", scores={"correction_response_score": [float("nan")]}),
    judgement("bad", finished_at=2**70),
    judgement("bad", outcomes=Outcomes(measures={"reverted": Tally(trials=-1, failures=-1)})),
]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_record_alone_is_rejected(store: Store, bad: object) -> None:
    good = [record for name in ("a", "b", "c") for record in (decision(name), judgement(name))]
    batch = [*good[:3], bad, *good[3:]]

    report: RecordReport = store.record(batch)  # type: ignore[arg-type]

    assert [rejected.record for rejected in report.rejected] == [bad]
    assert report.rejected[0].error
    assert (report.decisions, report.judgements) == (3, 3)
    assert total(store, "verdicts") == 3


@pytest.mark.parametrize(
    "bad",
    [decision(LONG), judgement(LONG), addendum(LONG), decision("bad", stratum=LONG)],
    ids=["decision", "judgement", "addendum", "stratum"],
)
def test_j5_a_name_that_is_too_long_for_an_index_is_rejected(postgres: PostgresServer, bad: Record) -> None:
    """To the driver this looks like a server that is lost; trying again would stop the recorder for ever."""
    opened = Store.open(postgres.emptied(), rubrics=RUBRICS)
    report = opened.record([decision("a"), bad, judgement("a")])
    assert [rejected.record for rejected in report.rejected] == [bad]
    assert "index row size" in report.rejected[0].error
    assert LONG not in report.rejected[0].error
    assert opened.totals().sums[TotalKey("verdicts", "correction", stratum="base")] == 1
    opened.close()


def test_a_total_that_would_leave_64_bits_is_refused_and_names_its_record(store: Store) -> None:
    store.record([decision("a"), judgement("a")])
    with store._engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE totals SET value = {2**62 - 5} WHERE name = 'weight2'")

    report = store.record([decision("b"), judgement("b"), decision("c", stratum="other"), judgement("c")])

    assert [rejected.record for rejected in report.rejected] == [judgement("b")]
    assert (report.decisions, report.judgements) == (2, 1)
    values = [value for key, value in store.totals().sums.items() if key.name == "weight2"]
    assert all(isinstance(value, int) for value in values)
    assert store.totals().pending == {("correction", "base"): 1}


def test_nul_in_ids_and_text_is_made_visible(store: Store) -> None:
    text = content("a\0b", "he\0llo", "hi", tenant="t")
    store.record([decision("a\0b", text=text), judgement("a\0b", hash_=decision("a\0b", text=text).content_hash)])

    rows = store.sessions(SessionFilter()).rows
    assert [row.session_id for row in rows] == ["a\u2400b"]
    found = store.session("t", "a\u2400b", "e0")
    assert found is not None
    assert found.view is not None
    assert found.view.turns[0].text == "he\0llo"


def test_r3_a_policy_publishes_zero_totals_before_the_first_decision(store: Store) -> None:
    store.record([policy("base", "corrected")])

    sums = store.totals().sums
    assert set(sums.values()) == {0}
    for stratum in ("base", "corrected"):
        labels = {**LABELS, "stratum": stratum}
        assert TotalKey("weight2_trials2", "correction", "ignored", **labels) in sums
        other = {**labels, "assistant": "other", "assistant_version": "other"}
        assert TotalKey("weighted_trials", "correction", "reverted", **other) in sums
    assert store.totals().rates == {"base": 0.05, "corrected": 0.05}


def test_r3_a_judgement_adds_to_no_series_that_the_policy_did_not_announce(store: Store) -> None:
    store.record([policy()])
    announced = set(store.totals().sums)
    scores = {"correction_response_score": [0.5], "criterion_score:persistence": [3.0]}
    store.record([decision("a"), judgement("a", scores=scores), decision("b"), unscored("b")])

    assert set(store.totals().sums) == announced


def test_stored_records_come_from_the_wire_unchanged(store: Store) -> None:
    sent = judgement(scores={"correction_response_score": [0.25]})
    store.record([decision(), sent])

    found = store.session("t", "s1", "e0")
    assert found is not None
    assert msgspec.json.encode(found.judgements[0].judgement) == msgspec.json.encode(sent)


# -- a second judgement of a job (self-agreement) ----------------------------------------------------------------


def again(**other: Any) -> Judgement:
    """Build the second judgement of the job of `decision()`."""
    return judgement(job_id=repeat_id(judgement().job_id), run="repeat", **other)


def repeats(store: Store, measure: str = "reverted") -> dict[str, int]:
    sums = store.totals().sums
    wanted = ("judge_repeats", "correction", measure)
    return {key.detail: value for key, value in sums.items() if key[:3] == wanted and value}


@pytest.mark.parametrize(("failures", "found"), [(0, "only_first"), (1, "both_failed"), (2, "both_failed")])
def test_a_second_judgement_is_compared_and_counted_in_no_rate(store: Store, failures: int, found: str) -> None:
    store.record([policy(), decision(), judgement()])
    rates = {key: value for key, value in store.totals().sums.items() if key.name != "judge_repeats"}
    report = store.record([again(failures=failures)])
    assert report.standings == {"repeat": 1}
    after = {key: value for key, value in store.totals().sums.items() if key.name != "judge_repeats"}
    assert after == rates
    assert repeats(store) == {found: 1}
    assert repeats(store, "ignored") == {"both_clear": 1}


def test_j4_a_verdict_in_place_of_a_failure_is_paired_anew(store: Store) -> None:
    store.record([decision(), unscored(), again()])
    assert repeats(store) == {"unscored": 1}
    store.record([judgement()])
    assert repeats(store) == {"both_failed": 1}


def test_a_judge_is_compared_with_itself_alone(store: Store) -> None:
    store.record([decision(), judgement(), again(judge="anthropic:x")])
    assert repeats(store) == {}


def test_a_third_judgement_and_one_on_other_content_are_set_aside(store: Store) -> None:
    report = store.record(
        [decision(), judgement(), again(), again(started_at=7), again(hash_="other", started_at=8)]
    )
    assert report.standings == {"counted": 1, "repeat": 1, "superseded": 2}
    assert repeats(store) == {"both_failed": 1}


def test_without_a_selected_decision_there_is_nothing_to_repeat(store: Store) -> None:
    report = store.record([decision(selected=False), again()])
    assert report.standings == {"superseded": 1}
    assert repeats(store) == {}
