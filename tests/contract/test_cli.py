"""The command as a user meets it: exit statuses (0 done, 1 failed, 2 refused) and messages, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from monitor import __version__
from monitor.events import EVENT_TYPES, Turn, encode
from tests.consumers.assemble_place import AssemblePlace
from tests.services.kafka import KafkaBroker
from tests.services.parts import checkout


class Result:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status = done.returncode
        self.out = done.stdout
        self.err = done.stderr
        assert "Traceback" not in done.stderr + done.stdout, done.stderr


def backslide(*arguments: str, **env: str) -> Result:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BACKSLIDE_")}
    return Result(
        subprocess.run(
            [sys.executable, "-m", "consumers", *arguments],
            env=clean | {"NO_COLOR": "1", "COLUMNS": "200"} | env,
            cwd=checkout(),
            capture_output=True,
            text=True,
            timeout=60.0,
            check=False,
        )
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("kafka: {bootstrap_servers: '127.0.0.1:1'}")
    return path


def test_version() -> None:
    found = backslide("version")
    assert (found.status, found.out, found.err) == (0, f"{__version__}\n", "")


def test_help_lists_every_command() -> None:
    found = backslide("--help")
    assert found.status == 0
    assert "Usage: backslide " in found.out
    for name in ("run", "demo", "replay", "judge", "topics", "schema", "policy", "version"):
        assert f" {name} " in found.out


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["run"], ["topics", "nonsense"], ["run", "web", "--nonsense"]]
)
def test_what_it_does_not_know_is_a_usage_error(arguments: list[str]) -> None:
    found = backslide(*arguments)
    assert found.status == 2
    assert "Usage:" in found.err


def test_an_unknown_process_is_named_with_those_that_are_allowed(config: Path) -> None:
    found = backslide("run", "asemble", "--config", str(config))
    assert (found.status, found.out) == (2, "")
    assert found.err == (
        "error: run: unknown process 'asemble'; allowed are assemble, judge, record, sample, web and all\n"
    )


@pytest.mark.parametrize(
    "command", [["run", "assemble"], ["run", "all"], ["topics", "create"], ["topics", "check"]]
)
def test_wrong_settings_are_refused_line_by_line(command: list[str], config: Path) -> None:
    config.write_text("assembly: {gap_s: 0}\nkafka: {sasl_pasword: hunter2}")
    found = backslide(*command, "--config", str(config))
    assert (found.status, found.out) == (2, "")
    lines = sorted(found.err.splitlines())
    assert lines[0] == f"error: {config}: assembly.gap_s = 0: Input should be greater than 0"
    assert lines[1].startswith(f"error: {config}: kafka.sasl_pasword: unknown key; allowed are bootstrap_servers")
    assert "hunter2" not in found.err


def test_a_file_of_settings_that_is_not_there_is_named(tmp_path: Path) -> None:
    found = backslide("run", "web", "--config", str(tmp_path / "nowhere.yaml"))
    assert found.status == 2
    assert found.err == f"error: {tmp_path / 'nowhere.yaml'}: can't be read: No such file or directory\n"


def test_the_file_of_settings_may_come_from_the_environment(tmp_path: Path) -> None:
    found = backslide("run", "web", BACKSLIDE_CONFIG=str(tmp_path / "nowhere.yaml"))
    assert found.status == 2
    assert "nowhere.yaml: can't be read" in found.err


@pytest.mark.parametrize("command", ["create", "check"])
def test_without_a_broker_the_servers_are_named(command: str, config: Path) -> None:
    found = backslide("topics", command, "--config", str(config))
    assert (found.status, found.out) == (1, "")
    errors = found.err.splitlines()
    assert len(errors) == 1
    assert errors[0].startswith(
        "error: kafka.bootstrap_servers = 127.0.0.1:1: KafkaConnectionError; is the broker"
    )


async def test_topics_from_nothing_to_right_to_wrong(
    kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    place = AssemblePlace(kafka, topic_prefix, tmp_path)
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(place.values))
    events = place.settings.topics.events

    missing = backslide("topics", "check", "-c", str(config))
    assert (missing.status, missing.out) == (1, "")
    assert len(missing.err.splitlines()) == 7
    assert f"error: topic {events}: is missing; run `backslide topics create`" in missing.err.splitlines()

    created = backslide("topics", "create", "-c", str(config))
    assert (created.status, created.err) == (0, "")
    assert f"created {events}" in created.out.splitlines()
    assert created.out.splitlines()[-1].startswith("7 created")
    again = backslide("topics", "create", "-c", str(config))
    assert (again.status, again.out.splitlines()[-1][:9]) == (0, "0 created")

    right = backslide("topics", "check", "-c", str(config))
    assert (right.status, right.out, right.err) == (0, "all topics are as they have to be\n", "")

    await place.produce((f"t/s{number}".encode(), b"{}", 0) for number in range(40))
    wrong = backslide("topics", "check", "-c", str(config))
    assert wrong.status == 1
    assert "of the newest 40 keyed records lie in a partition that is not their key's" in wrong.err
    assert "partitioner=murmur2_random" in wrong.err

    mismatch = backslide("topics", "check", "-c", str(config), BACKSLIDE_TOPICS__EVENT_PARTITIONS="5")
    assert mismatch.status == 1
    assert f"error: topic {events}: has 4 partitions, the settings say 5" in mismatch.err


def test_the_schema_of_events_fits_what_is_encoded() -> None:
    found = backslide("schema", "events")
    assert (found.status, found.err) == (0, "")
    schema = json.loads(found.out)
    turn = Turn(event_id="e", session_id="s", ts=1.0, turn_id="t", role="user", text="hello")
    event: dict[str, Any] = json.loads(encode(turn))
    jsonschema.validate(event, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(event | {"role": "robot"}, schema)
    assert all(f'"{name}"' in found.out for name in EVENT_TYPES)


def test_a_policy_is_shown_or_refused_with_its_reason(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("strata: [{name: base, rate: 0.25, rubrics: [correction]}]")
    good = backslide("policy", "check", str(policy))
    assert (good.status, good.err) == (0, "")
    assert good.out.splitlines()[0].startswith("policy ")
    assert "base: rate 0.25, routine, correction" in good.out
    policy.write_text(
        "strata:\n- {name: tests, when: 'attributes.channel == \"qa\"', rate: 1.0, rubrics: []}\n"
        "- {name: base, rate: 0.25, rubrics: [correction]}"
    )
    assert "  tests: never judged" in backslide("policy", "check", str(policy)).out.splitlines()

    policy.write_text("strata: [{name: base, rate: 7, rubrics: [correction]}]")
    bad = backslide("policy", "check", str(policy))
    assert (bad.status, bad.out) == (2, "")
    assert "rate" in bad.err
    assert "7" in bad.err
    gone = backslide("policy", "check", str(tmp_path / "gone.yaml"))
    assert gone.status == 2
    assert "gone.yaml" in gone.err


def test_the_installed_command_is_the_same() -> None:
    program = Path(sys.executable).parent / "backslide"
    if not program.exists():
        pytest.skip("the package is not installed here")
    done = subprocess.run([str(program), "version"], capture_output=True, text=True, timeout=60.0, check=False)
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n")
