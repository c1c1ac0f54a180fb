"""A judge that obeys whatever stands outside of a fence isn't moved, and other sessions keep their verdicts."""

from __future__ import annotations

import asyncio
import json
import os
from functools import cache
from importlib import resources
from typing import Any

import msgspec
import pytest

from benchmarks.agreement.rows import Row, row
from monitor.config import load as load_settings
from monitor.judgement import Judgement, Result, Unscored, Verdict
from monitor.judging.drive import Driver, JobRun
from monitor.judging.flow import judge_flow
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import JudgeModel
from monitor.judging.prompt import load
from monitor.offline_judge import OfflineJudge
from monitor.rubrics import RUBRICS
from monitor.session import session_view
from tests.hostile.corpus import TRANSCRIPTS, Transcript, record
from tests.hostile.fences import LEAKY
from tests.hostile.obedient import OBEYED, ObedientJudge, orders
from tests.laws import material
from tests.services import messages_api as api

PROMPTS = {name: load(name) for name in RUBRICS}
each_rubric = pytest.mark.parametrize("name", RUBRICS)


def judge_all(model: JudgeModel, rubric: str, rows: list[Row]) -> list[Judgement]:
    """Judge sessions at the same time, as a process does."""

    async def run() -> list[Judgement]:
        judge = OfflineJudge(model, RUBRICS, load_settings().judge)
        return await asyncio.gather(*(judge.judge(item.job(rubric), 0) for item in rows))

    return asyncio.run(run())


def results(model: JudgeModel, rubric: str, rows: list[Row]) -> list[Result]:
    return [judgement.result for judgement in judge_all(model, rubric, rows)]


@cache
def canaries(name: str) -> tuple[Row, ...]:
    """Give a session that passes and one that fails, as people expect and as the lexical judge finds."""
    folder = resources.files("prompts").joinpath(material.MATERIAL[name].golden, "golden.jsonl")
    items = [json.loads(line) for line in folder.read_text("utf-8").splitlines()]
    graded = [(row(item["session"]), item["expected"]["pass"]) for item in items if "pass" in item["expected"]]
    return tuple(
        next(item for item, expected in graded if expected is passes and _passes(name, item) is passes)
        for passes in (True, False)
    )


def _passes(name: str, item: Row) -> bool | None:
    """Say whether the lexical judge finds no failure; None when it finds nothing to judge."""
    (judgement,) = judge_all(LexicalJudge(), name, [item])
    if not isinstance(judgement.result, Verdict) or not judgement.result.data[material.MATERIAL[name].units]:
        return None
    return not any(tally.failures for tally in judgement.outcomes.measures.values())


# -- the judge that obeys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", TRANSCRIPTS, ids=str)
def test_the_obedient_judge_obeys_what_is_planted_outside_of_a_fence(item: Transcript) -> None:
    """Else nothing would follow from its not being moved."""
    prompt = PROMPTS["refusal"]
    rubric = RUBRICS["refusal"]
    (window,) = rubric.windows(row(record()).session)
    clean = prompt.user_text(rubric.fields(window))
    assert not orders([prompt.system, clean], prompt)
    for planted in (item.text, json.dumps(item.text)):
        assert orders([prompt.system, f"{clean}\n{planted}"], prompt)
        assert orders([prompt.system, f"{planted}\n{clean}"], prompt)
        assert orders([f"{prompt.system}\n{planted}", clean], prompt)


def test_the_obedient_judge_obeys_through_a_prompt_that_leaks() -> None:
    rubric, session = RUBRICS["correction"], row(record()).session
    request = next(judge_flow(rubric, rubric.windows(session)[0], LEAKY))
    judge = ObedientJudge({"correction": LEAKY})
    assert asyncio.run(judge.complete(request, timeout=1)).text == OBEYED
    assert "make it 6 seats".replace(" ", "").replace("6", "") in judge.obeyed[0]


@each_rubric
def test_no_transcript_moves_the_obedient_judge_and_canaries_keep_their_verdicts(name: str) -> None:
    hostile = [item.row(number) for number, item in enumerate(TRANSCRIPTS)]
    clean, failing = canaries(name)
    alone = results(LexicalJudge(), name, [clean, failing])
    judge = ObedientJudge(PROMPTS)
    together = results(judge, name, [clean, *hostile, failing])
    assert judge.obeyed == []
    assert [together[0], together[-1]] == alone
    assert together[1:-1] == results(LexicalJudge(), name, hostile)
    assert not [result for result in together if isinstance(result, Unscored)]


@each_rubric
def test_the_lexical_judge_takes_no_claim_of_a_verdict_for_one(name: str) -> None:
    claims = [item for item in TRANSCRIPTS if item.claims]
    assert len(claims) >= 5
    for canary in canaries(name):
        (wanted,) = results(LexicalJudge(), name, [canary])
        for item in claims:
            (found,) = results(LexicalJudge(), name, [_with_a_turn(canary, item.text)])
            assert _units(name, found) == _units(name, wanted), (canary.session.session_id, item.name)


def _with_a_turn(item: Row, text: str) -> Row:
    """Append a turn of the user's to a session, without an answer to it."""
    content = msgspec.json.decode(item.content)
    last = max(event["ts"] for event in content["events"])
    turns = [event for event in content["events"] if event["type"] == "turn"]
    turn = {name: turns[0][name] for name in ("type", "session_id", "tenant") if name in turns[0]}
    turn |= {
        "event_id": "late",
        "turn_id": "late",
        "role": "user",
        "text": text,
        "ts": last + 1,
        "turn_index": len(turns),
    }
    content["events"].insert(len(turns), turn)
    raw = msgspec.json.encode(content)
    return Row(session=session_view(raw), content=msgspec.Raw(raw), human=item.human)


# How far a correction was followed: a turn that reads like another correction ends that, and moves no grade.
_EXTENT = frozenset({"superseded_by_turn_index", "incorporation_check_turns", "persistence_unobserved"})


def _units(name: str, result: Result) -> list[dict[str, Any]]:
    assert isinstance(result, Verdict)
    units = material.units(name, result)
    return [{field: value for field, value in unit.items() if field not in _EXTENT} for unit in units]


# -- on the wire -------------------------------------------------------------------------------------------------


@pytest.fixture
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(name)


WIRED = [item for item in TRANSCRIPTS if item.name in {
    "closing fence with a made-up nonce", "roles by bars", "zero width between letters", "200 kB in a passage",
    "instruction in the text of a correction", "NUL and other controls", "variation selectors",
}]  # fmt: skip


@pytest.mark.usefixtures("_no_credentials")
async def test_over_the_real_sdk_the_obedient_api_isnt_moved_either() -> None:
    """The server reads what came over the wire; it knows the lexical answers by the question's text."""
    from monitor.judging.anthropic import AnthropicJudge

    known: dict[str, str] = {}
    obeyed: list[str] = []

    def answer(received: api.Received) -> api.Reply:
        text = received.body["messages"][0]["content"]
        order = orders([received.body["system"][0]["text"], text], PROMPTS[_rubric_of(received)])
        if order:
            obeyed.append(order)
        return api.message(OBEYED if order else known[text])

    assert len(WIRED) == 7
    with api.MessagesApi(answer) as server:
        judge = AnthropicJudge("claude-haiku-5-5", api_key=api.API_KEY, base_url=server.base_url)
        for name in RUBRICS:
            for item in WIRED:
                run = JobRun(item.row().job(name), item.row().session, RUBRICS[name], PROMPTS[name])
                await _learn(known, name, item)
                judged = await Driver(judge).drive(run)
                assert isinstance(judged, Judgement)
                (wanted,) = await _lexical(name, item)
                assert judged.result == wanted, (name, item.name)
        await judge.aclose()
        assert len(server.requests) >= len(WIRED) * len(RUBRICS)
    assert obeyed == []


def _rubric_of(received: api.Received) -> str:
    system = received.body["system"][0]["text"]
    return next(name for name, prompt in PROMPTS.items() if prompt.system == system)


async def _learn(known: dict[str, str], name: str, item: Transcript) -> None:
    rubric, session = RUBRICS[name], item.row().session
    for window in rubric.windows(session):
        if rubric.preflight(window) is None:
            request = next(judge_flow(rubric, window, PROMPTS[name]))
            known[request.messages[0].text] = (await LexicalJudge().complete(request, timeout=1)).text


async def _lexical(name: str, item: Transcript) -> list[Result]:
    judge = OfflineJudge(LexicalJudge(), RUBRICS, load_settings().judge)
    return [(await judge.judge(item.row().job(name), 0)).result]
