"""The faults. Each is a coroutine that returns when the fault is over; what it does is real, never simulated.

Store faults on SQLite: `store_full` lets every write of `record` to a file fail (RLIMIT_FSIZE, on the living
process: EFBIG, as a full disk gives ENOSPC); `store_read_only` takes the write permission from the files and their
folder and kills `record`, since a file that is open stays writable; `store_locked` holds SQLite's write lock for
longer than its busy timeout. On PostgreSQL: the server is killed; the database is made read-only and its
connections are cut; a lock is held on the table that every transaction takes first.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import psycopg

from tests.chaos.fleet import Member, forbid_writing

if TYPE_CHECKING:
    from tests.chaos.lane import Lane

Inject: TypeAlias = Callable[["Lane", random.Random], Awaitable[None]]

# Killed more often: those with the most to lose.
TARGETS: Final = {"assemble": 4, "sample": 3, "judge": 3, "record": 2, "web": 1}
STOP_S: Final = 20.0
UNREACHABLE_S: Final = 30.0
STORES: Final = ("sqlite", "postgresql")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of fault, how often it is drawn, and the stores that it needs."""

    inject: Inject
    weight: int
    stores: tuple[str, ...] = STORES


def pick(lane: Lane, dice: random.Random) -> Member:
    """Draw a process, and one of its members."""
    names = list(TARGETS)
    process = dice.choices(names, [TARGETS[name] for name in names])[0]
    return dice.choice(lane.fleet.of(process))


async def kill(lane: Lane, dice: random.Random) -> None:
    """SIGKILL one to three members, a moment apart."""
    for number in range(dice.randint(1, 3)):
        if number:
            await asyncio.sleep(dice.uniform(0, 3))
        if (child := pick(lane, dice).running) is not None:
            await asyncio.to_thread(child.kill)


async def term(lane: Lane, dice: random.Random) -> None:
    """SIGTERM one or two members."""
    for number in range(dice.randint(1, 2)):
        if number:
            await asyncio.sleep(dice.uniform(0, 3))
        if (child := pick(lane, dice).running) is not None:
            await asyncio.to_thread(child.stop)


async def stop(lane: Lane, dice: random.Random) -> None:
    """SIGSTOP a member for longer than the session timeout, then SIGCONT."""
    if (child := pick(lane, dice).running) is None:
        return
    await asyncio.to_thread(child.pause)
    await asyncio.sleep(STOP_S)
    child.resume()


async def broker_kill(lane: Lane, dice: random.Random) -> None:
    """SIGKILL the broker, and start it again."""
    await asyncio.to_thread(lane.broker.kill)
    await asyncio.sleep(dice.uniform(0.2, 6))
    await asyncio.to_thread(lane.broker.start)


async def unreachable(lane: Lane, dice: random.Random) -> None:
    """Cut the processes off from the broker, while producers go on."""
    await lane.proxy.become("refusing" if dice.random() < 0.5 else "silent")
    await asyncio.sleep(UNREACHABLE_S)
    await lane.proxy.become("open")


async def policy(lane: Lane, dice: random.Random) -> None:
    """Write one or two new policies, sometimes a broken one before."""
    for _ in range(dice.randint(1, 2)):
        if dice.random() < 0.3:
            lane.write_policy("strata: [{name: broken}]\n")
            await asyncio.sleep(dice.uniform(0.3, 2))
        lane.new_policy(dice)
        await asyncio.sleep(dice.uniform(0.5, 3))


async def deploy(lane: Lane, dice: random.Random) -> None:
    """Roll every process, one after the other, to settings that change the judge's prompt."""
    lane.new_prompt(dice)
    await lane.fleet.roll(dice.sample(lane.fleet.members, len(lane.fleet.members)))


async def store_full(lane: Lane, dice: random.Random) -> None:
    """Let every write to a file fail, then succeed again."""
    until = asyncio.get_running_loop().time() + dice.uniform(8, 14)
    while asyncio.get_running_loop().time() < until:
        for member in lane.fleet.of("record"):
            if (child := member.running) is not None:
                forbid_writing(child, forbidden=True)
        await asyncio.sleep(0.05)
    for member in lane.fleet.of("record"):
        if (child := member.running) is not None:
            forbid_writing(child, forbidden=False)


async def store_read_only(lane: Lane, dice: random.Random) -> None:
    """Make the store read-only, so that writers see it, then writable again."""
    seconds = dice.uniform(8, 14)
    if lane.postgres is not None:
        await _postgres_read_only(lane, seconds)
        return
    folder = lane.store_folder
    _permit(folder, writing=False)
    try:
        for member in lane.fleet.of("record"):
            if (child := member.running) is not None:
                await asyncio.to_thread(child.kill)
        await asyncio.sleep(seconds)
    finally:
        _permit(folder, writing=True)


async def store_locked(lane: Lane, dice: random.Random) -> None:
    """Hold the lock that writers need for longer than they wait for it at a time."""
    seconds = dice.uniform(11, 15)
    if lane.postgres is not None:
        async with await psycopg.AsyncConnection.connect(lane.postgres_address) as connection:
            await connection.execute("LOCK TABLE meta IN ACCESS EXCLUSIVE MODE")
            await asyncio.sleep(seconds)
        return
    connection_ = sqlite3.connect(lane.store_folder / "store.sqlite", isolation_level=None, timeout=30)
    try:
        connection_.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(seconds)
        connection_.execute("ROLLBACK")
    finally:
        connection_.close()


async def store_kill(lane: Lane, dice: random.Random) -> None:
    """SIGKILL the database server, and start it again."""
    assert lane.postgres is not None
    await asyncio.to_thread(lane.postgres.stop)
    await asyncio.sleep(dice.uniform(1, 8))
    await asyncio.to_thread(lane.postgres.start)


async def _postgres_read_only(lane: Lane, seconds: float) -> None:
    async def alter(value: str) -> None:
        async with await psycopg.AsyncConnection.connect(lane.postgres_address, autocommit=True) as connection:
            await connection.execute("SET default_transaction_read_only = off")
            name = connection.info.dbname
            await connection.execute(
                f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}'.encode()
            )
            # Only new connections see it.
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    await alter("on")
    try:
        await asyncio.sleep(seconds)
    finally:
        await alter("off")


def _permit(folder: Path, *, writing: bool) -> None:
    if writing:
        folder.chmod(0o700)
    for file in folder.iterdir():
        file.chmod(0o600 if writing else 0o400)
    if not writing:
        folder.chmod(0o500)


FAULTS: Final[dict[str, Fault]] = {
    "kill": Fault(inject=kill, weight=6),
    "term": Fault(inject=term, weight=4),
    "stop": Fault(inject=stop, weight=4),
    "broker_kill": Fault(inject=broker_kill, weight=3),
    "unreachable": Fault(inject=unreachable, weight=2),
    "policy": Fault(inject=policy, weight=3),
    "deploy": Fault(inject=deploy, weight=2),
    "store_full": Fault(inject=store_full, weight=2, stores=("sqlite",)),
    "store_read_only": Fault(inject=store_read_only, weight=2),
    "store_locked": Fault(inject=store_locked, weight=1),
    "store_kill": Fault(inject=store_kill, weight=3, stores=("postgresql",)),
}
