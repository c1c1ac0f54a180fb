"""Questions out, answers in: the judgements that a call would have given, and account of every answer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from monitor.config import load as load_settings
from monitor.errors import ConfigError, InputError
from monitor.exchange.forms import Form
from monitor.exchange.state import state_path
from monitor.judge_file import judge_file
from monitor.judgement import Attempt, Judgement, Skipped, Unscored, Usage, Verdict
from monitor.judging.prices import price_of
from tests.services.messages_api import _wrong_body
from tests.unit.exchange.place import ANSWERED, Line, Place, anthropic, lexical, openai, plain


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def alike(judgements: list[Judgement]) -> list[Any]:
    """Leave out who judged, at which prices, and what only a call tells."""

    def bare(attempt: Attempt) -> Attempt:
        return msgspec.structs.replace(attempt, usage=Usage(), request_id=None, duration_ms=0, cost_nusd=0)

    return [
        msgspec.structs.replace(
            item, judge="", provider="", model="", prices="", attempts=[bare(attempt) for attempt in item.attempts]
        )
        for item in sorted(judgements, key=lambda item: item.session_id)
    ]


async def live(place: Place) -> list[Judgement]:
    out = place.folder / "live.jsonl"
    await judge_file(place.sessions, place.settings, rubric="correction", out=out)
    return place.judged(out)


@pytest.mark.parametrize("form", ["plain", "anthropic", "openai"])
async def test_answers_by_file_give_the_judgements_that_calls_give(place: Place, form: Form) -> None:
    summary = place.export(form)
    assert (summary.sessions, summary.silent, summary.questions) == (3, 1, 4)
    lines = [ANSWERED[form](question.id, await lexical(question)) for question in place.asked()]
    random.Random(7).shuffle(lines)
    found = place.take_in(place.write(lines))
    assert (found.answers, found.used, found.refused, found.unused, found.open) == (4, 4, [], [], 0)
    assert (found.judged.verdicts, found.judged.skipped, found.judged.missing) == (2, {"not_applicable": 1}, 0)
    judged = place.judged()
    assert alike(judged) == alike(await live(place))
    assert {item.judge for item in judged} == {summary.judge}
    assert found.judged.cost_nusd == 0  # no table knows who answered


@pytest.mark.parametrize("form", ["plain", "anthropic", "openai"])
async def test_with_a_model_as_extractor_the_events_are_a_round_of_their_own(place: Place, form: Form) -> None:
    place.settings = load_settings(overrides={"rubrics.correction.extractor": "model"})
    summary = place.export(form)
    assert (summary.sessions, summary.silent, summary.questions) == (3, 1, 2)
    asked, one, two = place.asked(), place.folder / "one.jsonl", place.folder / "two.jsonl"
    assert [question.request.window_id for question in asked] == ["extract", "extract"]
    found = [ANSWERED[form](question.id, await lexical(question)) for question in asked]
    repairs = place.folder / "events.jsonl"
    first = place.take_in(place.write(found, one.name), repairs=repairs)
    assert (first.used, first.open, first.asked_next, first.refused, first.judged.verdicts) == (2, 4, 4, [], 0)
    judged = [ANSWERED[form](question.id, await lexical(question)) for question in place.asked(repairs)]
    last = place.take_in(place.write(judged, two.name), questions=repairs, resume=True)
    assert (last.used, last.open, last.refused, last.judged.verdicts) == (4, 0, [], 2)
    assert alike(place.judged()) == alike(await live(place))
    assert {item.rubric_version for item in place.judged()} == {"1+model"}
    # An import with the other extractor isn't one of this export.
    place.settings = load_settings()
    with pytest.raises(InputError, match="would be asked something else now"):
        place.take_in(one, out=place.folder / "other.jsonl")


async def test_a_batch_that_a_table_knows_is_charged_at_half_the_price(place: Place) -> None:
    judge = "anthropic:claude-haiku-5-5"
    place.export("anthropic", judge=judge)
    lines = [anthropic(question.id, await lexical(question)) for question in place.asked()]
    found = place.take_in(place.write(lines))
    price = price_of(judge, {})
    each = price.cost(Usage(input_tokens=7, output_tokens=2), batch=True)
    assert 2 * each == price.cost(Usage(input_tokens=7, output_tokens=2))
    assert found.judged.cost_nusd == 4 * each == sum(item.cost_nusd for item in place.judged())


def test_the_same_sessions_give_the_same_questions(place: Place) -> None:
    place.export()
    place.export(out=place.folder / "again.jsonl")
    assert place.questions.read_bytes() == (place.folder / "again.jsonl").read_bytes()
    ids = [json.loads(line)["id"] for line in place.questions.read_text().splitlines()]
    assert ids == [question.id for question in place.asked()]


def test_lines_are_what_a_batch_service_takes(place: Place) -> None:
    place.export("anthropic")
    lines = [json.loads(line) for line in place.questions.read_text().splitlines()]
    assert all(line.keys() == {"custom_id", "params"} for line in lines)
    assert [_wrong_body(line["params"]) for line in lines] == [None] * 4
    place.export("openai", out=place.folder / "o.jsonl")
    body = json.loads((place.folder / "o.jsonl").read_text().splitlines()[0])["body"]
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["response_format"]["json_schema"]["schema"]["additionalProperties"] is False
    assert (body["model"], body["temperature"]) == ("m", 0)


async def test_what_is_refused_goes_out_again_and_the_rounds_add_up(place: Place) -> None:
    place.export()
    first, *others = place.asked()
    answers = [plain(first.id, "{}")] + [plain(item.id, await lexical(item)) for item in others[:2]]
    one = place.write(answers, "one.jsonl")
    repairs = place.folder / "repairs.jsonl"
    found = place.take_in(one, repairs=repairs)
    assert [(item.session_id, item.window, item.attempt, item.kind) for item in found.refused] == [
        ("s1", "C1", 1, "invalid")
    ]
    assert "one.jsonl: line 1" in found.refused[0].place
    assert found.refused[0].error == "is_correction is missing, but every field is required."
    assert (found.open, found.never_answered, found.judged.missing) == (2, 1, 2)
    assert [item.session_id for item in place.judged()] == ["s0"]

    again = place.asked(repairs)
    assert [item.number for item in again] == [2, 1]
    assert "is_correction is missing" in again[0].request.messages[-1].text
    two = place.write([plain(item.id, await lexical(item)) for item in again], "two.jsonl")
    last = place.take_in(one, two, questions=repairs, resume=True)
    assert (last.used, last.open, last.refused) == (2, 0, [])
    assert (
        sorted((Path(item.place.split(":")[0]).name, item.reason) for item in last.unused)
        == [("one.jsonl", "told")] * 3
    )
    judged = place.judged()
    assert [item.session_id for item in judged] == ["s0", "s1", "s2"]
    assert [attempt.kind for attempt in judged[1].attempts] == ["invalid", "valid", "valid"]

    anew = place.folder / "anew.jsonl"
    assert place.take_in_anew(two, one, out=anew).unused == []
    assert place.judged(anew) == judged


async def test_the_second_round_alone_is_told_where_it_belongs_and_both_ways_work(place: Place) -> None:
    place.export()
    one = place.write([plain(item.id, "{}") for item in place.asked()], "one.jsonl")
    repairs = place.folder / "repairs.jsonl"
    first = place.take_in(one, repairs=repairs, out=place.folder / "first.jsonl")
    assert (first.open, first.never_answered, first.asked_next) == (4, 0, 0)
    assert "4 questions are open (asked again 4), in " in first.to_text()
    two = place.write([plain(item.id, await lexical(item)) for item in place.asked(repairs)], "two.jsonl")

    alone = place.take_in(two, out=place.folder / "alone.jsonl")
    assert [(item.reason, item.attempt) for item in alone.unused] == [("unknown", 2)] * 4
    assert "4 of the unknown are answers to a later round: give the answer files of all rounds" in alone.to_text()
    assert "4 questions are open (never answered 4)" in alone.to_text()

    together = place.take_in(one, two, out=place.folder / "together.jsonl")
    by_repairs = place.take_in(two, questions=repairs, out=place.folder / "by_repairs.jsonl")
    for found in (together, by_repairs):
        assert (found.open, found.unused, found.judged.verdicts) == (0, [], 2)
    # The first round was done with s0, which has nothing to be asked about.
    assert place.judged(place.folder / "together.jsonl")[1:] == place.judged(place.folder / "by_repairs.jsonl")
    assert [item.now for item in together.refused] == ["repaired"] * 4
    assert "8 answers: 4 passed, 4 refused (repaired 4), 0 unused" in together.to_text()
    assert "no round left" not in together.to_text()


async def test_a_refusal_is_repaired_open_or_the_last_one(place: Place) -> None:
    place.export()
    asked = place.asked()
    one = place.write([plain(item.id, "{}") for item in asked[:3]], "one.jsonl")
    repairs, rest = place.folder / "repairs.jsonl", place.folder / "rest.jsonl"
    found = place.take_in(one, repairs=repairs, out=place.folder / "first.jsonl")
    assert "4 questions are open (asked again 3, never answered 1), in " in found.to_text()
    again = place.asked(repairs)
    assert [item.number for item in again] == [2, 2, 2, 1]
    two = place.write([plain(again[0].id, await lexical(again[0])), plain(again[1].id, "{}")], "two.jsonl")
    found = place.take_in(one, two, repairs=rest)
    assert [(item.window, item.attempt, item.now) for item in found.refused] == [
        ("C1", 1, "repaired"),
        ("C2", 1, "unscored"),
        ("C2", 2, "unscored"),
        ("C1", 1, "open"),
    ]
    assert "5 answers: 1 passed, 4 refused (open 1, repaired 1, unscored 2), 0 unused" in found.to_text()
    assert "1 windows have no round left after these refusals: their sessions are unscored" in found.to_text()
    assert [item.number for item in place.asked(rest)] == [2, 1]


async def test_a_window_that_waits_for_the_one_before_is_asked_next(place: Place) -> None:
    said = [{"role": "user", "text": "Go on."}, {"role": "assistant", "text": "It costs 17 crowns to get in."}] * 4
    passages = [{"id": "p", "text": "Entry is free."}]
    turns = [turn | ({"evidence": passages} if turn["role"] == "assistant" else {}) for turn in said]
    place.sessions.write_text(json.dumps({"session_id": "s0", "turns": turns}) + "\n")
    place.settings = load_settings(
        overrides={"rubrics.hallucination.window_turns": 2, "rubrics.hallucination.overlap_turns": 0}
    )
    assert place.export(rubric="hallucination").questions == 1
    answer = {"audited_turns": [1, 3], "claims": [], "rationale": "It claims nothing."}
    [line] = place.questions.read_text().splitlines()
    found = place.take_in(place.write([plain(json.loads(line)["id"], json.dumps(answer))]))
    assert (found.used, found.open, found.never_answered, found.asked_next) == (1, 1, 0, 1)
    assert "1 questions are open (asked next 1)" in found.to_text()


async def test_every_answer_is_accounted_for(place: Place) -> None:
    place.export()
    one, two, *_ = place.asked()
    good, better = await lexical(one), await lexical(two)
    lines = [plain(one.id, good), plain("correction-1-0", good), plain(one.id, "{}"), plain(two.id, better)]
    found = place.take_in(place.write(lines))
    assert (found.answers, found.used, found.refused) == (4, 2, [])
    assert sorted((item.place.rsplit(" ", 1)[1], item.reason) for item in found.unused) == [
        ("2", "unknown"),
        ("3", "duplicate"),
    ]
    text = found.to_text()
    assert "4 answers: 2 passed, 0 refused, 2 unused" in text
    assert "correction-1-0" in text
    assert "1 of the unknown answer other questions" in text
    assert "write them with --repairs" in text


async def test_an_answer_to_another_request_is_refused(place: Place) -> None:
    place.export()
    one, two, *_ = place.asked()
    swapped = [plain(one.id, await lexical(two)), plain(two.id, await lexical(one))]
    found = place.take_in(place.write(swapped))
    assert [item.kind for item in found.refused] == ["invalid", "invalid"]
    assert all("correction" in item.error for item in found.refused)


async def test_what_a_provider_failed_on_is_asked_again_unless_the_request_is_to_blame(place: Place) -> None:
    place.export("anthropic")
    ids = [question.id for question in place.asked()]

    def errored(kind: str) -> dict[str, Any]:
        return {"type": "errored", "error": {"type": "error", "error": {"type": kind, "message": "quoted text"}}}

    results: list[dict[str, Any]] = [errored("api_error"), {"type": "expired"}, {"type": "canceled"}]
    results.append(errored("invalid_request_error"))
    lines: list[Line] = [{"custom_id": item, "result": result} for item, result in zip(ids, results, strict=True)]
    repairs = place.folder / "repairs.jsonl"
    found = place.take_in(place.write(lines), repairs=repairs)
    assert [item.kind for item in found.refused] == ["failed"] * 4
    assert (found.open, found.never_answered) == (3, 0)
    assert "quoted text" not in found.to_text()
    assert [item.number for item in place.asked(repairs)] == [2, 2, 2]
    answers = [anthropic(item.id, await lexical(item)) for item in place.asked(repairs)]
    last = place.take_in(place.write(answers), questions=repairs, resume=True)
    assert (last.judged.verdicts, last.judged.unscored) == (1, {"error": 1})
    assert last.judged.tokens == {"input": 21, "output": 6}


async def test_a_cut_or_refused_answer_is_what_it_is_by_call(place: Place) -> None:
    place.export("openai")
    one, two, three, four = place.asked()
    lines = [openai(one.id, "{", "length"), openai(two.id, "", "content_filter")]
    lines += [openai(item.id, await lexical(item)) for item in (three, four)]
    found = place.take_in(place.write(lines), repairs=place.folder / "r.jsonl")
    assert [item.kind for item in found.refused] == ["truncated", "refused"]
    [again] = place.asked(place.folder / "r.jsonl")
    assert again.request.max_tokens == 2 * one.request.max_tokens


def test_a_persons_object_needs_no_quoting(place: Place) -> None:
    place.export()
    [first, *_] = place.asked()
    found = place.take_in(place.write([{"id": first.id, "answer": {"is_correction": 1}}]), judge="person:ann")
    assert "is_correction" in found.refused[0].error
    assert found.judged.judge == "person:ann"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "JSON is malformed"),
        ("[]", "must hold `id` with `text`"),
        ('{"id": "a"}', "must hold either `text` or `answer`"),
        ('{"id": "a", "text": "b", "answer": {}}', "must hold either `text` or `answer`"),
        ('{"id": "a", "text": "b", "note": 1}', "unknown field `note`"),
        ('{"id": 1, "text": "b"}', "Expected `str`, got `int`"),
        ('{"custom_id": "a"}', "must hold"),
        ('{"custom_id": "a", "result": {}}', "missing required field `type`"),
        ('{"custom_id": "a", "response": {}}', "missing required field `status_code`"),
        ('{"id": "a", "text": "\udce4"}', "no answer"),
    ],
)
def test_a_line_that_is_no_answer_is_named(place: Place, line: str, said: str) -> None:
    place.export()
    path = place.folder / "answers.jsonl"
    path.write_bytes(b'\n{"id": "x", "text": ""}\n' + line.encode("utf-8", "surrogateescape") + b"\n")
    with pytest.raises(InputError, match=r"answers\.jsonl: line 3: ") as error:
        place.take_in(path)
    assert said in str(error.value)
    assert not place.out.exists()


def test_a_changed_prompt_is_said_so_and_leaves_nothing_behind(place: Place) -> None:
    place.export()
    place.settings = load_settings(overrides={"judge.constraints": {"*": "Be kind."}})
    before = sorted(place.folder.iterdir())
    path = place.write([])
    with pytest.raises(InputError, match="would be asked something else now: the prompt"):
        place.take_in(path, repairs=place.folder / "r.jsonl")
    assert sorted(place.folder.iterdir()) == sorted([*before, path])


def test_nothing_is_written_over(place: Place) -> None:
    place.export()
    for path in (place.questions, state_path(place.questions)):
        path.rename(path.with_suffix(".kept"))
        with pytest.raises(InputError, match="exists"):
            place.export()
        assert path.with_suffix(".kept").exists()
        path.unlink(missing_ok=True)
        path.with_suffix(".kept").rename(path)
    with pytest.raises(InputError, match=r"nowhere\.jsonl\.state: can't be read"):
        place.take_in(questions=place.folder / "nowhere.jsonl")


def test_a_wrong_input_leaves_no_export(place: Place) -> None:
    place.sessions.write_text(place.sessions.read_text() + "{}\n")
    with pytest.raises(InputError, match="line 4"):
        place.export()
    assert list(place.folder.iterdir()) == [place.sessions]


@pytest.mark.parametrize(
    ("form", "judge"),
    [("anthropic", "lexical"), ("anthropic", "anthropic:"), ("openai", "anthropic:m"), ("plain", "no good")],
)
def test_who_answers_has_to_fit_the_form(place: Place, form: Form, judge: str) -> None:
    with pytest.raises(ConfigError, match=f"for the form {form} name who answers"):
        place.export(form, judge=judge)


async def test_two_wrong_answers_are_unscored_with_both_in_the_audit(place: Place) -> None:
    place.export()
    paths = [place.write([plain(item.id, "{}") for item in place.asked()], "one.jsonl")]
    repairs = place.folder / "r.jsonl"
    place.take_in(*paths, repairs=repairs)
    two = place.write([plain(item.id, "[]") for item in place.asked(repairs)], "two.jsonl")
    found = place.take_in(two, questions=repairs, resume=True)
    assert (found.open, found.repairs, found.judged.unscored) == (0, None, {"invalid": 2})
    results = {item.session_id: item for item in place.judged()}
    assert isinstance(results["s0"].result, Skipped)
    assert isinstance(results["s1"].result, Unscored)
    assert [attempt.raw for attempt in results["s1"].attempts] == ["{}", "[]", "{}", "[]"]
    assert not any(isinstance(item.result, Verdict) for item in results.values())
