"""Trivial rules that a judge has to beat."""

from __future__ import annotations

import re
from typing import Final

from monitor.session import SessionTurn

_WORD: Final = re.compile(r"\w+")


def token_precision(turn: SessionTurn) -> float:
    """Give the share of a reply's words that its passages have, 0 to 1; 1 for a reply without words."""
    said = [word.lower() for word in _WORD.findall(turn.text)]
    known = {word.lower() for passage in turn.evidence or () for word in _WORD.findall(passage.text)}
    return sum(word in known for word in said) / len(said) if said else 1.0
