"""Garbage collection is put back as it was."""

from __future__ import annotations

import gc
import weakref

from consumers.collection import THRESHOLDS, seldom_collected


def test_the_collector_is_only_tuned_inside() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with seldom_collected():
        assert gc.get_threshold() == THRESHOLDS
        assert gc.get_freeze_count() > frozen
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_cycles_are_still_found() -> None:
    class Node:
        other: object = None

    with seldom_collected():
        node = Node()
        node.other = node
        gone = weakref.ref(node)
        del node
        kept: list[list[int]] = [[] for _ in range(THRESHOLDS[0] + 100)]  # enough new objects for a look
        assert gone() is None
        assert kept
