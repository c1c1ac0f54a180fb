"""Where prompts lie: `<rubric>/<version>.toml` in the package `prompts`, or in another folder laid out like it.

`SHA256SUMS` beside them lists the released versions, as `sha256sum -c` reads it. A version that is listed is
frozen: judgements of months were made with it, so it is used as it was, or not at all.
"""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from monitor.errors import ConfigError

SUMS: Final = "SHA256SUMS"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_VERSION: Final = re.compile(r"v([1-9][0-9]*)\.toml")
_SUM: Final = re.compile(r"([0-9a-f]{64})  ([a-z][a-z0-9_]*)/(v[1-9][0-9]*)\.toml")


def package() -> Traversable:
    """Give the folder of the prompts that come with Backslide."""
    return resources.files("prompts")


def read_prompt(rubric: str, version: str, folder: Traversable) -> bytes:
    """Read a prompt file. Raises `ConfigError` that names it when it is missing, or frozen and changed since."""
    where = f"prompts/{rubric}/{version}.toml"
    if not (_NAME.fullmatch(rubric) and _NAME.fullmatch(version)):
        raise ConfigError(
            f"{where}: a rubric and a prompt version are lower-case names, such as correction and v1"
        )
    try:
        raw = folder.joinpath(rubric, f"{version}.toml").read_bytes()
    except OSError:
        raise ConfigError(f"{where}: there is no such prompt") from None
    frozen = sums(folder).get((rubric, version))
    if frozen not in {None, sha256(raw)}:
        following = f"v{int(version[1:]) + 1}"
        raise ConfigError(
            f"{where}: this version is frozen (SHA256SUMS) and was changed since: put it back as it was, "
            f"and make the change in a version of its own, such as {following}.toml"
        )
    return raw


def sums(folder: Traversable) -> dict[tuple[str, str], str]:
    """Give the hashes of the frozen versions by rubric and version; none without a list. Raises `ConfigError`."""
    try:
        lines = folder.joinpath(SUMS).read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found: dict[tuple[str, str], str] = {}
    for number, line in enumerate(lines, 1):
        match = _SUM.fullmatch(line)
        if match is None:
            raise ConfigError(f"prompts/{SUMS}, line {number}: must be `<sha256>  <rubric>/<version>.toml`")
        found[match[2], match[3]] = match[1]
    return found


def newest_frozen(rubric: str, folder: Traversable) -> str:
    """Give the version that judges: the newest frozen one. Raises `ConfigError` that says how to make one."""
    frozen = [version for name, version in sums(folder) if name == rubric]
    if not frozen:
        raise ConfigError(
            f"prompts/{rubric}: no version is frozen, so none may judge: backslide golden freeze {rubric} v1"
        )
    return max(frozen, key=lambda version: int(version[1:]))


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
