"""Recorded runs: `prompts/<rubric>/<version>.run.json` says how a prompt version did on its golden set.

A version can't be frozen without one: whoever releases a prompt has seen what it does.
"""

from __future__ import annotations

from datetime import date
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import msgspec

from monitor.errors import ConfigError
from monitor.golden.result import Call, GoldenResult, Share, share_right

_LEXICAL_NOTE: Final = (
    "The lexical judge reads no prompt: this run says how its rules do on the golden set, and nothing of how well "
    "the prompt works. Record a run by a language model in its place: backslide golden run --record."
)


class RecordedField(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Agreement on a field: exact, and for scores within one."""

    exact: Share
    within_one: Share | None


class RecordedRun(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What is kept of a run; hashes are SHA-256 of the files, `prompt_hash` the one in each judgement.

    `wrong` names the conversations that didn't come out as expected, by how.
    """

    rubric: str
    rubric_version: str
    prompt_version: str
    prompt_sha256: str
    prompt_hash: str
    golden_sha256: str
    judge: str
    recorded_on: date
    right: Share
    wrong: dict[Call, list[str]]
    fields: dict[str, RecordedField]
    note: str | None = None


def of(result: GoldenResult, today: date) -> RecordedRun:
    """Make the record of a run."""
    wrong: dict[Call, list[str]] = {}
    for row in result.wrong:
        wrong.setdefault(row.call, []).append(row.id)
    return RecordedRun(
        rubric=result.rubric,
        rubric_version=result.rubric_version,
        prompt_version=result.prompt_version,
        prompt_sha256=result.prompt_sha256,
        prompt_hash=result.prompt_hash,
        golden_sha256=result.golden_sha256,
        judge=result.judge,
        recorded_on=today,
        right=share_right(result.rows),
        wrong=wrong,
        fields={
            found.field: RecordedField(exact=found.exact, within_one=found.within_one) for found in result.fields()
        },
        note=_LEXICAL_NOTE if result.judge == "lexical" else None,
    )


def write(run: RecordedRun, folder: Traversable) -> Path:
    """Keep a run beside its prompt, in place of an earlier one. Raises `ConfigError` if that can't be done."""
    path = real(folder) / run.rubric / _name(run.prompt_version)
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a folder of prompts of your own (--prompts)") from None
    return path


def read(rubric: str, version: str, folder: Traversable) -> RecordedRun | None:
    """Read the recorded run of a prompt version; None without one. Raises `ConfigError` on anything else."""
    try:
        raw = folder.joinpath(rubric, _name(version)).read_bytes()
    except OSError:
        return None
    try:
        return msgspec.json.decode(raw, type=RecordedRun)
    except msgspec.DecodeError as error:
        raise ConfigError(f"prompts/{rubric}/{_name(version)}: {error}; record it again") from None


def real(folder: Traversable) -> Path:
    """Give a folder of prompts as one to write to. Raises `ConfigError` for one within an archive."""
    if not isinstance(folder, Path):
        raise ConfigError("the prompts lie in an archive; name a folder of prompts of your own (--prompts)")
    return folder


def _name(version: str) -> str:
    return f"{version}.run.json"
