"""The offline judge: string rules over a rubric's window, answering in the same JSON as a language model.

It costs nothing, is deterministic, and goes through the same parser and audit as any other judge. It needs no
prompt: its rules read the structured window that comes with a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from monitor.errors import JudgeFatal
from monitor.judging.extract import ExtractionWindow
from monitor.judging.lexical import (
    conversation,
    correction,
    correction_whole,
    extract,
    hallucination,
    refusal,
    screen,
)
from monitor.judging.model import Completion, JudgeRequest
from monitor.judging.screen import ScreenWindow
from monitor.rubrics.conversation import ConversationWindow
from monitor.rubrics.correction import CorrectionWindow
from monitor.rubrics.correction_whole import CorrectionWholeWindow
from monitor.rubrics.hallucination import HallucinationWindow
from monitor.rubrics.refusal import RefusalWindow


class LexicalJudge:
    """A `JudgeModel` without a model."""

    def __init__(self) -> None:
        self.name = "lexical"
        self.provider = "lexical"
        self.model = "lexical-1"

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109 - the seam's
        """Answer at once. Raises `JudgeFatal` (`invalid_request`) for a rubric that it has no rules for."""
        del timeout
        answer = _ANSWERS.get(type(request.window))
        if answer is None:
            raise JudgeFatal("invalid_request", f"the lexical judge has no rules for the rubric {request.rubric}")
        return Completion(text=msgspec.json.encode(answer(request.window)).decode())

    async def aclose(self) -> None:
        """Nothing is open."""


_ANSWERS: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    ConversationWindow: conversation.answer,
    CorrectionWindow: correction.answer,
    ExtractionWindow: extract.answer,
    HallucinationWindow: hallucination.answer,
    CorrectionWholeWindow: correction_whole.answer,
    RefusalWindow: refusal.answer,
    ScreenWindow: screen.answer,
}
