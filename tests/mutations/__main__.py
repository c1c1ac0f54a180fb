"""`python -m tests.mutations [--only RULE] [--jobs 2]`: a table of mutants, and status 1 when one survives."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.mutations import assembly, counting
from tests.mutations.run import BrokenMutant, Outcome, attack_all
from tests.services.parts import checkout


def main() -> int:
    """Run the mutants of one rule, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", metavar="RULE", help="the mutants of one rule, such as A5")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time")
    chosen = parser.parse_args()
    mutants = [mutant for mutant in (*assembly.MUTANTS, *counting.MUTANTS) if chosen.only in {None, mutant.rule}]
    if not mutants:
        parser.error(f"--only {chosen.only}: no mutant of this rule")
    started, outcomes = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        try:
            for outcome in attack_all(checkout(), Path(folder), mutants, max(chosen.jobs, 1)):
                outcomes.append(outcome)
                print(row(outcome), flush=True)
        except BrokenMutant as error:
            print(error, file=sys.stderr)
            return 1
    alive = [outcome for outcome in outcomes if not outcome.killed_by]
    seconds = time.monotonic() - started
    print(f"{len(outcomes)} mutants, {len(outcomes) - len(alive)} killed, {len(alive)} not; {seconds:.0f} s")
    for outcome in alive:
        print(f"{outcome.mutant.rule} {outcome.mutant.title}: {outcome.broken or 'no test notices'}")
    return 1 if alive else 0


def row(outcome: Outcome) -> str:
    """Give the line of the table: rule, title, what killed it, seconds."""
    result = outcome.killed_by.rpartition("::")[2] or ("BROKEN" if outcome.broken else "SURVIVES")
    return f"{outcome.mutant.rule:<4} {outcome.mutant.title:<66} {result:<80} {outcome.seconds:5.1f}"


if __name__ == "__main__":
    sys.exit(main())
