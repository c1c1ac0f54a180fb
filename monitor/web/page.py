"""Everything that the page of a session shows, put together. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from monitor.judgement import Attempt
from monitor.store import StoredJudgement, StoredSession
from monitor.web.report import Report, report
from monitor.web.report.base import TONES, counted
from monitor.web.transcript import Fold, Located, Transcript, TurnView, transcript

_STANDINGS: Final = {
    "waiting": "waits for the decision of its session, not counted yet",
    "repeat": "asked again to see whether the judge agrees with itself, not counted",
    "superseded": "superseded, not counted",
    "overlap": "of a session that shares an event with another, not counted",
}
_INSTRUMENTS: Final = {"lexical": "wording rules, no language model: right on plain cases only"}


class JudgementView(msgspec.Struct, kw_only=True, frozen=True):
    """A judgement with its report. `marks`: its findings are marked in the transcript.

    `standing` says why it isn't counted, and is empty when it is; `sure` is how far to trust it, a phrase each.
    `quotes` are by the anchor of their finding; where nothing is marked none has a place.
    """

    stored: StoredJudgement
    report: Report
    marks: bool
    standing: str
    sure: tuple[str, ...]
    quotes: Mapping[str, tuple[Located, ...]]

    @property
    def failures(self) -> tuple[str, ...]:
        """Give the measures on which something failed: what the totals count."""
        return tuple(name for name, (_, failed) in self.stored.counts.measures.items() if failed)

    @property
    def instrument(self) -> str:
        """Say what kind of judge that is, where its name doesn't; else nothing."""
        return _INSTRUMENTS.get(self.stored.judge, "")

    @property
    def trials(self) -> int:
        """Give how many units were judged."""
        return max((trials for trials, _ in self.stored.counts.measures.values()), default=0)


class SessionPage(msgspec.Struct, kw_only=True, frozen=True):
    """The page: judgements, the worst first and those that don't count last; then the turns.

    `rubrics` are those whose findings can be marked, `marked` the one that is chosen, if any.
    """

    judgements: tuple[JudgementView, ...]
    items: tuple[TurnView | Fold, ...]
    quotes: Mapping[str, tuple[Located, ...]]
    rubrics: tuple[str, ...]
    marked: str | None


def session_page(session: StoredSession, wanted: str | None = None) -> SessionPage:
    """Put the page together; `wanted` is the rubric whose findings alone are to be marked."""
    reports = [report(item, f"j{place}", session.view) for place, item in enumerate(session.judgements)]
    marking = _marking(session.judgements)
    rubrics = tuple(
        dict.fromkeys(session.judgements[place].rubric for place in sorted(marking) if reports[place].parts)
    )
    chosen = wanted if wanted in rubrics else None
    if chosen:
        marking = {place for place in marking if session.judgements[place].rubric == chosen}
    view = session.view
    shown = transcript(view, [reports[place] for place in sorted(marking)]) if view else None
    judgements = [
        JudgementView(
            stored=item,
            report=reports[place],
            marks=shown is not None and place in marking,
            standing=_STANDINGS.get(item.standing, "" if item.standing == "counted" else item.standing),
            sure=(*_sure(item, session.judgements), *reports[place].doubts, *_found(reports[place], shown)),
            quotes=shown.quotes if shown is not None and place in marking else _unmarked(reports[place]),
        )
        for place, item in enumerate(session.judgements)
    ]
    return SessionPage(
        judgements=tuple(sorted(judgements, key=_order)),
        items=shown.items if shown else (),
        quotes=shown.quotes if shown else {},
        rubrics=rubrics,
        marked=chosen,
    )


def _found(said: Report, shown: Transcript | None) -> tuple[str, ...]:
    """Say whether the quotes of a judgement that marks the transcript are in it."""
    anchors = {quote.anchor for quote in said.quotes}
    quotes = shown.quotes if shown else {}
    located = [item for anchor in anchors for item in quotes.get(anchor, ()) if not item.quote.told]
    if not located:
        return ()
    lost = sum(item.mark is None for item in located)
    if lost:
        return (f"{counted(lost, 'quote')} of {len(located)} not found in the stored text",)
    return ("each quote was found in the transcript",)


def _unmarked(shown: Report) -> dict[str, tuple[Located, ...]]:
    found: dict[str, list[Located]] = defaultdict(list)
    for quote in shown.quotes:
        if quote.told:
            continue
        found[quote.anchor].append(Located(quote=quote))
    return {anchor: tuple(items) for anchor, items in found.items()}


def _marking(judgements: Sequence[StoredJudgement]) -> set[int]:
    """Give the places of the judgements that mark the transcript: those that count, else the newest."""
    counted_ = {place for place, item in enumerate(judgements) if item.standing == "counted"}
    return counted_ or set(range(len(judgements))[-1:])


def _order(view: JudgementView) -> tuple[bool, int, str]:
    return bool(view.standing), TONES.index(view.report.tone), view.stored.rubric


def _sure(item: StoredJudgement, others: Sequence[StoredJudgement]) -> list[str]:
    said: list[str] = []
    if item.judgement is not None:
        said += _repairs(item.judgement.attempts)
    return said + _repeats(item, others)


def _repairs(attempts: Sequence[Attempt]) -> list[str]:
    """Say how often the checks refused an answer of the judge's."""
    windows: dict[str, list[str]] = defaultdict(list)
    for attempt in attempts:
        windows[attempt.window].append(attempt.kind)
    repaired = sum("invalid" in kinds for kinds in windows.values())
    if not repaired:
        return []
    return [f"the checks refused the judge's first answer to {repaired} of {counted(len(windows), 'question')}"]


def _repeats(item: StoredJudgement, others: Sequence[StoredJudgement]) -> list[str]:
    """Say whether the judge came to the same when asked again."""
    if item.standing != "counted":
        return []
    again = [
        other
        for other in others
        if other.standing == "repeat" and (other.rubric, other.judge) == (item.rubric, item.judge)
    ]
    same = sum(_failures(other) == _failures(item) for other in again)
    if not again:
        return []
    return [f"asked again {counted(len(again), 'time')}: the same outcomes in {same} of {len(again)}"]


def _failures(item: StoredJudgement) -> tuple[str, frozenset[str]]:
    return item.kind, frozenset(name for name, (_, failed) in item.counts.measures.items() if failed)
