"""`backslide dead-letters`: look at what was put aside, send it back, or drop it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from monitor.errors import BackslideError, ConfigError, InputError

if TYPE_CHECKING:
    from consumers.dead_letters.desk import Desk, Done
    from consumers.dead_letters.filters import Filter
    from consumers.dead_letters.reading import Letter
    from monitor.config import Settings

T = TypeVar("T")

dead_letters_app = typer.Typer(
    help="List, show, replay and drop what no stage could take in.", no_args_is_help=True
)

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file of settings.", envvar="BACKSLIDE_CONFIG")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, an object a line.")]
Ids = Annotated[list[str] | None, typer.Argument(help="Ids, as `list` shows them.", show_default=False)]
Stage = Annotated[Literal["assemble", "sample", "judge", "record"] | None, typer.Option(help="Who put it aside.")]
Reason = Annotated[str | None, typer.Option(help="Why, in the word of `list`.")]
Topic = Annotated[str | None, typer.Option(help="Where the record lay.")]
Partition = Annotated[int | None, typer.Option(min=0, help="Its partition.")]
Offsets = Annotated[str | None, typer.Option(help="Its offset: 100, 100-200, 100- or -200.")]
Tenant = Annotated[str | None, typer.Option(help="Whose session it is.")]
Key = Annotated[str | None, typer.Option(help="The record's key, or tenant/session_id.")]
Since = Annotated[str | None, typer.Option(help="Put aside since: 2026-11-30T12:00 (UTC), or 2h ago as 2h.")]
Until = Annotated[str | None, typer.Option(help="Put aside before: the same forms.")]
State = Annotated[Literal["open", "replayed", "dropped"] | None, typer.Option(help="What became of it.")]
All = Annotated[bool, typer.Option("--all", help="Needed without any id or filter.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@dead_letters_app.command("list")
def list_letters(
    ids: Ids = None,
    config: Config = None,
    stage: Stage = None,
    reason: Reason = None,
    topic: Topic = None,
    partition: Partition = None,
    offsets: Offsets = None,
    tenant: Tenant = None,
    key: Key = None,
    since: Since = None,
    until: Until = None,
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, never what is in them."""
    from consumers.dead_letters import text

    wanted = _filter(ids, stage, reason, topic, partition, offsets, tenant, key, since, until, state)
    found = _at_desk(config, lambda desk, _: desk.letters(wanted))
    if as_json:
        for letter in found:
            _print_json(text.line(letter))
    else:
        typer.echo(text.table(found))


@dead_letters_app.command()
def show(
    id_: Annotated[str, typer.Argument(metavar="ID", help="An id, as `list` shows it.")],
    config: Config = None,
    original: Annotated[
        bool, typer.Option("--original", help="Write the bytes that a replay sends: all of them, unchanged.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Write the letter's own bytes, unchanged.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write them to, instead of standard output.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter with its error, what to do, and its bytes. They may hold what users said."""
    from consumers.dead_letters import text
    from consumers.dead_letters.reading import headers_of

    if out is not None and not (raw or original):
        raise ConfigError("--out: needs --raw or --original")

    async def look(desk: Desk, _: Settings) -> tuple[Letter, Any, bytes]:
        letter = await _one(desk, id_)
        record = await desk.record(letter)
        return letter, record, await desk.original(letter) if original else record.value or b""

    letter, record, value = _at_desk(config, look)
    if raw or original:
        _write(value, out)
    elif as_json:
        _print_json(text.whole(letter, value, headers_of(record)))
    else:
        typer.echo(text.page(letter, value, headers_of(record)))


@dead_letters_app.command()
def replay(
    ids: Ids = None,
    config: Config = None,
    stage: Stage = None,
    reason: Reason = None,
    topic: Topic = None,
    partition: Partition = None,
    offsets: Offsets = None,
    tenant: Tenant = None,
    key: Key = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    to: Annotated[str | None, typer.Option(help="Topic to send to, instead of where it came from.")] = None,
    value: Annotated[
        Path | None, typer.Option(help="File with the mended bytes of one letter, sent instead of its own.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what was replayed or dropped before.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Send records back to where they came from; one that fails again becomes a new dead letter."""
    wanted = _filter(ids, stage, reason, topic, partition, offsets, tenant, key, since, until, None)
    _refuse_everything(wanted, everything=everything)
    mended = None if value is None else _mended(value)
    tally = Tally("would be replayed" if dry_run else "replayed", as_json=as_json)

    async def work(desk: Desk, _: Settings) -> None:
        chosen = await _chosen(desk, wanted, tally, again=again)
        if mended is not None and len(chosen) != 1:
            raise ConfigError(f"--value: is for one letter, {len(chosen)} are chosen")
        await desk.replay(chosen, tally.add, to=to, value=mended, dry_run=dry_run)

    _at_desk(config, work)
    tally.close()


@dead_letters_app.command()
def drop(
    ids: Ids = None,
    config: Config = None,
    stage: Stage = None,
    reason: Reason = None,
    topic: Topic = None,
    partition: Partition = None,
    offsets: Offsets = None,
    tenant: Tenant = None,
    key: Key = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Mark dead letters as dealt with; nothing is deleted, and `replay --again` takes them all the same."""
    wanted = _filter(ids, stage, reason, topic, partition, offsets, tenant, key, since, until, None)
    _refuse_everything(wanted, everything=everything)
    tally = Tally("would be dropped" if dry_run else "dropped", as_json=as_json)

    async def work(desk: Desk, _: Settings) -> None:
        await desk.drop(await _chosen(desk, wanted, tally, again=False), tally.add, dry_run=dry_run)

    _at_desk(config, work)
    tally.close()


class Tally:
    """Prints what becomes of each letter as it happens, and the sum at the end."""

    def __init__(self, verb: str, *, as_json: bool) -> None:
        self.skipped = 0
        self._verb = verb
        self._as_json = as_json
        self._done: list[Done] = []

    def add(self, done: Done) -> None:
        """Take in one outcome."""
        from consumers.dead_letters import text

        self._done.append(done)
        if self._as_json:
            became = {"outcome": "left" if done.problem else self._verb}
            _print_json({"id": done.id} | became | {"to": done.to or None, "problem": done.problem or None})
        else:
            typer.echo(text.outcome(done, self._verb))

    def close(self) -> None:
        """Print the sum; exit status 1 when something had to be left."""
        from consumers.dead_letters import text

        # Standard output holds nothing but objects with --json.
        typer.echo(text.total(self._done, self._verb, self.skipped), err=self._as_json)
        if any(done.problem for done in self._done):
            raise typer.Exit(1)


def _filter(
    ids: list[str] | None,
    stage: Stage,
    reason: str | None,
    topic: str | None,
    partition: int | None,
    offsets: str | None,
    tenant: str | None,
    key: str | None,
    since: str | None,
    until: str | None,
    state: State,
) -> Filter:
    from consumers.dead_letters.filters import Filter, moment, offset_range

    first, last = offset_range(offsets)
    now = time.time()
    return Filter(
        ids=tuple(ids or ()),
        stage=stage,
        reason=reason,
        topic=topic,
        partition=partition,
        first_offset=first,
        last_offset=last,
        tenant=tenant,
        key=key,
        since=moment("--since", since, now),
        until=moment("--until", until, now),
        state=state,
    )


def _refuse_everything(wanted: Filter, *, everything: bool) -> None:
    if wanted.is_open and not everything:
        raise ConfigError("all dead letters are meant: say so with --all, or name ids or a filter")


async def _chosen(desk: Desk, wanted: Filter, tally: Tally, *, again: bool) -> list[Letter]:
    found = await desk.letters(wanted)
    missing = set(wanted.ids) - {letter.id for letter in found}
    if missing:
        raise BackslideError(
            f"no dead letter {', '.join(sorted(missing))}; `backslide dead-letters list` shows ids"
        )
    chosen = [letter for letter in found if again or letter.state == "open"]
    tally.skipped = len(found) - len(chosen)
    return chosen


async def _one(desk: Desk, letter_id: str) -> Letter:
    from consumers.dead_letters.filters import Filter

    found = await desk.letters(Filter(ids=(letter_id,)))
    if not found:
        raise BackslideError(f"no dead letter {letter_id}; `backslide dead-letters list` shows ids")
    return found[0]


def _at_desk(config: Path | None, work: Callable[[Desk, Settings], Awaitable[T]]) -> T:
    from consumers.dead_letters.desk import open_desk
    from consumers.on_brokers import on_brokers
    from monitor.config import load

    settings = load(config)

    async def run() -> T:
        async with open_desk(settings) as desk:
            return await work(desk, settings)

    return on_brokers(run(), settings.kafka.bootstrap_servers)


def _mended(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"--value {file}: can't be read: {error.strerror}") from None


def _write(value: bytes, out: Path | None) -> None:
    if out is None:
        sys.stdout.buffer.write(value)
        sys.stdout.buffer.flush()
        return
    try:
        out.write_bytes(value)
    except OSError as error:
        raise InputError(f"--out {out}: can't be written: {error.strerror}") from None


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))
