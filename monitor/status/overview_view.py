"""What `/` and `/status` say, made from what the board has seen. Pure: no clock, no I/O, no HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, Literal

from alerts.evidence import exact
from alerts.incidents.incident import Incident, Names, of_cluster, span, where
from alerts.partition_metrics import readers_lag
from monitor.incidents.ages import age
from monitor.incidents.overview import SILENT, Overview, clock, silence_json, silence_words, verdict
from monitor.status.board import Seen
from monitor.status.traffic import TrafficPace
from rules.vocabulary.times import rfc3339

State = Literal["ok", "behind", "warning", "critical", "failed", "silent"]

SIGNS: Final[Mapping[State, tuple[str, str]]] = {
    "ok": ("✓", "healthy"),
    "behind": ("…", "checked late"),
    "warning": ("!", "warning"),
    "critical": ("✕", "critical"),
    "failed": ("?", "its checks have failed"),
    "silent": ("–", "nothing of it is checked"),
}
"""By state, the sign that stands for it where colour cannot, and its words."""
CELLS: Final = 2_000
LISTED: Final = 50
"""Incidents of each kind that are listed."""


_LONG: Final = re.compile(r"\d{13,}")
"""Ids of writers and processes; their last digits tell them apart, and the incident's own page has them whole."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One partition. `incident`: the id of the worst that concerns it, if any; `told`: all of it in words."""

    cluster: str
    topic: str
    partition: int
    state: State
    told: str
    incident: str | None
    checked_through: datetime | None
    log_end: int | None
    unseen: int | None
    lag: int | None

    @property
    def sign(self) -> str:
        return SIGNS[self.state][0]


@dataclass(frozen=True, slots=True)
class Cluster:
    """`name`: how people call it, "" where it has but its id. `topics`: their cells, in the order of names and
    partitions. `sentence`: how it is, in a few words."""

    id: str
    name: str
    state: State
    sentence: str
    topics: Sequence[tuple[str, Sequence[Cell]]]


@dataclass(frozen=True, slots=True)
class Row:
    """One incident on one line. `lasted`: how long, in its largest unit. `silenced`: until when nobody is told of it,
    empty where it is not silenced."""

    id: str
    anomaly: str
    severity: str
    open: bool
    where: str
    message: str
    since: str
    lasted: str
    findings: int
    silenced: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One number: what it is, its value with its unit, what it means. `spark`: how it went lately, oldest first."""

    name: str
    value: str
    meaning: str
    spark: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """`state` and `headline`: the verdict. `silences`: a sentence for each. `left_out`: partitions and incidents
    that are not shown."""

    now: datetime
    state: State
    headline: str
    silences: Sequence[str]
    clusters: Sequence[Cluster]
    left_out: int
    open: Sequence[Row]
    over: Sequence[Row]
    more_over: int
    counted: Sequence[tuple[str, int]]
    figures: Sequence[Figure]
    signs: Sequence[tuple[State, str, str]]


def page(seen: Seen, pace: TrafficPace | None) -> Page:
    """The whole page."""
    overview = seen.overview
    state, headline = told(seen)
    cells = [_cell(row, seen) for row in seen.partitions]
    worst = sorted(range(len(cells)), key=lambda number: -_ORDER.index(cells[number].state))[:CELLS]
    shown = [cells[number] for number in sorted(worst)]
    return Page(
        now=seen.now,
        state=state,
        headline=headline,
        silences=[silence_words(one, seen.now) for one in overview.silences],
        clusters=_clusters(shown, overview, seen.names),
        left_out=len(cells) - len(shown),
        open=[_row(one, seen.now) for one in overview.open[:LISTED]],
        over=[_row(one, seen.now) for one in overview.over[:LISTED]],
        more_over=max(len(overview.over) - LISTED, 0),
        counted=[
            (f"{name}{' (allowed)' * (severity == 'allowed')}", number)
            for (name, severity), number in sorted(overview.counted.items(), key=lambda one: (-one[1], one[0]))
        ],
        figures=_figures(seen, pace),
        signs=[(one, *SIGNS[one]) for one in SIGNS if one == "ok" or any(cell.state == one for cell in cells)],
    )


def told(seen: Seen) -> tuple[State, str]:
    """How everything is, and the sentence that is read first."""
    overview, checked = seen.overview, seen.overview.checked
    starting = seen.not_ready if seen.not_ready is not None else ""
    if checked.newest is None and starting:
        return _worst_open(overview, "silent"), f"Nothing has been checked yet: {starting.removeprefix('starting: ')}."
    words = verdict(overview, by_monitor=True)
    if checked.newest is None or not current(seen):
        return _worst_open(overview, "silent"), words
    through = checked.through or checked.newest
    late = checked.newest - through > SILENT
    state: State = "failed" if checked.failed else "behind" if late else "ok"
    if state == "ok" and not overview.open and not starting:
        return "ok", (
            f"Everything healthy, checked through {clock(through, seen.now, seconds=True)} UTC, "
            f"{ago(seen.now - through)} ago"
        )
    if starting:
        return _worst_open(overview, "silent"), f"Right now nothing is checked: {starting}. Before: {words}"
    return _worst_open(overview, state), words


def current(seen: Seen) -> bool:
    """Is the newest evidence so new that numbers made from it are told as those of now?"""
    newest = seen.overview.checked.newest
    return newest is not None and seen.now - newest <= SILENT


def ago(passed: timedelta) -> str:
    """A short span, to a tenth of a second below ten."""
    seconds = max(passed.total_seconds(), 0.0)
    return f"{seconds:.1f} s" if seconds < 9.95 else age(passed) if seconds >= 100 else f"{seconds:.0f} s"


def as_json(seen: Seen, pace: TrafficPace | None) -> dict[str, Any]:
    """The same for programs: times as RFC 3339 in UTC, ids that JavaScript would round as strings."""
    state, headline = told(seen)
    checked = seen.overview.checked
    return {
        "state": state,
        "verdict": headline,
        "now": _plain(seen.now),
        "checked_through": _plain(checked.through),
        "newest": _plain(checked.newest),
        "not_ready": seen.not_ready,
        "silences": [silence_json(one) for one in seen.overview.silences],
        "incidents": [_incident_json(one) for one in (*seen.overview.open, *seen.overview.over)],
        "counted": [
            {"anomaly": name, "severity": severity, "findings": number}
            for (name, severity), number in sorted(seen.overview.counted.items())
        ],
        "partitions": [_partition_json(_cell(row, seen), row, seen.names) for row in seen.partitions],
        "checks": {
            "records_per_second": seen.records_per_second,
            "batch_seconds": seen.beats[-1].seconds if seen.beats else None,
            "detection_latency_seconds": seen.latency,
        },
        "probes": None
        if pace is None or not current(seen)
        else {
            "sent_per_second": pace.sent_per_second,
            "polled_per_second": pace.polled_per_second,
            "send_milliseconds_median": pace.median,
            "send_milliseconds_p99": pace.slow,
            "not_ok": pace.not_ok,
        },
    }


_ORDER: Final[tuple[State, ...]] = ("ok", "behind", "warning", "silent", "failed", "critical")
"""From the best to the worst."""


def _worst(states: Sequence[State]) -> State:
    return max(states, key=_ORDER.index, default="ok")


def _worst_open(overview: Overview, at_least: State) -> State:
    return _worst([at_least, *(one.severity for one in overview.open if one.severity in ("critical", "warning"))])


def _cell(row: Mapping[str, Any], seen: Seen) -> Cell:
    incident = seen.concerned.get((row["cluster"], row["topic"], row["partition"]))
    through: datetime | None = row["checked_through"]
    state: State
    if row["check_failed"] is not None:
        state = "failed"
    elif incident is not None:
        state = "critical" if incident.severity == "critical" else "warning"
    elif row["now"] is None or seen.now - row["now"] > SILENT:
        state = "silent"
    else:
        state = "behind" if through is None or seen.now - through > SILENT else "ok"
    lag = max(readers_lag(row).values(), default=None)
    said = [f"{row['topic']} partition {row['partition']}: {SIGNS[state][1]}"]
    if incident is not None:
        said.append(f"{incident.anomaly} since {clock(incident.holds_since, seen.now, seconds=True)} UTC")
    if row["check_failed"] is not None:
        said.append(row["check_failed"])
    if through is not None:
        said.append(f"checked through {clock(through, seen.now, seconds=True)} UTC")
    if lag:
        said.append(f"its slowest reader is {lag:,} records behind")
    return Cell(
        row["cluster"],
        row["topic"],
        row["partition"],
        state,
        "; ".join(said),
        incident.id if incident is not None else None,
        through,
        row["log_end"],
        row["unseen"],
        lag,
    )


def _clusters(cells: Sequence[Cell], overview: Overview, names: Names) -> list[Cluster]:
    made = []
    ids = {cell.cluster for cell in cells} | {one.cluster for one in overview.open if one.cluster}
    for cluster in sorted(ids, key=lambda one: (names(one), one)):
        own = [cell for cell in cells if cell.cluster == cluster]
        standing = [one for one in overview.open if one.cluster == cluster]
        severities: list[State] = ["critical" if one.severity == "critical" else "warning" for one in standing]
        topics: dict[str, list[Cell]] = {}
        for cell in own:
            topics.setdefault(cell.topic, []).append(cell)
        state = _worst([*severities, *(cell.state for cell in own)])
        said = f"{len(own)} partition{'s' * (len(own) != 1)}"
        bad = sum(cell.state in ("critical", "warning") for cell in own)
        unknown = sum(cell.state in ("behind", "failed", "silent") for cell in own)
        said += f", {bad} not healthy" * bool(bad) + f", {unknown} nobody knows of" * bool(unknown)
        said += ", all healthy" if state == "ok" else ""
        if standing:
            said += f", {len(standing)} incident{'s' * (len(standing) != 1)} open"
        made.append(Cluster(cluster, names(cluster), state, said, list(topics.items())))
    return made


def where_first(incident: Incident) -> str:
    """The place in a few words: the first, and how many more there are."""
    more = incident.places - 1
    return (
        f"{incident.subjects[0]}{of_cluster(incident)} and {more} more"
        if more > 0 and incident.subjects
        else where(incident)
    )


def _row(incident: Incident, now: datetime) -> Row:
    return Row(
        id=incident.id,
        anomaly=incident.anomaly,
        severity=incident.severity,
        open=incident.open,
        where=where_first(incident),
        message=_LONG.sub(lambda number: f"…{number.group()[-4:]}", incident.short),
        since=clock(incident.holds_since, now, seconds=True),
        lasted=span(incident.held_for(now).total_seconds()),
        findings=incident.findings,
        silenced=clock(incident.silence.until, now, seconds=False) if incident.silence is not None else "",
    )


def _figures(seen: Seen, pace: TrafficPace | None) -> list[Figure]:
    checked = seen.overview.checked
    newest = "unknown" if checked.newest is None else f"{ago(seen.now - checked.newest)}"
    rate, last = seen.records_per_second, seen.beats[-1] if seen.beats else None
    beats = seen.beats[-60:]
    lags = [lag for row in seen.partitions for lag in readers_lag(row).values()]
    unseen = sum(row["unseen"] or 0 for row in seen.partitions)
    known = current(seen)
    figures = [
        Figure("Newest evidence", newest, "age of the newest row of the probe log that was checked"),
        Figure("Checked", _rate(rate), "records, sent and polled, a second", _rates(seen)),
    ]
    if last is not None:
        figures.append(
            Figure("Batch", f"{last.seconds:.2f} s", "how long the last checks took", [beat.seconds for beat in beats])
        )
    if seen.latency is not None:
        figures.append(Figure("Detection", f"{seen.latency:.1f} s", "from decidable to told, median of the latest"))
    if pace is not None:
        figures += [
            Figure("Sent", _rate(pace.sent_per_second if known else None), "records of the probes, a second"),
            Figure("Polled", _rate(pace.polled_per_second if known else None), "records by all readers, a second"),
        ]
        if pace.median is not None and pace.slow is not None:
            slow = "half of the sends" + (f"; 99 of 100 within {_milliseconds(pace.slow)}" if known else "")
            figures.append(Figure("Acknowledged within", _milliseconds(pace.median) if known else "unknown", slow))
        if pace.not_ok and known:
            figures.append(Figure("Not ok", f"{pace.not_ok:,}", "sends and polls in the last half minute"))
    behind = f"{max(lags, default=0):,}" if known else "unknown"
    figures.append(Figure("Slowest reader", behind, "records behind"))
    figures.append(
        Figure("Unseen", f"{unseen:,}" if known else "unknown", "acknowledged records that nobody polled in time")
    )
    return figures


def _rates(seen: Seen) -> list[float]:
    beats = seen.beats[-61:]
    pairs = pairwise(beats)
    return [two.records / max((two.at - one.at).total_seconds(), 0.1) for one, two in pairs]


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:,.0f} /s"


def _milliseconds(milliseconds: float) -> str:
    return f"{milliseconds:,.0f} ms" if milliseconds < 10_000 else f"{milliseconds / 1_000:,.0f} s"


# For programs


def _plain(at: datetime | None) -> str | None:
    return rfc3339(at) if at is not None else None


def _incident_json(one: Incident) -> dict[str, Any]:
    return {
        "id": one.id,
        "anomaly": one.anomaly,
        "kind": one.kind,
        "severity": one.severity,
        "open": one.open,
        "cluster": one.cluster,
        "cluster_name": one.cluster_name or None,
        "topic": one.topic,
        "subjects": list(one.subjects),
        "places": one.places,
        "message": one.message,
        "evidence": exact(one.evidence),
        "since": _plain(one.since),
        "last": _plain(one.last),
        "until": _plain(one.until),
        "findings": one.findings,
        "folded": dict(one.folded),
        "spells": one.spells,
        "first_since": _plain(one.first_since),
        "became": {"anomaly": one.became.anomaly, "id": one.became.id} if one.became is not None else None,
        "silenced_until": _plain(one.silence.until) if one.silence is not None else None,
    }


def _partition_json(cell: Cell, row: Mapping[str, Any], names: Names) -> dict[str, Any]:
    return {
        "cluster": cell.cluster,
        "cluster_name": names(cell.cluster) or None,
        "topic": cell.topic,
        "partition": cell.partition,
        "state": cell.state,
        "incident": cell.incident,
        "checked_through": _plain(cell.checked_through),
        "log_start": row["log_start"],
        "log_end": cell.log_end,
        "unseen": cell.unseen,
        "lag": cell.lag,
    }
