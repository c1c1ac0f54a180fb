"""What a rubric is: one file that tells one rubric's whole story (DESIGN section 5).

The judge reports observations; code computes every number that follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from monitor.judgement import Outcomes, Result, Skipped, Unscored, Verdict
from monitor.session import Session


class WindowResult(msgspec.Struct, kw_only=True, frozen=True):
    """The result of one window, under its id."""

    window_id: str
    result: Result


class Window(Protocol):
    """The part of a session that one question to the judge shows."""

    @property
    def window_id(self) -> str:
        """Name the window within its session, e.g. `C1`."""
        ...


@runtime_checkable
class Constrained(Protocol):
    """A window whose answers are also checked against the assistant's constraints."""

    def under(self, constraints: str) -> Window:
        """Give the window as judged under a text of constraints, empty for none."""
        ...


Fields: TypeAlias = dict[str, Any]


class Rubric(Protocol):
    """One rubric. `windows` and everything else are pure: the same session gives the same windows.

    `measures` and `scores` name all that `outcomes` can give, so that it can be zero before it happens (R3).
    `sequential` rubrics cut a session into windows that build on the answers to the ones before (`carry`).
    """

    name: str
    version: str
    mode: str
    sequential: bool
    measures: tuple[str, ...]
    scores: tuple[str, ...]

    def applies(self, session: Session) -> Skipped | None:
        """Say why the rubric doesn't concern a session, or None when it does."""
        ...

    def windows(self, session: Session) -> Sequence[Window]:
        """Cut a session into the windows to ask about; none means a valid, empty verdict."""
        ...

    def carry(self, window: Any, earlier: Sequence[WindowResult]) -> Window:
        """Give a window together with what the windows before it found; the window itself unless `sequential`."""
        ...

    def preflight(self, window: Any) -> Skipped | None:
        """Say why a window must not be sent to a judge, or None when it may."""
        ...

    def fields(self, window: Any) -> Fields:
        """Give the values that the prompt template is rendered from (JSON-encodable)."""
        ...

    def schema(self, window: Any) -> dict[str, Any]:
        """Give the JSON Schema of the answer: flat, every field required, evidence before verdict."""
        ...

    def parse(self, raw: str, window: Any) -> Verdict | Skipped:
        """Check an answer: schema, then semantics. Raises `InvalidVerdict`, fit to be shown to the judge."""
        ...

    def merge(self, session: Session, results: Sequence[WindowResult]) -> Verdict | Skipped | Unscored:
        """Merge the windows of a session into its result; one unscored window leaves the session unscored."""
        ...

    def outcomes(self, result: Result) -> Outcomes:
        """Give what a result adds to the totals."""
        ...


def in_order(results: Sequence[WindowResult]) -> list[WindowResult]:
    """Give results in the order of their windows, whatever order they came in: ids are a letter and a number."""
    return sorted(results, key=lambda item: (len(item.window_id), item.window_id))


def unscored(results: Sequence[WindowResult]) -> Unscored | None:
    """Give the first window on which the judge failed, as the result of its whole session; None without one."""
    for item in in_order(results):
        if isinstance(item.result, Unscored):
            note = f"{item.window_id}: {item.result.note}" if item.result.note else item.window_id
            return Unscored(reason=item.result.reason, note=note)
    return None
