"""`backslide judge` as a user meets it: with and without the command's name, exit statuses, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from consumers.__main__ import app
from monitor.errors import ConfigError, InputError, JudgeFatal
from monitor.judgement_file import read_judgements
from tests.services import messages_api as api
from tests.services.parts import checkout
from tests.unit.test_judge_file import write_sessions

CORRECTION = ("--rubric", "correction")
# Tests that run in the background of a shell hand its ignored SIGINT down.
START = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from consumers.__main__ import main; main()"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_sessions(tmp_path / "chats.jsonl", 3)
    monkeypatch.chdir(tmp_path)
    # The log of this very process is not the command's to set up.
    monkeypatch.setattr("monitor.logging.configure", lambda _: None)
    for name in [name for name in os.environ if name.startswith("BACKSLIDE_")]:
        monkeypatch.delenv(name)
    return tmp_path


def judge(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, ["judge", *arguments], env=env)


def test_a_file_is_judged_with_or_without_the_commands_name(folder: Path) -> None:
    found = judge("chats.jsonl", *CORRECTION, "--judge", "lexical", "--json")
    assert (found.exit_code, found.stderr) == (0, "")
    summary: dict[str, Any] = json.loads(found.stdout)
    assert (summary["sessions"], summary["verdicts"]) == (3, 3)
    assert len(list(read_judgements(folder / "chats.correction.judgements.jsonl"))) == 3

    named = judge("file", "chats.jsonl", *CORRECTION, "--resume", "--json")
    options_first = judge(*CORRECTION, "--resume", "--json", "chats.jsonl")
    assert named.stdout == options_first.stdout
    assert json.loads(named.stdout)["known"] == 3
    again = judge("chats.jsonl", *CORRECTION)
    assert isinstance(again.exception, InputError)
    assert "exists; go on with it (--resume)" in str(again.exception)


def test_explained_in_words_and_as_json(folder: Path) -> None:
    found = judge("chats.jsonl", *CORRECTION, "--out", "a.jsonl", "--explain")
    assert found.exit_code == 0
    assert found.stdout.count("=== session ") == 3
    assert "No, I said 8 pm, not 7 pm." in found.stdout
    found = judge("chats.jsonl", *CORRECTION, "--out", "b.jsonl", "--explain", "--json")
    steps = [item["steps"] for item in json.loads(found.stdout)["explained"]]
    assert [step["kind"] for item in steps for step in item] == ["valid"] * 3


def test_what_it_does_not_know_is_refused(folder: Path) -> None:
    assert judge("chats.jsonl").exit_code == 2
    for arguments in (["--rubric", "tact"], [*CORRECTION, "--judge", "oracle"]):
        found = judge("chats.jsonl", *arguments)
        assert isinstance(found.exception, ConfigError)
        assert arguments[-1] in str(found.exception)
    assert sorted(path.name for path in folder.iterdir()) == ["chats.jsonl"]


def test_questions_go_out_and_answers_come_in(folder: Path) -> None:
    found = judge("export", "chats.jsonl", *CORRECTION, "--out", "q.jsonl")
    assert found.exit_code == 0
    assert "3 questions about 3 sessions in q.jsonl (plain)" in found.stdout
    questions = [json.loads(line) for line in (folder / "q.jsonl").read_text().splitlines()]
    wrong = [json.dumps({"id": question["id"], "text": "?"}) + "\n" for question in questions]
    (folder / "a.jsonl").write_text("".join(wrong))

    found = judge(
        "import", "a.jsonl", "--requests", "q.jsonl", "--out", "j.jsonl", "--repairs", "r.jsonl", "--json"
    )
    summary: dict[str, Any] = json.loads(found.stdout)
    assert (found.exit_code, summary["open"], len(summary["refused"])) == (3, 3, 3)
    assert len((folder / "r.jsonl").read_text().splitlines()) == 3
    anew = judge("import", "a.jsonl", "--sessions", "chats.jsonl", *CORRECTION, "--out", "anew.jsonl", "--json")
    assert json.loads(anew.stdout)["refused"] == summary["refused"]

    for arguments in ([], ["--sessions", "chats.jsonl"], ["--requests", "q.jsonl", "--sessions", "chats.jsonl"]):
        assert judge("import", "a.jsonl", "--out", "never.jsonl", *arguments).exit_code == 2


@pytest.mark.parametrize("command", ["judge", "replay"])
def test_a_model_that_does_not_fit_is_refused_before_anything_is_asked(folder: Path, command: str) -> None:
    with api.MessagesApi() as server:
        server.models = [api.model("claude-sonnet-5-5")]
        env = {
            "BACKSLIDE_JUDGE__API_KEY": api.API_KEY,
            "BACKSLIDE_JUDGE__BASE_URL": server.base_url,
            "BACKSLIDE_JUDGE__MODEL": "anthropic:claude-haiku-5-5",
        }
        options = [*CORRECTION, "--out", "out.jsonl"] if command == "judge" else []
        found = CliRunner().invoke(app, [command, "chats.jsonl", *options], env=env)
        assert isinstance(found.exception, ConfigError), found.output
        assert "the provider has no such model. Set judge.model to one that it has" in str(found.exception)
        assert server.requests == []


def test_ctrl_c_and_a_bad_key_keep_what_is_judged_and_resume_goes_on(folder: Path) -> None:
    with api.MessagesApi(otherwise=lambda _: api.hang()) as server:
        server.script(api.refusal())
        env = {"BACKSLIDE_JUDGE__API_KEY": api.API_KEY, "BACKSLIDE_JUDGE__BASE_URL": server.base_url}
        options = ["chats.jsonl", *CORRECTION, "--judge", "anthropic:claude-haiku-5-5", "--out", "out.jsonl"]
        process = subprocess.Popen(
            [sys.executable, "-c", START, "judge", *options, "--concurrency", "1"],
            env=os.environ | env | {"PYTHONPATH": str(checkout())},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        server.wait_for(2, seconds=60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, "Traceback" in err) == (130, False), err
        assert "2 without a judgement; canceled" in out
        assert len(list(read_judgements(folder / "out.jsonl"))) == 1

        server.reset()
        server.script(api.refusal(), api.refusal(), api.failure(401, "authentication_error"))
        found = judge(*options, "--resume", "--concurrency", "1", env=env)
        assert isinstance(found.exception, JudgeFatal)
        assert "what is judged by now is in out.jsonl; go on with --resume" in found.stderr
        assert len(list(read_judgements(folder / "out.jsonl"))) == 2

        server.reset()
        server.script(api.refusal(), api.refusal(), api.refusal())
        found = judge(*options, "--resume", env=env)
        assert (found.exit_code, len(server.requests)) == (3, 3)
        assert "3 unscored (judge_refused 3)" in found.stdout
