"""Reading the totals in one snapshot, and computing them again from the rows (R2 to R4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Engine, Select, func, select, update

from monitor.decision import PolicyLoaded
from monitor.store import locks
from monitor.store.connect import reading, writing
from monitor.store.ledger import (
    JudgementFacts,
    Sums,
    TotalKey,
    add,
    decision_sums,
    judgement_sums,
    superseded_sums,
)
from monitor.store.rows import decision_columns, decision_facts, judgement_columns, judgement_facts
from monitor.store.segment import COUNTED, PENDING, REPEAT, SUPERSEDED, pair_sums
from monitor.store.statements import add_totals
from monitor.store.tables import DECISIONS, JOBS, JUDGEMENTS, META, POLICIES, PRUNED, TOTALS

_POLICY = msgspec.json.Decoder(PolicyLoaded)
_CHUNK: Final = 2_000


class Totals(msgspec.Struct, kw_only=True, frozen=True):
    """All totals at one moment. While `rebuilding`, `sums` can't be trusted and must not be shown.

    `pending` counts jobs without a result by (rubric, stratum), from the jobs themselves (R2); `oldest_pending` is
    when the oldest of them was stored (Unix milliseconds). `rates` holds each stratum's rate in the newest policy.
    """

    generation: int
    rebuilding: bool
    sums: Sums
    pending: dict[tuple[str, str], int]
    oldest_pending: int | None
    rates: dict[str, float]


def read_totals(engine: Engine) -> Totals:
    """Read everything that the exporter shows from one snapshot."""
    with reading(engine) as connection:
        meta = _meta(connection)
        jobs = select(JOBS.c.rubric, JOBS.c.stratum, func.count(), func.min(JOBS.c.listed_at))
        pending = connection.execute(
            jobs.where(JOBS.c.state == PENDING).group_by(JOBS.c.rubric, JOBS.c.stratum)
        ).all()
        return Totals(
            generation=meta["generation"],
            rebuilding=bool(meta["rebuilding"]),
            sums=dict(_read(connection, TOTALS.select())),
            pending={(rubric, stratum): count for rubric, stratum, count, _ in pending},
            oldest_pending=min((oldest for *_, oldest in pending), default=None),
            rates=_rates(connection),
        )


def rebuild(engine: Engine) -> int:
    """Compute the totals again from the rows and the pruned baseline; gives the new generation.

    Also the step after a restore from a backup. Series that exist stay, at zero if nothing counts in them.
    Recorders wait meanwhile, and no quality metric is shown; after a rebuild that was killed they stay hidden
    until the next one.
    """
    with writing(engine) as connection:
        connection.execute(update(META).where(META.c.name == "rebuilding").values(value=1))
    with writing(engine) as connection:
        generation = locks.own(connection) + 1
        sums: Sums = {}
        add(sums, _read(connection, PRUNED.select()))
        add(sums, row_sums(connection))
        connection.execute(update(TOTALS).values(value=0))
        add_totals(connection, sums)
        connection.execute(update(META).where(META.c.name == "generation").values(value=generation))
        connection.execute(update(META).where(META.c.name == "rebuilding").values(value=0))
    return generation


def row_sums(connection: Connection) -> Iterator[tuple[TotalKey, int]]:
    """Give what all stored rows add."""
    last = 0
    while True:
        query = select(DECISIONS.c.id, DECISIONS.c.segment_key).where(DECISIONS.c.id > last)
        rows = connection.execute(query.order_by(DECISIONS.c.id).limit(_CHUNK)).all()
        if not rows:
            return
        last = rows[-1].id
        yield from sums_of(connection, [row.segment_key for row in rows])


def sums_of(connection: Connection, keys: list[str]) -> Iterator[tuple[TotalKey, int]]:
    """Give what the decisions of these segments add, and their judgements as they stand."""
    decided = select(*decision_columns()).where(DECISIONS.c.segment_key.in_(keys))
    decisions = {row["segment_key"]: decision_facts(row) for row in connection.execute(decided).mappings()}
    for decision in decisions.values():
        yield from decision_sums(decision)
    judged = select(*judgement_columns()).where(JUDGEMENTS.c.segment_key.in_(keys))
    paired: dict[str, list[JudgementFacts]] = defaultdict(list)
    for row in connection.execute(judged).mappings():
        facts = judgement_facts(row)
        if facts.standing in {COUNTED, REPEAT}:
            paired[row["segment_key"]].append(facts)
        if facts.standing == COUNTED:
            yield from judgement_sums(decisions[row["segment_key"]], facts)
        elif facts.standing == SUPERSEDED:
            yield from superseded_sums(facts.rubric)
    for key, judgements in paired.items():
        for job in decisions[key].jobs:
            yield from pair_sums(judgements, job)


def _read(connection: Connection, query: Select[Any]) -> Iterator[tuple[TotalKey, int]]:
    for *labels, value in connection.execute(query):
        yield TotalKey(*labels), value


def is_rebuilding(connection: Connection) -> bool:
    """Say whether a rebuild is under way, or was killed."""
    return bool(_meta(connection)["rebuilding"])


def _meta(connection: Connection) -> dict[str, int]:
    return {row.name: row.value for row in connection.execute(META.select())}


def _rates(connection: Connection) -> dict[str, float]:
    body = connection.execute(select(POLICIES.c.body).order_by(POLICIES.c.id.desc()).limit(1)).scalar()
    return {} if body is None else {stratum.name: stratum.rate for stratum in _POLICY.decode(body).strata}
