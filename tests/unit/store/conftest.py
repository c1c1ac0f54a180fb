"""A store of each kind of database; PostgreSQL is started once and skipped where it is missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.store import Store
from tests.services.postgres import PostgresServer, require_postgres
from tests.unit.store.builders import RUBRICS

NOW = 1_800_000_000.0


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Run one PostgreSQL server for the whole session."""
    require_postgres()
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.sqlite"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.emptied()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Open an empty store whose clock stands still."""
    opened = Store.open(url, rubrics=RUBRICS, clock=lambda: NOW)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    """Open an empty SQLite store whose clock stands still."""
    opened = Store.open(f"sqlite:///{tmp_path}/store.sqlite", rubrics=RUBRICS, clock=lambda: NOW)
    yield opened
    opened.close()
