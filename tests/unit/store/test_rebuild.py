"""R3, R4: totals equal an independent count, and a rebuild equals them exactly, whatever the order of records."""

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.decision import Decision, job_id, repeat_id
from monitor.judgement import Judgement, Outcomes, Result, Skipped, Tally, Unscored, Verdict
from monitor.session import Addendum
from monitor.store import Store, Sums, TotalKey, moved
from tests.unit.store.builders import MEASURES, RUBRICS, addendum, decision, judgement, policy

Message = Decision | Judgement | Addendum
NUMBERS = count()

results: st.SearchStrategy[Result] = st.sampled_from(
    [
        Verdict(data={}),
        Skipped(reason="misaligned"),
        Skipped(reason="no_response"),
        Unscored(reason="timeout"),
        Unscored(reason="invalid"),
    ]
)


@st.composite
def judgements(draw: st.DrawFn, session: str, segment: str) -> Judgement:
    trials = draw(st.integers(0, 8))
    tally = Tally(trials=trials, failures=draw(st.integers(0, trials)))
    outcomes = Outcomes(
        measures=draw(st.sampled_from([{}, {"reverted": tally}, {"ignored": tally, "reverted": tally}])),
        scores=draw(st.sampled_from([{}, {"correction_response_score": [0.25, 1.0]}])),
        skipped_events=draw(st.sampled_from([{}, {"cut_off": 2}])),
    )
    live = judgement(session, segment).job_id
    return judgement(
        session,
        segment,
        draw(results),
        job_id=draw(st.sampled_from([live, live, repeat_id(live)])),
        outcomes=outcomes,
        judge=draw(st.sampled_from(["lexical", "anthropic:x"])),
        hash_=draw(st.sampled_from(["hash", "hash", "hash", "other"])),
        started_at=draw(st.integers(0, 3)),
    )


@st.composite
def decisions(draw: st.DrawFn, session: str, segment: str) -> Decision:
    # Two of the events are shared by all segments of a session, so that some overlap.
    events = draw(st.sets(st.sampled_from([f"{segment}-1", f"{segment}-2", "shared-1", "shared-2"]), min_size=1))
    return decision(
        session,
        segment,
        weight16=draw(st.sampled_from([16, 17, 320, 16_000])),
        selected=draw(st.booleans() | st.just(True)),
        stratum=draw(st.sampled_from(["base", "corrected"])),
        version=draw(st.sampled_from(["v1", "v2"])),
        events=tuple(sorted(events)),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[list[Message]]:
    """Batches of records about a few sessions: in any order, with copies, strays and late decisions."""
    prefix = f"h{next(NUMBERS)}-"
    messages: list[Message] = []
    for session in draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True)):
        for segment in draw(st.lists(st.sampled_from(["e0", "e1", "e2"]), min_size=1, max_size=3, unique=True)):
            name = prefix + session
            messages += draw(st.lists(decisions(name, segment), max_size=2))
            messages += draw(st.lists(judgements(name, segment), max_size=4))
            messages += [addendum(name, segment, next(NUMBERS))]
    messages += draw(st.lists(st.sampled_from(messages), max_size=4))
    messages = draw(st.permutations(messages))
    cuts = sorted(draw(st.sets(st.integers(0, len(messages)), max_size=4)))
    return [messages[a:b] for a, b in zip([0, *cuts], [*cuts, len(messages)], strict=True)]


def final_state(messages: list[Message]) -> Iterator[tuple[Decision, bool, Judgement | None, Judgement | None]]:
    """Replay a history by the words of R1, R5 and J4.

    For each first decision: whether it overlaps, the judgement that counts, and the second one beside it.
    """
    decided: dict[tuple[str, str], Decision] = {}
    for message in messages:
        if isinstance(message, Decision):
            decided.setdefault((message.session_id, message.segment), message)
    earlier: dict[str, set[str]] = defaultdict(set)
    for (session, segment), first in decided.items():
        overlaps = bool(earlier[session] & set(first.fingerprints))
        earlier[session] |= set(first.fingerprints)
        counted: Judgement | None = None
        again: Judgement | None = None
        live = job_id(first.tenant, session, segment, "correction")
        for message in messages:
            if not isinstance(message, Judgement) or (message.session_id, message.segment) != (session, segment):
                continue
            if message.content_hash == first.content_hash and first.selected and not overlaps:
                if message.job_id != live:
                    again = again or message
                    continue
                improves = isinstance(counted and counted.result, Unscored)
                if counted is None or (improves and not isinstance(message.result, Unscored)):
                    counted = message
        yield first, overlaps, counted, again


def expected(messages: list[Message]) -> dict[tuple[str, ...], Fraction]:
    """Count a history from its final state, in real units, by (metric, measure or reason, stratum, version)."""
    sums: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    for first, overlaps, counted, again in final_state(messages):
        place = (first.stratum, first.labels.assistant_version)
        if overlaps:
            sums["sessions_overlapping", "", "", ""] += 1
            continue
        sums["sessions_finished", "", *place] += 1
        sums["sessions_selected", "", *place] += first.selected
        if counted is None:
            continue
        if again is not None and again.judge == counted.judge:
            for measure, found in agreements(counted, again):
                sums[f"judge_repeats {found}", measure, "", ""] += 1
        w = Fraction(first.weight16, 16)
        if isinstance(counted.result, Unscored):
            sums["weighted_unscored", counted.result.reason, *place] += w
            continue
        for measure in MEASURES:
            tally = counted.outcomes.measures.get(measure, Tally(trials=0, failures=0))
            t, f = tally.trials, tally.failures
            sums["scored_sessions", measure, *place] += 1
            sums["weighted_sessions", measure, *place] += w
            sums["weighted_trials", measure, *place] += w * t
            sums["weighted_failures", measure, *place] += w * f
            sums["weight2_trials2", measure, *place] += (w * t) ** 2
            sums["weight2_trials_failures", measure, *place] += w**2 * t * f
    return {key: value for key, value in sums.items() if value}


def agreements(first: Judgement, second: Judgement) -> Iterator[tuple[str, str]]:
    """Say for each measure which of two judgements found a failure."""
    results = [first.result, second.result]
    if all(isinstance(result, Unscored) for result in results):
        return
    for measure in MEASURES:
        if any(isinstance(result, Unscored) for result in results):
            yield measure, "unscored"
            continue
        tallies = [item.outcomes.measures.get(measure, Tally(trials=0, failures=0)) for item in (first, second)]
        failed = tallies[0].failures > 0, tallies[1].failures > 0
        names = {(False, False): "both_clear", (True, True): "both_failed", (True, False): "only_first"}
        yield measure, names.get(failed, "only_second")


def as_counted(sums: Sums, names: set[str]) -> dict[tuple[str, ...], Fraction]:
    """Bring totals to the form of `expected`."""
    found: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    for key, value in sums.items():
        if key.name in names:
            unit = 256 if key.name.startswith("weight2") else 16 if key.name.startswith("weighted") else 1
            label = key.measure or key.detail
            name = f"{key.name} {key.detail}" if key.name == "judge_repeats" else key.name
            found[name, label, key.stratum, key.assistant_version] += Fraction(value, unit)
    return {key: value for key, value in found.items() if value}


NAMES = {
    "sessions_overlapping", "sessions_finished", "sessions_selected", "weighted_unscored", "scored_sessions",
    "judge_repeats",
    "weighted_sessions", "weighted_trials", "weighted_failures", "weight2_trials2", "weight2_trials_failures",
}  # fmt: skip


def difference(after: Sums, before: Sums) -> Sums:
    """Give what was added between two readings."""
    return moved({key: value - before.get(key, 0) for key, value in after.items()})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for all examples: each has session names of its own."""
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('store')}/s.sqlite", rubrics=RUBRICS)
    yield store
    store.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories())
def test_totals_equal_an_independent_count_and_their_rebuild(shared: Store, history: list[list[Message]]) -> None:
    before = shared.totals()
    for batch in history:
        assert shared.record(batch).rejected == []
    after = shared.totals()

    messages = [message for batch in history for message in batch]
    assert as_counted(difference(after.sums, before.sums), NAMES) == expected(messages)

    assert shared.rebuild_totals() == after.generation + 1
    rebuilt = shared.totals()
    assert rebuilt.sums == after.sums
    assert not rebuilt.rebuilding

    listed = sum(value for key, value in after.sums.items() if key.name == "jobs_listed")
    ended = sum(value for key, value in after.sums.items() if key.name in {"verdicts", "skipped", "unscored"})
    assert listed == ended + sum(after.pending.values())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories())
def test_a_rebuild_starts_from_what_retention_dropped(shared: Store, history: list[list[Message]]) -> None:
    for batch in history:
        shared.record(batch)
    before = shared.totals()
    far = 10_000_000_000.0

    shared.expire(text_before=far, rows_before=far)
    assert shared.totals().sums == before.sums
    shared.rebuild_totals()
    assert shared.totals().sums == before.sums
    with shared._engine.begin() as connection:  # or the next example's records would be taken for pruned ones
        connection.exec_driver_sql("DELETE FROM meta WHERE name = 'pruned_before'")


def test_a_rebuild_mends_totals_that_were_tampered_with(store: Store) -> None:
    store.record([policy(), decision(), judgement()])
    right = store.totals()
    with store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE totals SET value = value + 5")

    store.rebuild_totals()

    assert store.totals().sums == right.sums
    assert store.totals().generation == right.generation + 1


def test_nothing_was_rebuilt_before(store: Store) -> None:
    assert (store.totals().generation, store.totals().rebuilding) == (1, False)


def test_a_total_key_has_the_columns_of_its_table() -> None:
    assert TotalKey._fields == ("name", "rubric", "measure", "judge", "assistant", "assistant_version", "stratum",
                                "detail")  # fmt: skip
