"""Mutants of judging: rules J1 to J5."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutant import Mutant

DELIVERY: Final = "consumers/delivery.py"
JOB_QUEUE: Final = "consumers/job_queue.py"
DRIVE: Final = "monitor/judging/drive.py"
FLOW: Final = "monitor/judging/flow.py"
PROMPT: Final = "monitor/judging/prompt.py"
PROMPT_FILES: Final = "monitor/judging/prompt_files.py"
ANSWER: Final = "monitor/rubrics/correction/answer.py"
SCREEN: Final = "monitor/judging/screen.py"
EXTRACTION: Final = "monitor/judging/extract.py"
EVENTS: Final = "monitor/rubrics/correction/events.py"
SEGMENT: Final = "monitor/store/segment.py"
DELIVERY_TESTS: Final = "tests/unit/consumers/test_delivery.py::"
JOB_JUDGE: Final = "tests/unit/consumers/test_job_judge.py::"
JOB_QUEUE_TESTS: Final = "tests/unit/consumers/test_job_queue.py::"
JUDGE_STEPS: Final = "tests/unit/consumers/test_judge_steps.py::"
DRIVE_PROPERTIES: Final = "tests/unit/judging/test_drive_properties.py::"
FREEZE: Final = "tests/unit/golden/test_freeze.py::"
FLOW_TESTS: Final = "tests/unit/judging/test_flow.py::"
PROMPT_TESTS: Final = "tests/unit/judging/test_prompt.py::"
CORRECTION: Final = "tests/unit/rubrics/test_correction.py::"
RECORD: Final = "tests/unit/store/test_record.py::"
SCREEN_TESTS: Final = "tests/unit/judging/test_screen.py::"
SCREENING: Final = "tests/unit/consumers/test_screening.py::"
EXTRACT_TESTS: Final = "tests/unit/judging/test_extract.py::"

MUTANTS: Final = (
    Mutant(
        rule="J1",
        title="a truncated answer is read",
        path=FLOW,
        old='if completion.stop == "max_tokens":',
        new="if False:",
        tests=(FLOW_TESTS + "test_a_truncated_answer_is_not_read_even_if_it_parses",),
    ),
    Mutant(
        rule="J1",
        title="a refusal is read as an answer",
        path=FLOW,
        old='if completion.stop == "refusal":',
        new="if False:",
        tests=(FLOW_TESTS + "test_a_refusal_is_unscored_at_once",),
    ),
    Mutant(
        rule="J1",
        title="an invalid answer is asked for again and again",
        path=FLOW,
        old='if kind == "invalid" and not repaired:',
        new='if kind == "invalid":',
        tests=(FLOW_TESTS + "test_a_second_invalid_answer_is_unscored_and_keeps_both_raw_answers",),
    ),
    Mutant(
        rule="J1",
        title="a rubric counts what failed",
        path=FLOW,
        old="Outcomes() if isinstance(result, Unscored) else rubric.outcomes(result)",
        new="rubric.outcomes(result)",
        tests=(JOB_JUDGE + "test_a_bug_leaves_one_session_unscored",),
    ),
    Mutant(
        rule="J1",
        title="a screen that fails passes sessions over",
        path=SCREEN,
        old='return _screening(answer, "failed", reason',
        new='return _screening(answer, "clear", reason',
        tests=(SCREENING + "test_a_screen_that_fails_lets_the_judge_look",),
    ),
    Mutant(
        rule="J1",
        title="where the extractor fails wording steps in",
        path=EXTRACTION,
        old="""        if not isinstance(outcome.result, Verdict):
            return None
""",
        new="""        if not isinstance(outcome.result, Verdict):
            return self._session
""",
        tests=(EXTRACT_TESTS + "test_by_batch_wording_stays_out_of_a_failed_extraction_as_well",),
    ),
    Mutant(
        rule="J2",
        title="a quote of an extractor may stand in no turn",
        path=EXTRACTION,
        old="if not contains(turn.text, item.quote):",
        new="if False:",
        tests=(EXTRACT_TESTS + "test_an_answer_that_does_not_go_with_the_transcript_is_refused",),
    ),
    Mutant(
        rule="J1",
        title="an extractor's correction counts beside the producer's of the same turn",
        path=EVENTS,
        old=" if item.turn not in named]",
        new="]",
        tests=(EXTRACT_TESTS + "test_producers_events_stay_and_hold_their_turns",),
    ),
    Mutant(
        rule="J1",
        title="an audited session stands for itself alone",
        path=SCREEN,
        old="found=outcomes.stage.found * screening.one_in,",
        new="found=outcomes.stage.found,",
        tests=(SCREENING + "test_one_that_is_audited_is_judged_and_stands_for_the_others",),
    ),
    Mutant(
        rule="J1",
        title="the audit picks the jobs that are repeated",
        path=SCREEN,
        old='person=b"screen"',
        new='person=b"repeat"',
        tests=(SCREEN_TESTS + "test_the_coin_is_fair_nested_and_apart_from_that_of_the_repeats",),
    ),
    Mutant(
        rule="J3",
        title="a screen that is down is done without",
        path="consumers/job_judge.py",
        old="""        if answer is None:
            return None
""",
        new="""        if answer is None:
            return await self._in_full(run)
""",
        tests=(SCREENING + "test_stop_gives_up_what_waits_for_the_screen",),
    ),
    Mutant(
        rule="J2",
        title="quotes aren't looked for in the transcript",
        path=ANSWER,
        old='verbatim(f"{field}.quote", item.quote, turn.text, item.turn_index)',
        new="pass",
        tests=(CORRECTION + "test_a_quote_that_is_not_in_the_turn_is_refused",),
    ),
    Mutant(
        rule="J2",
        title="a quote may come from any turn",
        path=ANSWER,
        old="if turn is None or item.turn_index not in window.replies:",
        new="if turn is None:",
        tests=(CORRECTION + "test_every_violation_is_one_sentence_that_names_the_field",),
    ),
    Mutant(
        rule="J2",
        title="not every reply has to be looked at",
        path=ANSWER,
        old="if sorted(given.incorporation_check_turns) != sorted(window.replies):",
        new="if False:",
        tests=(CORRECTION + "test_every_violation_is_one_sentence_that_names_the_field",),
    ),
    Mutant(
        rule="J2",
        title="a reversion may come before the right use",
        path=ANSWER,
        old="if back >= 0 and (first < 0 or back <= first):",
        new="if False:",
        tests=(CORRECTION + "test_every_violation_is_one_sentence_that_names_the_field",),
    ),
    Mutant(
        rule="J2",
        title="the fence is the same for every transcript",
        path=PROMPT,
        old="""    nonce = _hash(content)[:16]
""",
        new="""    nonce = "0123456789abcdef"
""",
        tests=(PROMPT_TESTS + "test_a_fence_does_not_occur_in_what_it_fences_and_depends_on_it",),
    ),
    Mutant(
        rule="J2",
        title="bidi and zero-width characters pass unseen",
        path=PROMPT,
        old='{"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}',
        new='{"Cc", "Cs", "Co", "Zl", "Zp"}',
        tests=(PROMPT_TESTS + "test_a_hostile_transcript_stays_inside_and_its_placeholders_stay_as_they_are",),
    ),
    Mutant(
        rule="J3",
        title="an offset is finished before its judgement is with the broker",
        path="consumers/judge.py",
        old="""                await self._delivery.judgement(work, outcome)
                if await self._repeated(work, outcome):
                    self._queue.finish(work, answered=not isinstance(outcome.result, Unscored))
""",
        new="""                self._queue.finish(work, answered=not isinstance(outcome.result, Unscored))
                await self._delivery.judgement(work, outcome)
                await self._repeated(work, outcome)
""",
        tests=(
            JUDGE_STEPS + "test_j3_a_rebalance_at_any_moment_neither_asks_twice_nor_commits_early",
            JUDGE_STEPS + "test_j3_a_kill_at_any_step_brings_the_job_again",
        ),
    ),
    Mutant(
        rule="J3",
        title="a redelivered job doesn't attach to the call under way",
        path=JOB_QUEUE,
        old="""        if known is not None:
""",
        new="""        if False:
""",
        tests=(JUDGE_STEPS + "test_j3_a_rebalance_at_any_moment_neither_asks_twice_nor_commits_early",),
    ),
    Mutant(
        rule="J3",
        title="an answered job is asked again",
        path=JOB_QUEUE,
        old="""        elif key in self._answered:
""",
        new="""        elif False:
""",
        tests=(JUDGE_STEPS + "test_j3_a_rebalance_at_any_moment_neither_asks_twice_nor_commits_early",),
    ),
    Mutant(
        rule="J3",
        title="claims of a partition that was lost are settled in the new one",
        path=JOB_QUEUE,
        old="""            work.claims = [claim for claim in work.claims if claim.partition not in gone]
""",
        new="",
        tests=(JOB_QUEUE_TESTS + "test_a_queued_job_goes_with_its_partition",),
    ),
    Mutant(
        rule="J3",
        title="a call that failed for a while keeps a redelivery out",
        path=JOB_QUEUE,
        old="""        if answered:
""",
        new="""        if True:
""",
        tests=(JOB_QUEUE_TESTS + "test_an_answered_job_is_not_asked_again_but_a_failed_one_is",),
    ),
    Mutant(
        rule="J3",
        title="the commit goes past unfinished offsets",
        path="consumers/offsets.py",
        old="return self._unfinished[0] if self._unfinished else self._next",
        new="return self._next",
        tests=(JOB_QUEUE_TESTS + "test_the_commit_stops_at_the_lowest_unfinished_offset",),
    ),
    Mutant(
        rule="J3",
        title="a partition may run ahead of its lowest unfinished offset",
        path=JOB_QUEUE,
        old="limit - (jobs.span if jobs else 0)",
        new="limit",
        tests=(
            JOB_QUEUE_TESTS + "test_a_full_partition_waits_until_half_of_its_room_is_free",
            JOB_QUEUE_TESTS + "test_a_slow_job_at_the_head_leaves_the_rest_of_the_room_in_use",
        ),
    ),
    Mutant(
        rule="J3",
        title="routine jobs go first",
        path=JOB_QUEUE,
        old="for urgent in (True, False):",
        new="for urgent in (False, True):",
        tests=(JOB_QUEUE_TESTS + "test_urgent_jobs_start_first_and_slots_are_bounded",),
    ),
    Mutant(
        rule="J3",
        title="slots aren't bounded",
        path=JOB_QUEUE,
        old="if line and self._free(urgent=urgent):",
        new="if line:",
        tests=(JOB_QUEUE_TESTS + "test_urgent_jobs_start_first_and_slots_are_bounded",),
    ),
    Mutant(
        rule="J3",
        title="a later claim takes questions that are in another batch",
        path="monitor/judging/batch_book.py",
        old="for item in dict.fromkeys(note.ids) if item not in self._owners)",
        new="for item in dict.fromkeys(note.ids))",
        tests=(
            "tests/unit/judging/test_batch_book.py::test_the_first_claim_holds_until_it_is_dropped",
            "tests/unit/judging/test_batches.py::test_claims_at_the_same_moment_are_decided_by_the_log",
        ),
    ),
    Mutant(
        rule="J3",
        title="the deadline runs while the breaker is open",
        path=DRIVE,
        old="""            run.spent_s += self._clock() - began
""",
        new="""            run.spent_s += self._clock()
""",
        tests=(DRIVE_PROPERTIES + "test_j3_time_while_put_off_is_no_part_of_the_deadline",),
    ),
    Mutant(
        rule="J3",
        title="each call has a deadline of its own",
        path=DRIVE,
        old="deadline = began - run.spent_s + self._policy.deadline_s",
        new="deadline = began + self._policy.deadline_s",
        tests=(DRIVE_PROPERTIES + "test_a_job_ends_in_time_with_every_call_on_record",),
    ),
    Mutant(
        rule="J4",
        title="a failed job never gets its verdict",
        path=SEGMENT,
        old='elif listed and state == "unscored" and judgement.kind != "unscored":',
        new="elif False:",
        tests=(RECORD + "test_j4_an_unscored_job_may_still_get_its_result",),
    ),
    Mutant(
        rule="J4",
        title="the failure stays counted beside the verdict",
        path=SEGMENT,
        old="""            self._withdraw(judgement.job_id, decision)
""",
        new="",
        tests=(RECORD + "test_j4_an_unscored_job_may_still_get_its_result",),
    ),
    Mutant(
        rule="J4",
        title="a second result counts too",
        path=SEGMENT,
        old="if listed and state == PENDING:",
        new="if listed:",
        tests=(RECORD + "test_j4_no_other_transition",),
    ),
    Mutant(
        rule="J5",
        title="a judgement that is too large ends the judge",
        path=DELIVERY,
        old="""            except TOO_LARGE:
                continue
""",
        new="""            except TOO_LARGE:
                raise
""",
        tests=(DELIVERY_TESTS + "test_j5_a_judgement_that_is_too_large_shrinks",),
    ),
    Mutant(
        rule="J5",
        title="what shrinks counts otherwise",
        path=DELIVERY,
        old="(judgement, attempts=[], result=result, screen=screen)",
        new="(judgement, attempts=[], result=result, screen=screen, outcomes=type(judgement.outcomes)())",
        tests=(DELIVERY_TESTS + "test_each_is_smaller_and_counts_the_same",),
    ),
    Mutant(
        rule="J5",
        title="raw answers are kept whole",
        path="monitor/judgement.py",
        old="""    if len(raw) <= limit:
""",
        new="""    if True:
""",
        tests=(FLOW_TESTS + "test_a_second_invalid_answer_is_unscored_and_keeps_both_raw_answers",),
    ),
    Mutant(
        rule="J2",
        title="a frozen prompt that was changed is used",
        path=PROMPT_FILES,
        old="if frozen not in {None, sha256(raw)}:",
        new="if False:",
        tests=(FREEZE + "test_a_frozen_version_judges_and_is_refused_once_it_is_changed",),
    ),
    Mutant(
        rule="J2",
        title="a version judges before it is frozen",
        path=PROMPT_FILES,
        old="frozen = [version for name, version in sums(folder) if name == rubric]",
        new="frozen = versions(rubric, folder)",
        tests=(FREEZE + "test_a_new_version_judges_only_once_it_is_frozen",),
    ),
    Mutant(
        rule="J2",
        title="a version is frozen by the run of another text",
        path="monitor/golden/freeze.py",
        old="if run.prompt_sha256 != found:",
        new="if False:",
        tests=(FREEZE + "test_without_a_run_of_this_very_text_on_this_very_set_nothing_is_frozen",),
    ),
)
