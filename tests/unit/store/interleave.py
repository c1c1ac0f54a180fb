"""Two transactions on two connections, one stopped before each of its statements in turn while the other runs.

Nothing here is random: `every_step` goes through all statements of the first transaction, its commit included. The
second runs until it is done or waits for a lock of the first, and only then the first goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event, text

from monitor.store import Store
from tests.unit.store.builders import RUBRICS

Work = Callable[[Store], object]
PATIENCE_S = 30.0


class Gate:
    """Stops the thread of `engine`'s transaction before its statement number `at`; statements count from 0."""

    def __init__(self, engine: Engine, at: int) -> None:
        self._engine = engine
        self._at = at
        self._seen = 0
        self.reached = threading.Event()
        self.open = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        listeners = [("before_cursor_execute", self._statement), ("commit", self._commit)]
        for name, listener in listeners:
            event.listen(self._engine, name, listener)
        try:
            yield
        finally:
            self.open.set()
            for name, listener in listeners:
                event.remove(self._engine, name, listener)

    def _statement(self, *_: Any) -> None:
        if self._seen == self._at:
            self.reached.set()
            assert self.open.wait(PATIENCE_S), "the gate was never opened"
        self._seen += 1

    def _commit(self, _: Any) -> None:
        self._statement()


class Running:
    """Work in a thread of its own; what it raises comes out of `join`."""

    def __init__(self, work: Work, store: Store) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work, store), daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert self.done, "a transaction hangs"
        if self._error is not None:
            raise self._error

    def _run(self, work: Work, store: Store) -> None:
        try:
            work(store)
        except BaseException as error:  # noqa: BLE001 - passed on by `join`
            self._error = error


class Pair:
    """Two stores on one database, each with connections of its own, and a third that looks."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.first, self.second, self.looking = (Store.open(url, rubrics=RUBRICS, clock=clock) for _ in range(3))
        self._begins_since: float | None = None
        event.listen(self.second._engine, "before_cursor_execute", self._begin)
        event.listen(self.second._engine, "after_cursor_execute", self._end)

    def close(self) -> None:
        for store in (self.first, self.second, self.looking):
            store.close()

    def interleave(self, at: int, first: Work, second: Work) -> bool:
        """Run both, `second` while `first` stands before its statement `at`; False when it has no such one."""
        gate = Gate(self.first._engine, at)
        with gate.watching():
            one = Running(first, self.first)
            while not gate.reached.wait(0.002) and not one.done:
                pass
            stopped = gate.reached.is_set()
            two = Running(second, self.second)
            while not two.done and not self._waits():
                time.sleep(0.001)
            gate.open.set()
            one.join()
            two.join()
        return stopped

    def _waits(self) -> bool:
        """Say whether the second transaction waits for a lock."""
        engine = self.looking._engine
        if engine.dialect.name == "postgresql":
            with engine.connect() as connection:
                return bool(connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar())
        # SQLite has one lock, taken at the beginning; taking it while it is free takes no time.
        since = self._begins_since
        return since is not None and time.monotonic() - since > 0.005

    def _begin(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement == "BEGIN IMMEDIATE":
            self._begins_since = time.monotonic()

    def _end(self, *_: Any) -> None:
        self._begins_since = None
