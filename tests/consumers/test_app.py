"""A process as such: what it says and how it ends when something is wrong around it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumers.app import PROCESSES, SUPERVISED, command, process
from monitor.config import load


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    return {
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "store": {"url": f"sqlite:///{tmp_path / 'store.sqlite'}"},
        "health": {f"{name}_port": 0 for name in ("assemble", "sample", "judge", "record")}
        | {"host": "127.0.0.1"},
        "web": {"port": 0, "metrics_port": 0, "metrics_host": "127.0.0.1"},
        "log": {"format": "json"},
    }


class Run:
    """One process of the product, its standard error in a file."""

    def __init__(self, folder: Path, name: str, values: dict[str, Any], **env: str) -> None:
        config = folder / "config.yaml"
        config.write_text(json.dumps(values))
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as out:
            self.child = subprocess.Popen(command(name, config), stdout=out, stderr=out, env=os.environ | env)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines()]

    def error(self) -> str:
        """Give the only thing that the process itself complains of."""
        (found,) = [line for line in self.lines() if line["level"] == "error" and "process" in line]
        return str(found["error"])

    def wait_for(self, event: str) -> None:
        limit = time.monotonic() + 20.0
        while event not in self.events():
            assert time.monotonic() < limit
            time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path, values: dict[str, Any]) -> Iterator[Any]:
    runs: list[Run] = []

    def begin(name: str, **env: str) -> Run:
        runs.append(Run(tmp_path, name, values, **env))
        return runs[-1]

    yield begin
    for run in runs:
        run.child.kill()
        run.child.wait()


def test_each_process_is_looked_up_with_its_port() -> None:
    settings = load(None, {"health.judge_port": 7})
    found = {name: process(name, settings) for name in PROCESSES}
    assert found["judge"].port == 7
    assert found["web"].port is None
    assert all(each.name == name and callable(each.serve) for name, each in found.items())


def test_the_command_of_a_process_can_be_run_anywhere(tmp_path: Path) -> None:
    assert command("web", None) == [sys.executable, "-m", "consumers", "run", "web"]
    assert command("web", tmp_path)[-2:] == ["--config", str(tmp_path)]


@pytest.mark.parametrize("name", ["assemble", "judge"])
def test_without_a_broker_it_fails_with_one_error_that_names_the_servers(start: Any, name: str) -> None:
    run = start(name)
    assert run.child.wait(30.0) == 1
    assert "KafkaConnectionError" in run.error()
    assert "kafka.bootstrap_servers = 127.0.0.1:1" in str(run.lines())
    assert "Traceback" not in str(run.lines())


@pytest.mark.parametrize(
    ("name", "section", "key", "value"),
    [
        ("judge", "judge", "model", "gpt"),
        ("judge", "judge", "model", "anthropic:claude-haiku-5-5"),
        ("record", "judge", "model", "gpt"),
        ("record", "store", "url", "mysql://u:hunter2@h/d"),
        ("web", "store", "url", "nothing at all"),
        ("sample", "sampling", "policy", "/no/such/policy.yaml"),
    ],
)
def test_a_wrong_setting_is_refused_without_a_broker(
    start: Any, values: dict[str, Any], name: str, section: str, key: str, value: str
) -> None:
    values.setdefault(section, {})[key] = value
    run = start(name, BACKSLIDE_JUDGE__API_KEY="")
    assert run.child.wait(30.0) == 2
    named = "BACKSLIDE_JUDGE__API_KEY" if value.startswith("anthropic") else f"{section}.{key}"
    assert (value if section == "sampling" else named) in run.error()
    assert "hunter2" not in str(run.lines())


def test_a_taken_port_is_a_refusal(start: Any, values: dict[str, Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        values["health"]["assemble_port"] = taken.getsockname()[1]
        run = start("assemble")
        assert run.child.wait(30.0) == 2
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        remedy = "Set health.assemble_port to another."
        assert run.error() == f"can't listen on {place}: is the port taken? {remedy}"


def test_a_certificate_that_is_missing_is_a_refusal(start: Any, values: dict[str, Any]) -> None:
    values["kafka"] |= {"security_protocol": "SSL", "ssl_cafile": "/no/such/ca.pem"}
    run = start("assemble")
    assert run.child.wait(30.0) == 2
    assert run.error().startswith("kafka.ssl_cafile = /no/such/ca.pem: can't be used: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(start: Any, number: signal.Signals) -> None:
    run = start("web")
    run.wait_for("started")
    run.child.send_signal(number)
    assert run.child.wait(10.0) == 0
    assert run.events()[-1] == "stopped"


def test_a_supervisor_that_died_before_it_came_up_is_noticed(start: Any) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    run = start("web", **{SUPERVISED: str(gone.pid)})
    assert run.child.wait(20.0) == 0
    assert run.events()[-1] == "stopped"


def test_a_supervisor_that_lives_is_no_reason_to_stop(start: Any) -> None:
    run = start("web", **{SUPERVISED: str(os.getpid())})
    run.wait_for("started")
    time.sleep(1.5)
    assert run.child.poll() is None
