"""The `backslide` command."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from consumers.dead_letters_command import dead_letters_app
from consumers.golden_command import golden_app
from consumers.judge_command import judge_app
from monitor import __version__
from monitor.errors import BackslideError, ConfigError

app = typer.Typer(
    name="backslide",
    help="Watches production chats for assistants that backslide.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
topics_app = typer.Typer(help="Create and check the topics.", no_args_is_help=True)
schema_app = typer.Typer(help="Print schemas.", no_args_is_help=True)
policy_app = typer.Typer(help="Check sampling policies.", no_args_is_help=True)
reference_app = typer.Typer(help="Print reference pages.", no_args_is_help=True)
app.add_typer(judge_app, name="judge")
app.add_typer(golden_app, name="golden")
app.add_typer(reference_app, name="reference")
app.add_typer(topics_app, name="topics")
app.add_typer(dead_letters_app, name="dead-letters")
app.add_typer(schema_app, name="schema")
app.add_typer(policy_app, name="policy")

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file of settings.", envvar="BACKSLIDE_CONFIG")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """Run the command; whatever is raised on purpose becomes one message and an exit status."""
    try:
        app(prog_name="backslide")
    except ConfigError as error:
        _say_error(error)
        sys.exit(2)
    except BackslideError as error:
        _say_error(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _say_error(error: BackslideError) -> None:
    for line in str(error).splitlines():
        typer.echo(f"error: {line}", err=True)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="assemble, sample, judge, record, web, or all of them: all.")],
    config: Config = None,
) -> None:
    """Run a process, or all five under a supervisor."""
    from consumers.app import PROCESSES, run_process
    from monitor.config import load

    settings = load(config)
    if name == "all":
        raise typer.Exit(_run_all(settings, config))
    if name not in PROCESSES:
        raise ConfigError(f"run: unknown process {name!r}; allowed are {', '.join(sorted(PROCESSES))} and all")
    raise typer.Exit(run_process(name, settings))


def _run_all(settings: Any, config: Path | None) -> int:
    from consumers.seldom import Seldom
    from consumers.supervisor import run_all
    from monitor.logging import configure

    configure(settings.log, filters=[Seldom()])
    return asyncio.run(run_all(settings, config))


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="Exit after the table.")] = False,
    as_json: AsJson = False,
    seed: Annotated[int, typer.Option(help="Seed of the traffic.")] = 5,
    sessions: Annotated[int, typer.Option(min=50, max=20_000, help="Sessions to send.")] = 2_000,
) -> None:
    """Run the whole pipeline on live traffic of its own, with the embedded broker."""
    from consumers.demo import run_demo

    raise typer.Exit(run_demo(once=once, as_json=as_json, seed=seed, sessions=sessions))


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="JSON lines: events, or sessions; `-` is standard input.")],
    config: Config = None,
    mapping: Annotated[Path | None, typer.Option(help="Field mapping (YAML) for in-house JSON.")] = None,
    store: Annotated[str | None, typer.Option(help="SQLAlchemy URL to keep the results in.")] = None,
    skip_invalid: Annotated[bool, typer.Option(help="Count bad lines instead of stopping.")] = False,
    census: Annotated[bool, typer.Option(help="Also judge every session, to see what sampling misses.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a file through assembly, sampling, judge and store, without a broker."""
    from monitor.config import load
    from monitor.logging import configure
    from monitor.replay import run_replay

    settings = load(config)
    configure(settings.log)
    summary = asyncio.run(
        run_replay(file, settings, mapping=mapping, store_url=store, skip_invalid=skip_invalid, census=census)
    )
    typer.echo(summary.to_json().decode() if as_json else summary.to_text())


@topics_app.command("create")
def topics_create(config: Config = None) -> None:
    """Create the topics that are missing."""
    from consumers import topics
    from consumers.on_brokers import on_brokers

    settings = _settings(config)
    created = on_brokers(topics.create(settings), settings.kafka.bootstrap_servers)
    for name in created:
        typer.echo(f"created {name}")
    typer.echo(f"{len(created)} created; the others were there")


@topics_app.command("check")
def topics_check(config: Config = None) -> None:
    """Compare the topics with what they have to be, and look where producers put their keys."""
    from consumers import topics
    from consumers.on_brokers import on_brokers

    settings = _settings(config)
    findings = on_brokers(topics.check(settings), settings.kafka.bootstrap_servers)
    for finding in findings:
        typer.echo(f"error: {finding}", err=True)
    events = settings.topics.events
    if any(finding.topic == events and finding.problem == "is missing" for finding in findings):
        raise typer.Exit(1)
    shares = on_brokers(topics.misrouted_share(settings), settings.kafka.bootstrap_servers)
    wrong, seen = (sum(pair[index] for pair in shares.values()) for index in (0, 1))
    if wrong:
        typer.echo(
            f"error: topic {events}: {wrong} of the newest {seen} keyed records lie in a partition "
            "that is not their key's; set `partitioner=murmur2_random` in librdkafka clients",
            err=True,
        )
    if findings or wrong:
        raise typer.Exit(1)
    typer.echo("all topics are as they have to be")


def _settings(config: Path | None) -> Any:
    from monitor.config import load

    return load(config)


@schema_app.command("events")
def schema_events() -> None:
    """Print the JSON Schema of the events."""
    from monitor.events import schema

    _print_json(schema())


@reference_app.command("metrics")
def reference_metrics() -> None:
    """Print docs/metrics.md."""
    from monitor.reference import metrics_reference

    typer.echo(metrics_reference(), nl=False)


@reference_app.command("settings")
def reference_settings() -> None:
    """Print docs/configuration.md."""
    from monitor.reference import settings_reference

    typer.echo(settings_reference(), nl=False)


@policy_app.command("check")
def policy_check(file: Annotated[Path, typer.Argument(help="Policy file (YAML).")]) -> None:
    """Check a policy file and show its strata."""
    from monitor.rubrics import RUBRICS
    from monitor.sampling.policy_file import PolicyFile

    policy = PolicyFile(file, rubrics=RUBRICS).policy
    typer.echo(f"policy {policy.version}")
    for stratum in policy.strata:
        if stratum.rubrics:
            what = f"rate {stratum.rate:.4g}, {stratum.priority}, {', '.join(stratum.rubrics)}"
        else:
            what = "never judged"
        typer.echo(f"  {stratum.name}: {what}")


if __name__ == "__main__":
    main()
