"""Opening the database: engine, SQLite's settings (R6), migrations, and errors that name the remedy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.pool import ConnectionPoolEntry

from monitor.errors import ConfigError, StoreError

BUSY_SECONDS: Final = 10
# "backslid" as a number: the key of the advisory lock under which PostgreSQL migrates.
_MIGRATION_LOCK: Final = 0x6261636B736C6964
# PostgreSQL: program limit exceeded.
_LIMIT_CLASS: Final = "54"
# PostgreSQL: serialization failure, deadlock, lock not available.
_RETRY_STATES: Final = frozenset({"40001", "40P01", "55P03"})
# SQLite: of the file and its disk, not of a statement.
_FILE_ERRORS: Final = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})


def connect(url: str) -> Engine:
    """Create the engine of a SQLite file or of PostgreSQL; nothing is connected yet.

    Raises `ConfigError` for a URL that can never work, and `StoreError` when SQLite's folder can't be made.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed)
    try:
        return create_engine(
            parsed,
            hide_parameters=True,
            pool_pre_ping=True,
            pool_size=5,
            connect_args={"connect_timeout": BUSY_SECONDS, "options": "-c synchronous_commit=on"},
        )
    except ImportError:
        raise ConfigError(
            f"store.url = {shown(parsed)}: the driver is missing; pip install 'backslide[postgres]'"
        ) from None


def check_url(url: str) -> None:
    """Raise `ConfigError` for a URL that can never work: waiting, as for a database that is down, is no use."""
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        _sqlite_file(parsed)


def migrate(engine: Engine) -> None:
    """Bring the database to the newest schema, in one transaction. Raises `StoreError`."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    with translated(engine), writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise StoreError(
                f"store {shown(engine.url)}: its schema is not one that this version knows ({error}); "
                "run the newer Backslide that wrote it, or use another database"
            ) from None


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes; on SQLite it takes the write lock at once (R6)."""
    with engine.connect().execution_options(backslide_write=True) as connection, connection.begin():
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a short transaction that reads one snapshot."""
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)  # noqa: PLW2901
        with connection.begin():
            yield connection


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Turn a database that can't be used into a `StoreError` that names it, without its password.

    After an error of SQLite's file itself its connections are closed, all at once: one that was opened while the
    file was read-only stays read-only for ever, and makes others of its process so that are opened beside it.
    """
    try:
        yield
    except OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _FILE_ERRORS:  # the low byte is the kind
            engine.dispose()
        raise StoreError(f"store {shown(engine.url)}: {_reason(error)}; {_remedy(engine.url)}") from error
    except SQLAlchemyError as error:
        raise StoreError(f"store {shown(engine.url)}: {_reason(error)}") from error


def worth_retrying(error: DBAPIError) -> bool:
    """Whether a transaction failed only because others ran at the same time."""
    return getattr(error.orig, "sqlstate", None) in _RETRY_STATES or "database is locked" in str(error.orig)


def blames_data(error: DBAPIError) -> bool:
    """Whether a transaction failed for what it was to store, so that the same would fail again."""
    if isinstance(error, DataError | IntegrityError):
        return True
    # A name too long for an index, a row too wide: an `OperationalError` to the driver, as a lost server is.
    return str(getattr(error.orig, "sqlstate", None)).startswith(_LIMIT_CLASS)


def shown(url: URL) -> str:
    """Render a URL for people, with the password hidden."""
    return url.render_as_string(hide_password=True)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        # The text isn't repeated: it may hold a password that can't be told apart.
        raise ConfigError("store.url is not a database URL; write sqlite:///path/file.sqlite or "
                          "postgresql://user:password@host/database") from None  # fmt: skip
    if parsed.drivername in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    if backend not in {"sqlite", "postgresql"}:
        raise ConfigError(f"store.url = {shown(parsed)}: only SQLite and PostgreSQL are supported")
    return parsed


def _sqlite(url: URL) -> Engine:
    file = _sqlite_file(url)
    try:
        # Transcripts lie in there.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"store {shown(url)}: can't create its folder: {error.strerror}; "
                         "choose a path that this user may write, in store.url") from None  # fmt: skip
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS}, pool_size=5, hide_parameters=True)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _sqlite_file(url: URL) -> Path:
    if not url.database or url.database == ":memory:":
        raise ConfigError("store.url = sqlite://: a database in memory is lost with its process; "
                          "write sqlite:///path/file.sqlite")  # fmt: skip
    return Path(url.database)


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    # The driver would begin transactions by itself, late and DEFERRED; None leaves it to `_begin_sqlite`.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("backslide_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _reason(error: SQLAlchemyError) -> str:
    # The driver's first line: what follows, and SQLAlchemy's own words, may hold values, which are text of users.
    cause = error.orig if isinstance(error, DBAPIError) else type(error).__name__
    return " ".join(str(cause).split("\n", 1)[0].split())


def _remedy(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        return (
            "check that the folder exists, that this user may write to it and that the disk isn't full (store.url)"
        )
    return "check that the server runs, and host, user, password and database (store.url)"
