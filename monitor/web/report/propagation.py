"""The propagation graph as a drawing: where every box and line lies. Pure; a template makes SVG of it.

A column a turn, the origin left and later turns right. A family, an origin with all that came of it, has a band of
rows. Its lines run above its boxes, one track for each claim with offspring, and come down in the gaps
between the columns. So no line crosses a box, and lines only go right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from monitor.web.report.base import Tone

WIDTH: Final = 148
HEIGHT: Final = 58
GAP: Final = 40
ROW_GAP: Final = 12
TRACK: Final = 9
MARGIN: Final = 8
HEAD: Final = 26
_LANES: Final = 5
_LETTERS: Final = 20


class Node(msgspec.Struct, kw_only=True, frozen=True):
    """A claim, or a turn that was never audited. `anchor` leads to its finding, if it has one."""

    key: str
    turn: int
    text: str
    says: str
    tone: Tone
    anchor: str | None


class Edge(msgspec.Struct, kw_only=True, frozen=True):
    """What came of what: from an origin to a later claim. `kind` is the link, `says` its words."""

    start: str
    end: str
    kind: str
    says: str


class Box(msgspec.Struct, kw_only=True, frozen=True):
    """A node in its place; `short` is as much of its text as fits."""

    node: Node
    x: int
    y: int
    short: str


class Line(msgspec.Struct, kw_only=True, frozen=True):
    """An edge as a line through points, from left to right."""

    edge: Edge
    points: tuple[tuple[int, int], ...]


class Drawing(msgspec.Struct, kw_only=True, frozen=True):
    """The whole drawing. `columns` are turns with the left ends of their columns; `edges` are those drawn."""

    width: int
    height: int
    columns: tuple[tuple[int, int], ...]
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def draw(nodes: Sequence[Node], edges: Sequence[Edge]) -> Drawing:
    """Lay out a graph. Edges that don't lead to a later turn, or to or from no node, are left out."""
    known = {node.key: node for node in nodes}
    kept = [
        edge
        for edge in edges
        if edge.start in known and edge.end in known and known[edge.start].turn < known[edge.end].turn
    ]
    turns = sorted({node.turn for node in known.values()})
    columns = {turn: place for place, turn in enumerate(turns)}
    boxes: dict[str, Box] = {}
    lines: list[Line] = []
    top = MARGIN + HEAD
    for family in _families(known, kept):
        inside = [edge for edge in kept if edge.end in family]
        tracks = _tracks(family, inside, columns, known)
        top += len(tracks) * TRACK
        placed = _stacked(family, columns, known, top)
        boxes |= placed
        lines += [_line(edge, placed, tracks.get(edge.start), top) for edge in inside]
        top = max(box.y for box in placed.values()) + HEIGHT + 2 * ROW_GAP
    return Drawing(
        width=2 * MARGIN + len(turns) * (WIDTH + GAP) - (GAP if turns else 0),
        height=top - 2 * ROW_GAP + MARGIN if boxes else 2 * MARGIN,
        columns=tuple((turn, _left(place)) for turn, place in columns.items()),
        boxes=tuple(boxes.values()),
        lines=tuple(lines),
    )


def _families(known: Mapping[str, Node], edges: Sequence[Edge]) -> list[list[str]]:
    """Give the keys of each connected part in the order of its turns, the part that begins first first."""
    family = {key: key for key in known}

    def root(key: str) -> str:
        while family[key] != key:
            key = family[key]
        return key

    for edge in edges:
        family[root(edge.end)] = root(edge.start)
    groups: dict[str, list[str]] = {}
    for key in sorted(known, key=lambda key: known[key].turn):
        groups.setdefault(root(key), []).append(key)
    return list(groups.values())


def _tracks(
    family: Sequence[str], edges: Sequence[Edge], columns: Mapping[int, int], known: Mapping[str, Node]
) -> dict[str, int]:
    """Give a track to each node with a line that goes past a column."""
    far = {edge.start for edge in edges if columns[known[edge.end].turn] > columns[known[edge.start].turn] + 1}
    return {key: place for place, key in enumerate(key for key in family if key in far)}


def _stacked(
    family: Sequence[str], columns: Mapping[int, int], known: Mapping[str, Node], top: int
) -> dict[str, Box]:
    rows: Counter[int] = Counter()
    boxes: dict[str, Box] = {}
    for key in family:
        column = columns[known[key].turn]
        y = top + rows[column] * (HEIGHT + ROW_GAP)
        boxes[key] = Box(node=known[key], x=_left(column), y=y, short=_short(known[key].text))
        rows[column] += 1
    return boxes


def _line(edge: Edge, boxes: Mapping[str, Box], track: int | None, top: int) -> Line:
    """Lead a line from box to box: within one gap, or by its track over the boxes in between."""
    start, end = boxes[edge.start], boxes[edge.end]
    out, into = (start.x + WIDTH, start.y + HEIGHT // 2), (end.x, end.y + HEIGHT // 2)
    lane = ((start.y - top) // (HEIGHT + ROW_GAP) + (track or 0)) % _LANES
    leaves = out[0] + 6 + 3 * lane
    if into[0] == out[0] + GAP:
        turns = [(leaves, out[1]), (leaves, into[1])] if out[1] != into[1] else []
    else:
        assert track is not None  # noqa: S101 - whatever goes past a column has one
        level = top - (track + 1) * TRACK + TRACK // 2
        comes = into[0] - 18 + 3 * lane
        turns = [(leaves, out[1]), (leaves, level), (comes, level), (comes, into[1])]
    return Line(edge=edge, points=(out, *turns, into))


def _left(column: int) -> int:
    return MARGIN + column * (WIDTH + GAP)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LETTERS else f"{line[: _LETTERS - 1]}\u2026"
