"""What stays of an unclean round: the findings, the commits, and what its topics hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tests.consumers.broker_io import read_all

if TYPE_CHECKING:
    from tests.chaos.lane import Lane
    from tests.chaos.results import Result

BEFORE_S = 60.0


async def keep(lane: Lane, result: Result, began: float, again: str) -> None:
    """Write `findings.txt`, `result.json`, `commits.json`, and the records since shortly before the round."""
    (lane.folder / "findings.txt").write_text("\n".join([again, *result.report.findings, ""]), encoding="utf-8")
    (lane.folder / "result.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    (lane.folder / "commits.json").write_bytes(msgspec.json.format(msgspec.json.encode(await lane.commits())))
    for topic in lane.topics:
        records = await read_all(lane.broker.bootstrap, [topic])
        with (lane.folder / f"{topic}.jsonl").open("wb") as file:
            for record in records:
                if record.timestamp / 1000 >= began - BEFORE_S:
                    file.write(_line(record))


def _line(record: object) -> bytes:
    names = ("partition", "offset", "timestamp", "key", "value")
    shown = {name: getattr(record, name) for name in names}
    for name in ("key", "value"):
        shown[name] = shown[name].decode("utf-8", "replace") if shown[name] is not None else None
    return msgspec.json.encode(shown) + b"\n"
