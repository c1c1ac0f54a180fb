"""Which family of models a name belongs to: a judge tends to go easy on answers of its own family. Pure."""

from __future__ import annotations

import re
from typing import Final

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
