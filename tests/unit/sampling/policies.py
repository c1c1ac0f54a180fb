"""Policies for tests."""

from __future__ import annotations

import re

from monitor.sampling.policy import Policy, default_text, parse_policy


def built_in(*rubrics: str) -> Policy:
    """Give the strata of the built-in policy, judged by these rubrics only."""
    text = re.sub(r"(?<=    rubrics: )\[.*\]", f"[{', '.join(rubrics)}]", default_text())
    return parse_policy(text, source="test", rubrics=rubrics)
