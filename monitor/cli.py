"""The `offsetwatch` command: arguments in, exit code out. What a command does stands in the module it calls.

Exit codes: 0 done, 1 something bad was found (violations, a sick environment), 2 could not do it (bad input, bad
configuration, nothing there), 130 interrupted twice. Errors of ours are one line on stderr; `--debug` shows the rest.

Modules are imported by the command that needs them, so that a help text and `check` start at once. A command has one
parameter for each of its options, however many they are: that is how typer takes them, here and in `monitor.drill.cli`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.exceptions import TyperException

from monitor.drill.cli import app as drill_app
from monitor.errors import USAGE_OR_ENVIRONMENT, UserError, known_errors

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from monitor.config.config import Config
    from streaming_jobs.config import JobConfig

app = typer.Typer(
    help="An always-on safety monitor for clusters that speak Kafka's protocol.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
kafka_app = typer.Typer(help="A local Kafka, for trying things out.", no_args_is_help=True)
probe_app = typer.Typer(help="The probes: writers, readers, transactions, the observer.", no_args_is_help=True)
app.add_typer(kafka_app, name="kafka")
app.add_typer(probe_app, name="probe")
app.add_typer(drill_app, name="drill")


class _Asked:
    """What the command line asked for before the command began."""

    debug = False


def _set_debug(value: bool) -> bool:
    _Asked.debug = _Asked.debug or value
    return value


def _version(value: bool) -> None:
    if value:
        from monitor.process.versions import installed

        print(f"offsetwatch {installed('offsetwatch')}")
        raise typer.Exit


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="TOML file; else $OFFSETWATCH_CONFIG, else ./offsetwatch.toml.", show_default=False
    ),
]
Data = Annotated[
    Path | None, typer.Option("--data", help="Data folder, instead of the configured one.", show_default=False)
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Log everything, show tracebacks.", callback=_set_debug, is_eager=True)
]


class Severities(StrEnum):
    critical = "critical"
    warning = "warning"
    info = "info"
    allowed = "allowed"


class Kinds(StrEnum):
    violation = "violation"
    condition = "condition"
    classified = "classified"


class States(StrEnum):
    raised = "raised"
    open = "open"
    closed = "closed"


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    """An always-on safety monitor for clusters that speak Kafka's protocol."""


@app.command()
def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Histories of Jepsen's Kafka workload (JSON lines or EDN, also gzip; - is standard input), or folders "
            "of a probe log: its Delta table, or a data folder."
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line for each file.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Allow nothing that the policy would.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="Allow this anomaly, whatever the policy says (repeatable)."),
    ] = None,
    ww: Annotated[bool, typer.Option("--ww", help="Infer write-write edges for the search of cycles.")] = False,
    cycles: Annotated[bool, typer.Option(help="Search for dependency cycles.")] = True,
    pictures: Annotated[
        Path | None, typer.Option("--pictures", help="Folder for pictures (SVG) of the cycles.", show_default=False)
    ] = None,
    debug: Debug = False,
) -> None:
    """Check histories. Exit code 0: valid; 1: violations, or values never polled; 2: one cannot be read."""
    from monitor.commands.check import Options, run

    options = Options(
        json_output=json, strict=strict, allow=allow or (), ww=ww, cycles=cycles, pictures=pictures
    )  # fmt: skip
    raise typer.Exit(run(files, options))


@app.command()
def monitor(
    config: ConfigFile = None,
    data: Data = None,
    probes: Annotated[bool, typer.Option("--probes", help="Run the probes in this process, too.")] = False,
    debug: Debug = False,
) -> None:
    """Check the probe log as it grows; serve metrics, log findings. SIGTERM or Ctrl-C stops it in order."""
    from monitor.process.program_log import configure, say
    from monitor.process.signals import STOPPED_WITHIN, stop_on_signal
    from monitor.process.watch import Watch, run

    loaded = _load(config, data)
    configure(debug=_Asked.debug, file=loaded.data / "logs" / "monitor.log")
    fleet = None
    if probes:
        from monitor.process.probing import open_fleet

        fleet = open_fleet(loaded, say)
    with stop_on_signal(within=STOPPED_WITHIN) as stop:
        run(Watch(loaded, say=say, fleet=fleet), say=say, stop=stop)


@probe_app.command("run")
def probe_run(config: ConfigFile = None, data: Data = None, debug: Debug = False) -> None:
    """Run the probes of this host until SIGTERM or Ctrl-C; everything they did is then in the probe log."""
    from monitor.process.probing import run
    from monitor.process.program_log import configure
    from monitor.process.signals import STOPPED_WITHIN, stop_on_signal

    loaded = _load(config, data)
    configure(debug=_Asked.debug, file=loaded.data / "logs" / "probes.log")
    with stop_on_signal(within=STOPPED_WITHIN) as stop:
        run(loaded, stop)


@probe_app.command("drain")
def probe_drain(
    config: ConfigFile = None,
    data: Data = None,
    limit: Annotated[float, typer.Option(min=1, help="Seconds after which what is missing is given up.")] = 60.0,
    debug: Debug = False,
) -> None:
    """Read everything back with fresh clients, once probe run has ended. Exit code 1: acknowledged records are lost."""
    from monitor.process.probing import drain
    from monitor.process.program_log import configure

    loaded = _load(config, data)
    configure(debug=_Asked.debug, file=loaded.data / "logs" / "probes.log")
    raise typer.Exit(drain(loaded, limit=limit))


@probe_app.command("gone")
def probe_gone(
    committer: Annotated[int, typer.Argument(help="Its committer: the host that the condition evidence-late names.")],
    since: Annotated[datetime | None, typer.Option(help="It was down by this time, UTC; else by now.")] = None,
    config: ConfigFile = None,
    data: Data = None,
    debug: Debug = False,
) -> None:
    """Declare that a host does not come back: what waits for its journals is judged without them."""
    from monitor.process.probing import gone
    from monitor.process.program_log import configure

    loaded = _load(config, data)
    configure(debug=_Asked.debug)
    gone(loaded, committer, since.replace(tzinfo=UTC) if since else None)


@app.command()
def findings(
    config: ConfigFile = None,
    data: Data = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    anomaly: Annotated[list[str] | None, typer.Option(help="Only these (repeatable).")] = None,
    severity: Annotated[list[Severities] | None, typer.Option(help="Only these (repeatable).")] = None,
    kind: Annotated[list[Kinds] | None, typer.Option(help="Only these (repeatable).")] = None,
    state: Annotated[list[States] | None, typer.Option(help="Only these (repeatable).")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Still going on at or after this time: 03:12, 2h, 2026-11-22T03:12 (UTC).")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Begun by this time, written in the same ways.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Each finding with its evidence, and what is only counted.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many lines, or findings, are shown.")] = 50,
    history: Annotated[
        Path | None,
        typer.Option("--history", help="Judge this kept probe log (its Delta table, or a data folder) instead."),
    ] = None,
    debug: Debug = False,
) -> None:
    """What stands now: the verdict, incidents open and over, what is only counted. From the tables; nothing else needs
    to run."""
    from contextlib import nullcontext

    from rich.console import Console

    from monitor.commands.findings import Filter, json_line, listed, read
    from monitor.commands.overview import gather, lines, verdict
    from monitor.commands.times import moment
    from rules.vocabulary.catalogue import CATALOGUE

    for name in anomaly or ():
        if name not in CATALOGUE:
            raise UserError(f"--anomaly: there is no anomaly {name}; known are {', '.join(CATALOGUE)}")
    now = datetime.now(UTC)
    wanted = Filter(
        anomalies=anomaly or (), severities=severity or (), kinds=kind or (), states=state or (), topic=topic,
        partition=partition, since=moment(since, now, "--since") if since else None,
        until=moment(until, now, "--until") if until else None,
    )  # fmt: skip
    job = _load(config, data).job
    kept = nullcontext((job.tables_path, now)) if history is None else _judged(history, job)
    with kept as (tables, at):
        overview, incidents = gather(tables, at, wanted)
        rows = read(tables, wanted) if json or all_ else []
    if json:
        for row in rows:
            print(json_line(row, (incidents.of(row["id"]) or "").partition("@")[0] or None))
        return
    console = Console(highlight=False)
    console.print(verdict(overview))
    if all_:
        for line in listed(rows[:limit], console.width):
            console.print(line)
        if len(rows) > limit:
            console.print(f"{len(rows)} findings, the newest {limit} are shown (--limit)")
    else:
        for line in lines(overview, console.width, limit=limit):
            console.print(line)


@app.command()
def explain(
    id_: Annotated[str, typer.Argument(metavar="ID", help="An incident's or a finding's id, or its first digits.")],
    config: ConfigFile = None,
    data: Data = None,
    debug: Debug = False,
) -> None:
    """One incident: what happened, where, since when, the findings behind it with their evidence, and what to do."""
    from rich.console import Console

    from monitor.commands.explain import find, lines

    now = datetime.now(UTC)
    console = Console(highlight=False)
    job = _load(config, data).job
    for line in lines(find(job.tables_path, job.history_path, id_, now), now, console.width):
        console.print(line)


def _judged(history: Path, job: JobConfig) -> AbstractContextManager[tuple[Path, datetime]]:
    from monitor.history_files.probe_log import as_tables
    from monitor.process.program_log import say

    return as_tables(history, job.objectives.objectives(), say)


@app.command()
def doctor(
    config: ConfigFile = None,
    data: Data = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line: about, state, detail.")] = False,
    debug: Debug = False,
) -> None:
    """Is everything there, and safe? Versions, Java, jars, cluster, topics, client settings. Exit code 1 if not."""
    from rich.console import Console

    from monitor.commands.doctor import examine, misconfigured, print_json, table
    from monitor.errors import VIOLATION, ConfigError
    from monitor.process.program_log import configure

    configure(debug=_Asked.debug)
    try:
        asked = examine(_load(config, data))
    except ConfigError as error:
        asked = misconfigured(error)
    answers = []
    for answer in asked:
        answers.append(answer)
        if json:
            print_json(answer)
    if not json:
        Console().print(table(answers))
    raise typer.Exit(VIOLATION if any(answer.state == "bad" for answer in answers) else 0)


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data of earlier demos.")] = False,
    seconds: Annotated[
        float, typer.Option(envvar="DEMO_SECONDS", min=0, help="Stop after so long; 0: when you press Ctrl-C.")
    ] = 0.0,
    brokers: Annotated[int, typer.Option(min=0, max=3, help="Local brokers; 0: 3, or 1 if memory is short.")] = 0,
    debug: Debug = False,
) -> None:
    """Watch a real local cluster, and see a real violation being caught. Needs nothing but this machine."""
    from monitor.demo.demo import run

    raise typer.Exit(run(seconds=seconds, keep=keep, brokers=brokers, debug=_Asked.debug))


@kafka_app.command("up")
def kafka_up(
    brokers: Annotated[int, typer.Option(min=1, max=3, help="How many brokers.")] = 1,
    version: Annotated[
        str | None, typer.Option(help="Kafka's version; 4.3.1 if not given.", show_default=False)
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder of the cluster's data and logs.")] = Path(".offsetwatch/kafka"),
    debug: Debug = False,
) -> None:
    """Run a local Kafka in the foreground. SIGTERM or Ctrl-C stops it in order; its data are kept."""
    from deploy.jars import KAFKA
    from deploy.local_kafka import LocalKafka, run_in_foreground

    run_in_foreground(LocalKafka(data, brokers, version or KAFKA))


def _load(file: Path | None, data: Path | None) -> Config:
    from monitor.config.config import load

    environment = dict(os.environ)
    if data is not None:
        environment["OFFSETWATCH_DATA"] = str(data)
    return load(file, environment)


INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """The command. Exits with its code."""
    options: dict[str, Any] = {} if arguments is None else {"args": list(arguments)}
    try:
        code = app(prog_name="offsetwatch", standalone_mode=False, **options)
        sys.exit(code if isinstance(code, int) else 0)
    except TyperException as error:
        _refuse(error)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except Exception as error:
        if _Asked.debug or not isinstance(error, known_errors()):
            raise
        for complaint in getattr(error, "complaints", None) or [str(error)]:
            print(f"offsetwatch: {' '.join(complaint.split())}", file=sys.stderr)
        sys.exit(USAGE_OR_ENVIRONMENT)


def _refuse(error: TyperException) -> None:
    """A command line that cannot be understood, as one line; a command that is missing altogether, as its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        getattr(error, "show", print)()
    else:
        context = getattr(error, "ctx", None)
        of = f" ({context.command_path} --help)" if context is not None else ""
        said = " ".join(error.format_message().split()).removesuffix(".").replace("Value error, ", "")
        print(f"offsetwatch: {said}{of}", file=sys.stderr)
    sys.exit(USAGE_OR_ENVIRONMENT)


if __name__ == "__main__":
    main()
