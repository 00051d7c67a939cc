"""`offsetwatch drill`: list, run, endure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from monitor.errors import UserError

app = typer.Typer(
    help="Published bugs of Kafka and its clients, made on purpose: is each of them found?", no_args_is_help=True
)

Against = Annotated[
    Path | None,
    typer.Option(
        "--against",
        help="Configuration of a staging cluster to drill instead of a local one: drills that change nothing in it.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(help="Makes choices repeatable.")]
Debug = Annotated[bool, typer.Option("--debug", help="Log everything.")]


@app.command("list")
def list_(json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False) -> None:
    """All drills: what happens, what must and may be found."""
    from monitor.drill.reporting.listing import show

    show(json_output=json)


@app.command()
def run(  # noqa: PLR0913
    names: Annotated[list[str] | None, typer.Argument(help="Drills, or single runs as name/case.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    report: Annotated[
        Path | None, typer.Option("--report", help="Folder for the report: a page and JSON.", show_default=False)
    ] = None,
    against: Against = None,
    seed: Seed = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep every run's history.")] = False,
    debug: Debug = False,
) -> None:
    """Run drills. Exit code 0: all passed; 1: one failed; 2: it could not be done."""
    from monitor.drill.registry import EVERY, chosen
    from monitor.drill.run import run as run_all

    if bool(names) == everything:
        raise UserError("drill run: name the drills, or say --all; offsetwatch drill list shows them")
    drills = list(EVERY) if everything else chosen(names or ())
    if everything and against is not None:
        drills = [drill for drill in drills if not drill.changes_cluster]
    config = None
    if against is not None:
        from monitor.config.config import load

        config = load(against)
    raise typer.Exit(run_all(drills, into=report, against=config, seed=seed, keep=keep, debug=debug))


@app.command()
def endure(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long.")] = 20.0,
    seed: Seed = 0,
    folder: Annotated[
        Path | None, typer.Option("--data", help="Folder for the history and the cluster.", show_default=False)
    ] = None,
    excuse: Annotated[
        list[str] | None,
        typer.Option("--excuse", help="A published defect of Kafka that may be found, as it was traced (repeatable)."),
    ] = None,
    debug: Debug = False,
) -> None:
    """All workloads on three brokers under random faults: no violation may be found. Exit code 1 if one is."""
    from monitor.drill.endurance.endure import run as run_endurance

    raise typer.Exit(run_endurance(minutes=minutes, seed=seed, folder=folder, excuse=excuse or (), debug=debug))
