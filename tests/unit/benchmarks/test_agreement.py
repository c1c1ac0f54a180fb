"""The agreement benchmark on our own sessions in the sets' formats: its figures are those of the rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agreement import conversation

ROOT = Path(__file__).parents[3]


def turns(name: str, *said: str) -> list[dict[str, Any]]:
    return [
        {"turn_index": n, "turn_id": f"{name}-t{n}", "role": ("user", "assistant")[n % 2], "text": text}
        for n, text in enumerate(said)
    ]


def corrected(name: str, mode: str, *replies: str) -> dict[str, Any]:
    said = (
        "Hold a table for three people.",
        "Please confirm: a table for three people.",
        "No, make it for five people.",
        *[part for reply in replies for part in (reply, "And is there parking?")],
    )
    event = {"user_turn_index": 2, "failure_mode": mode, "over_corrected": False, "edited_turns": [3]}
    return {
        "session_id": name,
        "turns": turns(name, *said),
        "human": {"tier": "by_construction", "correction_events": [event]},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sessions = [
        corrected("own-a-2-none", "none", "All right, five people.", "Yes. Five people it is."),
        corrected("own-b-2-ignored", "ignored", "A table for three people is held."),
        corrected("own-c-2-mislabelled", "contradicted", "All right, five people."),
    ]
    (tmp_path / "sgd_corrections.jsonl").write_text("".join(json.dumps(item) + "\n" for item in sessions))
    return tmp_path


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.agreement", "--data", str(folder), "--resamples", "20", *options]
    # `--judge` is `lexical`, whatever judge the environment has for the product.
    env = os.environ | {"BACKSLIDE_JUDGE__MODEL": "anthropic:claude-haiku-5-5", "BACKSLIDE_JUDGE__API_KEY": ""}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=120)


def test_it_prints_each_figure_with_its_interval(folder: Path) -> None:
    done = run(folder, "--json", "--sets", "sgd_corrections")
    figures = json.loads(done.stdout)["sgd_corrections"]
    assert figures["failure_mode_accuracy"]["value"] == pytest.approx(2 / 3)
    assert set(figures["failure_mode_accuracy"]) == {"value", "low", "high"}
    assert "failure_mode_macro_f1 is" in done.stderr


def test_a_set_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "--json")
    assert json.loads(done.stdout) == {}
    assert "sgd_corrections.jsonl isn't there" in done.stderr


def test_the_sessions_can_be_written_for_another_judge(folder: Path, tmp_path: Path) -> None:
    run(folder, "--write-sessions", str(tmp_path / "out"))
    (first, *_) = (tmp_path / "out" / "sgd_corrections.jsonl").read_text().splitlines()
    assert json.loads(first)["corrections"] == [{"turn_id": "own-a-2-none-t2"}]


STAR = ("All right, five people.", "A table for three people is held.", "A table for three people is held.")


def test_what_was_never_taken_is_a_failure_and_what_cannot_be_told_is_left_out(tmp_path: Path) -> None:
    sessions = []
    for place, outcome in enumerate(("incorporated", "ignored", "unverifiable")):
        session = corrected(f"star-{place}", "none", STAR[place])
        session["human"]["correction_events"] = [{"user_turn_index": 2, "outcome_from_wizard_queries": outcome}]
        sessions.append(session)
    (tmp_path / "star_corrections.jsonl").write_text("".join(json.dumps(item) + "\n" for item in sessions))
    done = run(tmp_path, "--json", "--confusion", "--sets", "star_corrections", "star_corrections_with_lookups")
    figures = json.loads(done.stdout)["star_corrections"]
    assert figures["n"] == 3
    assert figures["failed_kappa"]["value"] == 1
    assert figures["baseline_failed_accuracy"]["value"] == 0.5
    assert figures["detection_recall"]["value"] == 1
    assert "star_corrections: True was said to be {'True': 1}" in done.stderr


def test_in_whole_mode_a_correction_that_is_not_found_is_wrong(tmp_path: Path) -> None:
    heard = corrected("own-a-2-none", "none", STAR[0])
    quiet = corrected("own-b-2-ignored", "ignored", STAR[1])
    quiet["turns"][2]["text"] = "Lovely, thank you."
    (tmp_path / "sgd_corrections.jsonl").write_text("".join(json.dumps(item) + "\n" for item in (heard, quiet)))
    done = run(tmp_path, "--json", "--confusion", "--sets", "sgd_corrections_whole")
    figures = json.loads(done.stdout)["sgd_corrections_whole"]
    assert figures["found_recall"]["value"] == 0.5
    assert figures["failure_mode_macro_f1"]["value"] == 0.5
    assert figures["failure_mode_of_found_accuracy"]["value"] == 1
    assert "ignored was said to be {'unfound': 1}" in done.stderr


def test_the_last_reply_is_judged_where_the_last_user_turn_corrects(tmp_path: Path) -> None:
    sessions = []
    for place, (reply, fine) in enumerate(
        [("All right, five people.", True), ("A table for three people.", False)]
    ):
        session = corrected(f"reward-{place}", "none", reply)
        said = session["turns"][:4]
        human = {"final_turn_ok": fine, "last_user_turn_has_correction_signal": True}
        sessions.append(session | {"turns": said, "human": human, "source": "TM-3"})
    (tmp_path / "taskmaster_reward.jsonl").write_text("".join(json.dumps(item) + "\n" for item in sessions))
    figures = json.loads(run(tmp_path, "--json").stdout)["taskmaster_reward"]
    assert figures["tm3_balanced_accuracy"]["value"] == figures["corrected_balanced_accuracy"]["value"] == 1
    assert figures["baseline_tm3_balanced_accuracy"]["value"] == 0.5
    assert figures["tm4_balanced_accuracy"]["value"] is None


def test_swapped_replies_come_from_a_session_of_another_behavior() -> None:
    def session(name: str, behavior: str) -> dict[str, Any]:
        turns = [{"role": "user", "text": "?"}, {"role": "assistant", "text": name}]
        labels = [{"expected_behaviour": behavior}]
        return {"session_id": name, "turns": turns, "human": {"turn_labels": labels}}

    found = conversation.swapped([session("a", "answer"), session("b", "answer"), session("c", "abstain")])
    said = {item["session_id"]: item["turns"][-1]["text"] for item in found}
    assert (len(found), said["a-own"], said["a-swapped"], said["b-swapped"]) == (6, "a", "c", "c")
    right = {item["session_id"] for item in found if item["human"]["expected"] == item["human"]["given"]}
    assert right == {"a-own", "b-own", "c-own"}
    assert all(item["turns"][-1]["evidence"] == [] for item in found)
