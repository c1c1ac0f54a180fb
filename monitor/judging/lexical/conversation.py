"""String rules over an answer and its passages: what it states, what carries that, whether it abstains.

A statement is a sentence that asks nothing, abstains from nothing and is no courtesy. Its unsupported parts are
the runs of words that no passage has (`runs`); it is unsupported when little is left, contradicted when the
closest sentence of a passage says the same with another number, or denies it. Paraphrase is beyond rules of
wording, so partly supported is the usual finding, and the share of words that is supported tells answers apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from monitor.judging.lexical import asking
from monitor.judging.lexical.runs import Wording, foreign, wording, words
from monitor.judging.lexical.support import Sentence, Source, sentence, sentences, source, support
from monitor.rubrics.answers import plain
from monitor.rubrics.conversation.grade import (
    DIMENSIONS,
    NOT_APPLICABLE,
    Stance,
    Sufficiency,
    supported_share,
)
from monitor.rubrics.conversation.window import ConversationWindow
from monitor.rubrics.passages import LabelledPassage


class _Passages(msgspec.Struct, kw_only=True, frozen=True):
    """Passages, read: sentence by sentence, and as one wording."""

    sources: tuple[Source, ...]
    known: Wording


def answer(window: ConversationWindow) -> dict[str, Any]:
    """Answer for one window, as the fields of the conversation answer, in their order."""
    seen = _Observed(window)
    return {
        "turn_index": window.answer,
        "task": "from_evidence",
        "question_quote": seen.question_quote,
        "question": seen.question,
        "asks_back_quote": seen.asks_back,
        "statements": seen.statements,
        "citations": seen.citations,
        "invented_source_quote": "",
        "settled_turn_index": seen.settled[0],
        "settled_quote": seen.settled[1],
        "evidence": seen.evidence,
        "stance_quote": seen.stance_quote(),
        "stance": seen.stance,
        "dimensions": _dimensions(seen),
        "rationale": _RATIONALE,
    }


class _Observed:
    """What the rules see in a window."""

    def __init__(self, window: ConversationWindow) -> None:
        self.window = window
        asked = window.turn(window.question)
        self.asked = plain(asked.text) if asked is not None else ""
        self.said = [part for part in sentences(window.reply) if plain(part.text)]
        self.asks_back = _cut(next((part.text for part in self.said if asking.ASKS_BACK.search(part.text)), ""))
        self.question = asking.kind(self.asked, _before(window), asked_back=bool(self.asks_back))
        self.question_quote = "" if self.question == "none" else _cut(self.asked)
        self.abstains = [part for part in self.said if asking.ABSTAINS.search(part.text)]
        stated = [part for part in self.said if asking.states(part)]
        self.stance = self._stance(stated)
        self.own = _read(window.own)
        self.statements = [] if self.stance == "abstains" else _statements(window, stated, self.own)
        self.share = supported_share((item["quote"], item["unsupported_parts"]) for item in self.statements)
        self.citations = _citations(window, self.statements)
        self.settled = _settled(window, self.statements)
        self.evidence = self._evidence()

    def supports(self) -> set[str]:
        """Give how far the statements are supported."""
        return {item["support"] for item in self.statements}

    def stance_quote(self) -> str:
        """Quote the sentence that asks, abstains or answers."""
        if self.stance == "asks":
            return self.asks_back
        return _cut((self.abstains or self.said)[0].text) if self.said else _cut(self.window.reply)

    def _stance(self, stated: Sequence[Sentence]) -> Stance:
        asks_last = bool(self.asks_back) and (not stated or self.said[-1].text.endswith("?"))
        if asks_last:
            return "asks"
        if self.abstains:
            return "hedges" if sum(part.size for part in stated) >= _TELLING else "abstains"
        return "answers" if stated else "other"

    def _evidence(self) -> Sufficiency:
        """Tell whether the passages suffice: by what they carry of an answer, else by the question's words."""
        if not self.window.own:
            return "insufficient"
        if self.stance == "answers" and self.share is not None:
            return "sufficient" if self.share >= _CARRIED else "insufficient"
        if self.stance == "hedges":
            return "partial"
        found = sentence(self.asked)
        known = len(found.stems & self.own.known.stems)
        return "sufficient" if found.stems and known / len(found.stems) >= _ANSWERABLE else "insufficient"


def _before(window: ConversationWindow) -> str:
    """Give what was said shortly before the question."""
    return " ".join(turn.text for turn in window.turns if turn.index < window.question)[-_HEARD:]


def _statements(window: ConversationWindow, stated: Sequence[Sentence], own: _Passages) -> list[dict[str, Any]]:
    older = [passage for passage in window.passages if passage.turn != window.answer]
    read: _Passages | None = None
    cited = [citation.text for citation in window.citations]
    found: list[dict[str, Any]] = []
    for part in stated:
        quote = _cut(part.text)
        bare = sentence(_without(quote, cited))
        item = _carried(quote, bare, own, own=True)
        if item["support"] == "unsupported" and older:
            read = read or _read(older)
            other = _carried(quote, bare, read, own=False)
            item = other if _left(other) >= _STALE else item
        found.append({"statement_id": f"S{len(found) + 1}"} | item)
    return found


def _carried(quote: str, bare: Sentence, passages: _Passages, *, own: bool) -> dict[str, Any]:
    """Give how far passages carry a statement; `bare` is it without its citations."""
    parts = [part for part in foreign(bare.text, passages.known) if part in quote]
    closest = support(bare, passages.sources)
    item = {"quote": quote, "passage_id": closest.label, "source_quote": closest.quote, "unsupported_parts": parts}
    kept = 1 - sum(words(part) for part in parts) / max(1, words(bare.text))
    if kept < _SUPPORTED or not closest.quote:
        blank = {"passage_id": "", "source_quote": "", "unsupported_parts": parts or [quote]}
        return item | blank | {"support": "unsupported"}
    if own and closest.contradicts:
        return item | {"support": "contradicted", "unsupported_parts": parts or [quote]}
    return item | {"support": "partly" if parts else "supported"}


def _left(item: dict[str, Any]) -> float:
    return supported_share([(item["quote"], item["unsupported_parts"])]) or 0.0


def _citations(window: ConversationWindow, statements: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Judge each citation by the statement that it stands in or follows."""
    reply = plain(window.reply)
    starts: list[tuple[int, dict[str, Any]]] = []
    for statement in statements:
        start = reply.find(statement["quote"], starts[-1][0] + 1 if starts else 0)
        # "... at nine. [1] Wine is served": the mark belongs to the sentence before it.
        marks = _LEADING.match(statement["quote"])
        starts.append((start + (len(marks[0]) if marks and start >= 0 else 0), statement))
    found: list[dict[str, Any]] = []
    nothing: dict[str, Any] = {"statement_id": "", "support": ""}
    for citation in window.citations:
        statement = next((item for start, item in starts[::-1] if 0 <= start <= citation.start), nothing)
        found.append(
            {
                "citation_id": citation.citation_id,
                "statement_id": statement["statement_id"],
                "verdict": _verdict(citation.passage_id, statement),
            }
        )
    return found


def _verdict(passage_id: str, statement: dict[str, Any]) -> str:
    if not passage_id:
        return "fabricated"
    return "right" if statement["support"] in {"", "supported", "partly"} else "wrong"


def _settled(window: ConversationWindow, statements: Sequence[dict[str, Any]]) -> tuple[int, str]:
    """Find what an earlier reply said with another number, where the passages don't have the new one."""
    before = [turn for turn in window.turns[:-1] if turn.role == "assistant"][-_BEFORE:]
    sources = [source(str(turn.index), turn.text) for turn in before]
    for statement in statements if window.settled else ():
        if statement["support"] != "supported" and any(map(str.isdigit, "".join(statement["unsupported_parts"]))):
            earlier = support(sentence(statement["quote"]), sources)
            if earlier.contradicts and earlier.foreign and earlier.quote:
                return int(earlier.label), earlier.quote
    return NOT_APPLICABLE, ""


def _dimensions(seen: _Observed) -> list[dict[str, Any]]:
    scores = (_consistency(seen), _citing(seen), _clarifying(seen), _faithful(seen), NOT_APPLICABLE)
    quote = _cut(seen.said[0].text) if seen.said else _cut(seen.window.reply)
    worst = min(seen.statements, key=_left)["quote"] if seen.statements else quote
    quotes = (worst, worst, seen.asks_back or quote, worst, seen.stance_quote())
    return [
        {"dimension": name, "quote": words_, "rationale": _REASONS[name], "score": score}
        for name, words_, score in zip(DIMENSIONS, quotes, scores, strict=True)
    ]


def _consistency(seen: _Observed) -> int:
    if not seen.window.settled:
        return NOT_APPLICABLE
    return 5 if seen.settled[0] == NOT_APPLICABLE else 2


def _citing(seen: _Observed) -> int:
    if not seen.citations and not (seen.window.citation_required and seen.statements):
        return NOT_APPLICABLE
    verdicts = {cited["verdict"] for cited in seen.citations}
    if "fabricated" in verdicts:
        return 1
    if "wrong" in verdicts or seen.supports() & {"unsupported", "contradicted"}:
        return 2
    cited = {cited["statement_id"] for cited in seen.citations}
    bare = any(item["statement_id"] not in cited for item in seen.statements)
    return 3 if seen.window.citation_required and bare else 5


def _clarifying(seen: _Observed) -> int:
    if seen.question == "none":
        return NOT_APPLICABLE
    return 5 if (seen.question == "ambiguous") == bool(seen.asks_back) else 2


def _faithful(seen: _Observed) -> int:
    if seen.share is None and not seen.statements:
        return NOT_APPLICABLE
    supports = seen.supports()
    share = seen.share or 0.0
    score = 5 if share == 1 else next((score for limit, score in _SHARES if share >= limit), 1)
    if "contradicted" in supports or supports == {"unsupported"}:
        return min(score, 2)
    if "unsupported" in supports:
        return min(score, 3)
    return 5 if supports == {"supported"} else min(score, 4)


def _read(passages: Sequence[LabelledPassage]) -> _Passages:
    return _Passages(
        sources=tuple(source(passage.label, passage.text) for passage in passages),
        known=wording(passage.text for passage in passages),
    )


def _without(quote: str, cited: Sequence[str]) -> str:
    for text in cited:
        quote = quote.replace(plain(text), " ")
    return quote


def _cut(text: str) -> str:
    return plain(text)[:_QUOTED].strip()


_LEADING: Final = re.compile(r"(?:[\[\u3010][^\]\u3011]*[\]\u3011]\s*)+")
_QUOTED: Final = 400
_TELLING: Final = 4
_CARRIED: Final = 0.35
_ANSWERABLE: Final = 0.7
_SUPPORTED: Final = 0.15
_STALE: Final = 0.7
_BEFORE: Final = 10
_HEARD: Final = 20_000
_SHARES: Final = ((0.5, 4), (0.35, 3), (0.2, 2))
_RATIONALE: Final = (
    "Told from the words and numbers that the reply shares with its passages, and from its wording."
)
_REASONS: Final = {
    "turn_consistency": "Earlier replies were searched for the same sentence with another number.",
    "citation_accuracy": "Each citation was followed to its passage, and its statement compared with them.",
    "clarification_appropriateness": "The question was searched for words that point at nothing said before it.",
    "evidence_faithfulness": "The statements' words were searched in the passages.",
    "abstention_correctness": "The reply was searched for words that abstain.",
}
