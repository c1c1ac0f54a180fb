"""The extraction: what is asked for, what an answer is held to, what becomes of it, and that wording stays out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.job_judge import JobJudge
from monitor.config import load as load_settings
from monitor.decision import Job
from monitor.errors import ConfigError, InvalidVerdict, JudgeFatal
from monitor.events import Turn, encode
from monitor.explain import explain
from monitor.judgement import MAX_RAW_BYTES, Judgement, Skipped, Unscored, Usage, Verdict, decode_judgement
from monitor.judging.batches import answered
from monitor.judging.deferred import DeferredRun, DeferredRuns
from monitor.judging.drive import Driver, JobRun
from monitor.judging.extract import MOST, PROMPT, Extraction, ExtractionWindow, extraction_of, prompt_of
from monitor.judging.lexical import LexicalJudge
from monitor.judging.lexical.extract import answer as lexical_answer
from monitor.judging.model import Completion, JudgeRequest
from monitor.judging.prices import price_of
from monitor.judging.prompt import Prompts, load
from monitor.rubrics import RUBRICS, configured
from monitor.rubrics.correction import CorrectionRubric
from monitor.rubrics.correction.events import PER_TURN, events
from monitor.session import ExtractedCorrection, Session, SessionContent, content_hash, session_view
from monitor.settings import CorrectionSettings, RubricSettings
from tests.unit.judging.politeness import job
from tests.unit.rubrics.build import SEATS, chat, corrected, sessions

HAIKU = "anthropic:claude-haiku-5-5"
MODEL = configured(RubricSettings(correction=CorrectionSettings(extractor="model")))["correction"]
PROMPTS = Prompts({"*": "Prices are in euros."})
BOTH = prompt_of(PROMPTS, MODEL, None)
# No rule sees a correction here: nothing is denied, and no value is set against another.
HINTED = (
    ("user", "Put me on the morning ferry, please."),
    ("assistant", "You have a seat on the ferry after sunset."),
    ("user", "I get seasick in the dark, as I told the man at the desk."),
    ("assistant", "Understood: the morning ferry it is."),
    ("user", "Is there coffee on board?"),
    ("assistant", "There is, on the ferry after sunset."),
)


def content(said: tuple[tuple[str, str], ...] = HINTED) -> bytes:
    turns = [
        Turn(event_id=f"e{at}", session_id="s", ts=float(at), turn_id=f"t{at}", role=role, text=text)  # type: ignore[arg-type]
        for at, (role, text) in enumerate(said)
    ]
    head = SessionContent(
        tenant="default",
        session_id="s",
        segment="e0",
        previous_segment=None,
        close_reason="ended",
        events=[msgspec.Raw(encode(turn)) for turn in turns],
    )
    return msgspec.json.encode(head)


def task(raw: bytes | None = None) -> Job:
    raw = raw or content()
    asked = job(session_view(raw))
    return msgspec.structs.replace(
        asked, rubric="correction", content=msgspec.Raw(raw), content_hash=content_hash(raw)
    )


def found(**changes: Any) -> dict[str, Any]:
    return {
        "turn_index": 2,
        "quote": "I get seasick in the dark",
        "error_turn_index": 1,
        "corrected_claim": "after sunset",
        "correction_content": "the morning ferry",
    } | changes


def extracted(*items: dict[str, Any], **changes: Any) -> str:
    said: dict[str, Any] = {"corrections": list(items), "rationale": "Turn 2 puts the time right."}
    return json.dumps(said | changes)


class Finding(LexicalJudge):
    """Gives its answers to the extraction in turn, and judges by rule; remembers what it was asked."""

    def __init__(self, *answers: str | Exception) -> None:
        super().__init__()
        self.name, self.provider, self.model = HAIKU, "anthropic", "claude-haiku-5-5"
        self.answers = list(answers)
        self.asked: list[JudgeRequest] = []

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        self.asked.append(request)
        usage = Usage(input_tokens=100, output_tokens=10)
        if request.window_id != "extract" or not self.answers:
            done = await super().complete(request, timeout=timeout)
            return msgspec.structs.replace(done, usage=usage)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Completion(text=answer, usage=usage)


def run_of(of: Session | None = None, rubric: Any = MODEL) -> JobRun:
    return JobRun(task(), of or session_view(content()), rubric, BOTH)


async def judged(model: Any, of: Session | None = None, rubric: Any = MODEL) -> Judgement:
    outcome = await Driver(model, price=price_of(HAIKU, {})).drive(run_of(of, rubric))
    assert isinstance(outcome, Judgement)
    return outcome


def windowed(of: Session) -> ExtractionWindow:
    (window,) = Extraction().windows(of)
    return window


# -- what is found, and by whom ----------------------------------------------------------------------------------


async def test_a_correction_that_no_rule_sees_is_found_and_judged() -> None:
    assert events(session_view(content())) == ()
    nothing = await judged(LexicalJudge(), rubric=CorrectionRubric())
    assert isinstance(nothing.result, Verdict)
    assert (nothing.result.data["events"], nothing.result.note) == ([], "no correction in this session")
    model = Finding(extracted(found()))
    one = await judged(model)
    assert [request.window_id for request in model.asked] == ["extract", "C1"]
    assert model.asked[1].window.event.error_named is False
    assert '"correction_content": "the morning ferry"' in model.asked[1].messages[0].text
    assert isinstance(one.result, Verdict)
    (event,) = one.result.data["events"]
    assert (event["correction_id"], event["correction_turn_index"]) == ("C1", 2)
    assert one.result.data["sampling"]["events"] == 1
    assert one.outcomes.measures["reverted"].trials == 1
    # The extraction is one of the judgement's calls, and paid for in it.
    assert [attempt.window for attempt in one.attempts] == ["extract", "C1"]
    assert one.cost_nusd == 2 * price_of(HAIKU, {}).cost(Usage(input_tokens=100, output_tokens=10))
    assert (one.rubric, one.mode, one.rubric_version, one.prompt_version) == (
        "correction",
        "event",
        "1+model",
        "v1+v1",
    )
    assert one.prompt_hash not in {load("correction").prompt_hash, load(PROMPT).prompt_hash}


@given(sessions())
def test_the_lexical_judge_finds_what_wording_finds(of: Session) -> None:
    windows = Extraction().windows(of)
    if not windows:
        assert of.corrections or not events(of)
        return
    raw = msgspec.json.encode(lexical_answer(windows[0])).decode()
    data = Extraction().parse(raw, windows[0]).data["corrections"]
    known = msgspec.structs.replace(of, extracted=msgspec.convert(data, tuple[ExtractedCorrection, ...]))
    assert events(known) == events(of)


@pytest.mark.parametrize("said", [SEATS, SEATS[:2], (("a", "Hello."), ("u", "No, 5, not 4."))])
async def test_and_its_results_are_the_same(said: tuple[tuple[str, str], ...]) -> None:
    of = chat(*said)
    by_rule, by_model = await judged(LexicalJudge(), of, CorrectionRubric()), await judged(LexicalJudge(), of)
    assert (by_rule.result, by_rule.outcomes) == (by_model.result, by_model.outcomes)


def test_lexical_answers_to_long_sessions_fit() -> None:
    many = [
        pair for n in range(200) for pair in (("a", f"That is {n} seats."), ("u", f"No, {n + 1}. " + "é" * 700))
    ]
    of = chat(("u", "Hello."), *many)
    assert len(events(of)) > MOST
    raw = msgspec.json.encode(lexical_answer(windowed(of))).decode()
    assert len(Extraction().parse(raw, windowed(of)).data["corrections"]) == MOST


def test_a_sentence_said_twice_is_one_correction() -> None:
    of = chat(
        *SEATS[:2], ("u", "No, make it 6 seats. And I meant the red room. No, make it 6  seats."), *SEATS[3:]
    )
    assert [event.text for event in events(of)] == ["No, make it 6 seats.", "And I meant the red room."]


def test_producers_events_stay_and_hold_their_turns() -> None:
    of = msgspec.structs.replace(
        chat(*SEATS, corrections=(corrected(2), corrected(77))),
        extracted=(
            ExtractedCorrection(turn=8, text="Lovely."),
            ExtractedCorrection(turn=2, text="No", error=0),
            ExtractedCorrection(turn=4, text="parking", error=3, claim="garden", content="a car"),
        ),
    )
    unknown, named, *others = events(of)
    assert (unknown.turn, unknown.problem is not None) == (-1, True)
    assert (named.turn, named.text) == (2, "No, make it 6 seats.")
    # Wording would see nothing in either of these: it isn't asked.
    assert [(event.event_id, event.turn, event.text, event.error, event.problem) for event in others] == [
        ("C3", 4, "parking", 3, None),
        ("C4", 8, "Lovely.", None, None),
    ]
    assert (others[0].claim, others[0].content, others[0].error_named) == ("garden", "a car", False)


# -- where nothing is asked, or the judge fails ------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", [SEATS[:2], (("a", "Hello."), ("a", "Anyone?")), (("u", "Hi."), ("u", " \u200b"))]
)
async def test_where_nobody_can_have_corrected_anything_nothing_is_asked(
    said: tuple[tuple[str, str], ...],
) -> None:
    model = Finding()
    found_ = await judged(model, chat(*said))
    assert (model.asked, found_.attempts) == ([], [])
    assert isinstance(found_.result, Verdict)
    assert found_.result.note == "no correction in this session"


async def test_a_session_of_one_turn_is_skipped_unasked() -> None:
    model = Finding()
    assert isinstance((await judged(model, chat(("u", "No, 5.")))).result, Skipped)
    assert model.asked == []


async def test_none_found_is_an_empty_verdict_also_where_wording_would_find_some() -> None:
    assert events(chat(*SEATS))
    none = await judged(Finding(extracted()), chat(*SEATS))
    assert isinstance(none.result, Verdict)
    assert (none.result.data["events"], none.result.note) == ([], "no correction in this session")
    assert none.outcomes.measures["reverted"].trials == 0


async def test_a_failed_extraction_leaves_the_session_unscored_and_wording_out() -> None:
    model = Finding("{}", extracted(found(quote="no such words")))
    lost = await judged(model, chat(*SEATS))
    assert isinstance(lost.result, Unscored)
    assert lost.result.reason == "invalid"
    assert (lost.result.note or "").startswith("extract: corrections[0].")
    assert [request.window_id for request in model.asked] == ["extract", "extract"]
    assert [attempt.kind for attempt in lost.attempts] == ["invalid", "invalid"]
    assert lost.outcomes.measures == {}
    large = await judged(Finding(JudgeFatal("too_large", "no room")), chat(*SEATS))
    assert isinstance(large.result, Unscored)
    assert large.result.reason == "error"


async def test_an_invalid_answer_is_repaired_with_what_was_wrong() -> None:
    model = Finding(extracted(found(turn_index=3)), extracted(found()))
    mended = await judged(model)
    assert [attempt.kind for attempt in mended.attempts] == ["invalid", "valid", "valid"]
    assert "corrections[0].turn_index is 3, but it must be" in model.asked[1].messages[-1].text


def test_a_prompt_without_the_extractors_is_refused() -> None:
    with pytest.raises(ConfigError, match="without the prompt of an extractor"):
        JobRun(task(), chat(*SEATS), MODEL, load("correction"))
    assert prompt_of(PROMPTS, CorrectionRubric(), None).first is None
    assert [name for name, rubric in RUBRICS.items() if extraction_of(rubric)] == []


# -- what an answer is held to -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (
            extracted(found(turn_index=3)),
            r"corrections\[0\]\.turn_index is 3, but it must be a turn of the user's",
        ),
        (extracted(found(turn_index=0, quote="Put me")), r"turn_index is 0, but .* after turn 0"),
        (extracted(found(turn_index=99)), r"turn_index is 99"),
        (extracted(found(turn_index=-1)), r"turn_index is -1"),
        (extracted(found(quote="seasick at night")), r"corrections\[0\]\.quote is .*turn 2 doesn't have these"),
        (extracted(found(quote="")), r"corrections\[0\]\.quote is \"\""),
        (extracted(found(quote="x" * 601)), r"corrections\[0\]\.quote"),
        (extracted(found(error_turn_index=2)), r"error_turn_index is 2, but it must be -1 or a shown turn before"),
        (extracted(found(error_turn_index=3)), r"error_turn_index is 3"),
        (extracted(found(error_turn_index=-2)), r"error_turn_index is -2"),
        (extracted(found(error_turn_index=-1)), r'corrected_claim is "after sunset", but error_turn_index is -1'),
        (extracted(found(error_turn_index=0)), r"corrected_claim is \"after sunset\", but turn 0 doesn't have"),
        (extracted(found(), found()), r"corrections\[1\]\.quote is .*there already"),
        (extracted(found(), found(quote="I get  seasick in the dark")), r"there already"),
        (extracted(*(found() for _ in range(MOST + 1))), r"The number of corrections is 65, but there can be 64"),
        (extracted(found(sure=True)), r"sure"),
        (extracted(rationale=" "), r"rationale is"),
        (extracted(found()) + " " * MAX_RAW_BYTES, r"The size of the answer is \d+, but it can have 16384 bytes"),
        ("[]", r"it must be one JSON object"),
    ],
)
def test_an_answer_that_does_not_go_with_the_transcript_is_refused(answer: str, error: str) -> None:
    window = windowed(session_view(content()))
    assert Extraction().parse(extracted(found(), found(quote="I told the man")), window)
    with pytest.raises(InvalidVerdict, match=error):
        Extraction().parse(answer, window)


def test_a_turn_has_no_more_corrections_than_are_read_out_of_its_wording() -> None:
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    window = windowed(chat(("a", "Hello."), ("u", " ".join(words))))
    items = [found(turn_index=1, quote=word, error_turn_index=-1, corrected_claim="") for word in words]
    assert Extraction().parse(extracted(*items[:PER_TURN]), window)
    with pytest.raises(InvalidVerdict, match=r"corrections\[8\]\.turn_index is 1, but there can be 8"):
        Extraction().parse(extracted(*items), window)


def test_blanks_stand_for_none() -> None:
    answer = extracted(found(error_turn_index=-1, corrected_claim=" ", correction_content="\u200b"))
    (item,) = Extraction().parse(answer, windowed(session_view(content()))).data["corrections"]
    assert item == {"turn": 2, "text": "I get seasick in the dark", "error": None, "claim": None, "content": None}


@given(st.integers(-3, 8), st.integers(-3, 8), st.sampled_from(["", "ferry", "dark", "coffee", "x"]))
def test_what_passes_always_lies_in_its_turns(turn: int, error: int, words: str) -> None:
    of = session_view(content())
    raw = extracted(found(turn_index=turn, quote=words, error_turn_index=error, corrected_claim=words))
    try:
        (item,) = Extraction().parse(raw, windowed(of)).data["corrections"]
    except InvalidVerdict:
        return
    assert words
    assert words in of.turns[turn].text
    assert of.turns[turn].role == "user"
    assert 0 <= error < turn
    assert words in of.turns[error].text
    assert item["error"] == error


# -- rebuilt, deferred, and in the process -----------------------------------------------------------------------


def again() -> DeferredRun:
    return DeferredRuns({"correction": MODEL}, PROMPTS).of(task())


async def test_the_prompts_are_rebuilt_from_the_stored_judgement_byte_for_byte() -> None:
    model = Finding(
        "nonsense", extracted(found(), found(turn_index=4, quote="coffee", error_turn_index=3, corrected_claim=""))
    )
    stored = decode_judgement(msgspec.json.encode(await judged(model)))
    shown = explain(stored, again())
    assert [(step.system, step.messages) for step in shown.steps] == [
        (request.system, request.messages) for request in model.asked
    ]
    assert [step.window for step in shown.steps] == ["extract", "extract", "C1", "C2"]
    text = shown.to_text()
    assert text.index(load(PROMPT, constraints="Prices are in euros.").system) < text.index("--- C1, attempt 1")
    assert text.count("--- system (prompt v1+v1") == 2
    assert text.index(BOTH.system) < text.index("--- C1, attempt 1: user")


class Posting:
    """A batch service that answers at once."""

    def __init__(self, model: LexicalJudge) -> None:
        self.model = model

    async def answer(self, question: Any) -> Completion:
        return await self.model.complete(question.request, timeout=1.0)


@pytest.mark.parametrize(
    "answers", [[extracted(found())], [extracted()], ["{}", "{}"], ["{}", extracted(found())]]
)
async def test_by_batch_it_is_the_same_one_round_later(answers: list[str]) -> None:
    called, posted, run = Finding(*answers), Finding(*answers), again()
    assert [question.request.window_id for question in run.questions] == ["extract"]
    post: Any = Posting(posted)
    assert await answered(run, post)
    by_batch, by_call = run.judgement(posted, started_at=0, finished_at=0), await judged(called)
    assert by_batch.result == by_call.result
    assert [item.raw for item in by_batch.attempts] == [item.raw for item in by_call.attempts]
    assert [item.messages for item in posted.asked] == [item.messages for item in called.asked]


async def test_by_batch_wording_stays_out_of_a_failed_extraction_as_well() -> None:
    roles = {"u": "user", "a": "assistant"}
    raw = content(tuple((roles[who], text) for who, text in SEATS))
    assert events(session_view(raw))
    run, model = DeferredRuns({"correction": MODEL}, PROMPTS).of(task(raw)), Finding("{}", "{}")
    post: Any = Posting(model)
    assert await answered(run, post)
    assert isinstance(run.judgement(model, started_at=0, finished_at=0).result, Unscored)
    assert [request.window_id for request in model.asked] == ["extract", "extract"]


async def test_the_judge_process_asks_both_questions_of_one_model() -> None:
    settings = load_settings(overrides={"rubrics.correction.extractor": "model"})
    rubrics: Mapping[str, Any] = configured(settings.rubrics)
    model = Finding(extracted(found()))
    found_ = await JobJudge(settings.judge, model, rubrics=rubrics).judge(task())
    assert found_ is not None
    assert (found_.judge, found_.rubric_version) == (HAIKU, "1+model")
    assert [attempt.window for attempt in found_.attempts] == ["extract", "C1"]
