"""The lock above all others: who adds to totals shares it, who takes rows out of them or counts anew owns it.

It is the first thing that a transaction takes. So a rebuild and a retention run meet no recorder half way: what a
recorder has read stays true until it has written. SQLite has one writer anyway.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from monitor.store.tables import META

_GENERATION = select(META.c.value).where(META.c.name == "generation")


def share(connection: Connection) -> None:
    """Keep rebuild and retention out until the transaction ends."""
    connection.execute(_GENERATION.with_for_update(read=True))


def own(connection: Connection) -> int:
    """Keep everybody out until the transaction ends; gives the generation of the totals."""
    return int(connection.execute(_GENERATION.with_for_update()).scalar_one())
