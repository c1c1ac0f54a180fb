"""Logs: one JSON object a line on stderr, client libraries held back, nothing secret."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from monitor.config import LogSettings
from monitor.logging import TALKATIVE, configure


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in TALKATIVE}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_our_logs_and_those_of_libraries_have_one_format(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(format="json"))
    structlog.get_logger("ours").bind(process="assemble").info("session_closed", turns=6)
    logging.getLogger("theirs").warning("no node %s", 3)
    ours, theirs = lines(capsys)
    assert ours["event"] == "session_closed"
    assert (ours["process"], ours["turns"], ours["level"]) == ("assemble", 6, "info")
    assert (theirs["event"], theirs["logger"], theirs["level"]) == ("no node 3", "theirs", "warning")
    assert ours["timestamp"].endswith("Z")
    assert theirs["timestamp"].endswith("Z")


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_the_level_holds_for_both(level: Any, capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(format="json", level=level))
    names = ["debug", "info", "warning", "error"]
    for name in names:
        getattr(structlog.get_logger("ours"), name)("ours")
        getattr(logging.getLogger("theirs"), name)("theirs")
    expected = [name for name in names[names.index(level) :] for _ in range(2)]
    assert [line["level"] for line in lines(capsys)] == expected


@pytest.mark.parametrize("name", TALKATIVE)
def test_libraries_that_log_requests_stay_silent_even_at_debug(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogSettings(format="json", level="debug"))
    logging.getLogger(name).debug("a request with its whole text")
    logging.getLogger(f"{name}.inner").info("a request with its whole text")
    logging.getLogger(name).warning("trouble")
    assert [line["event"] for line in lines(capsys)] == ["trouble"]


def test_an_exception_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(format="json"))
    try:
        int("two\nlines")
    except ValueError:
        structlog.get_logger("ours").exception("failed")
        logging.getLogger("theirs").exception("failed")
    for line in lines(capsys):
        assert "\nValueError: invalid literal" in line["exception"]


def test_without_a_terminal_auto_means_json_and_console_means_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(format="auto"))
    structlog.get_logger("ours").info("hello")
    assert [line["event"] for line in lines(capsys)] == ["hello"]
    structlog.reset_defaults()
    configure(LogSettings(format="console"))
    structlog.get_logger("ours").info("hello", answer=42)
    text = capsys.readouterr().err
    assert "hello" in text
    assert "answer=42" in text
    assert "\x1b" not in text, "no colors without a terminal"
    with pytest.raises(ValueError, match="Extra data"):
        json.loads(text)


def test_configuring_twice_does_not_say_everything_twice(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(format="json"))
    configure(LogSettings(format="json"))
    logging.getLogger("theirs").warning("once")
    assert len(lines(capsys)) == 1


def test_filters_see_what_children_of_a_logger_say(capsys: pytest.CaptureFixture[str]) -> None:
    class Not(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            return not record.name.startswith("loud")

    configure(LogSettings(format="json"), filters=[Not()])
    logging.getLogger("loud.child").error("held")
    logging.getLogger("theirs").error("out")
    assert [line["event"] for line in lines(capsys)] == ["out"]
