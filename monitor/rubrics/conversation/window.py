"""The windows of the conversation rubric: one an answer, with what was said and retrieved before it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from monitor.judgement import Skipped, SkipReason
from monitor.rubrics.answers import plain
from monitor.rubrics.conversation.citations import Citation, CitationForm, citations
from monitor.rubrics.passages import LabelledPassage, for_turn, labelled
from monitor.session import Session, SessionTurn


class ConversationWindow(msgspec.Struct, kw_only=True, frozen=True):
    """One answer as a question to the judge.

    `turns` are shown, the answer last; `question` is the user turn that it answers, -1 when there is none.
    `passages` are the answer's own and, after them, older ones; `citations` are those found in the answer.
    `settled`: something was said before the question, so that the answer can contradict it.
    """

    window_id: str
    answer: int
    question: int
    turns: tuple[SessionTurn, ...]
    passages: tuple[LabelledPassage, ...]
    citations: tuple[Citation, ...]
    citation_required: bool
    settled: bool

    @property
    def reply(self) -> str:
        """The answer's text."""
        return self.turns[-1].text

    @property
    def own(self) -> tuple[LabelledPassage, ...]:
        """The passages that were retrieved for the answer."""
        return tuple(passage for passage in self.passages if passage.turn == self.answer)

    def turn(self, index: int) -> SessionTurn | None:
        """Give a shown turn by its index in the session, or None."""
        return next((turn for turn in self.turns if turn.index == index), None)

    def passage(self, label: str) -> LabelledPassage | None:
        """Give a shown passage by its label; the answer's own goes before the same text of an older one."""
        return for_turn(self.passages, label, self.answer)


class Unjudged(msgspec.Struct, kw_only=True, frozen=True):
    """A reply that no judge is asked about, and why."""

    turn: int
    reason: SkipReason


class Replies(msgspec.Struct, kw_only=True, frozen=True):
    """The replies of a session: those that can be judged, and the others."""

    answers: tuple[SessionTurn, ...]
    unjudged: tuple[Unjudged, ...]

    def skip(self) -> Skipped:
        """Say why no reply can be judged."""
        reasons = [item.reason for item in self.unjudged]
        if not reasons:
            return Skipped(reason="no_response", note="the session has no reply")
        if "cut_off" in reasons:
            return Skipped(reason="cut_off", note="every reply with evidence was cut off")
        return Skipped(reason="no_evidence", note="no reply comes with evidence")


def replies(session: Session) -> Replies:
    """Sort a session's replies. One of invisible characters says nothing.

    The last one of a session that we cut may lack evidence that came later.
    """
    said = [turn for turn in session.turns if turn.role == "assistant" and plain(turn.text)]
    last = said[-1].index if said and session.was_cut else -1
    answers, unjudged = [], []
    for turn in said:
        if turn.evidence is None:
            unjudged.append(Unjudged(turn=turn.index, reason="no_evidence"))
        elif turn.cut_off or turn.index == last:
            unjudged.append(Unjudged(turn=turn.index, reason="cut_off"))
        else:
            answers.append(turn)
    return Replies(answers=tuple(answers), unjudged=tuple(unjudged))


def sample(session: Session, found: Sequence[SessionTurn], limit: int) -> tuple[SessionTurn, ...]:
    """Pick at most `limit` answers by a coin that depends on nothing but the session and the answer.

    A simple random sample without replacement: each answer is in it with probability `limit / len(found)`.
    """
    picked = {turn.index for turn in sorted(found, key=lambda turn: toss(session, turn.index, "answer"))[:limit]}
    return tuple(turn for turn in found if turn.index in picked)


def toss(session: Session, turn: int, purpose: Literal["answer", "review"]) -> float:
    """Toss an answer's coin for a purpose: a number in [0, 1), the same in each run."""
    parts = (session.tenant, session.session_id, session.segment, session.turns[turn].turn_id)
    key = b"".join(len(raw := part.encode()).to_bytes(4, "big") + raw for part in parts)
    digest = hashlib.blake2b(key, digest_size=8, person=purpose.encode()).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def window(
    session: Session,
    answer: SessionTurn,
    *,
    context_turns: int,
    older_passages: int,
    forms: Sequence[CitationForm],
    required: bool,
) -> ConversationWindow:
    """Build the window of an answer: it, at most `context_turns` before it, and what was retrieved."""
    shown = session.turns[max(0, answer.index - context_turns) : answer.index + 1]
    question = next((turn.index for turn in reversed(shown) if turn.role == "user"), -1)
    asked = answer.index if question < 0 else question
    passages = _passages(session, answer, shown[0].index, older_passages)
    return ConversationWindow(
        window_id=f"A{answer.index}",
        answer=answer.index,
        question=question,
        turns=shown,
        passages=passages,
        citations=citations(answer.text, answer.index, passages, forms),
        citation_required=required,
        settled=any(turn.role in _SPEAKERS and turn.index < asked for turn in shown),
    )


def _passages(session: Session, answer: SessionTurn, first: int, limit: int) -> tuple[LabelledPassage, ...]:
    """Give an answer's own passages, then the newest others that an answer before it had.

    Where retrieval found nothing for the answer, nothing supports it: what it had earlier isn't shown either.
    """
    found = [passage for passage in labelled(session) if first <= passage.turn <= answer.index]
    own = [passage for passage in found if passage.turn == answer.index]
    seen = {(passage.passage_id, passage.text) for passage in own}
    older: list[LabelledPassage] = []
    for passage in reversed(found if own else []):
        if (passage.passage_id, passage.text) not in seen and len(older) < limit:
            seen.add((passage.passage_id, passage.text))
            older.append(passage)
    return (*own, *reversed(older))


_SPEAKERS: Final = frozenset({"user", "assistant"})
