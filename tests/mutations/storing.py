"""Mutants of the recorder and of what it counts: rules R1 to R3, and what J5 asks of them."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutant import Mutant

RECORD: Final = "consumers/record.py"
LEDGER: Final = "monitor/store/ledger.py"
RECORDING: Final = "monitor/store/recording.py"
SEGMENT: Final = "monitor/store/segment.py"
STORE: Final = "monitor/store/store.py"
RECORD_STEPS: Final = "tests/unit/consumers/test_record_steps.py::"
SAMPLE_STEPS: Final = "tests/unit/consumers/test_sample_steps.py::"
CONCURRENCY: Final = "tests/unit/store/test_concurrency.py::"
INTERLEAVINGS: Final = "tests/unit/store/test_interleavings.py::"
LEDGER_TESTS: Final = "tests/unit/store/test_ledger.py::"
RECORD_TESTS: Final = "tests/unit/store/test_record.py::"
SCREEN_TESTS: Final = "tests/unit/store/test_screen.py::"
EXPORTER: Final = "tests/unit/test_exporter.py::"

MUTANTS: Final = (
    Mutant(
        rule="R1",
        title="the session's row isn't locked",
        path=RECORDING,
        old="""            .order_by(SESSIONS.c.session_key)
            .with_for_update()
""",
        new="""            .order_by(SESSIONS.c.session_key)
""",
        tests=(INTERLEAVINGS + "test_r1_a_judgement_and_its_decision_count_once",),
    ),
    Mutant(
        rule="R1",
        title="the content hash isn't compared",
        path=SEGMENT,
        old="listed = state is not None and judgement.content_hash == decision.content_hash",
        new="listed = state is not None",
        tests=(RECORD_TESTS + "test_r1_a_judgement_that_the_decision_does_not_know_is_superseded",),
    ),
    Mutant(
        rule="R1",
        title="what a decision doesn't list counts",
        path=SEGMENT,
        old="""        else:
            self._supersede(judgement)
""",
        new="""        else:
            self._count(judgement, decision)
""",
        tests=(RECORD_TESTS + "test_r1_a_judgement_that_the_decision_does_not_know_is_superseded",),
    ),
    Mutant(
        rule="R1",
        title="jobs of an unselected session count",
        path=SEGMENT,
        old="if decision.selected and not decision.overlap:",
        new="if not decision.overlap:",
        tests=(RECORD_TESTS + "test_r1_a_judgement_of_an_unselected_session_never_counts",),
    ),
    Mutant(
        rule="R1",
        title="the last decision wins",
        path=SEGMENT,
        old="""        if self.decision is not None:
            return False
""",
        new="",
        tests=(SAMPLE_STEPS + "test_s3_a_kill_at_any_step_loses_nothing_and_orphans_count_nowhere",),
    ),
    Mutant(
        rule="R1",
        title="a judgement that waited isn't counted with its decision",
        path=SEGMENT,
        old="""        for judgement in self.judgements:
            self._settle(judgement, decision)
""",
        new="",
        tests=(RECORD_TESTS + "test_r1_whoever_completes_the_pair_counts_it",),
    ),
    Mutant(
        rule="R1",
        title="a second decision is stored too",
        path=RECORDING,
        old="if facts is None or segment.decision is not None or",
        new="if facts is None or",
        tests=(RECORD_TESTS + "test_r1_the_first_decision_wins",),
    ),
    Mutant(
        rule="R1",
        title="the same judgement counts again",
        path=SEGMENT,
        old="""        if any(known.digest == judgement.digest for known in self.judgements):
            return False
""",
        new="",
        tests=(RECORD_TESTS + "test_r1_redelivery_is_free",),
    ),
    Mutant(
        rule="R1",
        title="offsets are committed before the transaction",
        path=RECORD,
        old="""        report = await self._store(store, [decoded for _, decoded in batch])
""",
        new="""        await self._member.commit({_place(record): record.offset + 1 for record in records})
        report = await self._store(store, [decoded for _, decoded in batch])
""",
        tests=(RECORD_STEPS + "test_r1_a_kill_at_any_effect_counts_nothing_twice_and_loses_nothing",),
    ),
    Mutant(
        rule="R1",
        title="offsets are committed without the rejected ones put aside",
        path=RECORD,
        old="""            await self._set_aside(record, "rejected", rejected.error)
""",
        new="",
        tests=(RECORD_STEPS + "test_r1_a_kill_at_any_effect_counts_nothing_twice_and_loses_nothing",),
    ),
    Mutant(
        rule="R1",
        title="a deadlock is an error",
        path=STORE,
        old="if attempt == _TRIES or not worth_retrying(error):",
        new="if True:",
        tests=(CONCURRENCY + "test_r1_a_deadlock_with_another_writer_is_tried_again",),
    ),
    Mutant(
        rule="R1",
        title="one bad record takes its batch along",
        path=STORE,
        old="""            if len(items) == 1:
""",
        new="""            if items:
""",
        tests=(
            RECORD_TESTS + "test_a_bad_record_alone_is_rejected",
            RECORD_TESTS + "test_j5_a_name_that_is_too_long_for_an_index_is_rejected",
        ),
    ),
    Mutant(
        rule="R1",
        title="NUL reaches the database",
        path="monitor/store/rows.py",
        old='return text.replace("\\0", "\\u2400")',
        new="return text",
        tests=(RECORD_TESTS + "test_nul_in_ids_and_text_is_made_visible",),
    ),
    Mutant(
        rule="J5",
        title="a name too long for an index is tried for ever",
        path="monitor/store/connect.py",
        old='return str(getattr(error.orig, "sqlstate", None)).startswith(_LIMIT_CLASS)',
        new="return False",
        tests=(RECORD_TESTS + "test_j5_a_name_that_is_too_long_for_an_index_is_rejected",),
    ),
    Mutant(
        rule="R2",
        title="a job stays pending",
        path=RECORDING,
        old="elif known[job_id] != state:",
        new="elif False:",
        tests=(RECORD_TESTS + "test_r2_jobs_listed_are_verdicts_skipped_unscored_and_pending",),
    ),
    Mutant(
        rule="R2",
        title="the newest pending job speaks",
        path="monitor/store/totals.py",
        old="oldest_pending=min(",
        new="oldest_pending=max(",
        tests=(EXPORTER + "test_r4_a_batch_that_comes_an_hour_late_breaks_nothing",),
    ),
    Mutant(
        rule="R3",
        title="sessions that a screen passed over are no stratum of their own",
        path=LEDGER,
        old='    if screen.verdict == "clear":',
        new="    if False:",
        tests=(SCREEN_TESTS + "test_an_audited_session_stands_for_those_that_were_passed_over",),
    ),
    Mutant(
        rule="R3",
        title="what a screen missed is counted once, not for those it stands for",
        path=LEDGER,
        old="weight16 * screen.one_in",
        new="weight16",
        tests=(SCREEN_TESTS + "test_what_the_screen_missed_is_told_from_what_it_saw",),
    ),
    Mutant(
        rule="R3",
        title="weights are real numbers",
        path=LEDGER,
        old="""        weight16 * trials16,
""",
        new="""        weight16 * float(trials16),
""",
        tests=(LEDGER_TESTS + "test_sums_are_exact_in_sixteenths",),
    ),
    Mutant(
        rule="R3",
        title="an unscored session counts as scored",
        path=LEDGER,
        old='if judgement.kind == "unscored":',
        new="if False:",
        tests=(RECORD_TESTS + "test_a_skipped_session_is_scored_without_trials_and_an_unscored_one_is_not",),
    ),
    Mutant(
        rule="R3",
        title="a session without a trial isn't scored",
        path=LEDGER,
        old="tallies = dict.fromkeys(sorted({*measures, *outcomes.measures}), (0, 0))",
        new="tallies = dict.fromkeys(sorted(outcomes.measures), (0, 0))",
        tests=(RECORD_TESTS + "test_a_session_without_a_trial_of_a_measure_is_a_scored_session",),
    ),
    Mutant(
        rule="R3",
        title="a policy brings no zero totals",
        path=RECORDING,
        old="""                self.sums.setdefault(key, 0)
""",
        new="""                pass
""",
        tests=(RECORD_TESTS + "test_r3_a_policy_publishes_zero_totals_before_the_first_decision",),
    ),
    Mutant(
        rule="R3",
        title="second moments are shown in the wrong unit",
        path="monitor/exporter.py",
        old='{"weight2": 256, "weighted": 16}',
        new='{"weight2": 16, "weighted": 16}',
        tests=(EXPORTER + "test_r3_values_are_exact",),
    ),
)
