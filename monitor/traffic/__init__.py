"""Demo traffic: invented conversations with known truth, for `backslide demo`, tests and benchmarks.

    plan = TrafficPlan(sessions=2_000, duration_s=45)
    traffic = TrafficGenerator(seed=7, plan=plan)
    for delivery in traffic.deliveries(base_time):  # in order, `delivery.at` seconds after the start
        ...                                         # send delivery.event as JSON under delivery.key
    truth = true_rate(traffic.labels(), "2026.11")  # reverted corrections / corrections

How text and labels hang together: a template (`data/*.toml`) is a script with slots. The assistant's lines are
filled from what it believes; a behavior (taken, ignored, partial, reverted, superseded, disputed, over_applied)
decides when that belief changes. So each label can be read from the text, and no session is labeled by hand.

What is built in on purpose: sessions with several corrections, and escalated ones, fail more often than others,
so a raw rate over judged sessions is too high, and only a weighted one is right. The second release reverts
more often.

Modules: `wording` (lines), `templates` (files, checks), `casting` (which template shows what), `script`
(conversation), `wire` (events, disorder), `generator` (sessions in time), `plan` (settings), `labels` (truth
and rates).
"""

from monitor.traffic.generator import Delivery, TrafficGenerator
from monitor.traffic.labels import CorrectionLabel, SessionLabel, counts, true_rate
from monitor.traffic.plan import BehaviorMix, Release, TrafficPlan

__all__ = [
    "BehaviorMix",
    "CorrectionLabel",
    "Delivery",
    "Release",
    "SessionLabel",
    "TrafficGenerator",
    "TrafficPlan",
    "counts",
    "true_rate",
]
