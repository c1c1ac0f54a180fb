"""A progress bar on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from monitor.judge_file import Progress
from monitor.judging.prices import dollars


@contextmanager
def progress_bar(*, shown: bool = True) -> Iterator[Callable[[Progress], None] | None]:
    """Give what to tell of the progress; None when there is no terminal to show it on."""
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    columns = (
        TextColumn("judging"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[spent]}"),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None, spent="")
        yield lambda at: bar.update(task, total=at.sessions, completed=at.done, spent=spent(at))


def spent(at: Progress) -> str:
    """Say in a few words what the judge was asked so far."""
    failed = sum(count for name, count in at.calls.by_error_type.items() if name != "none")
    tokens = sum(at.calls.tokens.values())
    calls = f"{at.calls.by_error_type.total()} calls, {failed} failed"
    return f"{calls}, {tokens:,} tokens, {dollars(at.calls.cost_nusd)}"
