"""Removing text, and rows that are old, without touching a total (R5).

Text goes first and leaves a numeric row behind, a tombstone: it keeps a redelivered record out.
Rows go last; what they had added moves to the `pruned` baseline in the same transaction, so a rebuild still gives
the same totals.
"""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import Connection, Engine, Table, delete, func, select, update

from monitor.store.connect import writing
from monitor.store.ledger import Sums, add
from monitor.store.rows import clean, session_key
from monitor.store.segment import PENDING
from monitor.store.statements import add_totals, insert_new
from monitor.store.tables import ADDENDA, DECISIONS, FAILURES, JOBS, JUDGEMENTS, META, PRUNED, SESSIONS
from monitor.store.totals import sums_of

_TEXT: Final = ((DECISIONS, "content"), (JUDGEMENTS, "body"), (ADDENDA, "event"))
_CHUNK: Final = 500


class Expired(msgspec.Struct, kw_only=True, frozen=True):
    """What `Store.expire` removed: rows that lost their text, and segments that went altogether."""

    texts: int
    segments: int


def forget(connection: Connection, tenant: str, session_id: str, now: int) -> bool:
    """Remove a session's text and remember to store none again; its ids and numbers stay."""
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
    return Expired(texts=texts, segments=segments)


def _expire_text(engine: Engine, table: Table, column: str, before: int) -> int:
    with writing(engine) as connection:
        old = table.c.recorded_at < before, table.c[column].is_not(None)
        return int(connection.execute(update(table).where(*old).values({column: None})).rowcount)


def _prune(engine: Engine, before: int) -> int:
    with writing(engine) as connection:
        connection.execute(select(META.c.value).where(META.c.name == "generation").with_for_update(read=True))
        waiting = select(JOBS.c.segment_key).where(
            JOBS.c.segment_key == DECISIONS.c.segment_key, JOBS.c.state == PENDING
        )
        old = select(DECISIONS.c.segment_key, DECISIONS.c.session_key)
        old = old.where(DECISIONS.c.recorded_at < before, ~waiting.exists()).order_by(DECISIONS.c.id).limit(_CHUNK)
        found = connection.execute(old).all()
        if not found:
            return 0
        sessions = sorted({row.session_key for row in found})
        _lock(connection, sessions)
        keys = [row.segment_key for row in found]
        sums: Sums = {}
        add(sums, sums_of(connection, keys))
        _delete(connection, keys, sessions)
        add_totals(connection, sums, PRUNED)
        return len(keys)


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
