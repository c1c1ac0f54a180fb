"""An outage must not flood the log."""

from __future__ import annotations

import logging

from consumers.seldom import Seldom


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def record(name: str, message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord(name, logging.ERROR, "", 1, message, args, None)


def test_the_same_template_goes_out_once_in_a_while_and_counts_what_did_not() -> None:
    clock = Clock()
    seldom = Seldom(every_s=10.0, clock=clock)
    assert seldom.filter(record("aiokafka.client", "no node %s", 1))
    assert [seldom.filter(record("aiokafka.client", "no node %s", node)) for node in range(5)] == [False] * 5
    assert seldom.filter(record("aiokafka.client", "another %s", 1))
    assert seldom.filter(record("aiokafka.conn", "no node %s", 1))
    clock.now += 10.0
    late = record("aiokafka.client", "no node %s", 7)
    assert seldom.filter(late)
    assert late.getMessage() == "no node 7 (5 more like this held back)"


def test_our_own_messages_always_go_out() -> None:
    seldom = Seldom(clock=Clock())
    assert all(seldom.filter(record(name, "same")) for name in ["consumers.sample", "aiokafkaesque"] * 3)
