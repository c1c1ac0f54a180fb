"""What may be passed on of what a provider sends, and what may be sent to it. Pure."""

from __future__ import annotations

import re
from typing import Final

_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def word(value: object) -> str | None:
    """Let through a short identifier and nothing else: what a server sends may quote the prompt."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def sendable(text: str) -> str:
    """Make a text that an API takes: no lone surrogates, and never blank (a blank answer may be quoted back)."""
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return clean if clean.strip() else "(nothing)"
