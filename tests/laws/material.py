"""Valid answers of every rubric: of its prompt's examples, of the lexical judge on golden sets, made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any, Final

import msgspec

from benchmarks.agreement.rows import row
from monitor.events import Passage
from monitor.judgement import Verdict
from monitor.judging.lexical import conversation, correction, correction_whole, hallucination, refusal
from monitor.judging.prompt import Example, load
from monitor.rubrics import RUBRICS
from monitor.rubrics.base import Rubric, WindowResult
from monitor.rubrics.correction_whole.answer import FoundCorrection, Grade
from monitor.rubrics.hallucination import HallucinationRubric
from monitor.session import Session
from tests.unit.rubrics import build, conversation_build, hallucination_build, refusal_build
from tests.unit.rubrics.build import Said, chat, corrected

Answer = dict[str, Any]
Shown = tuple[Rubric, Session, Any]


class Case(msgspec.Struct, kw_only=True, frozen=True):
    """A valid answer about a window of a session."""

    name: str
    rubric: Rubric
    session: Session
    window: Any
    answer: Answer

    @property
    def raw(self) -> str:
        """The answer as a judge writes it."""
        return json.dumps(self.answer)


class Material(msgspec.Struct, kw_only=True, frozen=True):
    """What the laws need of a rubric.

    `shown` makes the session and the window that an example's fields show. `lexical` answers a window by rules.
    `golden` names the prompt folder whose golden set is used. `units` is the list in merged data that holds what
    the windows found, `unit_of` finds it in a window's own verdict.
    """

    shown: Callable[[Answer], Shown]
    lexical: Callable[[Any], Answer]
    golden: str
    by_hand: Callable[[], Iterator[tuple[Session, Answer]]]
    units: str
    unit_of: Callable[[Answer], list[Answer]]


def examples(name: str) -> list[Case]:
    """Give the examples of a rubric's prompt."""
    return [_example(name, example) for example in load(name).examples]


def golden(name: str) -> list[Case]:
    """Give the lexical judge's answers on every other row of a rubric's golden set, one a window."""
    folder = resources.files("prompts").joinpath(_of(name).golden, "golden.jsonl")
    rows = [json.loads(line) for line in folder.read_text("utf-8").splitlines()[::2]]
    return [case for item in rows for case in _answered(name, item["id"], row(item["session"]).session)]


def by_hand(name: str) -> list[Case]:
    """Give the answers that the tests of the rubric have."""
    rubric = RUBRICS[name]
    made = enumerate(_of(name).by_hand(), 1)
    return [
        Case(
            name=f"by hand {number}",
            rubric=rubric,
            session=session,
            window=_for(rubric, session, answer),
            answer=answer,
        )
        for number, (session, answer) in made
    ]


def cases(name: str) -> list[Case]:
    """Give valid answers of all three kinds."""
    return [*by_hand(name), *examples(name), *golden(name)]


def units(name: str, merged: Verdict) -> list[Answer]:
    """Give what windows found, from a session's merged result."""
    return list(merged.data[_of(name).units])


def units_of_window(name: str, found: Verdict) -> list[Answer]:
    """Give what one window found, from its own verdict."""
    return _of(name).unit_of(found.data)


def windows(rubric: Rubric, session: Session, lexical: Callable[[Any], Answer]) -> Iterator[tuple[Any, Answer]]:
    """Give the windows that are put to a judge, each with what came before, and the lexical answers to them."""
    before: list[WindowResult] = []
    for window in () if rubric.applies(session) else rubric.windows(session):
        full = rubric.carry(window, before)
        if rubric.preflight(full) is None:
            answer = lexical(full)
            yield full, answer
            result = rubric.parse(json.dumps(answer), full)
            before.append(WindowResult(window_id=full.window_id, result=result))


def _of(name: str) -> Material:
    assert name in MATERIAL, f"the rubric {name!r} has no material for the laws: add it to tests/laws/material.py"
    return MATERIAL[name]


def _example(name: str, example: Example) -> Case:
    fields = json.loads(example.fields)
    rubric, session, window = _of(name).shown(fields)
    assert rubric.fields(window) == fields, f"{example.title}: code would show the judge something else"
    return Case(
        name=example.title, rubric=rubric, session=session, window=window, answer=json.loads(example.answer)
    )


def _answered(name: str, item: str, session: Session) -> Iterator[Case]:
    for window, answer in windows(RUBRICS[name], session, _of(name).lexical):
        yield Case(
            name=f"{item} {window.window_id}", rubric=RUBRICS[name], session=session, window=window, answer=answer
        )


def _for(rubric: Rubric, session: Session, answer: Answer) -> Any:
    """Find the window that an answer is about: the one that accepts it."""
    found = rubric.windows(session)
    return next((item for item in found if getattr(item, "answer", None) == answer.get("turn_index")), found[0])


def _said(fields: Answer) -> list[Said]:
    return [(turn["role"][0], turn["text"]) for turn in fields["transcript"]]


def _correction(fields: Answer) -> Shown:
    session = chat(*_said(fields), corrections=(corrected(fields["event"]["correction_turn_index"]),))
    return RUBRICS["correction"], session, RUBRICS["correction"].windows(session)[0]


def _whole(name: str) -> Callable[[Answer], Shown]:
    def shown(fields: Answer) -> Shown:
        session = chat(*_said(fields))
        return RUBRICS[name], session, RUBRICS[name].windows(session)[0]

    return shown


def _conversation(fields: Answer) -> Shown:
    evidence: dict[int, tuple[Passage, ...]] = {fields["reply"]["turn"]: ()}
    for item in (*fields["older_passages"], *fields["passages"]):
        turn = int(item["passage_id"][1:].split(".")[0])
        evidence[turn] = (*evidence.get(turn, ()), Passage(id=item["of"], text=item["text"]))
    session = chat(*_said(fields), evidence=evidence)
    return RUBRICS["conversation"], session, conversation_build.window_of(session, fields["reply"]["turn"])


def _hallucination(fields: Answer) -> Shown:
    """Make the window of an example, which may lie in the middle of a session, behind claims from before."""
    first = fields["transcript"][0]["turn"]
    evidence: dict[int, tuple[Passage, ...]] = {
        turn["turn"]: () for turn in fields["transcript"] if turn["evidence"]
    }
    for item in fields["passages"]:
        passage = Passage(id=item["passage_id"], text=item["text"])
        evidence[item["turn"]] = (*evidence.get(item["turn"], ()), passage)
    before: list[Said] = [("u", "Hello."), ("a", "Hello.")] * (first // 2)
    session = chat(*before, *_said(fields), evidence=evidence)
    rubric = HallucinationRubric(evidence_scope=fields["scope"])
    (whole,) = (item for item in rubric.windows(session) if set(fields["audited"]) <= set(item.audited))
    shown = {turn["turn"] for turn in fields["transcript"]}
    part = msgspec.structs.replace(
        whole,
        turns=tuple(turn for turn in whole.turns if turn.index in shown),
        audited=tuple(fields["audited"]),
    )
    claims = [
        {"claim_id": item["claim_id"], "turn_index": item["turn"], "claim_text": item["text"]}
        | {"status": "unsupported", "source": "assistant"}
        for item in fields["open_claims"]
    ]
    return (
        rubric,
        session,
        rubric.carry(part, [WindowResult(window_id="W0", result=Verdict(data={"claims": claims}))]),
    )


def _corrections() -> Iterator[tuple[Session, Answer]]:
    session = chat(*build.SEATS)
    yield session, build.reverted()
    yield session, build.kept()
    yield (
        session,
        build.kept(over_correction_detail="the room changed", over_correction_turn_index=5, no_over_correction=2),
    )


def _conversations() -> Iterator[tuple[Session, Answer]]:
    made = conversation_build
    yield made.pier(), made.told()
    yield (
        made.pier(),
        made.told(
            statements=[made.statement(), made.unsupported("The pier ticket costs 6 euros", 2)],
            scores={"evidence_faithfulness": 3, "citation_accuracy": 3},
        ),
    )
    yield (
        made.pier(),
        made.told(settled_turn_index=1, settled_quote="costs 6 euros", scores={"turn_consistency": 2}),
    )


def _hallucinations() -> Iterator[tuple[Session, Answer]]:
    made = hallucination_build
    yield made.island(), made.told()
    yield made.island(), made.told(made.RIGHT)
    between = (("u", "And?"), ("a", "Two lighthouses."), ("u", "Two?"), ("a", "Yes, two lighthouses."))
    again = made.claim("3.1", "two lighthouses", "propagated_hallucination", origin_turn_index=1, link="repeat")
    yield (
        chat(*between, ("u", "Sure?"), ("a", "Quite sure."), evidence={3: ()}),
        made.told(again | {"gap": "retrieval_empty"}, audited_turns=[3]),
    )


def _refusals() -> Iterator[tuple[Session, Answer]]:
    session = chat(*refusal_build.VAULT)
    yield session, refusal_build.told("full", "full", "none")
    yield session, refusal_build.told("full", "partial", "none", basis="policy")
    change = {"turn_index": 4, "request_id": "R1", "quote": "branch manager", "kind": "new_authorization"}
    yield session, refusal_build.told("full", "full", "none", changes=[change])


def _wholes() -> Iterator[tuple[Session, Answer]]:
    """Give the answers of event mode as whole mode writes them."""
    for session, told in _corrections():
        row = told | {"correction_quote": "make it 6 seats", "superseded_by_turn_index": -1}
        quotes = [{"correction_id": "C1"} | item for item in told["incorporation_evidence"]]
        yield (
            session,
            {
                "corrections": [{field: row[field] for field in FoundCorrection.__struct_fields__}],
                "evidence": quotes,
                "grades": [{field: row[field] for field in Grade.__struct_fields__}],
            },
        )


MATERIAL: Final[dict[str, Material]] = {
    "correction": Material(
        shown=_correction,
        lexical=correction.answer,
        golden="correction",
        by_hand=_corrections,
        units="events",
        unit_of=lambda data: [data],
    ),
    "correction_whole": Material(
        shown=_whole("correction_whole"),
        lexical=correction_whole.answer,
        golden="correction_whole",
        by_hand=_wholes,
        units="events",
        unit_of=lambda data: list(data["events"]),
    ),
    "conversation": Material(
        shown=_conversation,
        lexical=conversation.answer,
        golden="conversation",
        by_hand=_conversations,
        units="answers",
        unit_of=lambda data: [data],
    ),
    "hallucination": Material(
        shown=_hallucination,
        lexical=hallucination.answer,
        golden="hallucination",
        by_hand=_hallucinations,
        units="claims",
        unit_of=lambda data: list(data["claims"]),
    ),
    "refusal": Material(
        shown=_whole("refusal"),
        lexical=refusal.answer,
        golden="refusal",
        by_hand=_refusals,
        units="requests",
        unit_of=lambda data: list(data["requests"]),
    ),
}
