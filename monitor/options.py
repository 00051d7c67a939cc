"""Options that many commands have: the configuration, the data folder, the log."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from monitor.config.config import Config


class CommandLine:
    """What the command line asked for before the command began."""

    debug = False


def _set_debug(value: bool) -> bool:
    CommandLine.debug = CommandLine.debug or value
    return value


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="TOML file; else $OFFSETWATCH_CONFIG, else ./offsetwatch.toml.", show_default=False
    ),
]


def _folder(given: str) -> Path:
    from streaming_jobs.config import named

    try:
        return Path(named(given))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        parser=_folder,
        help="Data folder, instead of the configured one.",
        show_default=False,
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Log everything, show tracebacks.", callback=_set_debug, is_eager=True)
]


Cluster = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only this one of several clusters, by its name or id.", show_default=False),
]


class Panels(StrEnum):
    """Under which headings the commands are listed."""

    begin = "Begin"
    run = "Watch a cluster"
    found = "When something is found"
    after = "After an incident"
    kept = "Judge what was kept, and the monitor itself"


class LogFormats(StrEnum):
    auto = "auto"
    text = "text"
    json = "json"


LogFormat = Annotated[
    LogFormats | None,
    typer.Option(
        "--log-format",
        help="text, for people; json, a line each; auto: findings as text on a terminal, else as json.",
        show_default=False,
    ),
]


History = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="PATH_OR_URL",
        help="A kept probe log (its table, or a data folder) is judged anew, instead of reading a monitor's tables.",
    ),
]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="Only this topic (repeatable).", show_default=False)
]


def loaded_by(file: Path | None, data: Path | None, log_format: LogFormats | None = None) -> Config:
    """The configuration that these options ask for. Raises ConfigError."""
    from monitor.config.config import load

    environment, options = dict(os.environ), {}
    if log_format is not None:
        environment["OFFSETWATCH_ALERTS__LOG_FORMAT"] = log_format.value
        options["OFFSETWATCH_ALERTS__LOG_FORMAT"] = "--log-format"
    if data is not None:
        environment["OFFSETWATCH_DATA"] = str(data)
        options["OFFSETWATCH_DATA"] = "--data"
    config = load(file, environment, options)
    config.lend_storage(os.environ)  # where the libraries look that open the tables, and the processes that are started
    return config
