"""What the command refuses before it talks to any broker, and what it says without one."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from consumers.dead_letters_command import dead_letters_app
from monitor.errors import BackslideError, ConfigError, InputError

NOWHERE = {"BACKSLIDE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["replay"], ConfigError, "say so with --all"),
        (["drop"], ConfigError, "say so with --all"),
        (["drop", "--offsets", "x"], ConfigError, "--offsets 'x': not a range"),
        (["list", "--since", "soon"], ConfigError, "--since 'soon': not a time"),
        (["show", "a/0/0", "--out", "file"], ConfigError, "--out: needs --raw or --original"),
        (["replay", "a/0/0", "--value", "/nowhere"], InputError, "--value /nowhere: can't be read"),
        (["list"], BackslideError, "kafka.bootstrap_servers = 127.0.0.1:1: KafkaConnectionError; is the broker"),
    ],
)
def test_one_clear_error(arguments: list[str], kind: type[Exception], message: str) -> None:
    result = CliRunner().invoke(dead_letters_app, arguments, env=NOWHERE)
    assert type(result.exception) is kind
    assert message in str(result.exception)


@pytest.mark.parametrize("arguments", [["list", "--stage", "web"], ["list", "--partition", "-1"], ["show"]])
def test_what_no_option_takes_is_a_usage_error(arguments: list[str]) -> None:
    assert CliRunner().invoke(dead_letters_app, arguments).exit_code == 2
