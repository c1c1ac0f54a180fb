"""Mutants of sampling: rules S1 to S4, and what J5 and R3 ask of it."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutant import Mutant

SAMPLE: Final = "consumers/sample.py"
COIN: Final = "monitor/sampling/coin.py"
DECIDE: Final = "monitor/sampling/decide.py"
SAMPLE_STEPS: Final = "tests/unit/consumers/test_sample_steps.py::"
COIN_TESTS: Final = "tests/unit/sampling/test_coin.py::"
DECIDE_TESTS: Final = "tests/unit/sampling/test_decide.py::"

MUTANTS: Final = (
    Mutant(
        rule="S1",
        title="the last stratum that matches takes the session",
        path=DECIDE,
        old="for stratum in policy.strata if stratum.takes(values)",
        new="for stratum in reversed(policy.strata) if stratum.takes(values)",
        tests=(DECIDE_TESTS + "test_the_first_stratum_that_matches_takes_the_session",),
    ),
    Mutant(
        rule="S1",
        title="a session whose start is lost is judged",
        path=DECIDE,
        old='if session.close_reason == "truncated":',
        new="if False:",
        tests=(DECIDE_TESTS + "test_a_session_whose_start_is_lost_is_in_no_frame",),
    ),
    Mutant(
        rule="S2",
        title="the weight is cut, not rounded, to whole sixteenths",
        path=COIN,
        old="round(16 / rate)",
        new="int(16 / rate)",
        tests=(COIN_TESTS + "test_a_quantized_rate_has_a_whole_number_of_sixteenths_as_weight",),
    ),
    Mutant(
        rule="S2",
        title="the coin is compared with another probability than the weight's",
        path=DECIDE,
        old='picked(toss(salt, "select", *key), stratum.weight16)',
        new='picked(toss(salt, "select", *key), stratum.weight16 + 1)',
        tests=(DECIDE_TESTS + "test_s2_the_coin_is_compared_with_the_probability_that_is_recorded",),
    ),
    Mutant(
        rule="S2",
        title="the coin has no salt",
        path=COIN,
        old="key=hashlib.blake2b(salt, digest_size=32).digest(), ",
        new="",
        tests=(COIN_TESTS + "test_the_coins_of_two_purposes_and_two_salts_are_independent",),
    ),
    Mutant(
        rule="S2",
        title="selection and hold-out share a coin",
        path=COIN,
        old=", person=purpose.encode()",
        new="",
        tests=(COIN_TESTS + "test_the_coins_of_two_purposes_and_two_salts_are_independent",),
    ),
    Mutant(
        rule="S3",
        title="the decision is sent without waiting for the jobs",
        path=SAMPLE,
        old="await _all(self._send_job(job) for job in jobs)",
        new="asyncio.ensure_future(_all(self._send_job(job) for job in jobs))",
        tests=(SAMPLE_STEPS + "test_s3_a_kill_at_any_step_loses_nothing_and_orphans_count_nowhere",),
    ),
    Mutant(
        rule="S3",
        title="the session is acknowledged before the broker has what came of it",
        path=SAMPLE,
        old="""            await task
            await self._stream.ack(event)
""",
        new="""            await self._stream.ack(event)
""",
        tests=(SAMPLE_STEPS + "test_s3_a_kill_at_any_step_loses_nothing_and_orphans_count_nowhere",),
    ),
    Mutant(
        rule="S3",
        title="a send is done when it is buffered",
        path="consumers/faust_app.py",
        old="""        await acknowledged
""",
        new="",
        tests=(SAMPLE_STEPS + "test_s3_a_kill_at_any_step_loses_nothing_and_orphans_count_nowhere",),
    ),
    Mutant(
        rule="S3",
        title="a send that failed is passed over",
        path=SAMPLE,
        old="""            self._fail(error)
            raise
""",
        new="""            self._fail(error)
""",
        tests=(SAMPLE_STEPS + "test_s3_nothing_is_committed_past_a_send_that_failed",),
    ),
    Mutant(
        rule="S3",
        title="the process goes on after a send that failed",
        path=SAMPLE,
        old="""            self._fail(error)
            raise
""",
        new="""            raise
""",
        tests=(SAMPLE_STEPS + "test_s3_nothing_is_committed_past_a_send_that_failed",),
    ),
    Mutant(
        rule="S3",
        title="one of several jobs may fail",
        path=SAMPLE,
        old="""        raise error
""",
        new="""        return
""",
        tests=(SAMPLE_STEPS + "test_s3_nothing_is_committed_past_a_send_that_failed",),
    ),
    Mutant(
        rule="S3",
        title="a body that raises yields no decision",
        path=DECIDE,
        old="""        return _failed(record, head, policy, error), []
""",
        new="""        raise
""",
        tests=(DECIDE_TESTS + "test_a_body_that_raises_still_yields_a_decision",),
    ),
    Mutant(
        rule="S3",
        title="every transcript goes with its decision",
        path=DECIDE,
        old="content=record.content if selected or holdout else None",
        new="content=record.content",
        tests=(DECIDE_TESTS + "test_the_coin_alone_selects_and_the_transcript_goes_only_with_those_it_picks",),
    ),
    Mutant(
        rule="S3",
        title="an undecodable record is acknowledged without its dead letter",
        path=SAMPLE,
        old="""        await deliver(self._dead_letters, key, value, headers)
""",
        new="",
        tests=(SAMPLE_STEPS + "test_s3_what_is_no_session_is_acknowledged_after_its_letter",),
    ),
    Mutant(
        rule="S4",
        title="the job id changes with the content",
        path=DECIDE,
        old="job_id(session.tenant, session.session_id, session.segment, rubric)",
        new="job_id(session.tenant, session.session_id, session.content_hash, rubric)",
        tests=(DECIDE_TESTS + "test_a_selected_session_has_a_job_for_each_rubric_and_lists_it",),
    ),
    Mutant(
        rule="S4",
        title="the jobs of two rubrics have one id",
        path="monitor/decision.py",
        old="return _digest(tenant, session_id, segment, rubric, run)",
        new="return _digest(tenant, session_id, segment, run)",
        tests=(SAMPLE_STEPS + "test_s3_a_kill_at_any_step_loses_nothing_and_orphans_count_nowhere",),
    ),
    Mutant(
        rule="R3",
        title="sessions are decided before their policy is published",
        path=SAMPLE,
        old="""            await self._published.wait()
""",
        new="",
        tests=(SAMPLE_STEPS + "test_r3_the_policy_is_published_before_its_first_decision",),
    ),
    Mutant(
        rule="R3",
        title="a new policy decides before it is published",
        path=SAMPLE,
        old="""            await self._publish(reload.policy)
            self._policy = reload.policy
""",
        new="""            self._policy = reload.policy
            await self._publish(reload.policy)
""",
        tests=(SAMPLE_STEPS + "test_r3_the_policy_is_published_before_its_first_decision",),
    ),
    Mutant(
        rule="J5",
        title="a job that is too large ends the sampler",
        path=SAMPLE,
        old="""            decision = oversized(decision)
""",
        new="""            raise
""",
        tests=(SAMPLE_STEPS + "test_j5_a_record_that_is_too_large_is_sent_once",),
    ),
    Mutant(
        rule="J5",
        title="a decision that is too large is sent again as it was",
        path=SAMPLE,
        old="""            decision = without_content(decision)
""",
        new="",
        tests=(SAMPLE_STEPS + "test_j5_a_record_that_is_too_large_is_sent_once",),
    ),
)
