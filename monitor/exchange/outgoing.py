"""`backslide judge export`: the questions about the sessions of a file, for someone who answers them elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from monitor.config import JudgeSettings, Settings
from monitor.errors import InputError
from monitor.exchange.forms import Form, file_judge, writer
from monitor.exchange.report import ExportSummary
from monitor.exchange.state import Head, Pending, Told, create, state_path
from monitor.judging.deferred import DeferredRun, DeferredRuns
from monitor.judging.prompt import Prompts
from monitor.recorded import SessionFile, Spool, file_job
from monitor.rubrics import configured, named


class QuestionFile:
    """A new file of questions, and its state beside it; a context manager. `questions` and `silent` count.

    Raises `InputError` when one of the two exists or can't be written.
    """

    def __init__(self, path: Path, head: Head, settings: JudgeSettings) -> None:
        self.questions = 0
        self.silent = 0
        self._path = path
        self._line = writer(head.form, head.judge, settings)
        self._state = create(state_path(path))
        try:
            self._out = create(path)
        except InputError:
            self._state.close()
            state_path(path).unlink()
            raise
        self._state.write(msgspec.json.encode(head) + b"\n")

    def __enter__(self) -> Self:
        """Take runs with `add`."""
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Close both; after an error, or when nothing is asked, take away what is there of them."""
        self._state.close()
        self._out.close()
        if error is not None or not (self.questions or self.silent):
            self._path.unlink()
            state_path(self._path).unlink()

    def add(self, run: DeferredRun, closed_at: int, told: Sequence[Told] = ()) -> None:
        """Write what a run asks, and what it was told before."""
        pending = Pending(job=run.job, closed_at=closed_at, prompt_hash=run.prompt.prompt_hash, told=list(told))
        self._state.write(msgspec.json.encode(pending) + b"\n")
        for question in run.questions:
            self._out.write(self._line(question, run.job) + b"\n")
        self.questions += len(run.questions)
        self.silent += not run.questions


def export_questions(
    path: Path | str,
    settings: Settings,
    *,
    rubric: str,
    out: Path,
    form: Form = "plain",
    judge: str | None = None,
    mapping: Path | None = None,
    skip_invalid: bool = False,
) -> ExportSummary:
    """Write the questions about a file's sessions to `out`, and what an import needs beside it.

    Raises `InputError` that names file, line and field (with `skip_invalid` such lines are counted instead), and
    `ConfigError`.
    """
    found = named(rubric, configured(settings.rubrics))
    by = file_judge(form, judge, settings.judge)
    source = SessionFile(path, settings, mapping=mapping, skip_invalid=skip_invalid)
    head = Head(
        rubric=rubric,
        rubric_version=found.version,
        form=form,
        judge=by,
        max_tokens=settings.judge.max_tokens,
    )
    runs = DeferredRuns({rubric: found}, Prompts(settings.judge.constraints), settings.judge.max_tokens)
    with Spool() as spool:
        spool.fill(source)
        with QuestionFile(out, head, settings.judge) as file:
            for record in spool:
                file.add(runs.of(file_job(record, rubric)), record.span.closed_at)
    return ExportSummary(
        rubric=rubric,
        judge=by.name,
        form=form,
        out=str(out),
        state=str(state_path(out)),
        sessions=spool.sessions,
        silent=file.silent,
        questions=file.questions,
        invalid=source.invalid,
    )
