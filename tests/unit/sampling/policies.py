"""Policies for tests."""

from __future__ import annotations

import re

from monitor.sampling.policy import Policy, default_text, parse_policy


def built_in_text(*rubrics: str) -> str:
    """Give the strata of the built-in policy, judged by these rubrics only, as a file has them."""
    return re.sub(r"(?<=    rubrics: )\[.*\]", f"[{', '.join(rubrics)}]", default_text())


def built_in(*rubrics: str) -> Policy:
    """Give the same, read."""
    return parse_policy(built_in_text(*rubrics), source="test", rubrics=rubrics)
