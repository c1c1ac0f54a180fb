"""Whatever a model does, in whatever order: a job ends, in time, with every call on record (J3, J1)."""

import asyncio
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import JudgeFatal, JudgeUnavailable
from monitor.judgement import Judgement, Usage, Verdict
from monitor.judging.accounting import Call
from monitor.judging.breaker import Breaker, BreakerPolicy
from monitor.judging.drive import Driver, JobRun, Postponed
from monitor.judging.model import Completion, JudgeRequest
from monitor.judging.retry import RetryPolicy
from tests.unit.judging.politeness import POLITE, Politeness, job, prompt, session

POLICY = RetryPolicy(deadline_s=60.0, attempt_timeout_s=20.0, retry_after_cap_s=10.0, max_failures=6)


class Act(msgspec.Struct, frozen=True):
    """What the model does next: how long it takes, and what comes of it."""

    seconds: float
    outcome: str
    retry_after: float | None = None


ACTS = st.builds(
    Act,
    seconds=st.floats(0, 40),
    outcome=st.sampled_from(
        ["valid", "invalid", "cut", "refused", "overloaded", "rate_limit", "too_large", "key"]
    ),
    retry_after=st.none() | st.floats(0, 100),
)


class Acting:
    """A model in virtual time that plays a list of acts, and answers well once they are over."""

    name = "acting:1"
    provider = "acting"
    model = "1"

    def __init__(self, acts: Sequence[Act]) -> None:
        self.now = 0.0
        self._acts = list(reversed(acts))

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109 - the seam's
        assert 0 < timeout <= POLICY.attempt_timeout_s
        act = self._acts.pop() if self._acts else Act(0.1, "valid")
        self.now += min(act.seconds, timeout)
        if act.seconds >= timeout:
            raise JudgeUnavailable("timeout", "too slow")
        if act.outcome in {"overloaded", "rate_limit"}:
            raise JudgeUnavailable(act.outcome, "no", retry_after=act.retry_after)
        if act.outcome in {"too_large", "key"}:
            raise JudgeFatal("too_large" if act.outcome == "too_large" else "authentication", "no")
        return _completion(act.outcome)

    async def aclose(self) -> None:
        pass


def _completion(outcome: str) -> Completion:
    usage = Usage(output_tokens=1)
    if outcome == "cut":
        return Completion(text="{", stop="max_tokens", usage=usage)
    if outcome == "refused":
        return Completion(text="", stop="refusal", usage=usage)
    return Completion(text=POLITE if outcome == "valid" else "well", usage=usage)


@given(acts=st.lists(ACTS, max_size=20), windows=st.integers(0, 4))
def test_a_job_ends_in_time_with_every_call_on_record(acts: list[Act], windows: int) -> None:
    model, calls = Acting(acts), list[Call]()
    breaker = Breaker(BreakerPolicy(threshold=3, cool_down_s=5.0, max_cool_down_s=50.0))
    driver = Driver(
        model,
        POLICY,
        breaker=breaker,
        on_call=calls.append,
        clock=model.clock,
        sleep=model.sleep,
        chance=lambda: 0.5,
    )
    of = session(*["Gladly."] * windows)
    run = JobRun(job(of), of, Politeness(), prompt())
    judged, raised, active = asyncio.run(_drive(driver, model, run, rounds=len(acts) + 1))

    attempts = judged.attempts
    made = [attempt for attempt in attempts if attempt.error != "no time left for another call"]
    assert len(made) == len(calls) - raised
    assert run.failures == [attempt.kind for attempt in made].count("failed") <= POLICY.max_failures
    # A call never runs past the deadline, and no wait is begun that would.
    assert active <= POLICY.deadline_s + 1e-3
    for window in {attempt.window for attempt in attempts}:
        numbers = [attempt.number for attempt in attempts if attempt.window == window]
        assert numbers == list(range(1, len(numbers) + 1))
    if isinstance(judged.result, Verdict):
        assert judged.result.data["polite"] == [True] * windows


def test_j3_time_while_put_off_is_no_part_of_the_deadline() -> None:
    """Three times the provider wants more patience than the whole deadline."""
    model = Acting([Act(1.0, "overloaded", retry_after=100.0)] * 3)
    driver = Driver(model, POLICY, clock=model.clock, sleep=model.sleep)
    of = session("Gladly.")
    run = JobRun(job(of), of, Politeness(), prompt())
    judged, _, active = asyncio.run(_drive(driver, model, run, rounds=4))
    assert isinstance(judged.result, Verdict)
    assert active < 10
    assert model.now > 3 * POLICY.deadline_s


async def _drive(driver: Driver, model: Acting, run: JobRun, rounds: int) -> tuple[Judgement, int, float]:
    """Drive as a worker does: wait when put off, and go on after someone mended what was fatal."""
    raised, active = 0, 0.0
    for _ in range(2 * rounds):
        began = model.now
        try:
            outcome = await driver.drive(run)
        except JudgeFatal:
            raised += 1
            active += model.now - began
            model.now += driver.paused_for()
            continue
        active += model.now - began
        if isinstance(outcome, Judgement):
            return outcome, raised, active
        assert isinstance(outcome, Postponed)
        assert outcome.retry_in > 0
        # A hair more, since (now + wait) - now need not be wait.
        model.now += outcome.retry_in + 1e-6
    raise AssertionError("the job never ends")
