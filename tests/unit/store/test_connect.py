"""R6: opening, migrating, and errors that name the database and the remedy without its password."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from monitor.errors import ConfigError, StoreError
from monitor.store import Store
from monitor.store.connect import check_url, writing
from monitor.store.tables import METADATA
from tests.services.ports import Port
from tests.services.postgres import PostgresServer, require_postgres
from tests.unit.store.builders import RUBRICS, decision, judgement


def test_the_migrations_give_the_tables_of_the_code(store: Store) -> None:
    with store._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_opening_again_keeps_everything(url: str) -> None:
    first = Store.open(url, rubrics=RUBRICS)
    first.record([decision(), judgement()])
    before = first.totals()
    first.close()

    second = Store.open(url)
    assert second.totals() == before
    second.close()


def test_several_processes_may_open_a_new_store_at_once(url: str) -> None:
    errors: list[BaseException] = []

    def open_it() -> None:
        try:
            Store.open(url).close()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []


def test_r6_sqlite_is_durable_and_readers_do_not_block(sqlite_store: Store) -> None:
    with sqlite_store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 10_000
        sqlite_store.record([decision(), judgement()])  # while the reader's transaction is open


def test_r6_a_sqlite_transaction_that_writes_takes_the_lock_at_once(sqlite_store: Store) -> None:
    """Reading first and locking later would fail where another wrote in between."""
    other = sqlite3.connect(str(sqlite_store._engine.url.database), timeout=0)
    with closing(other), writing(sqlite_store._engine), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")


def test_r6_postgresql_is_durable(postgres: PostgresServer) -> None:
    """Even where the server is set up otherwise."""
    store = Store.open(postgres.emptied())
    with store._engine.connect() as connection:
        setting = "SELECT setting, source FROM pg_settings WHERE name = 'synchronous_commit'"
        assert connection.exec_driver_sql(setting).one() == ("on", "client")
    store.close()


def test_the_folder_of_a_sqlite_file_is_created(tmp_path: Path) -> None:
    Store.open(f"sqlite:///{tmp_path}/a/b/store.sqlite").close()
    assert (tmp_path / "a/b/store.sqlite").is_file()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database " * 100)
    with pytest.raises(StoreError, match=r"notes\.txt: file is not a database"):
        Store.open(f"sqlite:///{tmp_path}/notes.txt")


def test_a_folder_that_can_not_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/sub/s\.sqlite: can't create its folder: .*store\.url"):
        Store.open(f"sqlite:///{tmp_path}/file/sub/s.sqlite")


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"unable to open database file; check that"):
        Store.open(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize("url", ["nonsense", "sqlite://", "mysql://u:secret@h/d", "sqlite:///:memory:"])
def test_urls_that_can_never_work_are_wrong_settings(url: str) -> None:
    for use in (Store.open, check_url):
        with pytest.raises(ConfigError, match=r"store\.url") as caught:
            use(url)
        assert "secret" not in str(caught.value)
        assert "SQLite" in str(caught.value) or "sqlite:" in str(caught.value)


def test_checking_a_url_makes_no_file(tmp_path: Path) -> None:
    check_url(f"sqlite:///{tmp_path}/a/store.sqlite")
    check_url("postgresql://u:secret@127.0.0.1:1/d")
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    port = Port()
    with pytest.raises(StoreError, match="check that the server runs") as caught:
        Store.open(f"postgresql://backslide:secret@127.0.0.1:{port.number}/db")
    port.release()
    assert "secret" not in str(caught.value)
    assert f"127.0.0.1:{port.number}/db" in str(caught.value)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite"
    Store.open(url).close()
    with sqlite3.connect(tmp_path / "store.sqlite") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match="run the newer Backslide that wrote it"):
        Store.open(url)


def test_a_plain_postgresql_url_uses_our_driver(postgres: PostgresServer) -> None:
    store = Store.open(postgres.emptied().replace("+psycopg", ""))
    store.ping()
    store.close()


def test_a_store_that_went_away_says_so_and_works_again() -> None:
    require_postgres()
    with PostgresServer() as server:
        store = Store.open(server.database(), rubrics=RUBRICS)
        server.stop()
        with pytest.raises(StoreError, match="check that the server runs"):
            store.record([decision()])
        with pytest.raises(StoreError):
            store.ping()
        server.start()
        assert store.record([decision()]).decisions == 1
        store.close()


def test_a_locked_sqlite_file_is_a_store_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.store.connect.BUSY_SECONDS", 0)
    monkeypatch.setattr("monitor.store.store._TRIES", 2)
    store = Store.open(f"sqlite:///{tmp_path}/store.sqlite", rubrics=RUBRICS)
    other = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="database is locked"):
        store.record([decision()])
    other.execute("ROLLBACK")
    assert store.record([decision()]).decisions == 1
    other.close()
    store.close()


READ_ONLY = """
import sys
from monitor.errors import StoreError
from monitor.store import Store
from tests.unit.store.builders import RUBRICS, decision

store = Store.open(sys.argv[1], rubrics=RUBRICS)
with store._engine.connect(), store._engine.connect():
    pass
for line in sys.stdin:
    try:
        print(store.record([decision(line.strip())]).decisions, flush=True)
    except StoreError as error:
        print(error, flush=True)
"""


def test_a_sqlite_file_that_was_read_only_for_a_while_is_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    url = f"sqlite:///{folder}/store.sqlite"
    other = Store.open(url)  # as `web` has it open: its files stay
    other.ping()
    command = [sys.executable, "-c", READ_ONLY, url]
    if os.geteuid() == 0:  # to root permissions mean nothing otherwise
        if shutil.which("setpriv") is None:
            pytest.skip("root needs setpriv (util-linux) to make a file read-only for itself")
        command = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override", "--", *command]
    permit(folder, writing=False)
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            ask = partial(answer, child)
            assert "readonly" in ask("a")
            assert "readonly" in ask("b")
            permit(folder, writing=True)
            assert [ask("c"), ask("d")] == ["1", "1"]
            child.communicate()
    finally:
        permit(folder, writing=True)
        other.close()


def permit(folder: Path, *, writing: bool) -> None:
    folder.chmod(0o700)
    for file in folder.iterdir():
        file.chmod(0o600 if writing else 0o400)
    if not writing:
        folder.chmod(0o500)


def answer(child: "subprocess.Popen[str]", line: str) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()
    return child.stdout.readline().strip()
