"""Predicates of a sampling policy: CEL over a session's signals and attributes, checked when the policy is read.

Variables: `signals.<field>` (whole numbers, see `monitor.signals.Signals`), `attributes.<field>` (strings, see
`monitor.session.SessionAttributes`; what a session doesn't state is the empty string), `tenant` and
`close_reason` (strings). CEL itself notices an unknown name only when evaluation gets there, and a typo behind an
`||` may wait for months; so names are checked in the source, and types by evaluating sample sessions.
"""

from __future__ import annotations

import re
from typing import Any, Final

import cel
import msgspec

from monitor.session import Session, SessionAttributes
from monitor.signals import Signals

MAX_LENGTH: Final = 2_000
ROOTS: Final = ("attributes", "close_reason", "signals", "tenant")
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "signals": tuple(field.name for field in msgspec.structs.fields(Signals)),
    "attributes": tuple(field.name for field in msgspec.structs.fields(SessionAttributes)),
}
FUNCTIONS: Final = (
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "int",
    "double",
    "string",
    "bool",
    "min",
    "max",
)

_LITERAL: Final = re.compile(
    r"""
    [bB]?[rR][bB]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')        # raw: a backslash is a backslash
    | [bB]?(?:\"{3}(?:\\.|.)*?\"{3}|'{3}(?:\\.|.)*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | //[^\n]*
    """,
    re.VERBOSE | re.DOTALL,
)
_MACRO: Final = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,")
_DOCUMENT: Final = re.compile(r"(?<![\w.])(signals|attributes)\b(?:\s*\.\s*([A-Za-z_]\w*))?")
_PARSER: Final = re.compile(r"ERROR: <input>:(\d+:\d+: .*?)(?: expecting | \| |$)")
_FUNCTION: Final = re.compile(r"[A-Za-z]\w*")


class PredicateError(Exception):
    """A predicate is wrong. The message says what is, and what is allowed."""


class Predicate:
    """One compiled predicate. Raises `PredicateError` when its source breaks the rules above."""

    def __init__(self, source: str) -> None:
        self.source = source.strip()
        if len(self.source) > MAX_LENGTH:
            raise PredicateError(f"is {len(self.source)} characters long; at most {MAX_LENGTH} are allowed")
        try:
            self._program = cel.compile(self.source)
        except ValueError as error:
            raise PredicateError(f"is not valid CEL, at line:column {_brief(error)}") from None
        self._check_names()
        for name, document in _samples():
            self._check_sample(name, document)

    def matches(self, document: dict[str, Any]) -> bool:
        """Evaluate over the document of a session. Raises `PredicateError` on anything but true or false."""
        try:
            result = self._program.execute(document)
        except Exception as error:  # the engine raises builtin errors of many kinds
            raise PredicateError(f"fails: {type(error).__name__}: {_brief(error)}") from error
        if result is True or result is False:
            return result
        raise PredicateError(f"must give true or false, not {type(result).__name__}")

    def _check_names(self) -> None:
        code = _LITERAL.sub(" '' ", self.source)
        unknown = set(self._program.variables()) - set(ROOTS) - set(_MACRO.findall(code))
        if unknown:
            raise PredicateError(f"unknown variable {_quoted(unknown)}; allowed: {', '.join(ROOTS)}")
        called = {name for name in self._program.functions() if _FUNCTION.fullmatch(name)} - set(FUNCTIONS)
        if called:
            raise PredicateError(f"unknown function {_quoted(called)}; allowed: {', '.join(FUNCTIONS)}")
        for root, field in _DOCUMENT.findall(code):
            if field not in FIELDS[root]:
                what = f"unknown field '{root}.{field}'" if field else f"'{root}' needs a field, as in {root}.name"
                raise PredicateError(f"{what}; allowed: {', '.join(FIELDS[root])}")

    def _check_sample(self, name: str, document: dict[str, Any]) -> None:
        try:
            self.matches(document)
        except PredicateError as error:
            raise PredicateError(f"{error} (tried on {name})") from None


def document(session: Session, signals: Signals) -> dict[str, Any]:
    """Build what predicates are evaluated over."""
    attributes = session.attributes
    return {
        "signals": {name: getattr(signals, name) for name in FIELDS["signals"]},
        "attributes": {name: getattr(attributes, name) or "" for name in FIELDS["attributes"]},
        "tenant": session.tenant,
        "close_reason": session.close_reason,
    }


def _samples() -> list[tuple[str, dict[str, Any]]]:
    def sample(number: int, text: str, reason: str) -> dict[str, Any]:
        return {
            "signals": dict.fromkeys(FIELDS["signals"], number),
            "attributes": dict.fromkeys(FIELDS["attributes"], text),
            "tenant": text or "default",
            "close_reason": reason,
        }

    return [
        ("a session in which every count is 0", sample(0, "", "ended")),
        ("a session in which every count is 1", sample(1, "a", "inactivity")),
        ("a session in which every count is 1000", sample(1000, "z", "max_turns")),
    ]


def _brief(error: Exception) -> str:
    """Give the point of an engine's message: its first sentence, or a parser's `line:column: what`."""
    text = " ".join(str(error).split())
    parser = _PARSER.search(text)
    return parser.group(1) if parser else text.split(". ")[0][:300]


def _quoted(names: set[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
