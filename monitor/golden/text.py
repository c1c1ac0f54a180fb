"""Golden runs laid out for a terminal: what is wrong first, then the figures, and a verdict as the last line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

import msgspec

from monitor.golden.result import Call, FieldFigures, GoldenResult, RowResult, Share, share_right
from monitor.golden.rows import LEVELS
from monitor.golden.versions import Change, Pair, Versions
from monitor.judging.prices import dollars
from monitor.replay_summary import listed, table

_WIDTH: Final = 100
_SHOWN: Final = 6
_CALLS: Final[dict[Call, str]] = {
    "missed": "MISSED: passed what should fail",
    "false_alarm": "FALSE ALARM: failed what should pass",
    "mismatch": "MISMATCH: judged or skipped as it should not be",
    "unscored": "NO ANSWER: the judge gave none that is valid",
}
_CHANGES: Final[dict[Change, str]] = {
    "broken": "BROKEN by {new}: right under {old}, wrong now",
    "mended": "MENDED by {new}: wrong under {old}, right now",
    "wrong_in_both": "WRONG IN BOTH",
}


def run_text(result: GoldenResult, allowed: int) -> str:
    """Lay out one run; `allowed` is how many conversations may come out wrong."""
    return "\n".join(_run(result, allowed))


def versions_text(versions: Versions) -> str:
    """Lay out two versions side by side."""
    return "\n".join(_versions(versions))


def run_value(result: GoldenResult, allowed: int) -> dict[str, Any]:
    """Give one run for programs."""
    return {"good": len(result.wrong) <= allowed, "verdict": wrong_verdict(result, allowed)} | _value(result)


def versions_value(versions: Versions) -> dict[str, Any]:
    """Give two versions for programs: the ids that changed, and both runs."""
    return {
        "worse": versions.worse,
        "verdict": versions_verdict(versions),
        "chance": versions.chance(),
        **{change: [pair.new.id for pair in versions.changed(change)] for change in _CHANGES},
        "new": _value(versions.new),
        "old": _value(versions.old),
    }


def wrong_verdict(result: GoldenResult, allowed: int) -> str:
    """Say in a sentence whether a run is good enough."""
    wrong, all_ = len(result.wrong), len(result.rows)
    head = f"{all_ - wrong} of {all_} conversations came out as expected"
    if not wrong:
        return f"GOOD: {head}."
    verdict = "NOT GOOD ENOUGH" if wrong > allowed else "GOOD ENOUGH"
    return f"{verdict}: {head}, {wrong} did not, and {allowed} may (--max-wrong)."


def versions_verdict(versions: Versions) -> str:
    """Say in a sentence whether the new version is worse."""
    old, new = versions.old.prompt_version, versions.new.prompt_version
    broken, mended = len(versions.changed("broken")), len(versions.changed("mended"))
    what = f"it breaks {broken} and mends {mended} of {len(versions.new.rows)} conversations"
    if not broken and not mended:
        return f"NOT WORSE: {new} passes and fails the same conversations as {old}."
    chance = f"by chance alone a difference like this comes with probability {versions.chance():.2g}"
    return f"{'WORSE' if versions.worse else 'NOT WORSE'}: {new} against {old}: {what} ({chance})."


def _value(result: GoldenResult) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(result)
    return value | {"fields": msgspec.to_builtins(result.fields())}


def _run(result: GoldenResult, allowed: int) -> Iterator[str]:
    yield _head(result)
    yield f"prompt {result.prompt_version} ({result.prompt_hash}), golden set {result.golden_sha256[:12]}"
    yield from _spent([result])
    for call, title in _CALLS.items():
        yield from _listing(title, [row for row in result.rows if row.call == call])
    yield ""
    yield from table(("conversations", *LEVELS, "all"), [["as expected", *_by_level(result)]])
    yield ""
    heads = ("exact agreement on", *LEVELS, "all", "within 1")
    yield from table(heads, [_cells(found) for found in result.fields()])
    yield ""
    yield wrong_verdict(result, allowed)


def _versions(versions: Versions) -> Iterator[str]:
    old, new = versions.old, versions.new
    names = {"old": old.prompt_version, "new": new.prompt_version}
    yield f"{_head(new)}, twice"
    for result in (old, new):
        yield f"prompt {result.prompt_version} ({result.prompt_hash})"
    yield from _spent([old, new])
    for change, title in _CHANGES.items():
        yield from _pairs(title.format(**names), versions.changed(change), versions)
    yield ""
    rows = [[result.prompt_version, *_by_level(result)] for result in (old, new)]
    yield from table(("as expected", *LEVELS, "all"), rows)
    yield ""
    yield from _fields_beside(old, new)
    yield ""
    yield versions_verdict(versions)


def _head(result: GoldenResult) -> str:
    return f"Golden set of {result.rubric}: {len(result.rows)} conversations, judged by {result.judge}"


def _spent(results: Sequence[GoldenResult]) -> Iterator[str]:
    tokens = sum(sum(result.tokens.values()) for result in results)
    failed: dict[str, int] = {}
    for name, count in ((name, count) for result in results for name, count in result.calls.items()):
        failed[name] = failed.get(name, 0) + count
    calls = sum(failed.values())
    failed.pop("none", None)
    if tokens or failed:
        cost = dollars(sum(result.cost_nusd for result in results))
        yield f"{calls} calls of the judge{listed(failed)}, {tokens:,} tokens, {cost}"


def _listing(title: str, rows: Sequence[RowResult]) -> Iterator[str]:
    if rows:
        yield ""
        yield f"{title} ({len(rows)})"
    for row in rows:
        yield from _row(row, f"expected {row.expected}, judged {row.judged}")


def _pairs(title: str, pairs: Sequence[Pair], versions: Versions) -> Iterator[str]:
    if pairs:
        yield ""
        yield f"{title} ({len(pairs)})"
    for pair in pairs:
        said = f"{versions.old.prompt_version} {pair.old.judged}, {versions.new.prompt_version} {pair.new.judged}"
        yield from _row(pair.new if not pair.new.right else pair.old, f"expected {pair.new.expected}; {said}")


def _row(row: RowResult, said: str) -> Iterator[str]:
    language = "" if row.language == "en" else f", {row.language}"
    yield f"  {row.id} ({row.level}{language}): {said}"
    yield from _indented(f"Why: {row.why}")
    differences = row.differences
    for point in differences[:_SHOWN]:
        yield from _indented(point.to_text())
    if len(differences) > _SHOWN:
        yield from _indented(f"and {len(differences) - _SHOWN} more fields (--json)")
    if row.note:
        yield from _indented(row.note)


def _indented(text: str) -> Iterator[str]:
    yield from wrap(text, _WIDTH, initial_indent="      ", subsequent_indent="        ")


def _by_level(result: GoldenResult) -> list[str]:
    parts = [[row for row in result.rows if row.level == level] for level in LEVELS]
    return [share_right(part).to_text() for part in (*parts, result.rows)]


def _cells(found: FieldFigures) -> list[str]:
    near = "" if found.within_one is None else found.within_one.to_text()
    return [found.field, *(found.by_level[level].to_text() for level in LEVELS), found.exact.to_text(), near]


def _fields_beside(old: GoldenResult, new: GoldenResult) -> Iterable[str]:
    """Give the fields of both runs side by side, and which way each moved."""
    before, after = ({found.field: found for found in result.fields()} for result in (old, new))
    rows = []
    for name in dict.fromkeys([*before, *after]):
        one, two = (side[name].exact if name in side else Share(hits=0, n=0) for side in (before, after))
        rows.append([name, one.to_text(), two.to_text(), _moved(one, two)])
    return table(("exact agreement on", old.prompt_version, new.prompt_version, ""), rows)


def _moved(one: Share, two: Share) -> str:
    if one.value is None or two.value is None or one.value == two.value:
        return ""
    return "better" if two.value > one.value else "worse"
