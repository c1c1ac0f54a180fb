"""Runs the rounds of a campaign, lane by lane."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from tests.chaos.faults import STORES
from tests.chaos.keep import keep
from tests.chaos.lane import Lane
from tests.chaos.plan import Plan, plan_round
from tests.chaos.results import Result


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done. Logs of unclean rounds stay in `folder`; `only` restricts the faults."""

    seed: int
    store: str
    only: tuple[str, ...]
    folder: Path

    def again(self, number: int) -> str:
        """Give the command that repeats a round."""
        parts = ["python -m tests.chaos --rounds 1 --lanes 1", f"--seed {self.seed} --first {number}"]
        if self.store != STORES[0]:
            parts.append(f"--store {self.store}")
        if self.only:
            parts.append(f"--only {','.join(self.only)}")
        return " ".join(parts)

    def run(self, numbers: Sequence[int], lanes: int) -> list[Result]:
        """Run rounds on so many lanes side by side."""
        # A process a lane: what one compares doesn't hold up the proxy of another.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(lanes, mp_context=context) as pool:
            running = [pool.submit(_lane, self, lane, list(numbers[lane::lanes])) for lane in range(lanes)]
            results: list[Result] = []
            for future in running:
                results += msgspec.json.decode(future.result(), type=list[Result])
        return sorted(results, key=lambda result: result.number)


def _lane(campaign: Campaign, lane: int, numbers: list[int]) -> bytes:
    """Run one lane's rounds, in a process of its own."""
    logging.disable(logging.ERROR)  # the clients', about faults that are meant
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    plans = [plan_round(campaign.seed, number, campaign.store, campaign.only) for number in numbers]
    return msgspec.json.encode(asyncio.run(_rounds(campaign, lane, plans)))


def _end_with(parent: int) -> None:
    """End when the campaign is gone; every process of the lane dies with it."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


async def _rounds(campaign: Campaign, lane: int, plans: list[Plan]) -> list[Result]:
    results: list[Result] = []
    topology = 0
    while plans:
        folder = campaign.folder / f"lane-{lane}-{topology}"
        # Static membership in every other topology.
        place = Lane(lane, folder, campaign.store, named=(lane + topology) % 2 == 1)
        results += await _topology(campaign, place, plans)
        topology += 1
    return results


async def _topology(campaign: Campaign, lane: Lane, plans: list[Plan]) -> list[Result]:
    """Run rounds on one topology until one is unclean: the next ones start afresh."""
    results: list[Result] = []
    clean = True
    await lane.start()
    while plans and clean:
        plan = plans.pop(0)
        began = time.time()
        result = await lane.round(plan)
        results.append(result)
        clean = result.report.clean
        if not clean:
            result.kept = str(lane.folder)
            await keep(lane, result, began, campaign.again(plan.number))
        with (campaign.folder / f"lane-{lane.number}.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")  # a campaign that is broken off has told so much
        print(_line(result), flush=True)
    findings = await lane.stop()
    if findings:
        results[-1].report.findings += findings
        results[-1].kept = str(lane.folder)
        print("\n    ".join([f"lane {lane.number} at its end:", *findings]), flush=True)
    elif clean:
        shutil.rmtree(lane.folder, ignore_errors=True)
    return results


def _line(result: Result) -> str:
    verdict = "clean" if result.report.clean else "UNCLEAN"
    ends = " ".join(f"{end.member}:{end.status}" for end in result.exits)
    line = (
        f"round {result.number} lane {result.lane} {'+'.join(result.faults)}: {verdict}, {result.events} events, "
        f"{result.sessions} sessions, {result.jobs} jobs, {result.copies} copies, {result.superseded} superseded, "
        f"recovery {result.recovery_s:.1f} s, took {result.took_s:.0f} s [{ends}]"
    )
    return "\n    ".join([line, *result.report.findings])
