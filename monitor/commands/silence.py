"""`offsetwatch silence`: for a while nobody is told of what happens in a cluster or a topic: somebody works there.

The monitor on the same data folder heeds it within a second or two, and each that has its tables at the same URL within
some seconds; it need not run. What is silenced is found, recorded, counted and shown as ever.
"""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from monitor.errors import UserError
from monitor.options import ConfigFile, Data, Debug, loaded_by

if TYPE_CHECKING:
    from alerts.incidents.incident import Names
    from alerts.receivers.alertmanager_silences import EndedSilence
    from streaming_jobs.location import TableLocation

_HEEDED_S: Final = 15.0
_LOOK_S: Final = 0.5

app = typer.Typer(help="Silences: nobody is told for a while, as during maintenance.", no_args_is_help=True)


@app.command()
def add(  # noqa: PLR0913
    until: Annotated[str, typer.Option(help="When it ends: 14:30, 2h, 2026-11-22T14:30 (UTC); in 7 days at most.")],
    because: Annotated[str, typer.Option(help="Why; everybody who looks sees it.")],
    cluster: Annotated[
        str, typer.Option(help="The cluster's name or id, or how that begins; none beside --topic: the only one.")
    ] = "",
    topic: Annotated[str, typer.Option(help="Only what concerns this topic, and no other.")] = "",
    config: ConfigFile = None,
    data: Data = None,
    debug: Debug = False,
) -> None:
    """Silence a cluster, or one of its topics. What is still open when it ends is told then."""
    from alerts.incidents.incident import span
    from monitor.commands.times import coming
    from monitor.config.names import ClusterNames
    from monitor.incidents.kept_silences import kept_silences
    from monitor.incidents.overview import clock
    from monitor.screen import Screen

    if not cluster and not topic:
        raise UserError("silence add: give --cluster or --topic; nothing silences everything")
    loaded = loaded_by(config, data)
    now = datetime.now(UTC)
    ends = coming(until, now, "--until")
    named = _cluster(_places(loaded.job.tables_path), cluster, topic, ClusterNames(loaded))
    made = kept_silences(loaded).add(cluster=named, topic=topic, until=ends, because=because, by=_user(), now=now)
    console = Screen()
    lasting = span((ends - now).total_seconds())
    console.print(f"{made.id}: {made.place} is silenced until {clock(ends, now, seconds=False)} UTC, for {lasting}.")
    console.print(f"What is still open then is told then. To end it before: offsetwatch silence end {made.id}")


@app.command("list")
def list_(
    every: Annotated[bool, typer.Option("--all", help="Also those that are over, of the last days.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    config: ConfigFile = None,
    data: Data = None,
    debug: Debug = False,
) -> None:
    """The silences that are active."""
    from monitor.incidents.kept_silences import kept_silences
    from monitor.incidents.overview import clock, in_order, silence_json, silence_words
    from monitor.screen import Screen

    loaded, now = loaded_by(config, data), datetime.now(UTC)
    if isinstance(loaded.job.tables_path, Path) and not loaded.data.is_dir():
        raise UserError(f"there is no folder {loaded.data}: give the data folder of a monitor with --data")
    held = kept_silences(loaded).asked()
    shown = in_order(one for one in held if every or one.active(now))
    if json_:
        print(json.dumps([silence_json(one) for one in shown]))
        return
    console = Screen()
    for one in shown:
        ended = f"Over since {clock(one.until, now, seconds=False)} UTC: {one.place} ({one.because}); {one.id}"
        console.print(silence_words(one, now) if one.active(now) else ended)
    if not shown:
        console.print("Nothing is silenced.")


@app.command()
def end(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Its id, or the first digits; silence list shows it.")],
    config: ConfigFile = None,
    data: Data = None,
    debug: Debug = False,
) -> None:
    """End a silence now: what is open is told."""
    from alerts.paging import ended_silence
    from monitor.incidents.kept_silences import kept_silences
    from monitor.incidents.overview import clock
    from monitor.screen import Screen

    loaded, now = loaded_by(config, data), datetime.now(UTC)
    silences = kept_silences(loaded)
    planned = {one.id: one.until for one in silences.all()}
    ended = silences.end(id_, now)
    by_hand, failed = _end_elsewhere(ended_silence(loaded.alerts, ended.id))
    if failed:
        until = clock(planned[ended.id], now, seconds=False)
        raise UserError(
            f"{ended.place} is silenced no more here, but perhaps in Alertmanager, until {until} UTC: {failed[0]}. "
            f"End it there: its comment begins with 'offsetwatch silence {ended.id}'"
        )
    if by_hand:
        Screen().print(
            f"{ended.place} is silenced no more, in Alertmanager neither. That was not the monitor's doing: does it "
            "work? What is open there is told when it does."
        )
    else:
        Screen().print(f"{ended.place} is silenced no more; what is open there is told now.")


def _end_elsewhere(there: Sequence[EndedSilence]) -> tuple[bool, list[str]]:
    """Wait for the monitor to end a silence in each Alertmanager, which it does once it has told there what is over.
    Where it does not: end it, and say so, or what went wrong."""
    from alerts.receivers.http import SendFailed

    left, failed = list(there), list[str]()
    until = time.monotonic() + _HEEDED_S
    try:
        while left := [one for one in left if one.ids()]:
            if time.monotonic() > until:
                break
            time.sleep(_LOOK_S)
    except SendFailed as error:
        return False, [str(error)]
    for one in left:
        try:
            one.end()
        except SendFailed as error:
            failed.append(str(error))
    return bool(left), failed


def _places(tables: TableLocation) -> dict[str, set[str]]:
    """The clusters that the tables know, with their topics."""
    from monitor.incidents.findings import tables_of
    from streaming_jobs.tables.delta_tables import read_table

    known: dict[str, set[str]] = {}
    for name in ("partition_state", "findings"):
        rows = read_table(tables_of(tables), name).select(["cluster", "topic"])
        for row in rows.group_by(["cluster", "topic"]).aggregate([]).to_pylist():
            if row["cluster"]:
                known.setdefault(row["cluster"], set()).add(row["topic"])
    return known


def _cluster(places: dict[str, set[str]], cluster: str, topic: str, names: Names) -> str:
    """The one cluster that is meant. Raises UserError."""
    named = [one for one in sorted(places) if cluster and names(one) == cluster]
    named = named or [one for one in sorted(places) if one.startswith(cluster)]
    if not named:
        raise UserError(f"--cluster: there is no cluster {cluster}; {_known(sorted(places))}")
    having = [one for one in named if not topic or topic in places[one]]
    if not having:
        topics = sorted({name for one in named for name in places[one]} - {""})
        raise UserError(f"--topic: there is no topic {topic}; {_known(topics)}")
    if len(having) > 1:
        raise UserError(f"--cluster: {len(having)} clusters are meant: {', '.join(having)}; name one")
    return having[0]


def _known(names: Sequence[str]) -> str:
    return f"known are {', '.join(names)}" if names else "none is known yet"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return ""
