"""`backslide judge`: sessions of a file, judged here and now, or by someone who reads and writes files.

backslide judge FILE --rubric correction --judge anthropic:claude-haiku-5-5
backslide judge export FILE ...        backslide judge import ANSWERS ...
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from typer.core import TyperGroup

from monitor.errors import JudgeError

if TYPE_CHECKING:
    from monitor.config import Settings
    from monitor.explain import Explanation

UNSCORED_STATUS: Final = 3
CANCELED_STATUS: Final = 130
_FILE: Final = "file"


class FileOrCommand(TyperGroup):
    """A group whose commands may be left out: what names none of them is the `file` command's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name before arguments that begin with none."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_FILE, *args]
        return super().parse_args(ctx, args)


judge_app = typer.Typer(
    cls=FileOrCommand,
    help="Judge the sessions of a file: `backslide judge FILE --rubric R`.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help"]},
)

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file of settings.", envvar="BACKSLIDE_CONFIG")
]
Sessions = Annotated[Path, typer.Argument(help="JSON lines: events, or sessions; `-` is standard input.")]
RubricName = Annotated[str, typer.Option("--rubric", help="What to judge them by, such as correction.")]
JudgeName = Annotated[str | None, typer.Option("--judge", help="Who judges, instead of the setting judge.model.")]
Mapping = Annotated[Path | None, typer.Option(help="Field mapping (YAML) for in-house JSON.")]
SkipInvalid = Annotated[bool, typer.Option(help="Count bad lines instead of stopping.")]
FormName = Annotated[
    Literal["plain", "anthropic", "openai"],
    typer.Option("--format", help="Of questions: for people and programs, or of a provider's batch service."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@judge_app.command(_FILE)
def judge(
    file: Sessions,
    rubric: RubricName,
    judge: JudgeName = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where judgements go; by default NAME.RUBRIC.judgements.jsonl."),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with what is in that file.")] = False,
    explain: Annotated[bool, typer.Option(help="Show each prompt, raw answer and its checks.")] = False,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=1_024, help="Jobs at a time, instead of judge.concurrency.")
    ] = None,
    config: Config = None,
    mapping: Mapping = None,
    skip_invalid: SkipInvalid = False,
    as_json: AsJson = False,
) -> None:
    """Judge every session of a file (`file` may be left out).

    Exit status: 0 all judged; 3 the judge failed on some; 1 it can't be asked, or the input is wrong; 2 wrong
    settings; 130 canceled. What is judged by then is kept, and --resume goes on.
    """
    from consumers.progress import progress_bar
    from monitor.judge_file import judge_file

    settings = _settings(config, judge=judge, concurrency=concurrency)
    out = out or Path(f"{_stem(file)}.{rubric}.judgements.jsonl")
    explained: list[Explanation] = []
    on_explained: Callable[[Explanation], None] | None = None
    if explain:
        on_explained = explained.append if as_json else lambda found: typer.echo(found.to_text() + "\n")
    with progress_bar(shown=not explain) as on_progress, _kept(out):
        summary = asyncio.run(
            judge_file(
                file,
                settings,
                rubric=rubric,
                out=out,
                resume=resume,
                mapping=mapping,
                skip_invalid=skip_invalid,
                on_progress=on_progress,
                on_explained=on_explained,
            )
        )
    _print_result(summary, as_json=as_json, **({"explained": explained} if explain else {}))
    if summary.canceled:
        raise typer.Exit(CANCELED_STATUS)
    raise typer.Exit(UNSCORED_STATUS if summary.unscored else 0)


@judge_app.command("export")
def judge_export(
    sessions: Sessions,
    rubric: RubricName,
    out: Annotated[Path, typer.Option(help="Where the questions go; NAME.state beside it stays here.")],
    form: FormName = "plain",
    judge: JudgeName = None,
    config: Config = None,
    mapping: Mapping = None,
    skip_invalid: SkipInvalid = False,
    as_json: AsJson = False,
) -> None:
    """Write the questions about a file's sessions, to be answered elsewhere."""
    from monitor.exchange import export_questions

    summary = export_questions(
        sessions,
        _settings(config),
        rubric=rubric,
        out=out,
        form=form,
        judge=judge,
        mapping=mapping,
        skip_invalid=skip_invalid,
    )
    _print_result(summary, as_json=as_json)


@judge_app.command("import")
def judge_import(
    answers: Annotated[
        list[Path],
        typer.Argument(help="Files of answers, JSON lines, of one round or of all; a question takes its first."),
    ],
    out: Annotated[Path, typer.Option(help="Where judgements go.")],
    requests: Annotated[
        Path | None,
        typer.Option(help="The questions that were answered (of export, or --repairs), with NAME.state beside."),
    ] = None,
    sessions: Annotated[
        Path | None, typer.Option(help="Or the sessions once more, with the answers of all rounds.")
    ] = None,
    repairs: Annotated[
        Path | None,
        typer.Option(help="Where questions go that are still open: refused ones once more, and unanswered ones."),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Add to the judgements of an earlier round.")] = False,
    rubric: Annotated[str | None, typer.Option("--rubric", help="With --sessions: what was asked.")] = None,
    form: FormName = "plain",
    judge: JudgeName = None,
    config: Config = None,
    mapping: Mapping = None,
    skip_invalid: SkipInvalid = False,
    as_json: AsJson = False,
) -> None:
    """Read answers, check them, and write judgements.

    Exit status: 0 all judged; 3 questions are open, or the judge failed on some; 1 wrong input; 2 wrong settings.
    """
    from monitor.exchange import exported, import_answers, recorded
    from monitor.recorded import Spool

    if (requests is None) == (sessions is None):
        raise typer.BadParameter("give either --requests or --sessions")
    settings = _settings(config)
    with Spool() as spool:
        if requests is not None:
            source = exported(requests)
        elif sessions is not None and rubric is not None:
            source = recorded(
                sessions,
                settings,
                spool,
                rubric=rubric,
                form=form,
                judge=judge,
                mapping=mapping,
                skip_invalid=skip_invalid,
            )
        else:
            raise typer.BadParameter("--sessions needs --rubric")
        summary = import_answers(answers, settings, source, out=out, resume=resume, judge=judge, repairs=repairs)
    _print_result(summary, as_json=as_json)
    raise typer.Exit(UNSCORED_STATUS if summary.open or summary.judged.unscored else 0)


def _settings(path: Path | None, **judge: Any) -> Settings:
    """Load the settings, and let what the command line says of the judge win over file and environment."""
    from monitor.config import load
    from monitor.logging import configure

    settings = load(path)
    configure(settings.log)
    said = {name: value for name, value in judge.items() if value is not None}
    if "judge" in said:
        said["model"] = said.pop("judge")
    return settings.model_copy(update={"judge": settings.judge.model_copy(update=said)})


def _stem(file: Path) -> str:
    return "stdin" if str(file) == "-" else file.name.removesuffix(".jsonl")


@contextmanager
def _kept(out: Path) -> Iterator[None]:
    """Say that what is judged by now is kept, when the judge can't be asked any more."""
    try:
        yield
    except JudgeError:
        typer.echo(f"what is judged by now is in {out}; go on with --resume", err=True)
        raise


def _print_result(summary: Any, *, as_json: bool, **beside: Any) -> None:
    """Print a summary, as JSON with what goes beside it."""
    if not as_json:
        typer.echo(summary.to_text())
        return
    import msgspec

    value = msgspec.to_builtins(summary) | msgspec.to_builtins(beside)
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
