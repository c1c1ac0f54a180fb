"""The extraction: one question about a whole session, which turns correct something, before each is judged. Pure.

Wording misses a good part of all corrections (docs/rubrics.md), and what isn't found is never judged. So a model
can be asked to find them: the very judge that judges them, at the same price and limits and under the same
deadline, so that one name stands for the whole instrument. What it finds takes the place of wording, beside the
producer's events.

The question is a rubric of its own kind, so that the flow, the repair, the retries and the accounting of judging
are those of every other question. If it fails the session is unscored: wording never steps in unsaid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from monitor.errors import ConfigError
from monitor.judgement import MAX_RAW_BYTES, Verdict
from monitor.judging.flow import EXTRACT, Flow, WindowOutcome, judge_flow
from monitor.judging.prompt import Prompt, Prompts, led
from monitor.judging.question import Question, spoken, told
from monitor.rubrics.answers import blank, contains, decode, object_schema, plain, refuse
from monitor.rubrics.base import Fields, Rubric
from monitor.rubrics.correction import CorrectionRubric
from monitor.rubrics.correction.events import PER_TURN
from monitor.session import ExtractedCorrection, Session, SessionTurn

PROMPT: Final = "extract_correction"
MOST: Final = 64
LONGEST: Final = 600
_Text = Annotated[str, msgspec.Meta(max_length=LONGEST)]


class ExtractionWindow(msgspec.Struct, kw_only=True, frozen=True):
    """A whole session as one question. `turns` are those of user and assistant."""

    window_id: str
    session: Session
    turns: tuple[SessionTurn, ...]

    def turn(self, index: int) -> SessionTurn | None:
        """Give a shown turn by its session index, or None."""
        return next((turn for turn in self.turns if turn.index == index), None)


class Found(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One correction, as the judge writes it; -1 and "" stand for none."""

    turn_index: int
    quote: _Text
    error_turn_index: int
    corrected_claim: _Text
    correction_content: _Text


class _Answer(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    corrections: list[Found]
    rationale: _Text


class Extraction(Question):
    """The question as a rubric. It counts nothing, and has the name of the rubric that it is asked for."""

    def __init__(self, rubric: str = "correction") -> None:
        super().__init__(rubric, "extract")

    def windows(self, session: Session) -> tuple[ExtractionWindow, ...]:
        """Give the one window, the whole session; none where no user says anything after the first turn."""
        turns = spoken(session)
        if not any(turn.role == "user" and turn.index > 0 and not blank(turn.text) for turn in turns):
            return ()
        return (ExtractionWindow(window_id=EXTRACT, session=session, turns=turns),)

    def fields(self, window: ExtractionWindow) -> Fields:
        """Give what the prompt shows."""
        return {"transcript": told(window.turns)}

    def schema(self, window: ExtractionWindow) -> dict[str, Any]:
        """Give the JSON Schema of the answer."""
        del window
        text, number = {"type": "string"}, {"type": "integer"}
        item = {name: number if name.endswith("_index") else text for name in Found.__struct_fields__}
        return object_schema({"corrections": {"type": "array", "items": object_schema(item)}, "rationale": text})

    def parse(self, raw: str, window: ExtractionWindow) -> Verdict:
        """Check an answer against the transcript. Raises `InvalidVerdict`."""
        size = len(raw.encode("utf-8", "replace"))
        if size > MAX_RAW_BYTES:
            # What is stored of an answer ends there, and the windows that follow must be told from what is stored.
            refuse("The size of the answer", size, f"it can have {MAX_RAW_BYTES} bytes at most; quote fewer words")
        given = decode(raw, _Answer)
        if len(given.corrections) > MOST:
            refuse("The number of corrections", len(given.corrections), f"there can be {MOST} at most")
        for position, item in enumerate(given.corrections):
            _check(f"corrections[{position}]", item, window)
        _apart(given.corrections)
        if blank(given.rationale):
            refuse("rationale", given.rationale, "it must be one sentence")
        return Verdict(data={"corrections": [_data(item) for item in given.corrections]})


class Opening:
    """What a run asks before anything else; `window` is None where there is nothing to ask."""

    def __init__(self, extraction: Extraction, session: Session, prompt: Prompt) -> None:
        self._extraction = extraction
        self._session = session
        self._prompt = prompt
        self.window = next(iter(extraction.windows(session)), None)

    def flow(self, **options: Any) -> Flow | None:
        """Ask; None where there is nothing to ask. `options` are those of `judge_flow`."""
        if self.window is None:
            return None
        return judge_flow(self._extraction, self.window, self._prompt, **options)

    def session(self, outcome: WindowOutcome | None) -> Session | None:
        """Give the session with what was found; None when the judge failed, so that nothing else is asked."""
        if outcome is None:
            return msgspec.structs.replace(self._session, extracted=())
        if not isinstance(outcome.result, Verdict):
            return None
        found = msgspec.convert(outcome.result.data["corrections"], tuple[ExtractedCorrection, ...])
        return msgspec.structs.replace(self._session, extracted=found)


def extraction_of(rubric: Rubric) -> Extraction | None:
    """Give the question that comes before a rubric's own, or None."""
    if isinstance(rubric, CorrectionRubric) and rubric.extractor == "model":
        return Extraction(rubric.name)
    return None


def prompt_of(prompts: Prompts, rubric: Rubric, assistant: str | None) -> Prompt:
    """Give the prompt of a rubric, with that of the question before it. Raises `ConfigError`."""
    prompt = prompts.of(rubric.name, assistant)
    return prompt if extraction_of(rubric) is None else led(prompt, prompts.of(PROMPT, assistant))


def opening(rubric: Rubric, session: Session, prompt: Prompt) -> Opening | None:
    """Give what a run of a rubric begins with; None for a rubric, or a session, that needs nothing found first.

    Raises `ConfigError` for a prompt that doesn't go with the rubric.
    """
    extraction = extraction_of(rubric)
    if extraction is None or rubric.applies(session) is not None:
        return None
    if prompt.first is None:
        raise ConfigError(f"the prompt {prompt.rubric} {prompt.version} comes without the prompt of an extractor")
    return Opening(extraction, session, prompt.first)


def _check(field: str, item: Found, window: ExtractionWindow) -> None:
    """Hold one correction to its turns. Raises `InvalidVerdict`."""
    turn, error = window.turn(item.turn_index), window.turn(item.error_turn_index)
    if turn is None or turn.role != "user" or turn.index == 0:
        refuse(f"{field}.turn_index", item.turn_index, "it must be a turn of the user's after turn 0")
    if not contains(turn.text, item.quote):
        refuse(f"{field}.quote", item.quote, f"turn {item.turn_index} doesn't have these words; copy them from it")
    if item.error_turn_index != -1 and (error is None or error.index >= turn.index):
        rule = f"it must be -1 or a shown turn before turn {item.turn_index}"
        refuse(f"{field}.error_turn_index", item.error_turn_index, rule)
    if blank(item.corrected_claim):
        return
    if error is None:
        refuse(f"{field}.corrected_claim", item.corrected_claim, 'error_turn_index is -1, so it must be ""')
    if not contains(error.text, item.corrected_claim):
        rule = f'turn {error.index} doesn\'t have these words; copy them from it, or write ""'
        refuse(f"{field}.corrected_claim", item.corrected_claim, rule)


def _apart(found: Sequence[Found]) -> None:
    """Refuse the same correction twice, and more in one turn than are read out of any. Raises `InvalidVerdict`."""
    seen: set[tuple[int, str]] = set()
    turns: Counter[int] = Counter()
    for position, item in enumerate(found):
        key = (item.turn_index, plain(item.quote))
        if key in seen:
            refuse(f"corrections[{position}].quote", item.quote, "this correction is there already")
        seen.add(key)
        turns[item.turn_index] += 1
        if turns[item.turn_index] > PER_TURN:
            rule = f"there can be {PER_TURN} corrections in one turn at most"
            refuse(f"corrections[{position}].turn_index", item.turn_index, rule)


def _data(item: Found) -> dict[str, Any]:
    return {
        "turn": item.turn_index,
        "text": item.quote,
        "error": None if item.error_turn_index < 0 else item.error_turn_index,
        "claim": None if blank(item.corrected_claim) else item.corrected_claim,
        "content": None if blank(item.correction_content) else item.correction_content,
    }
