"""Judging without a broker: waiting for a provider, giving up, prompts per assistant, what calls cost."""

import msgspec
import pytest
from structlog.testing import capture_logs

from monitor.config import JudgeSettings
from monitor.decision import Job, job_id
from monitor.errors import JudgeError, JudgeUnavailable
from monitor.judgement import Judgement, Usage, Verdict
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion, JudgeRequest
from monitor.offline_judge import OfflineJudge
from monitor.rubrics import RUBRICS
from monitor.session import SessionContent, content_hash

SAID = (
    ("user", "Book a table for Friday at 7 pm, please."),
    ("assistant", "Booked for Friday at 7 pm."),
    ("user", "No, I said 8 pm, not 7 pm."),
    ("assistant", "Sorry, I changed it to 8 pm."),
)


def _job(assistant: str = "concierge", model: str | None = None) -> Job:
    events = [
        {
            "type": "turn",
            "event_id": f"e{index}",
            "session_id": "s",
            "ts": index,
            "turn_id": f"t{index}",
            "role": role,
            "text": text,
            "assistant": assistant,
            "model": model,
        }
        for index, (role, text) in enumerate(SAID)
    ]
    content = msgspec.json.encode(
        SessionContent(
            tenant="t",
            session_id="s",
            segment="e0",
            previous_segment=None,
            close_reason="ended",
            events=[msgspec.Raw(msgspec.json.encode(event)) for event in events],
        )
    )
    return Job(
        job_id=job_id("t", "s", "e0", "correction"),
        tenant="t",
        session_id="s",
        segment="e0",
        rubric="correction",
        stratum="base",
        priority="routine",
        content_hash=content_hash(content),
        content=msgspec.Raw(content),
    )


class Flaky(LexicalJudge):
    """Fails as often as there are errors, then answers; remembers what it was asked."""

    def __init__(self, *errors: JudgeError) -> None:
        super().__init__()
        self.errors = list(errors)
        self.requests: list[JudgeRequest] = []

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        self.requests.append(request)
        if self.errors:
            raise self.errors.pop(0)
        answer = await super().complete(request, timeout=timeout)
        return msgspec.structs.replace(answer, usage=Usage(input_tokens=10, output_tokens=2))


class Naps:
    """Sleeps in no time, and remembers for how long."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_a_judgement_is_dated_as_told() -> None:
    judge = OfflineJudge(LexicalJudge(), RUBRICS, JudgeSettings())
    judgement = await judge.judge(_job(), 1_790_000_000_123)
    assert isinstance(judgement.result, Verdict)
    assert (judgement.started_at, judgement.finished_at) == (1_790_000_000_123, 1_790_000_000_123)


async def test_failed_calls_are_repeated_and_counted() -> None:
    naps = Naps()
    model = Flaky(JudgeUnavailable("overloaded", "busy"), JudgeUnavailable("rate_limit", "slow down"))
    judge = OfflineJudge(model, RUBRICS, JudgeSettings(), sleep=naps)
    judgement = await judge.judge(_job(), 1_000)
    assert isinstance(judgement.result, Verdict)
    assert [attempt.kind for attempt in judgement.attempts] == ["failed", "failed", "valid"]
    assert judge.calls.by_error_type == {"overloaded": 1, "rate_limit": 1, "none": 1}
    assert judge.calls.tokens == {"input": 10, "output": 2}
    assert len(naps.slept) == 2


async def test_a_provider_that_stays_away_ends_the_replay() -> None:
    naps = Naps()
    model = Flaky(*(JudgeUnavailable("rate_limit", "come back later", retry_after=400) for _ in range(9)))
    judge = OfflineJudge(model, RUBRICS, JudgeSettings(), sleep=naps, patience_s=1_000)
    with pytest.raises(JudgeUnavailable, match="lexical has been unavailable for") as error:
        await judge.judge(_job(), 1_000)
    assert error.value.error_type == "rate_limit"
    assert 600 <= sum(naps.slept) <= 1_000


async def test_each_assistant_has_its_own_constraints() -> None:
    model = Flaky()
    settings = JudgeSettings(constraints={"*": "Be kind.", "concierge": "Never book without a name."})
    judge = OfflineJudge(model, RUBRICS, settings)
    answers: list[Judgement] = [await judge.judge(_job(name), 1_000) for name in ("concierge", "helpdesk")]
    assert ["Never book" in request.system for request in model.requests] == [True, False]
    assert all("Be kind." in request.system for request in model.requests)
    assert answers[0].prompt_hash != answers[1].prompt_hash


async def test_a_judge_of_the_assistants_own_family_is_said_once() -> None:
    model = LexicalJudge()
    model.model = "claude-haiku-5-5"
    judge = OfflineJudge(model, RUBRICS, JudgeSettings())
    with capture_logs() as logs:
        for assistant in ("claude-opus-5-5", "gpt-6", "claude-sonnet-5-5", None):
            await judge.judge(_job(model=assistant), 0)
    assert [(line["event"], line["assistant_model"]) for line in logs] == [
        ("judge_of_the_same_family", "claude-opus-5-5")
    ]
