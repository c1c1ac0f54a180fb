"""What judging cost, from the stored judgements; and how much there is to judge, for a forecast."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Column, Connection, Integer, Select, cast, func, select

from monitor.store.tables import DECISIONS, JUDGEMENTS

DAY_MS: Final = 86_400_000


class DayCost(msgspec.Struct, kw_only=True, frozen=True):
    """A judge's judgements on one day (UTC; its first millisecond) and their cost, in 1e-9 $.

    Those of a screen are its first looks, under its own name.
    """

    day: int
    judge: str
    rubric: str
    judgements: int
    cost_nusd: int


class JudgedVolume(msgspec.Struct, kw_only=True, frozen=True):
    """Judgements of one rubric in one stratum; `mine` are by the judge asked about.

    They cost `cost_nusd`, a screen before them included.
    """

    judgements: int
    mine: int
    cost_nusd: int


class Volume(msgspec.Struct, kw_only=True, frozen=True):
    """Finished sessions of a stratum, how many of them were selected, and by rubric what came of those.

    `first` is when the first of them closed (Unix ms).
    """

    stratum: str
    first: int
    finished: int
    selected: int
    judged: dict[str, JudgedVolume]


def costs_by_day(connection: Connection, since: int) -> list[DayCost]:
    """Give what each judge and rubric cost on each day from `since` on (Unix ms), the newest day first.

    All stored judgements are included, whether they count in the rates or not: all of them were paid for.
    """
    found: dict[tuple[int, str, str], list[int]] = {}
    for judge, cost in (
        (JUDGEMENTS.c.judge, JUDGEMENTS.c.cost_nusd),
        (JUDGEMENTS.c.screen_judge, JUDGEMENTS.c.screen_cost_nusd),
    ):
        for row in connection.execute(_by_day(judge, cost, since)):
            told = found.setdefault((row.day, row.judge, row.rubric), [0, 0])
            told[0] += row.judgements
            told[1] += int(row.cost)
    return [
        DayCost(day=day * DAY_MS, judge=judge, rubric=rubric, judgements=judgements, cost_nusd=cost)
        for (day, judge, rubric), (judgements, cost) in sorted(
            found.items(), key=lambda item: (-item[0][0], *item[0][1:])
        )
    ]


def volumes(connection: Connection, since: int, judge: str) -> list[Volume]:
    """Give the volume of each stratum over the sessions closed from `since` on (Unix ms)."""
    judged: dict[str, dict[str, JudgedVolume]] = {}
    for row in connection.execute(_judged(since, judge)):
        judged.setdefault(row.stratum, {})[row.rubric] = JudgedVolume(
            judgements=row.judgements, mine=int(row.mine), cost_nusd=int(row.cost)
        )
    selected = func.sum(cast(DECISIONS.c.selected, Integer)).label("selected")
    rows = connection.execute(
        select(
            DECISIONS.c.stratum,
            func.count().label("finished"),
            func.min(DECISIONS.c.closed_at).label("first"),
            selected,
        )
        .where(DECISIONS.c.closed_at >= since)
        .group_by(DECISIONS.c.stratum)
        .order_by(DECISIONS.c.stratum)
    )
    return [
        Volume(
            stratum=row.stratum,
            first=row.first,
            finished=row.finished,
            selected=int(row.selected),
            judged=judged.get(row.stratum, {}),
        )
        for row in rows
    ]


def _by_day(judge: Column[str], cost: Column[int], since: int) -> Select[Any]:
    """Sum up a column of costs; nobody was asked where the column of names is empty."""
    day = JUDGEMENTS.c.finished_at // DAY_MS
    columns = (
        day.label("day"),
        judge.label("judge"),
        JUDGEMENTS.c.rubric,
        func.count().label("judgements"),
        func.sum(cost).label("cost"),
    )
    return (
        select(*columns)
        .where(JUDGEMENTS.c.finished_at >= since, judge != "")
        .group_by(day, judge, JUDGEMENTS.c.rubric)
    )


def _judged(since: int, judge: str) -> Select[Any]:
    mine = cast(JUDGEMENTS.c.judge == judge, Integer)
    columns = (
        DECISIONS.c.stratum,
        JUDGEMENTS.c.rubric,
        func.count().label("judgements"),
        func.sum(mine).label("mine"),
        func.sum(mine * (JUDGEMENTS.c.cost_nusd + JUDGEMENTS.c.screen_cost_nusd)).label("cost"),
    )
    return (
        select(*columns)
        .select_from(JUDGEMENTS.join(DECISIONS, DECISIONS.c.segment_key == JUDGEMENTS.c.segment_key))
        .where(DECISIONS.c.closed_at >= since, JUDGEMENTS.c.standing == "counted")
        .group_by(DECISIONS.c.stratum, JUDGEMENTS.c.rubric)
    )
