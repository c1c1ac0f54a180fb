"""Judging by questions that are answered later, elsewhere, in any order: the flow of `flow`, another transport.

    run = DeferredRun(job, session, rubric, prompt)
    for question in run.questions: ...        # hand out all that can be asked now
    run.answer(question.id, reply)            # opens the next question of that window, if there is one
    if run.done: run.judgement(judge, ...)

A run has no state but the replies that it was given: a new run of the same job that gets the same replies asks the
same questions, under the same ids. So nothing has to be kept but questions' ids and replies, and an answer to any
other question (another prompt, session, window or attempt) has an id that no run knows.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from monitor.decision import Job
from monitor.judgement import Attempt, Judgement, Result, Unscored
from monitor.judging.extract import Opening, opening, prompt_of
from monitor.judging.flow import (
    MAX_TOKENS,
    MAX_TOKENS_CAP,
    Flow,
    Reply,
    WindowOutcome,
    judge_flow,
    judgement,
    result_of,
    results,
    windows_of,
)
from monitor.judging.model import Instrument, JudgeRequest
from monitor.judging.prompt import Prompt, Prompts
from monitor.rubrics.base import Rubric, Window
from monitor.session import Session, session_view


class Question(msgspec.Struct, kw_only=True, frozen=True):
    """One question that waits for its answer. `number` is that of the attempt in its window, from 1.

    `stratum` is that of its job. `id` has at most 64 letters, digits, `-` and `_`, as batch services want it.
    """

    id: str
    number: int
    request: JudgeRequest
    stratum: str = ""


class _Asked(msgspec.Struct, kw_only=True, eq=False):
    """A window whose flow is under way, or done."""

    flow: Flow
    attempts: list[Attempt]
    question: Question | None = None
    outcome: WindowOutcome | None = None


class DeferredRun:
    """One job on its way to a judgement, all of its windows at once.

    Where something has to be found first that is asked alone, and `session` then has what was found. Raises what
    the rubric raises on a session that it can't cut into windows.
    """

    def __init__(
        self, job: Job, session: Session, rubric: Rubric, prompt: Prompt, *, max_tokens: int = MAX_TOKENS
    ) -> None:
        self.job = job
        self.session = session
        self.rubric = rubric
        self.prompt = prompt
        self._max_tokens = max_tokens
        self._waiting: deque[Window] = deque()
        self._asked: list[_Asked] = []
        self._opening = opening(rubric, session, prompt)
        if self._opening is None:
            self._waiting.extend(windows_of(rubric, session))
        else:
            self._ask_first(self._opening)
        self._open()

    @property
    def questions(self) -> tuple[Question, ...]:
        """What is to be answered, in the order of the windows; nothing when the run is done."""
        return tuple(asked.question for asked in self._asked if asked.question is not None)

    @property
    def done(self) -> bool:
        """Whether every window has its outcome."""
        return not self._waiting and all(asked.outcome is not None for asked in self._asked)

    def answer(self, question_id: str, reply: Reply) -> Attempt:
        """Pass a reply on; gives what came of it. Raises `KeyError` when there is no such open question."""
        for asked in self._asked:
            if asked.question is not None and asked.question.id == question_id:
                self._advance(asked, reply)
                self._open()
                return asked.attempts[-1]
        raise KeyError(question_id)

    def result(self, window_id: str) -> Result | None:
        """Give what came of a window; None while it is asked about."""
        return next((item.result for item in self._outcomes() if item.window_id == window_id), None)

    def judgement(self, judge: Instrument, *, started_at: int, finished_at: int, prices: str = "") -> Judgement:
        """Merge what the windows gave; for a run that is done. Times and `prices` as in `flow.judgement`."""
        outcomes = self._outcomes()
        return judgement(
            self.job,
            self.rubric,
            self.prompt,
            judge,
            result_of(self.rubric, self.session, outcomes),
            outcomes,
            started_at=started_at,
            finished_at=finished_at,
            prices=prices,
        )

    def _ask_first(self, first: Opening) -> None:
        attempts: list[Attempt] = []
        cap = max(MAX_TOKENS_CAP, self._max_tokens)
        flow = first.flow(max_tokens=self._max_tokens, max_tokens_cap=cap, attempts=attempts)
        if flow is None:
            self._found(first, None)
            return
        self._asked.append(asked := _Asked(flow=flow, attempts=attempts))
        self._advance(asked, None)

    def _found(self, first: Opening, outcome: WindowOutcome | None) -> None:
        self._opening, found = None, first.session(outcome)
        if found is not None:
            self.session = found
            self._waiting.extend(windows_of(self.rubric, found))

    def _open(self) -> None:
        """Ask about all windows at once; in a sequential rubric about the next one, when there is its answer."""
        while self._waiting and not (self.rubric.sequential and self.questions):
            outcomes = self._outcomes() if self.rubric.sequential else []
            if any(isinstance(item.result, Unscored) for item in outcomes):
                self._waiting.clear()  # the session is unscored, whatever the others say
                return
            attempts: list[Attempt] = []
            flow = judge_flow(
                self.rubric,
                self.rubric.carry(self._waiting.popleft(), results(outcomes)),
                self.prompt,
                max_tokens=self._max_tokens,
                max_tokens_cap=max(MAX_TOKENS_CAP, self._max_tokens),
                attempts=attempts,
            )
            self._asked.append(asked := _Asked(flow=flow, attempts=attempts))
            self._advance(asked, None)

    def _outcomes(self) -> list[WindowOutcome]:
        return [asked.outcome for asked in self._asked if asked.outcome is not None]

    def _advance(self, asked: _Asked, reply: Reply | None) -> None:
        try:
            request = next(asked.flow) if reply is None else asked.flow.send(reply)
        except StopIteration as stop:
            asked.question, asked.outcome = None, stop.value
            if self._opening is not None:
                self._found(self._opening, asked.outcome)
            return
        number = len(asked.attempts) + 1
        asked.question = Question(
            id=question_id(self.job, self.prompt, request, number),
            number=number,
            request=request,
            stratum=self.job.stratum,
        )


class DeferredRuns:
    """Makes runs of jobs, with the rubrics, the prompts and the room for answers that are in force."""

    def __init__(self, rubrics: Mapping[str, Rubric], prompts: Prompts, max_tokens: int = MAX_TOKENS) -> None:
        self._rubrics = rubrics
        self._prompts = prompts
        self._max_tokens = max_tokens

    def of(self, job: Job) -> DeferredRun:
        """Make a fresh run. Raises `KeyError` for an unknown rubric, `msgspec.DecodeError` for no session."""
        session, rubric = session_view(job.content), self._rubrics[job.rubric]
        prompt = prompt_of(self._prompts, rubric, session.attributes.assistant)
        return DeferredRun(job, session, rubric, prompt, max_tokens=self._max_tokens)


def question_id(job: Job, prompt: Prompt, request: JudgeRequest, number: int) -> str:
    """Name a question by all that decides on it: job, content, prompt, window, attempt, and its very text."""
    told = msgspec.json.encode(
        [
            job.job_id,
            job.content_hash,
            prompt.prompt_hash,
            request.window_id,
            number,
            request.system,
            [(message.role, message.text) for message in request.messages],
            request.schema,
            request.max_tokens,
        ]
    )
    return f"{request.rubric[:20]}-{number}-{hashlib.blake2b(told, digest_size=16).hexdigest()}"


def attempt_of(question_id_: str) -> int:
    """Give the attempt that an id names, 2 for a repair; 0 when it is no id of a question."""
    found = _ID.fullmatch(question_id_)
    return int(found[1]) if found else 0


_ID: Final = re.compile(r"[a-z_]+-(\d{1,3})-[0-9a-f]{32}")
