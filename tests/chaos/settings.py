"""How the pipeline of a campaign is set up."""

from __future__ import annotations

from typing import Final

PARTITIONS: Final = 4
SALT: Final = "a salt of the campaign"
ASSISTANTS: Final = {name: ["2026.10", "2026.11"] for name in ("concierge", "helpdesk", "shop-assistant")}
# Gap and ticks leave room for a sender that a busy machine delays; a session that is cut all the same is one in
# the reference as well.
ASSEMBLY: Final = {
    "gap_s": 5.0,
    "grace_s": 1.5,
    "max_age_s": 600.0,
    "memory_s": 400.0,
    "tick_interval_s": 0.7,
    "commit_interval_s": 0.3,
}
POLICY: Final = """\
strata:
  - {{name: escalated, when: signals.escalations > 0, rate: 1.0, priority: urgent, rubrics: [correction]}}
  - {{name: corrected, when: signals.corrections > 0, rate: {corrected}, priority: routine, rubrics: [correction]}}
  - {{name: base, rate: {base}, priority: routine, rubrics: [correction]}}
holdout: 0.05
"""
