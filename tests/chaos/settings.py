"""How the pipeline of a campaign is set up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

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
  - {{name: corrected, when: signals.corrections > 0, rate: {corrected}, priority: routine,
      rubrics: [correction, hallucination]}}
  - {{name: base, rate: {base}, priority: routine, rubrics: [correction, refusal]}}
holdout: 0.05
"""

SCREEN: Final[dict[str, Any]] = {"model": "lexical", "rubrics": ["hallucination", "refusal"], "audit_share": 0.25}


def values(broker_port: int, store_url: str, policy: Path, metrics_port: int) -> dict[str, Any]:
    """Give the settings of the processes."""
    return {
        "kafka": {"bootstrap_servers": f"127.0.0.1:{broker_port}", "session_timeout_s": 6.0},
        "topics": {"event_partitions": PARTITIONS, "job_partitions": PARTITIONS},
        "assembly": ASSEMBLY,
        "sampling": {
            "policy": str(policy),
            "reload_interval_s": 0.3,
            "salt": SALT,
            "assistants": ASSISTANTS,
        },
        "judge": {"drain_s": 5.0, "repeat_share": 0.0, "constraints": {"*": "Version 0."}, "screen": SCREEN},
        "store": {"url": store_url},
        "web": {"port": 0, "metrics_host": "127.0.0.1", "metrics_port": metrics_port},
        "health": {f"{name}_port": 0 for name in ("supervisor", "assemble", "sample", "judge", "record")},
        "log": {"format": "json"},
    }
