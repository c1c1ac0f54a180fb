"""Where prompts lie: `<rubric>/<version>.toml` in the package `prompts`, or in another folder laid out like it."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from monitor.errors import ConfigError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_VERSION: Final = re.compile(r"v([1-9][0-9]*)\.toml")


def package() -> Traversable:
    """Give the folder of the prompts that come with Backslide."""
    return resources.files("prompts")


def read_prompt(rubric: str, version: str, folder: Traversable) -> bytes:
    """Read a prompt file. Raises `ConfigError` that names it."""
    where = f"prompts/{rubric}/{version}.toml"
    if not (_NAME.fullmatch(rubric) and _NAME.fullmatch(version)):
        raise ConfigError(
            f"{where}: a rubric and a prompt version are lower-case names, such as correction and v1"
        )
    try:
        return folder.joinpath(rubric, f"{version}.toml").read_bytes()
    except OSError:
        raise ConfigError(f"{where}: there is no such prompt") from None


def sha256(raw: bytes) -> str:
    """Give the hash of a file as `sha256sum` prints it."""
    return hashlib.sha256(raw).hexdigest()


def versions(rubric: str, folder: Traversable) -> list[str]:
    """Give the versions of a rubric's prompt that there are, oldest first. Raises `ConfigError` without one."""
    place = folder.joinpath(rubric)
    found = (
        [match for item in place.iterdir() if (match := _VERSION.fullmatch(item.name))] if place.is_dir() else []
    )
    if not found:
        raise ConfigError(f"prompts/{rubric}: there is no prompt (v1.toml)")
    return [f"v{match[1]}" for match in sorted(found, key=lambda match: int(match[1]))]
