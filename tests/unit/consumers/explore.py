"""All ways in which something can go: a run asks which of several things comes next, and every answer is tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

Choose: TypeAlias = Callable[[int], int]


async def explore(run: Callable[[Choose], Awaitable[None]]) -> int:
    """Run again and again, until each choice of each run was taken; gives how many runs there were.

    A run gets `choose(options)`, which answers from 0 on, and has to do the same again after the same answers.
    """
    path: list[int] = []
    runs = 0
    while True:
        taken: list[tuple[int, int]] = []

        def choose(options: int, path: list[int] = path, taken: list[tuple[int, int]] = taken) -> int:
            choice = path[len(taken)] if len(taken) < len(path) else 0
            assert 0 <= choice < options, "the run differs from the one before"
            taken.append((choice, options))
            return choice

        await run(choose)
        runs += 1
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return runs
        path = [choice for choice, _ in taken]
        path[-1] += 1
