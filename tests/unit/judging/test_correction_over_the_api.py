"""The real rubric and its released prompt over the wire: what they send is what the Messages API takes."""

import msgspec
import pytest

from monitor.decision import Job
from monitor.events import Correction, Event, Role, SessionEnd, Turn, encode
from monitor.judgement import Judgement, Verdict
from monitor.judging import prompt as prompts
from monitor.judging.anthropic import AnthropicJudge
from monitor.judging.drive import Driver, JobRun
from monitor.judging.lexical import LexicalJudge
from monitor.judging.lexical.correction import answer
from monitor.judging.model import JudgeModel
from monitor.rubrics import RUBRICS
from monitor.session import Session, SessionContent, session_view
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
    events: list[Event] = [
        Turn(
            event_id=f"e{n}",
            session_id="s1",
            ts=n,
            turn_id=f"t{n}",
            turn_index=n,
            role=role,
            text=text.replace("four people", guests),
        )
        for n, (role, text) in enumerate(TALK)
    ]
    events.append(Correction(event_id="c", session_id="s1", ts=2, turn_id="t2"))
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
