"""The command of the fault campaign: `python -m tests.chaos --rounds 200 --seed 1 --lanes 2`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from tests.chaos.campaign import Campaign
from tests.chaos.faults import FAULTS, STORES
from tests.chaos.results import table

DEFAULT_FOLDER: Final = Path(".cache/chaos")


def main(arguments: list[str] | None = None) -> int:
    """Run a campaign; gives 1 when anything was unclean."""
    asked = _parser().parse_args(arguments)
    only = tuple(asked.only.split(",")) if asked.only else ()
    if unknown := set(only) - FAULTS.keys():
        sys.exit(f"--only: no fault named {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    folder = asked.folder / time.strftime("%Y%m%d-%H%M%S")
    campaign = Campaign(seed=asked.seed, store=asked.store, only=only, folder=folder)
    started = time.monotonic()
    results = campaign.run(range(asked.first, asked.first + asked.rounds), asked.lanes)
    minutes = (time.monotonic() - started) / 60
    print(f"\n{table(results)}\n\n{len(results)} rounds in {minutes:.0f} min, seed {asked.seed}")
    if asked.json:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    unclean = [result for result in results if not result.report.clean]
    for result in unclean:
        print(f"UNCLEAN round {result.number}: {campaign.again(result.number)}; kept in {result.kept}")
    if unclean:
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first round, to repeat one")
    parser.add_argument("--only", help=f"faults, separated by commas: {', '.join(FAULTS)}")
    parser.add_argument("--lanes", type=int, default=2, help="pipelines side by side, each with its broker")
    parser.add_argument("--store", choices=STORES, default=STORES[0])
    parser.add_argument("--json", type=Path, help="write every round's result here")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where logs of unclean rounds stay")
    return parser


if __name__ == "__main__":
    sys.exit(main())
