"""The real rubric and its released prompt over the wire: what they send is what the Messages API takes."""

import msgspec
import pytest

from monitor.decision import Job
from monitor.events import Correction, Event, Role, SessionEnd, Turn, encode
from monitor.judgement import Judgement, Verdict
from monitor.judging import prompt as prompts
from monitor.judging.anthropic import AnthropicJudge
from monitor.judging.drive import Driver, JobRun
from monitor.judging.extract import prompt_of
from monitor.judging.lexical import LexicalJudge
from monitor.judging.lexical.correction import answer
from monitor.judging.model import JudgeModel
from monitor.judging.prices import price_of
from monitor.rubrics import RUBRICS, configured
from monitor.session import Session, SessionContent, session_view
from monitor.settings import CorrectionSettings, RubricSettings
from monitor.signals import correction_turns
from tests.services import messages_api as api
from tests.unit.judging.politeness import job

pytestmark = pytest.mark.asyncio(loop_scope="module")

TALK: tuple[tuple[Role, str], ...] = (
    ("user", "Please book a table for four people on Friday."),
    ("assistant", "I have booked a table for four people on Thursday."),
    ("user", "No, I said Friday, not Thursday."),
    ("assistant", "Sorry, you are right: the table is booked for Friday now."),
    ("user", "Thanks. Can you send me a summary?"),
    ("assistant", "Your table for four people is booked for Thursday."),
)


def corrected(guests: str = "four people") -> Session:
    return said(
        tuple((role, text.replace("four people", guests)) for role, text in TALK),
        Correction(event_id="c", session_id="s1", ts=2, turn_id="t2"),
    )


def said(talk: tuple[tuple[Role, str], ...], *more: Event) -> Session:
    events: list[Event] = [
        Turn(
            event_id=f"e{n}",
            session_id="s1",
            ts=n,
            turn_id=f"t{n}",
            turn_index=n,
            role=role,
            text=text,
        )
        for n, (role, text) in enumerate(talk)
    ]
    events += more
    events.append(SessionEnd(event_id="end", session_id="s1", ts=9))
    content = SessionContent(
        tenant="default",
        session_id="s1",
        segment="e0",
        previous_segment=None,
        close_reason="ended",
        events=[msgspec.Raw(encode(event)) for event in events],
    )
    return session_view(msgspec.json.encode(content))


def run_of(of: Session) -> JobRun:
    asked: Job = msgspec.structs.replace(job(of), rubric="correction")
    return JobRun(asked, of, RUBRICS["correction"], prompts.load("correction"))


async def judged(judge: JudgeModel, of: Session) -> Judgement:
    outcome = await Driver(judge).drive(run_of(of))
    assert isinstance(outcome, Judgement)
    return outcome


async def test_two_judges_that_answer_alike_give_the_same_result(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    of = corrected()
    request = run_of(of).request
    assert request is not None
    server.script(api.message(msgspec.json.encode(answer(request.window)).decode()))
    over_the_wire, offline = await judged(judge, of), await judged(LexicalJudge(), of)
    assert isinstance(offline.result, Verdict)
    assert over_the_wire.result == offline.result
    assert over_the_wire.outcomes == offline.outcomes
    assert over_the_wire.outcomes.measures["reverted"].trials == 1
    assert over_the_wire.prompt_hash == offline.prompt_hash
    assert (over_the_wire.judge, offline.judge) == ("anthropic:claude-haiku-5-5", "lexical")


async def test_the_prefix_is_shared_by_sessions_and_long_enough_to_be_cached(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    server.script(api.refusal(), api.refusal())
    await judged(judge, corrected())
    await judged(judge, corrected("eleven botanists"))
    first, second = (request.body["system"][0]["text"] for request in server.requests)
    assert first == second
    # The shortest prefix that any model caches is 512 tokens, at three to four characters each.
    assert len(first) > 4 * 512
    assert "botanists" not in first
    assert "botanists" in server.requests[1].body["messages"][0]["content"]


HINTED: tuple[tuple[Role, str], ...] = (
    ("user", "Put me on the morning ferry, please."),
    ("assistant", "You have a seat on the ferry after sunset."),
    ("user", "I get seasick in the dark, as I told the man at the desk."),
    ("assistant", "Understood: the morning ferry it is."),
)


async def test_a_correction_that_only_a_model_finds_is_judged_over_the_wire(
    server: api.MessagesApi, judge: AnthropicJudge
) -> None:
    """Both questions are the Messages API's to take, each with a system text of its own; both are paid for."""
    of = said(HINTED)
    assert correction_turns(of) == ()
    rubric = configured(RubricSettings(correction=CorrectionSettings(extractor="model")))["correction"]
    found = {
        "turn_index": 2,
        "quote": "I get seasick in the dark",
        "error_turn_index": 1,
        "corrected_claim": "after sunset",
        "correction_content": "the morning ferry",
    }
    extracted = {"corrections": [found], "rationale": "Turn 2 puts the time right."}
    verdict = {
        "is_correction": True,
        "targets_turn": 1,
        "correction_id": "C1",
        "correction_turn_index": 2,
        "corrected_claim": "after sunset",
        "correction_content": "the morning ferry",
        "correction_type": "factual_correction",
        "acknowledgment_quote": "Understood",
        "incorporation_check_turns": [3],
        "incorporation_evidence": [{"turn_index": 3, "quote": "the morning ferry it is"}],
        "first_right_use_turn_index": 3,
        "reversion_turn_index": -1,
        "over_correction_detail": "",
        "over_correction_turn_index": -1,
        "acknowledgment": 5,
        "incorporation_accuracy": 5,
        "persistence": 5,
        "no_over_correction": 5,
        "failure_mode": "none",
        "rationale": "The morning ferry was taken.",
    }
    server.script(*(api.message(msgspec.json.encode(answer).decode()) for answer in (extracted, verdict)))
    prompt = prompt_of(prompts.Prompts({}), rubric, None)
    run = JobRun(msgspec.structs.replace(job(of), rubric="correction"), of, rubric, prompt)
    outcome = await Driver(judge, price=price_of(judge.name, {})).drive(run)
    assert isinstance(outcome, Judgement)
    assert isinstance(outcome.result, Verdict)
    assert outcome.outcomes.measures["ignored"].trials == 1
    assert outcome.result.data["events"][0]["corrected_claim"] == "after sunset"
    systems = [request.body["system"][0]["text"] for request in server.requests]
    assert systems == [prompts.load("extract_correction").system, prompts.load("correction").system]
    assert "as I told the man at the desk" in server.requests[0].body["messages"][0]["content"]
    assert [attempt.window for attempt in outcome.attempts] == ["extract", "C1"]
    assert outcome.cost_nusd == sum(attempt.cost_nusd for attempt in outcome.attempts)
    assert all(attempt.cost_nusd for attempt in outcome.attempts)
