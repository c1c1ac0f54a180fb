"""Inserts with a conflict: SQLite and PostgreSQL spell them alike, but SQLAlchemy keeps them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, Select, Table, Update, bindparam, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from monitor.store.ledger import TotalKey
from monitor.store.tables import TOTALS

_COLUMNS: Final = (*TotalKey._fields, "value")
Insert: TypeAlias = sqlite.Insert | postgresql.Insert


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose primary key isn't there yet."""
    if rows:
        statement = _insert(connection, table).on_conflict_do_nothing(
            index_elements=list(table.primary_key.columns)
        )
        connection.execute(statement, list(rows))


def add_totals(connection: Connection, sums: Mapping[TotalKey, int], table: Table = TOTALS) -> None:
    """Add to totals, creating those that aren't there; zeros are kept, since a series must not come late (R3)."""
    ordered = sorted(sums.items())
    gains: list[tuple[Any, ...]] = [(*key, value) for key, value in ordered if value >= 0]
    if gains:
        _add(connection, table, gains)
    # The check of the table looks at the row to be inserted before it looks at the conflict, so losses can't
    # take the same way. Their rows are there: only what was counted is taken back (J4).
    if losses := [
        {f"_{name}": part for name, part in zip(_COLUMNS, (*key, value), strict=True)}
        for key, value in ordered
        if value < 0
    ]:
        connection.execute(_subtract(table), losses)


def _add(connection: Connection, table: Table, rows: list[tuple[Any, ...]]) -> None:
    insert = _insert(connection, table)
    statement = insert.on_conflict_do_update(
        index_elements=list(table.primary_key.columns), set_={"value": table.c.value + insert.excluded.value}
    )
    if connection.dialect.name == "postgresql":
        # One statement with an array a column: a batch adds to thousands of totals, each a round of its own else.
        columns = dict(zip(_COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
        connection.execute(statement.from_select(_COLUMNS, _unnested(table)), columns)
    else:
        # Straight to the driver: binding thousands of rows of names and numbers by SQLAlchemy takes longer than
        # SQLite takes to add them.
        compiled = statement.compile(dialect=connection.dialect, column_keys=list(_COLUMNS))
        connection.exec_driver_sql(compiled.string, rows)


def _unnested(table: Table) -> Select[Any]:
    arrays = (bindparam(name, type_=postgresql.ARRAY(table.c[name].type)) for name in _COLUMNS)
    return select(func.unnest(*arrays).table_valued(*_COLUMNS).render_derived())


def _subtract(table: Table) -> Update:
    keys = [column == bindparam(f"_{column.name}") for column in table.primary_key.columns]
    return update(table).where(*keys).values(value=table.c.value + bindparam("_value"))


def _insert(connection: Connection, table: Table) -> Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
