"""Every check of a judge's answer on a reply: that what it quotes is there, and that it holds together (J2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from monitor.rubrics.answers import Faults, blank, contains, decode, plain, refuse
from monitor.rubrics.conversation.answer import ConversationAnswer, Statement
from monitor.rubrics.conversation.bounds import fits
from monitor.rubrics.conversation.grade import DIMENSIONS, NOT_APPLICABLE, SOUND
from monitor.rubrics.conversation.window import ConversationWindow


def check(raw: str, window: ConversationWindow) -> ConversationAnswer:
    """Check an answer against its window. Raises `InvalidVerdict`."""
    given = decode(raw, ConversationAnswer, enums=_ENUMS)
    faults = Faults()
    faults.keeps(_about, given, window)
    if given.task == "from_evidence":
        _from_evidence(faults, given, window)
    faults.keeps(_rationale, given)
    faults.refuse()
    return given


def _from_evidence(faults: Faults, given: ConversationAnswer, window: ConversationWindow) -> None:
    faults.keeps(_question, given, window)
    faults.keeps(_in_reply, "asks_back_quote", given.asks_back_quote, window)
    for place, statement in enumerate(given.statements):
        for rule in _OF_STATEMENT:
            faults.keeps(rule, place, statement, window)
    if faults.keeps(_citations, given, window):
        for place in range(len(given.citations)):
            faults.keeps(_citation, place, given, window)
    faults.keeps(_in_reply, "invented_source_quote", given.invented_source_quote, window)
    for of_turn in (_settled, _stance, _evidence):
        faults.keeps(of_turn, given, window)
    if faults.keeps(_dimensions, given):
        for place in range(len(DIMENSIONS)):
            faults.keeps(_graded, place, given, window)


def _about(given: ConversationAnswer, window: ConversationWindow) -> None:
    if given.turn_index != window.answer:
        refuse("turn_index", given.turn_index, f"the reply in question is in turn {window.answer}")
    if given.task != "from_evidence" and any(statement.passage_id for statement in given.statements):
        refuse("task", given.task, 'a reply with a statement that rests on a passage is "from_evidence"')


def _rationale(given: ConversationAnswer) -> None:
    if blank(given.rationale):
        refuse("rationale", given.rationale, "it must be one sentence")


def _question(given: ConversationAnswer, window: ConversationWindow) -> None:
    asked = window.turn(window.question)
    if (given.question == "none") == bool(given.question_quote):
        rule = "it must be empty where the user asked nothing, and else quote what was asked"
        refuse("question_quote", given.question_quote, rule)
    if given.question_quote and (asked is None or not contains(asked.text, given.question_quote)):
        refuse("question_quote", given.question_quote, f"turn {window.question} doesn't have these words")


def _named(place: int, statement: Statement, _window: ConversationWindow) -> None:
    if statement.statement_id != (wanted := f"S{place + 1}"):
        rule = f'statements are named in order, this one is "{wanted}"'
        refuse(f"statements[{place}].statement_id", statement.statement_id, rule)


def _quoted(place: int, statement: Statement, window: ConversationWindow) -> None:
    if not contains(window.reply, statement.quote):
        refuse(f"statements[{place}].quote", statement.quote, f"turn {window.answer} doesn't have these words")


def _parts(place: int, statement: Statement, _window: ConversationWindow) -> None:
    field, told = f"statements[{place}]", Counter[str]()
    for number, part in enumerate(statement.unsupported_parts):
        if not contains(statement.quote, part):
            refuse(f"{field}.unsupported_parts[{number}]", part, "the statement's quote doesn't have these words")
        words = plain(part)
        told[words] += 1
        # Each time that the words stand in the quote they may be told: their share of it is computed.
        if told[words] > max(1, plain(statement.quote).count(words)):
            refuse(f"{field}.unsupported_parts[{number}]", part, "that part is there already")
    if (statement.support == "supported") == bool(statement.unsupported_parts):
        rule = f'a "{statement.support}" statement has {"none" if statement.unsupported_parts else "at least one"}'
        refuse(f"{field}.unsupported_parts", statement.unsupported_parts, rule)


def _source(place: int, statement: Statement, window: ConversationWindow) -> None:
    field = f"statements[{place}]"
    if statement.support == "unsupported":
        if statement.passage_id or statement.source_quote:
            name = "passage_id" if statement.passage_id else "source_quote"
            refuse(f"{field}.{name}", getattr(statement, name), "no passage supports an unsupported statement")
        return
    passage = window.passage(statement.passage_id)
    if passage is None:
        labels = [shown.label for shown in window.passages]
        refuse(f"{field}.passage_id", statement.passage_id, f"it must be one of the passages {labels}")
    if not contains(passage.text, statement.source_quote):
        refuse(f"{field}.source_quote", statement.source_quote, f"{passage.label} doesn't have these words")
    if statement.support == "contradicted" and passage.turn != window.answer:
        rule = "only the evidence of the reply itself contradicts it"
        refuse(f"{field}.passage_id", statement.passage_id, rule)


def _citations(given: ConversationAnswer, window: ConversationWindow) -> None:
    wanted = [citation.citation_id for citation in window.citations]
    said = [cited.citation_id for cited in given.citations]
    if said != wanted:
        refuse("citations", said, f"it must hold each of the citations {wanted} exactly once and in this order")


def _citation(place: int, given: ConversationAnswer, window: ConversationWindow) -> None:
    field, cited, found = f"citations[{place}]", given.citations[place], window.citations[place]
    supports = {statement.statement_id: statement.support for statement in given.statements}
    if cited.statement_id and cited.statement_id not in supports:
        rule = f"it must be empty or one of the statements {list(supports)}"
        refuse(f"{field}.statement_id", cited.statement_id, rule)
    if (cited.verdict == "fabricated") != (not found.passage_id):
        leads = f"leads to {found.passage_id}" if found.passage_id else "leads to no passage"
        refuse(f"{field}.verdict", cited.verdict, f"{found.text} {leads}")
    if cited.verdict == "right" and supports.get(cited.statement_id, "supported") not in _CARRIED:
        rule = "only a citation of a supported or partly supported statement is right"
        refuse(f"{field}.verdict", cited.verdict, rule)


def _settled(given: ConversationAnswer, window: ConversationWindow) -> None:
    turn, index = window.turn(given.settled_turn_index), given.settled_turn_index
    if index == NOT_APPLICABLE:
        if given.settled_quote:
            refuse("settled_quote", given.settled_quote, "without a settled turn it must be empty")
        return
    if turn is None or turn.role not in {"user", "assistant"} or index >= window.answer:
        refuse("settled_turn_index", index, "it must be -1 or a shown turn before the reply")
    if not contains(turn.text, given.settled_quote):
        refuse("settled_quote", given.settled_quote, f"turn {index} doesn't have these words")


def _stance(given: ConversationAnswer, window: ConversationWindow) -> None:
    if not given.stance_quote:
        refuse("stance_quote", given.stance_quote, "it must quote the words of the reply that show its stance")
    _in_reply("stance_quote", given.stance_quote, window)
    if given.stance == "abstains" and given.statements:
        refuse("stance", given.stance, 'a reply that states facts as well "hedges"')
    if given.stance == "asks" and not given.asks_back_quote:
        refuse("asks_back_quote", given.asks_back_quote, 'a reply that "asks" has a question to quote')


def _evidence(given: ConversationAnswer, window: ConversationWindow) -> None:
    if not window.own and given.evidence != "insufficient":
        refuse("evidence", given.evidence, 'without any passage it is "insufficient"')


def _dimensions(given: ConversationAnswer) -> None:
    names = tuple(graded.dimension for graded in given.dimensions)
    if names != DIMENSIONS:
        refuse("dimensions", list(names), f"it must hold {list(DIMENSIONS)}, each exactly once and in this order")


def _graded(place: int, given: ConversationAnswer, window: ConversationWindow) -> None:
    field, graded = f"dimensions[{place}]", given.dimensions[place]
    if blank(graded.rationale):
        refuse(f"{field}.rationale", graded.rationale, f"{graded.dimension} needs a reason")
    _in_reply(f"{field}.quote", graded.quote, window)
    fits(place, given, window)
    if NOT_APPLICABLE < graded.score < SOUND and not graded.quote:
        refuse(f"{field}.quote", graded.quote, f"{graded.dimension} below 4 needs words of the reply")


def _in_reply(field: str, quote: str, window: ConversationWindow) -> None:
    if quote and not contains(window.reply, quote):
        refuse(field, quote, f"turn {window.answer} doesn't have these words")


_CARRIED: Final = frozenset({"supported", "partly"})
_ENUMS: Final = ("task", "question", "support", "verdict", "evidence", "stance", "dimension")
_OF_STATEMENT: Final[tuple[Callable[[int, Statement, ConversationWindow], None], ...]] = (
    _named,
    _quoted,
    _parts,
    _source,
)
