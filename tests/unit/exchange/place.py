"""A folder with sessions, an export of them, and someone who answers it as the lexical judge would."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from monitor.config import Settings
from monitor.config import load as load_settings
from monitor.exchange import (
    ExportSummary,
    ImportSummary,
    export_questions,
    exported,
    import_answers,
    recorded,
)
from monitor.exchange.forms import Form
from monitor.exchange.state import read_head, read_pending, state_path
from monitor.judgement import Judgement
from monitor.judgement_file import read_judgements
from monitor.judging.deferred import DeferredRuns, Question
from monitor.judging.lexical import LexicalJudge
from monitor.judging.prompt import Prompts
from monitor.recorded import Spool
from monitor.rubrics import configured

TALKS = (
    ("user", "Book a table for Friday at 7 pm, please."),
    ("assistant", "Booked for Friday at 7 pm."),
    ("user", "No, I said 8 pm, not 7 pm."),
    ("assistant", "Sorry, I changed it to 8 pm."),
    ("user", "And I meant Saturday, not Friday."),
    ("assistant", "Right, Saturday at 8 pm."),
)
JUDGES: dict[Form, str] = {"plain": "file", "anthropic": "anthropic:m", "openai": "openai_compatible:m"}
Line: TypeAlias = dict[str, Any]


class Place:
    """The folder."""

    def __init__(self, folder: Path, sessions: int = 3) -> None:
        self.folder = folder
        self.settings: Settings = load_settings()
        self.sessions = folder / "sessions.jsonl"
        turns = [{"role": role, "text": text} for role, text in TALKS]
        quiet = [{"role": "user", "text": "Hello"}]
        lines = [{"session_id": f"s{n}", "turns": turns if n else quiet} for n in range(sessions)]
        self.sessions.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.questions = folder / "q.jsonl"
        self.out = folder / "out.jsonl"

    def export(self, form: Form = "plain", **options: Any) -> ExportSummary:
        options = {"rubric": "correction", "out": self.questions, "judge": JUDGES[form], **options}
        return export_questions(self.sessions, self.settings, form=form, **options)

    def write(self, lines: Iterable[Line], name: str = "answers.jsonl") -> Path:
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def take_in(self, *answers: Path, questions: Path | None = None, **options: Any) -> ImportSummary:
        source = exported(questions or self.questions)
        return import_answers(answers, self.settings, source, **{"out": self.out, **options})

    def take_in_anew(self, *answers: Path, out: Path) -> ImportSummary:
        with Spool() as spool:
            source = recorded(self.sessions, self.settings, spool, rubric="correction", form="plain", judge=None)
            return import_answers(answers, self.settings, source, out=out)

    def asked(self, questions: Path | None = None) -> list[Question]:
        """Give what a file of questions asks, from its state."""
        state = state_path(questions or self.questions)
        runs = DeferredRuns(configured(self.settings.rubrics), Prompts({}), read_head(state).max_tokens)
        found: list[Question] = []
        for pending in read_pending(state):
            run = runs.of(pending.job)
            for told in pending.told:
                run.answer(told.id, told.reply)
            found += run.questions
        return found

    def judged(self, out: Path | None = None) -> list[Judgement]:
        return list(read_judgements(out or self.out))


async def lexical(question: Question) -> str:
    """Answer a question by rule."""
    return (await LexicalJudge().complete(question.request, timeout=1.0)).text


def plain(question_id: str, text: str) -> Line:
    return {"id": question_id, "text": text}


def anthropic(question_id: str, text: str, stop: str = "end_turn") -> Line:
    message = {
        "type": "message",
        "content": [{"type": "text", "text": text}],
        "stop_reason": stop,
        "usage": {"input_tokens": 7, "output_tokens": 2},
    }
    return {"custom_id": question_id, "result": {"type": "succeeded", "message": message}}


def openai(question_id: str, text: str, stop: str = "stop") -> Line:
    body = {
        "choices": [{"message": {"content": text}, "finish_reason": stop}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
    }
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": "x", "custom_id": question_id, "response": response, "error": None}


ANSWERED: dict[Form, Callable[[str, str], Line]] = {"plain": plain, "anthropic": anthropic, "openai": openai}
