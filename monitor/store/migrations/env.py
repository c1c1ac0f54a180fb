"""Alembic's entry: migrate on the connection, and in the transaction, that the store hands over."""

from __future__ import annotations

from alembic import context

from monitor.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    # SQLite can do it once the driver leaves transactions alone: a killed start leaves no half schema.
    transactional_ddl=True,
)
context.run_migrations()
