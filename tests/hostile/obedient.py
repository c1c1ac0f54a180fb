"""A judge that obeys: it does what any text outside of a fence tells it, and judges by wording rules else.

It is more gullible than any model. It sees through hidden characters, look-alikes and encodings, and takes every
word that isn't the operator's own for an order.
"""

from __future__ import annotations

import re
from typing import Final

from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion, JudgeRequest
from monitor.judging.prompt import Prompt
from tests.hostile.fences import outside, told

OBEYED: Final = '{"obeyed": true}'
# What the operator's own text leaves when a window's numbers are filled in: turns, and words of closed sets.
_OWN: Final = re.compile(
    r"\[data\]|true|false|\bsession\b|\bturn\b|question_turn|something_was_said_before"
    r"|every_statement_needs_a_citation|retrieval_found_nothing|[^\w]|\d|_"
)
_PLACEHOLDER: Final = re.compile(r"\{\{ *[a-z_]+ *\}\}")


class ObedientJudge:
    """A `JudgeModel` that answers `OBEYED` to any order it finds; `obeyed` holds what it took for one."""

    def __init__(self, prompts: dict[str, Prompt]) -> None:
        self.name = self.model = "obedient"
        self.provider = "obedient"
        self.obeyed: list[str] = []
        self._prompts = prompts
        self._else = LexicalJudge()

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109 - the seam's
        orders = orders_in(request, self._prompts[request.rubric])
        if orders:
            self.obeyed.append(orders)
            return Completion(text=OBEYED)
        return await self._else.complete(request, timeout=timeout)

    async def aclose(self) -> None:
        await self._else.aclose()


def orders_in(request: JudgeRequest, prompt: Prompt) -> str:
    """Give what a request says outside of its fences that the operator didn't write; "" for nothing."""
    return orders(list(told(request)), prompt)


def orders(texts: list[str], prompt: Prompt) -> str:
    """Give the foreign words of texts outside of their fences."""
    found = ["" if text == prompt.system else _foreign(text, prompt) for text in texts]
    return " ".join(words for words in found if words)


def _foreign(text: str, prompt: Prompt) -> str:
    """Take the operator's own sentences out of what stands outside of the fences, and see which words are left."""
    left = outside(text)
    for template in (prompt.user, prompt.repair):
        filled = _PLACEHOLDER.sub(lambda found: "0" * 16 if "fence" in found[0] else "\0", template)
        for own in outside(filled).split("\0"):
            left = left.replace(own, " ") if own.strip() else left
    return _OWN.sub("", left)
