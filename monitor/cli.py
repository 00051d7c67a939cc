"""The `offsetwatch` command: arguments in, exit code out. What a command does stands in the module it calls.

Exit codes: 0 done, 1 something bad was found (violations, a sick environment), 2 could not do it (bad input, bad
configuration, nothing there), 130 interrupted twice, 141 whoever read the output has gone. Errors of ours are one line
on stderr; `--debug` shows the rest.

Modules are imported by the command that needs them, so that a help text and `check` start at once. A command has one
parameter for each of its options, however many they are: that is how typer takes them, here and in the `cli` modules of
`monitor.drill` and `monitor.postmortem`.
"""

from __future__ import annotations

import faulthandler
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from monitor.commands.silence import app as silence_app
from monitor.drill.cli import app as drill_app
from monitor.errors import USAGE_OR_ENVIRONMENT, UserError, known_errors
from monitor.options import Cluster, CommandLine, ConfigFile, Data, Debug, History, LogFormat, Panels, Topics, loaded_by
from monitor.postmortem.cli import add_to as add_postmortem
from monitor.process.ending import INTERRUPTED, NOBODY_READS, cannot_be_written, complain, leave, nowhere

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
kafka_app = typer.Typer(help="A local Kafka, for trying things out.", no_args_is_help=True)
probe_app = typer.Typer(
    help="The probes alone, on hosts of their own: writers, readers, transactions, the observer.", no_args_is_help=True
)
app.add_typer(probe_app, name="probe", rich_help_panel=Panels.run)
app.add_typer(kafka_app, name="kafka", rich_help_panel=Panels.begin)
app.add_typer(drill_app, name="drill", rich_help_panel=Panels.kept)
app.add_typer(silence_app, name="silence", rich_help_panel=Panels.found)


def _version(value: bool) -> None:
    if value:
        from monitor.process.versions import installed

        print(f"offsetwatch {installed('offsetwatch')}")
        raise typer.Exit


class Severities(StrEnum):
    critical = "critical"
    warning = "warning"
    info = "info"
    allowed = "allowed"


class Kinds(StrEnum):
    violation = "violation"
    condition = "condition"
    classified = "classified"


class Stories(StrEnum):
    leaderless = "leaderless"
    duplicates = "duplicates"


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
    """An always-on safety monitor for clusters that speak Kafka's protocol.

    Probes write and read records of their own, in topics of their own. What they
    did is checked as it comes, and you are told when the cluster loses, doubles,
    reorders or shows what it must not.

    To see it: offsetwatch demo.
    To watch a cluster: doctor, then monitor --probes, then findings."""


@app.command(rich_help_panel=Panels.begin)
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data of earlier demos.")] = False,
    seconds: Annotated[
        float, typer.Option(envvar="DEMO_SECONDS", min=0, help="Stop after so long; 0: when you press Ctrl-C.")
    ] = 0.0,
    brokers: Annotated[int, typer.Option(min=0, max=3, help="Local brokers; 0: 3, or 1 if memory is short.")] = 0,
    story: Annotated[
        Stories | None,
        typer.Option(help="What happens: leaderless (KAFKA-20734, 3 brokers), or duplicates. By the brokers if unset."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Watch a real local cluster, and see a real violation being caught. Needs nothing but this machine."""
    from monitor.demo.demo import run
    from monitor.process.limits import require_enough

    require_enough()
    raise typer.Exit(run(seconds=seconds, keep=keep, brokers=brokers, story=story, debug=CommandLine.debug))


@app.command(rich_help_panel=Panels.begin)
def doctor(
    config: ConfigFile = None,
    data: Data = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line: about, state, detail.")] = False,
    debug: Debug = False,
) -> None:
    """Is everything there, and safe? Versions, Java, cluster, topics, client settings. Exit code 1 if not."""
    from rich.console import Console

    from monitor.commands.doctor import examine, misconfigured, print_json, table
    from monitor.errors import VIOLATION, ConfigError
    from monitor.process.program_log import configure

    configure(debug=CommandLine.debug)
    try:
        asked = examine(loaded_by(config, data))
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


@app.command(rich_help_panel=Panels.run)
def monitor(
    config: ConfigFile = None,
    data: Data = None,
    probes: Annotated[
        bool, typer.Option("--probes", help="Run the probes, too, those of each cluster; else probe run does.")
    ] = False,
    standby: Annotated[
        bool, typer.Option("--standby", help="While another monitor is at work on the same data, wait to take over.")
    ] = False,
    log_format: LogFormat = None,
    debug: Debug = False,
) -> None:
    """Watch a cluster: check what the probes log as it comes, tell what is found, serve the status page.

    SIGTERM or Ctrl-C stops it in order."""
    from monitor.process.limits import require_enough

    require_enough()  # before what takes most of it is imported
    from monitor.incidents.room import naming_a_full_disk
    from monitor.process.program_log import configure, say
    from monitor.process.signals import STOPPED_WITHIN, stop_on_signal
    from monitor.process.watch import Watch, run

    loaded = loaded_by(config, data, log_format)
    as_json = loaded.alerts.log_format == "json"
    configure(debug=CommandLine.debug, file=loaded.data / "logs" / "monitor.log", as_json=as_json)
    fleet = None
    if probes:
        from monitor.process.probing import open_probes

        fleet = open_probes(loaded, say, debug=CommandLine.debug, apart=True)
    with stop_on_signal(within=STOPPED_WITHIN) as stop, naming_a_full_disk(loaded):
        run(Watch(loaded, say=say, fleet=fleet, standby=standby), say=say, stop=stop)


@probe_app.command("run")
def probe_run(
    cluster: Cluster = None,
    config: ConfigFile = None,
    data: Data = None,
    log_format: LogFormat = None,
    debug: Debug = False,
) -> None:
    """Run the probes of this host until SIGTERM or Ctrl-C; everything they did is then in the probe log."""
    from monitor.process.limits import require_enough
    from probes.running.small_process import stay_small

    require_enough()
    stay_small()  # before what it concerns is imported
    from monitor.config.names import only
    from monitor.process.probing import open_probes, run
    from monitor.process.program_log import configure, say
    from monitor.process.signals import STOPPED_WITHIN, stop_on_signal

    loaded = loaded_by(config, data, log_format)
    as_json = loaded.alerts.log_format == "json"
    of = f"-{only(loaded, cluster).name}" if cluster is not None else ""
    configure(debug=CommandLine.debug, file=loaded.data / "logs" / f"probes{of}.log", as_json=as_json)
    with stop_on_signal(within=STOPPED_WITHIN) as stop:
        run(loaded, open_probes(loaded, say, cluster, debug=CommandLine.debug), stop)


@probe_app.command("drain")
def probe_drain(
    cluster: Cluster = None,
    config: ConfigFile = None,
    data: Data = None,
    limit: Annotated[float, typer.Option(min=1, help="Seconds after which what is missing is given up.")] = 60.0,
    debug: Debug = False,
) -> None:
    """Read everything back with fresh clients, once probe run has ended. Exit code 1: acknowledged records are lost;
    2: none are, but some cannot be read, as behind a transaction that does not end."""
    from monitor.process.probing import drain_each
    from monitor.process.program_log import configure

    loaded = loaded_by(config, data)
    configure(debug=CommandLine.debug, file=loaded.data / "logs" / "probes.log")
    raise typer.Exit(drain_each(loaded, cluster, limit=limit))


@probe_app.command("gone")
def probe_gone(
    committer: Annotated[
        int, typer.Argument(metavar="NUMBER", help="The host's number, as the condition evidence-late tells it.")
    ],
    since: Annotated[datetime | None, typer.Option(help="It was down by this time, UTC; else by now.")] = None,
    config: ConfigFile = None,
    data: Data = None,
    debug: Debug = False,
) -> None:
    """Declare that a host does not come back: what waits for its journals is judged without them."""
    from monitor.process.probing import gone
    from monitor.process.program_log import configure

    loaded = loaded_by(config, data)
    configure(debug=CommandLine.debug)
    gone(loaded, committer, since.replace(tzinfo=UTC) if since else None)


@app.command(rich_help_panel=Panels.found)
def findings(  # noqa: PLR0913
    config: ConfigFile = None,
    data: Data = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    anomaly: Annotated[list[str] | None, typer.Option(help="Only these (repeatable).")] = None,
    severity: Annotated[list[Severities] | None, typer.Option(help="Only these (repeatable).")] = None,
    kind: Annotated[list[Kinds] | None, typer.Option(help="Only these (repeatable).")] = None,
    state: Annotated[list[States] | None, typer.Option(help="Only these (repeatable).")] = None,
    cluster: Cluster = None,
    topic: Topics = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Still going on at or after this time: 03:12, 2h, 2026-11-22T03:12 (UTC).")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Begun by this time, written in the same ways.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Each finding with its evidence, and what is only counted.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many lines, or findings, are shown.")] = 50,
    history: History = None,
    debug: Debug = False,
) -> None:
    """What stands now: the verdict, incidents open and over. Reads the tables; nothing else needs to run."""
    from monitor.commands.findings_command import Question, run

    asked = Question(
        anomalies=anomaly or (),
        severities=severity or (),
        kinds=kind or (),
        states=state or (),
        topics=topic or (),
        partition=partition,
        cluster=cluster,
        since=since,
        until=until,
        form="json" if json else "each" if all_ else "incidents",
        limit=limit,
    )
    run(asked, partial(loaded_by, config, data), history)


@app.command(rich_help_panel=Panels.found)
def explain(  # noqa: PLR0913
    id_: Annotated[str, typer.Argument(metavar="ID", help="An incident's or a finding's id, or its first digits.")],
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw who sent and who polled its records, or its cycle (SVG).")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Also read the batches and markers there now, from the cluster.")
    ] = False,
    at: Annotated[
        str | None, typer.Option("--at", help="Of several incidents with this id, the newest by then: 03:12, 2h, ...")
    ] = None,
    config: ConfigFile = None,
    data: Data = None,
    debug: Debug = False,
) -> None:
    """One incident: what happened, where, since when, the findings behind it with their evidence, and what to do."""
    from monitor.commands.explain import lines
    from monitor.commands.times import moment
    from monitor.config.names import ClusterNames
    from monitor.incidents.explained import Wanted, find, find_where_there_is_room, under_silences
    from monitor.incidents.kept_silences import kept_silences
    from monitor.screen import Screen
    from streaming_jobs.history.reachable import reading

    now = datetime.now(UTC)
    console = Screen()
    loaded = loaded_by(config, data)
    hold, by = timedelta(seconds=loaded.alerts.quiet), moment(at, now, "--at") if at is not None else None
    with reading(loaded.job.history_path):
        tables, history, names = loaded.job.tables_path, loaded.job.history_path, ClusterNames(loaded)
        found = find_where_there_is_room(loaded, id_, lambda: find(tables, history, Wanted(id_, by), now, hold, names))
    for line in lines(under_silences(found, kept_silences(loaded).all(), now), now, console.width):
        console.print(line)
    if picture is not None or raw:
        from monitor.postmortem.explain_more import draw, raw_lines

        if picture is not None:
            draw(loaded, found, now, picture)
            console.print(f"\nThe picture: {picture}", soft_wrap=True)
        for told in raw_lines(loaded, found, now, console.width) if raw else ():
            console.print(told)


@app.command(rich_help_panel=Panels.found)
def status(
    config: ConfigFile = None,
    data: Data = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    debug: Debug = False,
) -> None:
    """How Offsetwatch itself is: the verdict, what the data folder takes, how long the disk will do."""
    from json import dumps

    from rich.text import Text

    from monitor.commands.overview import silences
    from monitor.commands.storage import as_json, lines, survey
    from monitor.config.names import ClusterNames
    from monitor.incidents.findings import Filter
    from monitor.incidents.kept_silences import kept_silences
    from monitor.incidents.overview import gather, silence_json, verdict, with_silences
    from monitor.incidents.room import no_room
    from monitor.screen import Screen
    from streaming_jobs.history.handover import is_under_way

    loaded = loaded_by(config, data)
    if not loaded.data.is_dir() and isinstance(loaded.job.tables_path, Path):
        raise UserError(f"{loaded.named('data')}: there is no folder {loaded.data}")
    hold = timedelta(seconds=loaded.alerts.quiet)
    found, _ = gather(loaded.job.tables_path, datetime.now(UTC), Filter(), hold, ClusterNames(loaded))
    rebuilding = is_under_way(loaded.job.rebuild_folder)
    overview = with_silences(found, kept_silences(loaded), no_room(loaded), rebuilding=rebuilding)
    said, storage = verdict(overview), survey(loaded)
    if json:
        print(
            dumps(
                {
                    "verdict": said,
                    "silences": [silence_json(one) for one in overview.silences],
                    "storage": as_json(storage),
                }
            )
        )
        return
    console = Screen()
    console.print(Text(said))
    for line in silences(overview):
        console.print(line)
    console.print()
    for line in lines(storage):
        console.print(line)


add_postmortem(app)


@app.command(rich_help_panel=Panels.kept)
def check(  # noqa: PLR0913
    files: Annotated[
        list[str],
        typer.Argument(
            help="Histories of Jepsen's Kafka workload (JSON lines or EDN, also gzip; - is standard input), or probe "
            "logs: the folder, or the URL, of its Delta table, or of all data."
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line for each file.")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Count also what is allowed by default, as skips of a reader that subscribed."),
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="This anomaly makes no history invalid (repeatable)."),
    ] = None,
    ww: Annotated[
        bool, typer.Option("--ww", help="Cycles: who wrote before whom is concluded from offsets, too.")
    ] = False,
    cycles: Annotated[
        bool, typer.Option(help="Search for cycles of transactions that each depend on the next.")
    ] = True,
    pictures: Annotated[
        Path | None, typer.Option("--pictures", help="Folder for pictures (SVG) of the cycles.", show_default=False)
    ] = None,
    debug: Debug = False,
) -> None:
    """Judge finished histories, of Jepsen's Kafka workload or of the probes.

    Exit code 0: valid; 1: violations, or values never polled; 2: one cannot be read."""
    from monitor.commands.check import Options, run

    options = Options(json_output=json, strict=strict, allow=allow or (), ww=ww, cycles=cycles, pictures=pictures)
    raise typer.Exit(run(files, options))


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


def main(arguments: Sequence[str] | None = None) -> None:
    """The command. Exits with its code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed: what would be said goes nowhere
            setattr(sys, name, nowhere())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no lines and dots gets the rest of it
    with suppress(ValueError, OSError, RuntimeError):  # no stderr that has a file
        faulthandler.enable(all_threads=False)  # a library that crashes takes all probes with it: who did is said
    # The library of the object stores says in five lines what our own line says: it is asked for errors alone.
    os.environ.setdefault("RUST_LOG", "error")
    # Where hypothesis is installed, a library that describes requests loads it for its own tests: that takes
    # half a second, and leaves a folder .hypothesis wherever one stands.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    options: dict[str, Any] = {} if arguments is None else {"args": list(arguments)}
    try:
        code = app(prog_name="offsetwatch", standalone_mode=False, **options)
        sys.stdout.flush()
        leave(code if isinstance(code, int) else 0, arguments)
    except TyperException as error:
        _refuse(error, arguments)
    except (KeyboardInterrupt, typer.Abort):
        leave(INTERRUPTED, arguments)
    except SystemExit as ended:
        # Libraries end so where a pipe is closed: with 1, which is to say here that something bad was found.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        leave(NOBODY_READS, arguments)
    except Exception as error:
        from monitor.screen import harmless

        if isinstance(error, OSError) and error.filename is None and cannot_be_written(sys.stdout):
            complain(f"standard output cannot be written: {error.strerror}")
            leave(USAGE_OR_ENVIRONMENT, arguments)
        if isinstance(error, PermissionError) and error.filename is not None and not CommandLine.debug:
            complain(f"{harmless(str(error.filename))}: {error.strerror}")
            leave(USAGE_OR_ENVIRONMENT, arguments)
        if CommandLine.debug or not isinstance(error, known_errors()):
            if arguments is not None:
                raise
            sys.excepthook(type(error), error, error.__traceback__)
            leave(1, arguments)
        for complaint in getattr(error, "complaints", None) or [str(error)]:
            complain(harmless(" ".join(complaint.split())))
        leave(USAGE_OR_ENVIRONMENT, arguments)


def _refuse(error: TyperException, arguments: Sequence[str] | None) -> None:
    """A command line that cannot be understood, as one line; a command that is missing altogether, as its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        getattr(error, "show", print)()
    else:
        context = getattr(error, "ctx", None)
        of = f" ({context.command_path} --help)" if context is not None else ""
        said = " ".join(error.format_message().split()).removesuffix(".").replace("Value error, ", "")
        complain(f"{said}{of}")
    leave(USAGE_OR_ENVIRONMENT, arguments)


if __name__ == "__main__":
    main()
