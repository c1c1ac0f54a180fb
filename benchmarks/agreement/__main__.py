"""Measure a judge against people: every labelled set in a folder, with intervals and trivial baselines.

    python -m benchmarks.agreement --data FOLDER [--judge lexical] [--sets NAME ...] [--json]

`--judge` takes what `judge.model` takes; keys come from the environment as for the product. `--answers FILE` reads
judgements instead, as `backslide judge import` writes them; `--write-sessions FOLDER` writes the sessions that the
sets put to the judge, for `backslide judge export`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.agreement import conversation, correction, hallucination, refusal
from benchmarks.agreement.rows import Row, row
from benchmarks.agreement.sets import LabelledSet, Record, Unit, measured
from monitor.agreement import Estimate, confusion
from monitor.config import load
from monitor.judgement import Judgement, Unscored, decode_judgement
from monitor.offline_judge import OfflineJudge, checked_judge
from monitor.rubrics import configured
from monitor.settings import Settings

SETS: tuple[LabelledSet, ...] = (*conversation.SETS, *correction.SETS, *hallucination.SETS, *refusal.SETS)
Result = dict[str, Any]


def main() -> None:
    """Measure, print, and say which goals are missed."""
    options = _options()
    chosen = [labelled for labelled in SETS if not options.sets or labelled.name in options.sets]
    found = {labelled.name: labelled for labelled in chosen if (options.data / labelled.file).exists()}
    for labelled in chosen:
        if labelled.name not in found:
            print(f"{labelled.name}: {options.data / labelled.file} isn't there, left out", file=sys.stderr)
    records = {name: labelled.records(options.data) for name, labelled in found.items()}
    if options.write_sessions:
        _write(options.write_sessions, records)
        return
    results = asyncio.run(_measure(options, found, records))
    print(json.dumps(results, default=msgspec.to_builtins, indent=None if options.json else 2))
    _tell_missed(results, found.values())


async def _measure(
    options: argparse.Namespace, sets: Mapping[str, LabelledSet], records: Mapping[str, list[Record]]
) -> Result:
    results: Result = {}
    settings = load(overrides=conversation.SETTINGS)
    # The command line wins over the environment, which wins over `overrides`.
    judge = settings.judge.model_copy(update={"model": options.judge})
    settings = settings.model_copy(update={"judge": judge})
    answers = _answers(options.answers) if options.answers else None
    for name, labelled in sets.items():
        rows = [row(record, line) for line, record in enumerate(records[name])]
        judgements = (
            [answers.get((labelled.rubric, item.session.session_id)) for item in rows]
            if answers is not None
            else await _judge(settings, labelled.rubric, rows)
        )
        _tell_unscored(name, judgements)
        units = [
            unit
            for item, judgement in zip(rows, judgements, strict=True)
            if judgement is not None
            for unit in labelled.units(item, judgement)
        ]
        if options.confusion and labelled.table is not None:
            shown = [unit for unit in units if unit.kind == labelled.table]
            _tell_confusion(name, shown)
        results[name] = {
            "n": sum(judgement is not None for judgement in judgements),
            **measured(labelled.figures, units, options.resamples),
        }
    return results


async def _judge(settings: Settings, rubric: str, rows: Sequence[Row]) -> list[Judgement | None]:
    room = asyncio.Semaphore(settings.judge.concurrency)
    async with checked_judge(settings.judge) as (model, price):
        judge = OfflineJudge(model, configured(settings.rubrics), settings.judge, price=price)

        async def answer(item: Row) -> Judgement:
            async with room:
                return await judge.judge(item.job(rubric), 0)

        return list(await asyncio.gather(*(answer(item) for item in rows)))


def _answers(path: Path) -> dict[tuple[str, str], Judgement]:
    judgements = [decode_judgement(line) for line in path.read_bytes().splitlines() if line.strip()]
    return {(judgement.rubric, judgement.session_id): judgement for judgement in judgements}


def _write(folder: Path, records: Mapping[str, list[Record]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, sessions in records.items():
        lines = "".join(json.dumps(session) + "\n" for session in sessions)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


def _tell_unscored(name: str, judgements: Iterable[Judgement | None]) -> None:
    failed = [item.result for item in judgements if item is not None and isinstance(item.result, Unscored)]
    if failed:
        print(
            f"{name}: {len(failed)} sessions unscored, first: {failed[0].reason}, {failed[0].note}",
            file=sys.stderr,
        )


def _tell_missed(results: Result, sets: Iterable[LabelledSet]) -> None:
    for labelled in sets:
        for figure in labelled.figures:
            value: Estimate = results[labelled.name][figure.name]
            goal = figure.misses(value.value)
            if goal is not None:
                print(f"{labelled.name}: {figure.name} is {value.value}, the goal is {goal}", file=sys.stderr)


def _tell_confusion(name: str, units: Sequence[Unit]) -> None:
    table = confusion([str(unit.truth) for unit in units], [str(unit.said) for unit in units])
    for truth, said in table.items():
        print(f"{name}: {truth} was said to be {dict(said)}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the labelled sets")
    parser.add_argument("--judge", default="lexical", help="as judge.model")
    parser.add_argument("--sets", nargs="*", choices=[labelled.name for labelled in SETS], help="only these")
    parser.add_argument("--answers", type=Path, help="judgements, one a line, instead of asking a judge")
    parser.add_argument("--write-sessions", type=Path, help="write the sessions to this folder, and end")
    parser.add_argument("--resamples", type=int, default=1_000, help="of the bootstrap")
    parser.add_argument("--confusion", action="store_true", help="tell on standard error what was taken for what")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
