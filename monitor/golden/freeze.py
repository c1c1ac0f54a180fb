"""Freeze a prompt version: list its hash in `SHA256SUMS`, so that it judges from now on and never changes."""

from __future__ import annotations

from importlib.resources.abc import Traversable

from monitor.errors import ConfigError
from monitor.golden import recorded
from monitor.golden.rows import SCALES, read
from monitor.judging.prompt import load
from monitor.judging.prompt_files import SUMS, read_prompt, sha256, sums


def freeze(rubric: str, version: str, folder: Traversable) -> bool:
    """Freeze a version; False if it was frozen before. Raises `ConfigError` that says what is missing.

    A rubric's version needs a recorded run of this very text on the golden set as it is. Prompts of no rubric,
    such as those of a screen, have no golden set and are frozen by their hash alone.
    """
    path = recorded.real(folder) / SUMS
    found = sha256(read_prompt(rubric, version, folder))
    load(rubric, version, folder=folder)
    if rubric in SCALES:
        _seen(rubric, version, found, folder)
    known = sums(folder)
    if (rubric, version) in known:
        return False
    listed = sorted((known | {(rubric, version): found}).items(), key=_order)
    text = "".join(f"{hash_}  {name}/{its}.toml\n" for (name, its), hash_ in listed)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a folder of prompts of your own (--prompts)") from None
    return True


def _seen(rubric: str, version: str, found: str, folder: Traversable) -> None:
    """Demand a recorded run. Raises `ConfigError`."""
    run = recorded.read(rubric, version, folder)
    command = f"backslide golden run {rubric} --prompt {version} --record --judge ..."
    if run is None:
        raise ConfigError(f"prompts/{rubric}/{version}.toml: no run is recorded: {command}")
    if run.prompt_sha256 != found:
        raise ConfigError(f"prompts/{rubric}/{version}.toml was changed since its run was recorded: {command}")
    if run.golden_sha256 != read(folder, rubric).sha256:
        raise ConfigError(f"prompts/{rubric}/golden.jsonl was changed since the run was recorded: {command}")


def _order(item: tuple[tuple[str, str], str]) -> tuple[str, int]:
    (rubric, version), _ = item
    return rubric, int(version[1:])
