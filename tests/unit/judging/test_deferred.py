"""Runs that are answered later: the same judgement as asked live, whatever the order; ids that no other has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.judgement import Judgement, Unscored, Verdict
from monitor.judging.deferred import DeferredRun, Question
from monitor.judging.drive import JobRun
from monitor.judging.flow import Failure, Reply, judgement, result_of
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion
from monitor.judging.prompt import parse
from monitor.rubrics.base import Window, WindowResult
from tests.unit.judging.politeness import POLITE, PROMPT_FILE, RUDE, Politeness, job, prompt, session

GOOD = Completion(text=POLITE, request_id="r1")
BAD = Completion(text="{}")
CUT = Completion(text="{", stop="max_tokens")
NO = Completion(text="", stop="refusal")
LOST = Failure(error_type="server_error", message="errored")
ANSWERS = st.lists(st.sampled_from([GOOD, Completion(text=RUDE), BAD, CUT, LOST]), max_size=4)


class Sequential(Politeness):
    """Each window is told how many there were before."""

    sequential = True

    def carry(self, window: Any, earlier: Sequence[WindowResult]) -> Window:
        told: Window = msgspec.structs.replace(window, text=f"{len(earlier)} before: {window.text}")
        return told


def deferred(*replies: str, rubric: Politeness | None = None) -> DeferredRun:
    of = session(*replies)
    return DeferredRun(job(of), of, rubric or Politeness(), prompt())


def live(*replies: str) -> JobRun:
    of = session(*replies)
    return JobRun(job(of), of, Politeness(), prompt())


def merged(run: JobRun) -> Judgement:
    result = result_of(run.rubric, run.session, run.outcomes)
    return judgement(
        run.job, run.rubric, run.prompt, LexicalJudge(), result, run.outcomes, started_at=1, finished_at=2
    )


def finished(run: DeferredRun) -> Judgement:
    return run.judgement(LexicalJudge(), started_at=1, finished_at=2)


def reply(scripts: dict[str, list[Reply]], question: Question) -> Reply:
    """Give the scripted answer to an attempt at a window; past the script's end a good one."""
    script = scripts[question.request.window_id]
    return script[question.number - 1] if question.number <= len(script) else GOOD


@given(st.lists(ANSWERS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_order_of_answers_gives_the_judgement_that_asking_live_gives(
    scripts: list[list[Reply]], random: Random
) -> None:
    by_window: dict[str, list[Reply]] = {f"T{2 * n + 1}": script for n, script in enumerate(scripts)}
    replies = [f"Reply {n}" for n in range(len(scripts))]
    run = deferred(*replies)
    while run.questions:
        question = random.choice(run.questions)
        run.answer(question.id, reply(by_window, question))
    assert run.done

    asked = live(*replies)
    number = 0
    while asked.request is not None:
        window, number = asked.request.window_id, number + 1
        asked.answer(reply(by_window, Question(id="", number=number, request=asked.request)))
        number = number if asked.request is not None and asked.request.window_id == window else 0
    found, expected = finished(run), merged(asked)
    assert found.result == expected.result
    assert found.attempts[: len(expected.attempts)] == expected.attempts
    if isinstance(expected.result, Verdict):
        assert found == expected


@given(st.lists(ANSWERS, min_size=1, max_size=3))
def test_a_run_is_rebuilt_from_its_replies(scripts: list[list[Reply]]) -> None:
    by_window: dict[str, list[Reply]] = {f"T{2 * n + 1}": script for n, script in enumerate(scripts)}
    run = deferred(*("Well" for _ in scripts))
    told: list[tuple[str, Reply]] = []
    while run.questions:
        fresh = deferred(*("Well" for _ in scripts))
        for question_id, answer in told:
            fresh.answer(question_id, answer)
        assert fresh.questions == run.questions
        told.append((run.questions[-1].id, reply(by_window, run.questions[-1])))
        run.answer(*told[-1])


def test_ids_are_those_that_batch_services_take_and_each_is_its_own() -> None:
    first = deferred("Yes", "No")
    ids = [question.id for question in first.questions]
    again = deferred("Yes", "No")
    assert [question.id for question in again.questions] == ids
    again.answer(ids[0], BAD)
    ids += [question.id for question in again.questions]
    other = parse(PROMPT_FILE.replace("polite", "kind"), rubric="politeness", version="v2")
    of = session("Yes", "No")
    ids += [question.id for question in DeferredRun(job(of), of, Politeness(), other).questions]
    ids += [question.id for question in DeferredRun(job(of, "job-2"), of, Politeness(), prompt()).questions]
    ids += [question.id for question in deferred("Yes", "Never").questions][1:]
    assert len(ids) == len(set(ids)) + 1  # the second window's question stays open while the first is repaired
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", item) for item in ids)


def test_a_repair_quotes_one_answer_and_another_answer_has_another_repair() -> None:
    runs = [deferred("Yes"), deferred("Yes")]
    for run, text in zip(runs, ("{}", "[]"), strict=True):
        run.answer(run.questions[0].id, Completion(text=text))
    assert runs[0].questions[0].id != runs[1].questions[0].id
    with pytest.raises(KeyError):
        runs[0].answer(runs[1].questions[0].id, GOOD)


def test_windows_that_build_on_earlier_answers_are_asked_about_in_turn() -> None:
    run = deferred("a", "b", "c", rubric=Sequential())
    seen = []
    while run.questions:
        [question] = run.questions
        seen.append(question.request.window.text)
        run.answer(question.id, GOOD)
    assert seen == ["0 before: a", "1 before: b", "2 before: c"]
    assert run.done


def test_a_sequence_ends_with_the_first_window_that_the_judge_fails_on() -> None:
    run = deferred("a", "b", "c", rubric=Sequential())
    run.answer(run.questions[0].id, NO)
    assert run.done
    found = finished(run)
    assert isinstance(found.result, Unscored)
    assert found.result.reason == "judge_refused"


def test_nothing_to_ask_is_done_at_once() -> None:
    assert deferred().done
    assert deferred(" ").done
    assert deferred(" ").questions == ()
