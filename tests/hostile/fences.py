"""What a prompt says outside of its fences: to the letter of the rule, and as a careless reader takes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from monitor.judging.model import JudgeRequest
from monitor.judging.prompt import parse

_BLOCK: Final = re.compile(
    r"^<(?P<name>[a-z]+)-(?P<nonce>[0-9a-f]{16})>\n(?P<inside>.*?)\n</(?P=name)-(?P=nonce)>$",
    re.DOTALL | re.MULTILINE,
)
_CARELESS: Final = re.compile(r"^<[a-z]+-[0-9a-f]{16}>\n.*?^</.*?$", re.DOTALL | re.MULTILINE)


# The prompt of the correction rubric had the event outside of its fence once: what such a leak leads to.
LEAKY: Final = parse(
    """
system = "Judge."
user = '''
Judge {{ event }}
<transcript-{{ fence }}>
{{ transcript }}
</transcript-{{ fence }}>
'''
repair = "Again: {{ error }}"
""",
    rubric="correction",
    version="v9",
)


def outside(text: str) -> str:
    """Give a message without its fenced blocks; a block ends with the line that has its nonce."""
    return _BLOCK.sub("[data]", text)


def outside_for_the_careless(text: str) -> str:
    """Give a message without its fenced blocks for a reader who takes any line like `</...` for the end."""
    return _CARELESS.sub("[data]", text)


def inside(text: str) -> list[tuple[str, str]]:
    """Give the (nonce, text) of each fenced block."""
    return [(found["nonce"], found["inside"]) for found in _BLOCK.finditer(text)]


def told(request: JudgeRequest) -> Iterator[str]:
    """Give the texts that a judge may take for its operator's: all but its own answers."""
    yield request.system
    yield from (message.text for message in request.messages if message.role == "user")
