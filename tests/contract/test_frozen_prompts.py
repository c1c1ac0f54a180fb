"""Released prompts stay as they are: each is listed, unchanged, and was seen at work before (facts: Common).

A failure here after a change of a prompt: put the file back, make the change in the next version (v2.toml), then
`backslide golden run RUBRIC --prompt v2 --record` and `backslide golden freeze RUBRIC v2`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from monitor.golden import recorded
from monitor.golden.rows import SCALES, read
from monitor.judging.prompt import load
from monitor.judging.prompt_files import SUMS, package, sha256, sums
from tests.services.parts import checkout

PROMPTS = Path(str(package()))
FILES = sorted(PROMPTS.glob("*/v*.toml"))


def test_the_list_and_the_folders_agree() -> None:
    listed = {f"{rubric}/{version}.toml" for rubric, version in sums(package())}
    assert listed == {path.relative_to(PROMPTS).as_posix() for path in FILES}
    checked = subprocess.run(
        ["sha256sum", "-c", "--strict", SUMS], cwd=PROMPTS, check=False, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + (__doc__ or "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_each_version_is_as_it_was_and_has_a_recorded_run(path: Path) -> None:
    rubric, version = path.parent.name, path.stem
    prompt = load(rubric, version)
    if rubric not in SCALES:
        assert not (path.parent / "golden.jsonl").exists()
        return
    run = recorded.read(rubric, version, package())
    assert run is not None
    assert (run.rubric, run.prompt_version, run.prompt_hash) == (rubric, version, prompt.prompt_hash)
    assert run.prompt_sha256 == sha256(path.read_bytes())
    assert (run.note is not None) == (run.judge == "lexical")
    if load(rubric).version == version:
        golden = read(package(), rubric)
        assert (run.golden_sha256, run.right.n) == (golden.sha256, len(golden.rows))


def test_the_page_has_the_recorded_figures() -> None:
    page = (checkout() / "docs" / "golden.md").read_text("utf-8")
    for rubric in SCALES:
        run = recorded.read(rubric, load(rubric).version, package())
        assert run is not None
        assert f"| {rubric} | {run.right.hits} of {run.right.n} |" in page


def test_list_and_runs_are_in_the_repository_and_so_in_the_package() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "prompts"], cwd=checkout(), check=False, capture_output=True, text=True
    )
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    names = set(tracked.stdout.split())
    wanted = {f"prompts/{SUMS}", *(f"prompts/{rubric}/golden.jsonl" for rubric in SCALES)}
    wanted |= {f"prompts/{path.parent.name}/{path.stem}.run.json" for path in FILES if path.parent.name in SCALES}
    assert wanted <= names
