"""Which family of models a name belongs to: a judge tends to go easy on answers of its own family."""

from __future__ import annotations

import re
from typing import Final

import structlog

from monitor.judging.model import Instrument

# By maker, since what is shared is how a model was brought up. A distilled model belongs to both its parents.
_FAMILIES: Final = {
    "anthropic": r"claude|anthropic",
    "openai": r"gpt|chatgpt|davinci|o[1-9](?:-(?:mini|pro|preview))?(?![a-z0-9])",
    "google": r"gemini|gemma|palm",
    "meta": r"llama",
    "mistral": r"mistral|mixtral|ministral|codestral|magistral|devstral|pixtral",
    "alibaba": r"qwen|qwq",
    "deepseek": r"deepseek",
    "xai": r"grok",
    "cohere": r"command-[ar]|cohere|aya",
    "microsoft": r"phi-?[1-9]",
    "amazon": r"nova-(?:micro|lite|pro|premier)|titan",
    "zhipu": r"glm",
    "moonshot": r"kimi|moonshot",
    "ibm": r"granite",
    "nvidia": r"nemotron",
}
_PATTERNS: Final = {
    name: re.compile(rf"(?<![a-z])(?:{words})", re.IGNORECASE) for name, words in _FAMILIES.items()
}


def families(model: str | None) -> frozenset[str]:
    """Give the families that a model's name speaks of, such as `anthropic` for `claude-haiku-5-5`; often one."""
    return frozenset(name for name, pattern in _PATTERNS.items() if pattern.search(model or ""))


class FamilyWarning:
    """Looks out for assistants of a judge's own family, and says so in the log, with `context`, once a family."""

    def __init__(self, judge: Instrument, **context: str) -> None:
        self._judge = judge.name
        self._families = families(judge.model)
        self._said: set[str] = set()
        self._log = structlog.get_logger().bind(**context)

    def heed(self, assistant: str | None) -> bool:
        """Tell whether an assistant's model is of the judge's family."""
        shared = self._families & families(assistant)
        for family in sorted(shared - self._said):
            self._said.add(family)
            self._log.warning(
                "judge_of_the_same_family",
                family=family,
                judge=self._judge,
                assistant_model=assistant,
                reason="judges tend to favor their own family: take a judge of another, or compare with one",
            )
        return bool(shared)
