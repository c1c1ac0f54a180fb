"""`backslide judge FILE` inside: results as they come, going on, what is refused, what is explained."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from monitor.config import Settings
from monitor.config import load as load_settings
from monitor.errors import ConfigError, InputError, JudgeFatal
from monitor.explain import Explanation
from monitor.judge_file import FileJudge, Progress, judge_file
from monitor.judge_summary import JudgeSummary
from monitor.judgement import Judgement, Unscored, Verdict
from monitor.judgement_file import JudgementFile, read_judgements
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion, JudgeModel, JudgeRequest
from monitor.recorded import SessionFile, Spool

SAID = (
    ("user", "Book a table for Friday at 7 pm, please."),
    ("assistant", "Booked for Friday at 7 pm."),
    ("user", "No, I said 8 pm, not 7 pm."),
    ("assistant", "Sorry, I changed it to 8 pm."),
)


def write_sessions(path: Path, count: int) -> Path:
    turns = [{"role": role, "text": text} for role, text in SAID]
    lines = [{"session_id": f"s{n}", "assistant": "concierge", "turns": turns} for n in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


class Scripted(LexicalJudge):
    """Answers like the lexical judge, but for calls that have an answer of their own; remembers requests."""

    def __init__(self, **answers: str | Exception) -> None:
        super().__init__()
        self.requests: list[JudgeRequest] = []
        self.answers = {int(call.removeprefix("call")): answer for call, answer in answers.items()}

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        self.requests.append(request)
        answer = self.answers.get(len(self.requests))
        if isinstance(answer, Exception):
            raise answer
        good = await super().complete(request, timeout=timeout)
        return good if answer is None else Completion(text=answer)


class Place:
    """A file of sessions, and the file of judgements beside it."""

    def __init__(self, folder: Path, sessions: int = 4) -> None:
        self.sessions = write_sessions(folder / "sessions.jsonl", sessions)
        self.out = folder / "out.jsonl"
        self.settings = load_settings(overrides={"judge.concurrency": 1})
        self.progress: list[Progress] = []
        self.explained: list[Explanation] = []

    async def judge(self, monkeypatch: pytest.MonkeyPatch, model: JudgeModel, **options: Any) -> JudgeSummary:
        monkeypatch.setattr("monitor.offline_judge.open_judge", lambda _: model)
        options = {"rubric": "correction", "out": self.out, **options}
        return await judge_file(
            self.sessions,
            self.settings,
            on_progress=self.progress.append,
            on_explained=self.explained.append,
            **options,
        )

    def judged(self) -> list[Judgement]:
        return list(read_judgements(self.out))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_every_session_is_judged_and_counted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = await place.judge(monkeypatch, LexicalJudge())
    assert (summary.sessions, summary.verdicts, summary.missing, summary.canceled) == (4, 4, 0, False)
    assert summary.calls == {"none": 4}
    assert {rate.measure: (rate.sessions, rate.trials) for rate in summary.rates}["reverted"] == (4, 4)
    judged = place.judged()
    assert sorted(item.session_id for item in judged) == ["s0", "s1", "s2", "s3"]
    assert {item.run for item in judged} == {"file"}
    assert [at.done for at in place.progress] == [0, 1, 2, 3, 4]
    assert {at.sessions for at in place.progress} == {4}
    assert "4 sessions: 4 verdicts" in summary.to_text()


async def test_the_same_input_gives_the_same_bytes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await place.judge(monkeypatch, LexicalJudge())
    await place.judge(monkeypatch, LexicalJudge(), out=place.out.with_name("again.jsonl"))
    assert place.out.read_bytes() == place.out.with_name("again.jsonl").read_bytes()


async def test_what_failed_or_was_cut_off_is_asked_again_and_nothing_else(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await place.judge(monkeypatch, Scripted(call2="{}", call3="{}"))
    assert (first.verdicts, first.unscored) == (3, {"invalid": 1})
    raw = place.out.read_bytes()
    whole = raw.splitlines(keepends=True)
    place.out.write_bytes(b"".join(whole[:3]) + whole[3][:100])

    model = Scripted()
    summary = await place.judge(monkeypatch, model, resume=True)
    assert (summary.known, summary.verdicts, summary.unscored) == (2, 4, {})
    assert len(model.requests) == 2
    judged = place.judged()
    assert [item.session_id for item in judged] == ["s0", "s2", "s1", "s3"]
    assert all(isinstance(item.result, Verdict) for item in judged)
    assert sorted(path.name for path in place.out.parent.iterdir()) == ["out.jsonl", "sessions.jsonl"]


async def test_an_existing_file_is_never_written_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.out.write_text("mine")
    with pytest.raises(InputError, match=r"out\.jsonl: exists; go on with it \(--resume\)"):
        await place.judge(monkeypatch, LexicalJudge())
    with pytest.raises(InputError, match=r"out\.jsonl: can't be written"):
        await place.judge(monkeypatch, LexicalJudge(), out=place.out / "out.jsonl")
    place.out.write_text("mine\n")
    with pytest.raises(InputError, match=r"out\.jsonl: line 1: not a judgement"):
        await place.judge(monkeypatch, LexicalJudge(), resume=True)
    assert place.out.read_text() == "mine\n"


async def test_another_judge_or_prompt_does_not_go_on_with_a_file(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.judge(monkeypatch, LexicalJudge())
    other = LexicalJudge()
    other.name = "anthropic:claude-haiku-5-5"
    with pytest.raises(InputError, match=r"was judged by lexical.*gone on with by anthropic:claude-haiku-5-5"):
        await place.judge(monkeypatch, other, resume=True)
    place.settings = load_settings(overrides={"judge.constraints": {"*": "Be kind."}})
    with pytest.raises(InputError, match="name another file"):
        await place.judge(monkeypatch, LexicalJudge(), resume=True)


async def test_a_judge_that_refuses_ends_it_and_what_is_done_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JudgeFatal, match="bad key"):
        await place.judge(monkeypatch, Scripted(call3=JudgeFatal("authentication", "bad key")))
    assert [item.session_id for item in place.judged()] == ["s0", "s1"]


async def test_a_cancellation_keeps_what_is_done(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(Scripted):
        async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
            answer = await super().complete(request, timeout=timeout)
            if len(self.requests) == 3:
                reached.set()
                await asyncio.Event().wait()
            return answer

    reached = asyncio.Event()
    task = asyncio.create_task(place.judge(monkeypatch, Stuck()))
    await reached.wait()
    task.cancel()
    summary = await task
    assert (summary.canceled, summary.verdicts, summary.missing) == (True, 2, 2)
    assert "2 without a judgement; canceled" in summary.to_text()
    assert len(place.judged()) == 2


async def test_an_explanation_shows_what_was_asked_byte_for_byte(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Scripted(call1='{"rationale": "none"}', call3="no idea", call4="no idea either")
    await place.judge(monkeypatch, model)
    asked = [(request.system, request.messages) for request in model.requests]
    shown = [(step.system, step.messages) for found in place.explained for step in found.steps]
    assert shown == asked
    assert [[step.kind for step in found.steps] for found in place.explained[:2]] == [
        ["invalid", "valid"],
        ["invalid", "invalid"],
    ]
    assert isinstance(place.explained[1].result, Unscored)
    text = place.explained[0].to_text()
    assert "C1, attempt 1: answer (invalid)" in text
    assert '{"rationale": "none"}' in text
    assert (place.explained[0].steps[0].error or "?") in text
    assert text.count("passed") == 1


async def test_a_wrong_line_is_found_before_the_judge_is_asked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.sessions.open("a") as file:
        file.write('{"turns": []}\n')
    model = Scripted()
    with pytest.raises(InputError, match=r"sessions\.jsonl: line 5: session_id: is missing"):
        await place.judge(monkeypatch, model)
    assert (model.requests, place.out.exists()) == ([], False)
    summary = await place.judge(monkeypatch, model, skip_invalid=True)
    assert (summary.sessions, summary.invalid) == (4, {"invalid_field": 1})


async def test_an_unknown_rubric_is_named_with_those_there_are(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"rubric 'tact': there is no such rubric; allowed are .*correction"):
        await place.judge(monkeypatch, LexicalJudge(), rubric="tact")


async def test_no_more_jobs_are_under_way_than_allowed(tmp_path: Path) -> None:
    class Counting(LexicalJudge):
        now = most = 0

        async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
            self.now += 1
            self.most = max(self.most, self.now)
            for _ in range(5):
                await asyncio.sleep(0)
            self.now -= 1
            return await super().complete(request, timeout=timeout)

    model = Counting()
    settings: Settings = load_settings(overrides={"judge.concurrency": 3})
    sessions = write_sessions(tmp_path / "sessions.jsonl", 12)
    with Spool() as spool, JudgementFile.create(tmp_path / "out.jsonl") as out:
        spool.fill(SessionFile(sessions, settings))
        judging = FileJudge(model, settings, "correction", out)
        await judging.run(spool, spool.sessions)
    assert (judging.counts.judged, model.most) == (12, 3)


def test_a_file_of_judgements_survives_reading_and_writing(tmp_path: Path) -> None:
    with JudgementFile.resume(tmp_path / "new.jsonl", again=False) as file:
        assert file.known == {}
    assert list(read_judgements(tmp_path / "new.jsonl")) == []
    with pytest.raises(InputError, match=r"nowhere\.jsonl: can't be read"):
        list(read_judgements(tmp_path / "nowhere.jsonl"))
