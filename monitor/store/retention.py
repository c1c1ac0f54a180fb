"""Removing text, and rows that are old, without touching a total (R5).

Text goes first and leaves a numeric row behind, a tombstone: it keeps a redelivered record out.
Rows go last; what they had added moves to the `pruned` baseline in the same transaction, so a rebuild still gives
the same totals. The time before which rows have gone is kept: a record from before it isn't taken for a new one.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Engine, Select, Table, delete, func, select, update

from monitor.store import locks
from monitor.store.connect import writing
from monitor.store.ledger import Sums, add
from monitor.store.rows import clean, session_key
from monitor.store.segment import PENDING
from monitor.store.statements import add_totals, insert_new
from monitor.store.tables import ADDENDA, DECISIONS, FAILURES, JOBS, JUDGEMENTS, META, PRUNED, SESSIONS
from monitor.store.totals import sums_of

_TEXT: Final = ((DECISIONS, "content"), (JUDGEMENTS, "body"), (ADDENDA, "event"))
_CHUNK: Final = 500
_PRUNED_BEFORE: Final = "pruned_before"


class Expired(msgspec.Struct, kw_only=True, frozen=True):
    """What `Store.expire` removed: rows that lost their text, and segments that went altogether."""

    texts: int
    segments: int


def forget(connection: Connection, tenant: str, session_id: str, now: int) -> bool:
    """Remove a session's text and remember to store none again; its ids and numbers stay."""
    locks.share(connection)
    names = clean(tenant), clean(session_id)
    known = select(DECISIONS.c.session_key).where(
        DECISIONS.c.tenant == names[0], DECISIONS.c.session_id == names[1]
    )
    # Ids with NUL are stored cleaned, so the exact ones may be known from the decision alone.
    keys = sorted({session_key(tenant, session_id), *connection.execute(known).scalars()})
    insert_new(connection, SESSIONS, [{"session_key": key, "forgotten_at": None} for key in keys])
    _lock(connection, keys)
    connection.execute(update(SESSIONS).where(SESSIONS.c.session_key.in_(keys)).values(forgotten_at=now))
    found = 0
    for table, column in _TEXT:
        where = table.c.tenant == names[0], table.c.session_id == names[1]
        found += connection.execute(select(func.count()).select_from(table).where(*where)).scalar_one()
        connection.execute(update(table).where(*where).values({column: None}))
    return found > 0


def expire(engine: Engine, text_before: int, rows_before: int) -> Expired:
    """Remove text and rows recorded before these times (Unix milliseconds), in many short transactions.

    A segment with a job that still waits for its result is kept.
    """
    texts = sum(_expire_text(engine, table, column, text_before) for table, column in _TEXT)
    segments = 0
    while gone := _prune(engine, rows_before):
        segments += gone
    _prune_undecided(engine, rows_before)
    return Expired(texts=texts, segments=segments)


def _expire_text(engine: Engine, table: Table, column: str, before: int) -> int:
    with writing(engine) as connection:
        old = table.c.recorded_at < before, table.c[column].is_not(None)
        return int(connection.execute(update(table).where(*old).values({column: None})).rowcount)


def _prune(engine: Engine, before: int) -> int:
    with writing(engine) as connection:
        locks.own(connection)
        found = connection.execute(_old(before)).all()
        if not found:
            return 0
        keys = [row.segment_key for row in found]
        sums: Sums = {}
        add(sums, sums_of(connection, keys))
        _delete(connection, keys, sorted({row.session_key for row in found}))
        _remember(connection, before)
        add_totals(connection, sums, PRUNED)
        return len(keys)


def _old(before: int) -> Select[Any]:
    """Choose decided segments of which everything is old, by its own time too: `pruned_before` goes by that."""
    same = JOBS.c.segment_key == DECISIONS.c.segment_key
    waiting = select(JOBS.c.segment_key).where(same, JOBS.c.state == PENDING)
    same = JUDGEMENTS.c.segment_key == DECISIONS.c.segment_key
    newer = select(JUDGEMENTS.c.segment_key).where(same, JUDGEMENTS.c.finished_at >= before)
    old = DECISIONS.c.recorded_at < before, DECISIONS.c.closed_at < before, ~waiting.exists(), ~newer.exists()
    columns = DECISIONS.c.segment_key, DECISIONS.c.session_key
    return select(*columns).where(*old).order_by(DECISIONS.c.id).limit(_CHUNK)


def _prune_undecided(engine: Engine, before: int) -> None:
    """Remove judgements and late events whose decision never came; they count nowhere."""
    with writing(engine) as connection:
        locks.own(connection)
        for table in (JUDGEMENTS, ADDENDA):
            decided = select(DECISIONS.c.segment_key).where(DECISIONS.c.segment_key == table.c.segment_key)
            connection.execute(delete(table).where(table.c.recorded_at < before, ~decided.exists()))
        known = select(JUDGEMENTS.c.digest).where(JUDGEMENTS.c.digest == FAILURES.c.digest)
        connection.execute(delete(FAILURES).where(~known.exists()))


def _remember(connection: Connection, before: int) -> None:
    insert_new(connection, META, [{"name": _PRUNED_BEFORE, "value": before}])
    later = META.c.name == _PRUNED_BEFORE, META.c.value < before
    connection.execute(update(META).where(*later).values(value=before))


def pruned_before(connection: Connection) -> int:
    """Give the time (Unix milliseconds) before which a segment that isn't stored may have been, and was counted.

    What comes again from before it is left out: it would count twice, and bring its text back (R5).
    """
    value = connection.execute(select(META.c.value).where(META.c.name == _PRUNED_BEFORE)).scalar()
    return 0 if value is None else int(value)


def _lock(connection: Connection, sessions: list[str]) -> None:
    rows = select(SESSIONS).where(SESSIONS.c.session_key.in_(sessions)).order_by(SESSIONS.c.session_key)
    connection.execute(rows.with_for_update()).all()


def _delete(connection: Connection, keys: list[str], sessions: list[str]) -> None:
    digests = select(JUDGEMENTS.c.digest).where(JUDGEMENTS.c.segment_key.in_(keys))
    connection.execute(delete(FAILURES).where(FAILURES.c.digest.in_(digests)))
    for table in (DECISIONS, JOBS, JUDGEMENTS, ADDENDA):
        connection.execute(delete(table).where(table.c.segment_key.in_(keys)))
    # A forgotten session stays known for ever: its text may come again from the log.
    left = select(DECISIONS.c.segment_key).where(DECISIONS.c.session_key == SESSIONS.c.session_key)
    done = SESSIONS.c.session_key.in_(sessions), SESSIONS.c.forgotten_at.is_(None), ~left.exists()
    connection.execute(delete(SESSIONS).where(*done))
