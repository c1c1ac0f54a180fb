"""A small real rubric for tests of the driver: is each assistant turn polite? One window a turn."""

from collections.abc import Sequence
from typing import Any

import msgspec

from monitor.decision import Job
from monitor.errors import InvalidVerdict
from monitor.events import Event, SessionEnd, Turn, encode
from monitor.judgement import Outcomes, Result, Skipped, Tally, Unscored, Verdict
from monitor.judging.prompt import Prompt, parse
from monitor.rubrics.base import Window, WindowResult
from monitor.session import Session, SessionContent, content_hash, session_view

POLITE = '{"quote": "Gladly", "polite": true}'
RUDE = '{"quote": "No", "polite": false}'

PROMPT_FILE = """
system = "Say whether the reply is polite. {{examples}} {{constraints}}"
user = "{{fence}} {{text}} {{fence}}"
repair = "Again, please: {{error}}"
"""


class Reply(msgspec.Struct, kw_only=True, frozen=True):
    """The window: one reply of the assistant."""

    window_id: str
    text: str


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    quote: str
    polite: bool


class Politeness:
    """The rubric. A blank reply is not sent to the judge; a session without replies doesn't concern it."""

    name = "politeness"
    version = "1"
    mode = "turn"
    sequential = False
    measures: tuple[str, ...] = ("rude",)
    scores: tuple[str, ...] = ()

    def applies(self, session: Session) -> Skipped | None:
        return None if self.windows(session) else Skipped(reason="not_applicable")

    def windows(self, session: Session) -> Sequence[Window]:
        return [
            Reply(window_id=f"T{turn.index}", text=turn.text) for turn in session.turns if turn.role == "assistant"
        ]

    def carry(self, window: Any, earlier: Sequence[WindowResult]) -> Window:
        reply: Reply = window
        return reply

    def preflight(self, window: Any) -> Skipped | None:
        return None if window.text.strip() else Skipped(reason="no_response")

    def fields(self, window: Any) -> dict[str, Any]:
        return {"text": window.text}

    def schema(self, window: Any) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"quote": {"type": "string"}, "polite": {"type": "boolean"}},
            "required": ["quote", "polite"],
            "additionalProperties": False,
        }

    def parse(self, raw: str, window: Any) -> Verdict | Skipped:
        try:
            answer = msgspec.json.decode(raw, type=_Answer)
        except msgspec.DecodeError as error:
            raise InvalidVerdict(f"the answer breaks the schema: {error}") from None
        return Verdict(data={"polite": answer.polite})

    def merge(self, session: Session, results: Sequence[WindowResult]) -> Verdict | Skipped | Unscored:
        for item in results:
            if isinstance(item.result, Unscored):
                return item.result
        marks = [item.result.data["polite"] for item in results if isinstance(item.result, Verdict)]
        return Verdict(data={"polite": marks})

    def outcomes(self, result: Result) -> Outcomes:
        if not isinstance(result, Verdict):
            return Outcomes()
        marks = result.data["polite"]
        return Outcomes(measures={"rude": Tally(trials=len(marks), failures=marks.count(False))})


def prompt() -> Prompt:
    """Make the rubric's prompt."""
    return parse(PROMPT_FILE, rubric="politeness", version="v1")


def session(*replies: str, session_id: str = "s1") -> Session:
    """Make a session in which the user says hello before each reply."""
    turns: list[Event] = [
        Turn(event_id=f"e{n}", session_id=session_id, ts=n, turn_id=f"t{n}", role=role, text=text)
        for n, (role, text) in enumerate(pair for reply in replies for pair in _exchange(reply))
    ]
    end = SessionEnd(event_id="end", session_id=session_id, ts=len(turns))
    events = [*turns, end]
    content = SessionContent(
        tenant="default",
        session_id=session_id,
        segment="e0",
        previous_segment=None,
        close_reason="ended",
        events=[msgspec.Raw(encode(event)) for event in events],
    )
    return session_view(msgspec.json.encode(content))


def job(of: Session, job_id: str = "job-1") -> Job:
    """Make the job for a session."""
    content = msgspec.Raw(b"{}")
    return Job(
        job_id=job_id,
        tenant=of.tenant,
        session_id=of.session_id,
        segment=of.segment,
        rubric="politeness",
        stratum="base",
        priority="routine",
        content_hash=content_hash(content),
        content=content,
    )


def _exchange(reply: str) -> list[Any]:
    return [("user", "Hello"), ("assistant", reply)]
