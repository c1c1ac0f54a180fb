"""Working on dead letters in a test, and the command."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from consumers.dead_letters.desk import Done, open_desk
from consumers.dead_letters.filters import Filter
from consumers.dead_letters.reading import Letter
from consumers.dead_letters_command import dead_letters_app
from monitor.config import Settings
from monitor.errors import BackslideError


async def letters(settings: Settings, **wanted: Any) -> list[Letter]:
    async with open_desk(settings) as desk:
        return await desk.letters(Filter(**wanted))


async def states(settings: Settings) -> dict[str, int]:
    """Count the letters by state."""
    found = [letter.state for letter in await letters(settings)]
    return {state: found.count(state) for state in sorted(set(found))}


async def replay(settings: Settings, *, again: bool = False, **how: Any) -> list[Done]:
    """Replay what is open, or all of it again."""
    done: list[Done] = []
    async with open_desk(settings) as desk:
        chosen = await desk.letters(Filter(state=None if again else "open"))
        await desk.replay(chosen, done.append, **how)
    return done


class Command:
    """`backslide dead-letters` with the settings of a test."""

    def __init__(self, values: dict[str, Any], folder: Path) -> None:
        self._config = folder / "dead-letters.yaml"
        self._config.write_text(json.dumps(values))

    def line(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "consumers", "dead-letters", *arguments, "-c", str(self._config)]

    async def __call__(self, *arguments: str) -> tuple[int, bytes, str]:
        """Run it in this process, which saves seconds: exit status, standard output, the error's text."""
        line = [*arguments, "-c", str(self._config)]
        result = await asyncio.to_thread(CliRunner().invoke, dead_letters_app, line)
        assert result.exception is None or isinstance(result.exception, BackslideError | SystemExit)
        error = str(result.exception) if isinstance(result.exception, BackslideError) else ""
        return result.exit_code, result.stdout_bytes, error
