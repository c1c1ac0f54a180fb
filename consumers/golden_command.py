"""`backslide golden`: a prompt version and a judge, measured on hand-graded conversations before they are used.

backslide golden run correction --judge anthropic:claude-haiku-5-5
backslide golden run correction --judge ... --prompt v2 --against v1
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from monitor.errors import JudgeError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from monitor.golden.result import GoldenResult
    from monitor.settings import Settings

WORSE_STATUS: Final = 1
UNASKED_STATUS: Final = 3

golden_app = typer.Typer(help="Measure prompts and judges on hand-graded conversations.", no_args_is_help=True)

Rubric = Annotated[str, typer.Argument(help="Whose golden set, such as correction.")]
Folder = Annotated[
    Path | None, typer.Option("--prompts", help="Folder of prompts, instead of those that come with Backslide.")
]


@golden_app.command("run")
def golden_run(
    rubric: Rubric,
    judge: Annotated[str | None, typer.Option("--judge", help="Who judges, instead of judge.model.")] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Prompt version; by default the newest.")] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="A second version, judged on the same conversations.")
    ] = None,
    max_wrong: Annotated[
        int,
        typer.Option("--max-wrong", min=0, help="How many conversations may come out wrong; not with --against."),
    ] = 0,
    record: Annotated[
        bool, typer.Option("--record", help="Keep the run beside the prompt, for a freeze.")
    ] = False,
    prompts: Folder = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file of settings.", envvar="BACKSLIDE_CONFIG")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a rubric's golden set and compare with what people expect.

    Exit status: 0 good; 1 more came out wrong than may, or with --against the version breaks more than it mends;
    2 wrong input or settings; 3 the judge can't be asked.
    """
    from monitor.golden import text
    from monitor.golden.versions import Versions
    from monitor.judging.prompt_files import package, versions

    folder = prompts or package()
    wanted = [prompt or versions(rubric, folder)[-1], *([against] if against else [])]
    try:
        runs = asyncio.run(_judged(rubric, wanted, folder, _settings(config, judge)))
    except JudgeError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(UNASKED_STATUS) from None
    if record:
        _record(runs[0], folder)
    if against:
        pair = Versions(new=runs[0], old=runs[1])
        _print(text.versions_value(pair) if as_json else text.versions_text(pair))
        raise typer.Exit(WORSE_STATUS if pair.worse else 0)
    _print(text.run_value(runs[0], max_wrong) if as_json else text.run_text(runs[0], max_wrong))
    raise typer.Exit(WORSE_STATUS if len(runs[0].wrong) > max_wrong else 0)


@golden_app.command("freeze")
def golden_freeze(
    rubric: Rubric,
    version: Annotated[str, typer.Argument(help="The version that judges from now on, such as v2.")],
    prompts: Folder = None,
) -> None:
    """Release a prompt version: it judges from now on, and can't be changed any more.

    It needs a recorded run (`golden run RUBRIC --prompt VERSION --record`) on the golden set as it is.
    """
    from monitor.golden.freeze import freeze
    from monitor.judging.prompt_files import SUMS, package

    done = freeze(rubric, version, prompts or package())
    typer.echo(
        f"{rubric} {version} {'is frozen: its hash stands in prompts/' + SUMS if done else 'was frozen before'}"
    )


async def _judged(
    rubric: str, versions: Sequence[str], folder: Traversable, settings: Settings
) -> list[GoldenResult]:
    """Judge the set with each version, the newer one first, with one bar of progress for all."""
    from consumers.progress import progress_bar
    from monitor.golden.judging import judge_golden
    from monitor.golden.rows import read
    from monitor.judging.prompt import load
    from monitor.offline_judge import checked_judge

    golden = read(folder, rubric)
    for version in versions:
        # A wrong file is found before anything is paid for.
        load(rubric, version, folder=folder)
    runs: list[GoldenResult] = []
    async with checked_judge(settings.judge) as (model, price):
        for version in versions:
            with progress_bar() as on_progress:
                run = await judge_golden(
                    golden, version, model, settings.judge, folder=folder, price=price, on_progress=on_progress
                )
            runs.append(run)
    return runs


def _record(run: GoldenResult, folder: Traversable) -> None:
    from monitor.golden import recorded

    path = recorded.write(recorded.of(run, datetime.now(UTC).date()), folder)
    typer.echo(f"recorded in {path}", err=True)


def _settings(path: Path | None, judge: str | None) -> Settings:
    from monitor.config import load
    from monitor.logging import configure

    settings = load(path)
    configure(settings.log)
    said = {"model": judge} if judge else {}
    # What the command line says wins over file and environment.
    return settings.model_copy(update={"judge": settings.judge.model_copy(update=said)})


def _print(value: str | dict[str, Any]) -> None:
    typer.echo(value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False))
