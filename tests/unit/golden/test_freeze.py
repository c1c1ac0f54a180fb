"""A version is frozen once its run is recorded; from then on it judges, and can't be changed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from datetime import date
from pathlib import Path

import msgspec
import pytest

from monitor.config import JudgeSettings
from monitor.errors import ConfigError
from monitor.golden import recorded
from monitor.golden.freeze import freeze
from monitor.golden.judging import judge_golden
from monitor.golden.rows import read
from monitor.judging.lexical.judge import LexicalJudge
from monitor.judging.prompt import load
from monitor.judging.prompt_files import SUMS, package, versions

TODAY = date(2026, 12, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a refusal prompt that nobody has seen at work yet."""
    (tmp_path / "refusal").mkdir()
    for name in ("v1.toml", "golden.jsonl"):
        shutil.copy(str(package().joinpath("refusal", name)), tmp_path / "refusal" / name)
    return tmp_path


async def run(folder: Path, version: str = "v1") -> recorded.RecordedRun:
    result = await judge_golden(
        read(folder, "refusal"), version, LexicalJudge(), JudgeSettings(model="lexical"), folder=folder
    )
    return recorded.of(result, TODAY)


def change(path: Path) -> None:
    path.write_text(path.read_text("utf-8").replace("declines", "refuses"), encoding="utf-8")


def sums_hold(folder: Path) -> bool:
    checked = subprocess.run(["sha256sum", "-c", "--strict", SUMS], cwd=folder, check=False, capture_output=True)
    return checked.returncode == 0


async def test_a_recorded_run_says_what_was_judged_and_by_whom(folder: Path) -> None:
    kept = await run(folder)
    path = recorded.write(kept, folder)
    assert path == folder / "refusal" / "v1.run.json"
    assert recorded.read("refusal", "v1", folder) == kept
    raw = (folder / "refusal" / "v1.toml").read_bytes()
    assert kept.prompt_sha256 == hashlib.sha256(raw).hexdigest()
    assert kept.prompt_hash == load("refusal", "v1", folder=folder).prompt_hash
    assert (kept.judge, kept.recorded_on, kept.right.n) == ("lexical", TODAY, 25)
    assert sum(len(ids) for ids in kept.wrong.values()) == 25 - kept.right.hits > 0
    assert kept.note is not None
    assert "reads no prompt" in kept.note
    named = msgspec.structs.replace(kept, judge="anthropic:claude-haiku-5-5", note=None)
    assert b'"note": null' in recorded.write(named, folder).read_bytes()


async def test_without_a_run_of_this_very_text_on_this_very_set_nothing_is_frozen(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"v1\.toml: no run is recorded: backslide golden run refusal --prompt v1"
    ):
        freeze("refusal", "v1", folder)
    recorded.write(await run(folder), folder)
    change(folder / "refusal" / "v1.toml")
    with pytest.raises(ConfigError, match=r"v1\.toml was changed since its run was recorded"):
        freeze("refusal", "v1", folder)
    recorded.write(await run(folder), folder)
    change(folder / "refusal" / "golden.jsonl")
    with pytest.raises(ConfigError, match=r"golden\.jsonl was changed since the run was recorded"):
        freeze("refusal", "v1", folder)
    assert not (folder / SUMS).exists()
    (folder / "refusal" / "v1.run.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"prompts/refusal/v1\.run\.json: .*; record it again"):
        freeze("refusal", "v1", folder)


async def test_a_frozen_version_judges_and_is_refused_once_it_is_changed(folder: Path) -> None:
    recorded.write(await run(folder), folder)
    assert freeze("refusal", "v1", folder) is True
    assert freeze("refusal", "v1", folder) is False
    assert sums_hold(folder)
    assert load("refusal", folder=folder).version == "v1"
    change(folder / "refusal" / "v1.toml")
    assert not sums_hold(folder)
    for version in (None, "v1"):
        with pytest.raises(ConfigError, match=r"v1\.toml: this version is frozen .* such as v2\.toml"):
            load("refusal", version, folder=folder)
    with pytest.raises(ConfigError, match="this version is frozen"):
        freeze("refusal", "v1", folder)


async def test_a_new_version_judges_only_once_it_is_frozen(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match="no version is frozen, so none may judge: backslide golden freeze refusal"
    ):
        load("refusal", folder=folder)
    recorded.write(await run(folder), folder)
    freeze("refusal", "v1", folder)
    for number in (2, 10):
        shutil.copy(folder / "refusal" / "v1.toml", folder / "refusal" / f"v{number}.toml")
        change(folder / "refusal" / f"v{number}.toml")
    assert versions("refusal", folder) == ["v1", "v2", "v10"]
    assert load("refusal", folder=folder).version == "v1"
    assert load("refusal", "v10", folder=folder).version == "v10"
    for number in (10, 2):
        recorded.write(await run(folder, f"v{number}"), folder)
        freeze("refusal", f"v{number}", folder)
    assert load("refusal", folder=folder).version == "v10"
    listed = [line.split()[1] for line in (folder / SUMS).read_text().splitlines()]
    assert listed == ["refusal/v1.toml", "refusal/v2.toml", "refusal/v10.toml"]


def test_prompts_without_a_golden_set_are_frozen_by_their_hash(folder: Path) -> None:
    (folder / "screen").mkdir()
    shutil.copy(folder / "refusal" / "v1.toml", folder / "screen" / "v1.toml")
    assert freeze("screen", "v1", folder) is True
    assert load("screen", folder=folder).version == "v1"


@pytest.mark.parametrize(
    "line", ["0" * 64 + " refusal/v1.toml", "0" * 63 + "  refusal/v1.toml", "refusal/v1.toml"]
)
def test_a_list_that_is_none_is_named_with_its_line(folder: Path, line: str) -> None:
    (folder / SUMS).write_text(f"{'0' * 64}  tact/v1.toml\n{line}\n")
    with pytest.raises(ConfigError, match="prompts/SHA256SUMS, line 2: must be `<sha256>"):
        load("refusal", "v1", folder=folder)
