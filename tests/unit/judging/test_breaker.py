import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from monitor.judging.breaker import Breaker, BreakerPolicy, Refused, Ticket

POLICY = BreakerPolicy(threshold=3, cool_down_s=5.0, max_cool_down_s=20.0)


def admit(breaker: Breaker, now: float, job: str = "a") -> Ticket:
    ticket = breaker.admit(now, job)
    assert isinstance(ticket, Ticket)
    return ticket


def fail(breaker: Breaker, now: float, *jobs: str) -> None:
    for job in jobs:
        breaker.failed(now, admit(breaker, now, job))


@pytest.fixture
def breaker() -> Breaker:
    return Breaker(POLICY)


def test_it_opens_after_the_threshold_and_refuses_for_the_cool_down(breaker: Breaker) -> None:
    fail(breaker, 0, "a", "b")
    assert breaker.state(0) == "closed"
    fail(breaker, 0, "c")
    assert breaker.state(0) == "open"
    assert breaker.wait(1) == 4
    assert breaker.admit(1, "a") == Refused(retry_in=4)


def test_one_job_that_always_fails_does_not_open_it(breaker: Breaker) -> None:
    fail(breaker, 0, *"aaaaaaaaaa")
    assert breaker.state(0) == "closed"
    fail(breaker, 0, "b")
    assert breaker.state(0) == "open"


def test_calls_turned_away_open_it_only_as_half_of_those_that_are_out(breaker: Breaker) -> None:
    out = [admit(breaker, 0, str(number)) for number in range(20)]
    for ticket in out[:9]:
        breaker.failed(0, ticket, limited=True)
    assert breaker.state(0) == "closed", "11 calls are out that may be answered"
    breaker.failed(0, out[9], limited=True)
    assert breaker.state(0) == "open"


def test_calls_turned_away_are_counted_with_what_is_out_and_not_with_what_was_settled(breaker: Breaker) -> None:
    for number in range(20):
        breaker.succeeded(admit(breaker, 0, str(number)))
    for job in "ab":
        breaker.failed(0, admit(breaker, 0, job), limited=True)
    assert breaker.state(0) == "closed"
    breaker.failed(0, admit(breaker, 0, "c"), limited=True)
    assert breaker.state(0) == "open"


def test_an_answer_in_between_starts_the_count_anew(breaker: Breaker) -> None:
    fail(breaker, 0, "a", "b")
    breaker.succeeded(admit(breaker, 0))
    fail(breaker, 0, "a", "b")
    assert breaker.state(0) == "closed"


def test_half_open_lets_one_probe_pass(breaker: Breaker) -> None:
    fail(breaker, 0, "a", "b", "c")
    assert breaker.state(5) == "half_open"
    assert breaker.wait(5) == 0
    assert admit(breaker, 5).probe
    assert breaker.admit(5, "b") == Refused(retry_in=5)


def test_a_probe_that_is_answered_closes_it(breaker: Breaker) -> None:
    fail(breaker, 0, "a", "b", "c")
    breaker.succeeded(admit(breaker, 5))
    assert breaker.state(5) == "closed"
    fail(breaker, 6, "a", "b", "c")
    assert breaker.wait(6) == 5, "and the cool-down is short again"


def test_probes_that_fail_double_the_cool_down_up_to_the_maximum(breaker: Breaker) -> None:
    fail(breaker, 0, "a", "b", "c")
    now, waits = 0.0, []
    for _ in range(4):
        now += breaker.wait(now)
        fail(breaker, now, "a")
        waits.append(breaker.wait(now))
    assert waits == [10, 20, 20, 20]


def test_a_probe_given_up_makes_room_for_another(breaker: Breaker) -> None:
    fail(breaker, 0, "a", "b", "c")
    breaker.abandon(admit(breaker, 5))
    assert admit(breaker, 5, "b").probe


def test_calls_from_before_the_opening_do_not_lengthen_it(breaker: Breaker) -> None:
    early = [admit(breaker, 0, job) for job in "abcdefgh"]
    for ticket in early:
        breaker.failed(1, ticket)
    assert breaker.wait(1) == 5
    probe = admit(breaker, 6)
    breaker.failed(6, early[0])
    assert isinstance(breaker.admit(6, "z"), Refused), "an old failure must not free the probe's place"
    breaker.succeeded(probe)


def test_an_old_call_that_is_answered_after_all_closes_it(breaker: Breaker) -> None:
    late = admit(breaker, 0)
    fail(breaker, 0, "a", "b", "c")
    breaker.succeeded(late)
    assert breaker.state(0) == "closed"


def test_a_probe_that_fails_after_an_old_answer_closed_it_counts_for_nothing(breaker: Breaker) -> None:
    late = admit(breaker, 0)
    fail(breaker, 0, "a", "b", "c")
    probe = admit(breaker, 5)
    breaker.succeeded(late)
    breaker.failed(5, probe)
    assert breaker.state(5) == "closed"


def test_a_trip_opens_at_once_for_the_wish_up_to_the_maximum(breaker: Breaker) -> None:
    breaker.trip(0, admit(breaker, 0), 12)
    assert breaker.wait(0) == 12
    breaker.trip(12, admit(breaker, 12), 3_600)
    assert breaker.wait(12) == 20


def test_a_rejected_request_is_the_jobs_fault_once_the_model_has_answered_others(breaker: Breaker) -> None:
    assert not breaker.rejected(admit(breaker, 0, "a")), "nothing is known of the model yet"
    breaker.succeeded(admit(breaker, 0, "b"))
    assert breaker.rejected(admit(breaker, 0, "a"))
    assert breaker.rejected(admit(breaker, 0, "a")), "the same job again says nothing new"
    assert breaker.rejected(admit(breaker, 0, "c"))
    assert not breaker.rejected(admit(breaker, 0, "d")), "three jobs in a row: it is the set-up"
    breaker.succeeded(admit(breaker, 0, "e"))
    assert breaker.rejected(admit(breaker, 0, "f"))


class BreakerMachine(RuleBasedStateMachine):
    """Any order of calls and answers."""

    @initialize(threshold=st.integers(1, 4))
    def start(self, threshold: int) -> None:
        self.breaker = Breaker(BreakerPolicy(threshold=threshold, cool_down_s=1.0, max_cool_down_s=8.0))
        self.now = 0.0
        self.out: list[Ticket] = []

    @rule(job=st.sampled_from("abc"))
    def call(self, job: str) -> None:
        state = self.breaker.state(self.now)
        leave = self.breaker.admit(self.now, job)
        if isinstance(leave, Refused):
            assert leave.retry_in > 0
            assert state != "closed"
        else:
            assert state != "open"
            self.out.append(leave)

    @rule(quarters=st.integers(0, 40))
    def wait(self, quarters: int) -> None:
        self.now += quarters / 4  # exact in binary, so that the invariants needn't allow for rounding

    @precondition(lambda self: self.out)
    @rule(data=st.data(), how=st.sampled_from(["succeeded", "failed", "trip", "abandon", "rejected"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        ticket = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        if how in {"failed", "trip"}:
            getattr(self.breaker, how)(self.now, ticket)
        else:
            getattr(self.breaker, how)(ticket)
        if how == "succeeded":
            assert self.breaker.state(self.now) == "closed"

    @invariant()
    def waits_are_bounded(self) -> None:
        if hasattr(self, "breaker"):
            assert 0 <= self.breaker.wait(self.now) <= 8

    @invariant()
    def nobody_waits_forever(self) -> None:
        """With no call out, a call passes as soon as the cool-down is over."""
        if hasattr(self, "breaker") and not self.out:
            later = self.now + self.breaker.wait(self.now)
            ticket = self.breaker.admit(later, "z")
            assert isinstance(ticket, Ticket)
            self.breaker.abandon(ticket)

    @invariant()
    def one_probe_at_a_time(self) -> None:
        if hasattr(self, "breaker") and self.breaker.state(self.now) == "half_open":
            epoch = max((ticket.epoch for ticket in self.out if ticket.probe), default=None)
            assert sum(ticket.probe and ticket.epoch == epoch for ticket in self.out) <= 1


TestBreaker = BreakerMachine.TestCase
TestBreaker.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(count=st.integers(2, 2_000))
def test_the_cool_down_never_overflows(count: int) -> None:
    breaker, now = Breaker(POLICY), 0.0
    breaker.trip(now, admit(breaker, now))
    for _ in range(count):
        now += breaker.wait(now)
        breaker.failed(now, admit(breaker, now))
    assert breaker.wait(now) == pytest.approx(20)
