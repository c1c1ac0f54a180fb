"""Jobs for benchmarks of the judge, each with the answer that is right for it."""

from __future__ import annotations

import msgspec

from monitor.decision import Job, job_id
from monitor.events import Correction, Role, SessionEvent, Turn, encode
from monitor.judging.drive import JobRun
from monitor.judging.lexical import LexicalJudge
from monitor.judging.prompt import Prompt
from monitor.rubrics.base import Rubric
from monitor.session import Session, SessionContent, content_hash, session_view

RUBRIC = "correction"


def jobs(count: int) -> list[Job]:
    """Make jobs of one window each: a booking for the wrong number of people, corrected, and taken."""
    return [_job(f"guest{number:05}") for number in range(count)]


async def answer(job: Job, rubric: Rubric, prompt: Prompt) -> tuple[str, str]:
    """Give the text that a judge is asked with for a job, and an answer that passes every check."""
    session: Session = session_view(job.content)
    request = JobRun(job, session, rubric, prompt).request
    if request is None:
        raise ValueError("a job without a question")
    completion = await LexicalJudge().complete(request, timeout=60.0)
    return request.messages[-1].text, completion.text


def _job(name: str) -> Job:
    said: list[tuple[Role, str]] = [
        ("user", f"A table for {name}, please."),
        ("assistant", "A table for 4 it is."),
        ("user", f"No, not 4. I said 5 people, and the name is {name}."),
        ("assistant", f"Sorry, 5 people, under the name of {name}."),
    ]
    events: list[SessionEvent] = [
        Turn(event_id=f"{name}-{at}", session_id=name, ts=float(at), turn_id=f"t{at}", role=role, text=text)
        for at, (role, text) in enumerate(said)
    ]
    events.append(
        Correction(
            event_id=f"{name}-c",
            session_id=name,
            ts=9.0,
            turn_id="t2",
            corrected_claim="4 people",
            correction_content="5 people",
        )
    )
    content = SessionContent(
        tenant="default",
        session_id=name,
        segment=f"{name}-0",
        previous_segment=None,
        close_reason="ended",
        events=[msgspec.Raw(encode(event)) for event in events],
    )
    raw = msgspec.Raw(msgspec.json.encode(content))
    return Job(
        job_id=job_id("default", name, f"{name}-0", RUBRIC),
        tenant="default",
        session_id=name,
        segment=f"{name}-0",
        rubric=RUBRIC,
        stratum="base",
        priority="routine",
        content_hash=content_hash(raw),
        content=raw,
    )
