"""A PostgreSQL server of our own on 127.0.0.1, in a temporary folder that goes with it."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

import psycopg
from psycopg import sql

from tests.services.parts import INSTALL, find, require
from tests.services.ports import Port
from tests.services.process import Child, ServiceError

USER = "backslide"
START_SECONDS = 30.0


class PostgresServer:
    """A server whose user `backslide` needs no password. Start it once, and give each test it `emptied()`.

    PostgreSQL refuses to run as root; root runs it as the `postgres` user of the Debian package.
    """

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="backslide-pg-"))
        self._port = Port()
        self._child: Child | None = None

    def start(self) -> Self:
        """Create the cluster and wait until it answers; raises ServiceError with the end of its log."""
        data = self.dir / "data"
        if not data.exists():
            self._initialise(data)
        listen = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.dir}"]
        command = [program("postgres"), "-D", str(data), "-p", str(self._port.number), *listen, "-c", "fsync=off"]
        self._child = Child(_as_user(command), self.dir / "postgres.log")
        self._wait()
        return self

    def stop(self) -> None:
        """Stop it at once; open transactions are rolled back. Harmless when it does not run."""
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        """Stop for good, and remove its folder."""
        # SIGTERM would wait for clients to leave, and the data is gone in a moment anyway.
        self.stop()
        self._port.release()
        shutil.rmtree(self.dir, ignore_errors=True)

    def database(self) -> str:
        """Create an empty database and give its SQLAlchemy URL."""
        name = f"t{uuid4().hex}"
        with psycopg.connect(self._conninfo(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self._url(name)

    def emptied(self) -> str:
        """Empty the one shared database and give its SQLAlchemy URL; far quicker than a new database."""
        with psycopg.connect(self._conninfo(), autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return self._url("postgres")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _initialise(self, data: Path) -> None:
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            for path in (self.dir, data):
                shutil.chown(path, "postgres", "postgres")
        command = [program("initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        done = subprocess.run(_as_user(command), capture_output=True, text=True, cwd="/", check=False)
        if done.returncode != 0:
            raise ServiceError(f"initdb failed: {done.stderr.strip()[-2000:]}")

    def _url(self, name: str) -> str:
        return f"postgresql+psycopg://{USER}@127.0.0.1:{self._port.number}/{name}"

    def _conninfo(self) -> str:
        return f"host=127.0.0.1 port={self._port.number} user={USER} dbname=postgres connect_timeout=5"

    def _wait(self) -> None:
        assert self._child is not None
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self._conninfo()).close()
            except psycopg.OperationalError as error:
                if not self._child.alive or time.monotonic() > deadline:
                    raise ServiceError(f"PostgreSQL gave no answer: {error}\n{self._child.tail()}") from error
                time.sleep(0.05)
            else:
                return


def available() -> bool:
    """Whether a server can be started here."""
    if _find("postgres") is None or _find("initdb") is None:
        return False
    return os.geteuid() != 0 or (shutil.which("setpriv") is not None and _has_user("postgres"))


def require_postgres() -> None:
    """Skip the test when there is no PostgreSQL; fail instead under CI."""
    require("postgres", available(), f"{INSTALL}, or as root: apt-get install postgresql")


def program(name: str) -> str:
    """Find one of PostgreSQL's programs, on PATH or where Debian puts them."""
    path = _find(name)
    if path is None:
        raise ServiceError(f"{name} is missing; as root: apt-get install postgresql")
    return str(path)


def _find(name: str) -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return find([name]) or (debian[-1] if debian else None)


def _as_user(command: Sequence[str]) -> list[str]:
    if os.geteuid() != 0:
        return list(command)
    # The death signal has to be set again after the change of user, which clears it.
    user = ["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig", "KILL"]
    return ["setpriv", *user, "--", *command]


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
