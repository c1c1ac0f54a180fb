"""What a judge made of a golden set: a row for each conversation, and figures over them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from monitor.golden.point import Point
from monitor.golden.rows import LEVELS, SCALES, GoldenRow, Level
from monitor.golden.scale import Expected
from monitor.judgement import Judgement, Skipped, Unscored, Verdict

Call: TypeAlias = Literal["right", "missed", "false_alarm", "mismatch", "unscored"]


class RowResult(msgspec.Struct, kw_only=True, frozen=True):
    """One conversation: what was expected and what was judged (`pass`, `fail`, `skipped: reason`, ...).

    `call`: `missed` passed what fails, `false_alarm` failed what passes; `mismatch` judged what is to be skipped,
    the other way round, or skipped it for another reason; `unscored` got no valid answer, and `note` says why.
    """

    id: str
    level: Level
    language: str
    why: str
    expected: str
    judged: str
    call: Call
    points: tuple[Point, ...] = ()
    note: str | None = None
    cost_nusd: int = 0

    @property
    def right(self) -> bool:
        """Whether it came out as expected: passed, failed or skipped."""
        return self.call == "right"

    @property
    def differences(self) -> tuple[Point, ...]:
        """The fields that came out otherwise."""
        return tuple(point for point in self.points if not point.exact)


class Share(msgspec.Struct, kw_only=True, frozen=True):
    """`hits` of `n`."""

    hits: int
    n: int

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return self.hits / self.n if self.n else None

    def to_text(self) -> str:
        """Write it as a fraction."""
        return f"{self.hits}/{self.n}" if self.n else "-"


class FieldFigures(msgspec.Struct, kw_only=True, frozen=True):
    """Agreement on one field: exact, within one (scores only), and exact by level."""

    field: str
    exact: Share
    within_one: Share | None
    by_level: dict[Level, Share]


class GoldenResult(msgspec.Struct, kw_only=True, frozen=True):
    """A golden set, judged once. `prompt_hash` is that of the version without any assistant's constraints.

    `calls` are the judge's by error type (`none`: answered), `tokens` by type, `cost_nusd` in 1e-9 $.
    """

    rubric: str
    rubric_version: str
    judge: str
    prompt_version: str
    prompt_sha256: str
    prompt_hash: str
    golden_sha256: str
    rows: tuple[RowResult, ...]
    calls: dict[str, int] = {}
    tokens: dict[str, int] = {}
    cost_nusd: int = 0

    @property
    def wrong(self) -> tuple[RowResult, ...]:
        """The conversations that came out otherwise than expected."""
        return tuple(row for row in self.rows if not row.right)

    def fields(self) -> list[FieldFigures]:
        """Give agreement by field, in the order in which the fields first come."""
        points = [(row.level, point) for row in self.rows for point in row.points]
        return [
            _figures(name, [pair for pair in points if pair[1].field == name])
            for name in dict.fromkeys(point.field for _, point in points)
        ]


def compared(row: GoldenRow, judgement: Judgement) -> RowResult:
    """Hold a judgement against what is expected of a conversation."""
    expected, judged = _expected(row), _judged(judgement)
    note = judgement.result.note if isinstance(judgement.result, Unscored) else None
    return RowResult(
        id=row.id, level=row.level, language=row.language, why=row.why, expected=expected, judged=judged,
        call=_call(expected, judged), points=_points(row, judgement), note=note, cost_nusd=judgement.cost_nusd,
    )  # fmt: skip


def share_right(rows: Iterable[RowResult]) -> Share:
    """Count the conversations that came out as expected."""
    found = [row.right for row in rows]
    return Share(hits=sum(found), n=len(found))


def _expected(row: GoldenRow) -> str:
    if isinstance(row.expected, Expected):
        return "pass" if row.expected.passes else "fail"
    return f"skipped: {row.expected.reason}"


def _judged(judgement: Judgement) -> str:
    match judgement.result:
        case Verdict(data=data):
            return "pass" if SCALES[judgement.rubric].said_passes(data) else "fail"
        case Skipped(reason=reason):
            return f"skipped: {reason}"
        case Unscored(reason=failure):
            return f"unscored: {failure}"


def _call(expected: str, judged: str) -> Call:
    if expected == judged:
        return "right"
    if judged.startswith("unscored"):
        return "unscored"
    if {expected, judged} == {"pass", "fail"}:
        return "missed" if judged == "pass" else "false_alarm"
    return "mismatch"


def _points(row: GoldenRow, judgement: Judgement) -> tuple[Point, ...]:
    """Compare the fields, where there are any on both sides."""
    if not isinstance(row.expected, Expected) or not isinstance(judgement.result, Verdict):
        return ()
    return tuple(SCALES[judgement.rubric].points(row.expected, judgement.result.data, row.session))


def _figures(field: str, points: Sequence[tuple[Level, Point]]) -> FieldFigures:
    found = [point for _, point in points]
    near = Share(hits=sum(point.near for point in found), n=len(found))
    return FieldFigures(
        field=field,
        exact=_exact(found),
        within_one=near if found[0].graded else None,
        by_level={name: _exact([point for level, point in points if level == name]) for name in LEVELS},
    )


def _exact(points: Sequence[Point]) -> Share:
    return Share(hits=sum(point.exact for point in points), n=len(points))
