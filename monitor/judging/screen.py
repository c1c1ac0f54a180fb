"""The screen: one cheap question about a session, before a costly judge is asked about it. Pure.

What the screen passes over is not lost to the rates: a share of it, drawn by a coin, is judged in full and stands
for the rest (`Outcomes.stage`). So a screen that misses things widens an interval, and bends no rate.

A question to the screen is a rubric of its own kind, so that the flow, the repair, the retries and the accounting
of judging are those of every other question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from monitor.decision import Job
from monitor.errors import ConfigError
from monitor.judgement import Judgement, Outcomes, Screening, Skipped, Stage, Unscored, Verdict
from monitor.judging.drive import JobRun
from monitor.judging.model import Instrument
from monitor.judging.prompt import Prompt, Prompts
from monitor.judging.question import Question, spoken, told
from monitor.rubrics.answers import blank, contains, decode, object_schema, refuse
from monitor.rubrics.base import Fields
from monitor.rubrics.passages import LabelledPassage, labelled
from monitor.session import Session, SessionTurn
from monitor.settings import ScreenSettings

WINDOW_ID: Final = "screen"
PROMPTS: Final = {
    "conversation": "screen_conversation",
    "correction": "screen_correction",
    "correction_whole": "screen_correction",
    "hallucination": "screen_hallucination",
    "refusal": "screen_refusal",
}
"""The rubrics that can be screened, and the prompt that asks for each."""
_BY_EVIDENCE: Final = frozenset({"conversation", "hallucination"})
_SIDES: Final = 1 << 64


class ScreenWindow(msgspec.Struct, kw_only=True, frozen=True):
    """A whole session as one question. `passages` are empty where the rubric doesn't look at evidence."""

    window_id: str
    rubric: str
    session: Session
    turns: tuple[SessionTurn, ...]
    passages: tuple[LabelledPassage, ...]


class _Answer(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    quote: str
    look: bool


class Screen(Question):
    """The question that a rubric's screen asks, as a rubric. It counts nothing, and has the name of its rubric."""

    def __init__(self, rubric: str) -> None:
        super().__init__(rubric, "screen")

    def windows(self, session: Session) -> tuple[ScreenWindow, ...]:
        """Give the one window: the whole session."""
        window = ScreenWindow(
            window_id=WINDOW_ID,
            rubric=self.name,
            session=session,
            turns=spoken(session),
            passages=tuple(labelled(session)) if self.name in _BY_EVIDENCE else (),
        )
        return (window,)

    def fields(self, window: ScreenWindow) -> Fields:
        """Give what the prompt shows."""
        turns = told(window.turns)
        if self.name not in _BY_EVIDENCE:
            return {"transcript": turns}
        passages = [{"turn": item.turn, "passage": item.label, "text": item.text} for item in window.passages]
        return {"transcript": turns, "passages": passages}

    def schema(self, window: ScreenWindow) -> dict[str, Any]:
        """Give the JSON Schema of the answer: the evidence, then what it comes to."""
        del window
        return object_schema({"quote": {"type": "string"}, "look": {"type": "boolean"}})

    def parse(self, raw: str, window: ScreenWindow) -> Verdict:
        """Check an answer: who says `look` shows where. Raises `InvalidVerdict`."""
        given = decode(raw, _Answer)
        if given.look and blank(given.quote):
            refuse("quote", given.quote, "look is true, which needs the words of a turn that it rests on")
        if not blank(given.quote) and not any(contains(turn.text, given.quote) for turn in window.turns):
            refuse("quote", given.quote, "no turn has these words; copy them from one, or leave it empty")
        return Verdict(data={"look": given.look, "quote": given.quote if given.look else ""})


class Screens:
    """Which rubrics are screened, what is asked, and what follows from the answer.

    Raises `ConfigError` for a rubric that can't be screened and for a prompt that can't be loaded. `load` loads
    a prompt by its name with an assistant's constraints.
    """

    def __init__(
        self,
        settings: ScreenSettings,
        constraints: Mapping[str, str],
        load: Callable[[str, str], Prompt] | None = None,
    ) -> None:
        self._settings = settings
        self._screens = {name: Screen(name) for name in screened(settings)}
        self._prompts = Prompts(constraints, load)
        for name in self._screens:
            self._prompts.of(PROMPTS[name], None)

    @property
    def rubrics(self) -> Collection[str]:
        """The names of the rubrics that are screened."""
        return self._screens.keys()

    def question(self, job: Job, session: Session) -> JobRun | None:
        """Make the question about a job; None for one that isn't screened.

        Only live jobs are: a repeat compares two full judgements, and a file is judged as it is asked for.
        """
        screen = self._screens.get(job.rubric)
        if screen is None or job.run != "live":
            return None
        prompt = self._prompts.of(PROMPTS[job.rubric], session.attributes.assistant)
        return JobRun(job, session, screen, prompt, max_tokens=self._settings.max_tokens)

    def read(self, answer: Judgement) -> Screening:
        """Read the answer to a question. A failed screen lets the judge look: no rate rests on it."""
        result = answer.result
        if isinstance(result, Verdict) and not result.data["look"]:
            one_in = self._settings.one_in
            return _screening(answer, "clear", audited=audited(answer.job_id, one_in), one_in=one_in)
        if isinstance(result, Verdict):
            return _screening(answer, "look", quote=str(result.data["quote"]))
        return _screening(answer, "failed", reason=result.reason if isinstance(result, Unscored) else "error")


def screened(settings: ScreenSettings) -> tuple[str, ...]:
    """Give the rubrics that the settings have screened; none without a model. Raises `ConfigError`."""
    if not settings.model:
        return ()
    for name in settings.rubrics:
        if name not in PROMPTS:
            raise ConfigError(
                f"{settings.where}.rubrics: there is no screen for {name!r}; allowed are {', '.join(PROMPTS)}"
            )
    return tuple(dict.fromkeys(settings.rubrics)) or tuple(PROMPTS)


def audited(job_id: str, one_in: int) -> bool:
    """Say whether a job is among the one in so many that are judged in full though the screen found nothing.

    Always the same for a job; and drawn apart from the sampling and the repeats, which have coins of their own.
    """
    coin = hashlib.blake2b(job_id.encode(), digest_size=8, person=b"screen").digest()
    return int.from_bytes(coin) * one_in < _SIDES


def with_screen(judgement: Judgement, screening: Screening) -> Judgement:
    """Put what the screen said to a full judgement: an audited one stands for all that were screened out.

    This stage and the rubric's own, inside the session, are drawn apart, so their factors multiply.
    """
    outcomes = judgement.outcomes
    if screening.audited and not isinstance(judgement.result, Unscored):
        stage = Stage(found=outcomes.stage.found * screening.one_in, judged=outcomes.stage.judged)
        outcomes = msgspec.structs.replace(outcomes, stage=stage)
    return msgspec.structs.replace(judgement, outcomes=outcomes, screen=screening)


def screened_out(answer: Judgement, judge: Instrument, prompt: Prompt, version: str, mode: str) -> Judgement:
    """Make the judgement of a session that isn't judged from the screen's answer: scored, without a trial.

    It is one of the judge's series, since the sessions that the judge sees are counted against it.
    """
    return msgspec.structs.replace(
        answer,
        mode=mode,
        rubric_version=version,
        prompt_version=prompt.version,
        prompt_hash=prompt.prompt_hash,
        judge=judge.name,
        provider=judge.provider,
        model=judge.model,
        result=Skipped(reason="screened_out"),
        outcomes=Outcomes(),
        attempts=[],
        cost_nusd=0,
    )


def _screening(answer: Judgement, verdict: Any, **more: Any) -> Screening:
    return Screening(
        judge=answer.judge,
        provider=answer.provider,
        model=answer.model,
        prompt_version=answer.prompt_version,
        prompt_hash=answer.prompt_hash,
        verdict=verdict,
        attempts=answer.attempts,
        cost_nusd=answer.cost_nusd,
        prices=answer.prices,
        **more,
    )
