"""`offsetwatch report`: one page, in one file, of what happened in a stretch of time.

    gathered = gather(sources, begin, end, pictures)     # from the tables, read-only
    page = html(gathered, now)                        # pure

The page holds everything that it shows: style, drawings, the raw operations as a download. It loads nothing.
"""

from __future__ import annotations

import base64
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import jinja2
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from alerts.incidents.incident import Incident, clock, span, where
from monitor.diagrams import chart, frame, order, space_time_svg, timeline
from monitor.diagrams.chart import Chart
from monitor.diagrams.order import Order
from monitor.diagrams.timeline import Happening, Timeline
from monitor.errors import UserError
from monitor.history_files.export import Range
from monitor.incidents.explained import named
from monitor.incidents.findings import Filter
from monitor.incidents.overview import SILENT, Checked
from monitor.incidents.overview import checked as how_far
from monitor.incidents.overview import gather as overview
from monitor.incidents.witnesses import names, operations
from monitor.postmortem.database import Database, Sources
from monitor.postmortem.export_command import export
from monitor.postmortem.figures import OUT_OF_SYNC, UNANSWERED, Figures, figures, happenings
from monitor.screen import on_a_page
from monitor.status.evidence import Evidence, EvidenceReader
from monitor.status.incident_view import IncidentPage, page
from monitor.status.overview_view import SIGNS, State
from monitor.status.runbook import sections
from rules.vocabulary.times import micros
from streaming_jobs.location import TableLocation, is_table
from streaming_jobs.tables.delta_tables import read_table

AROUND: Final = timedelta(minutes=2)
LONGEST: Final = timedelta(hours=1)
"""Of a range that nobody gave: around the newest incident, and no longer than this."""
FOUND_WITHIN: Final = timedelta(minutes=15)
"""What is found so soon after a time may be about what was done in it: a loss is known when readers have gone past."""
INCIDENTS: Final = 12
"""Incidents that are told with their evidence; all are listed."""
_ORDER_AROUND: Final = timedelta(seconds=2)
_ORDER_LONGEST: Final = timedelta(seconds=40)
ATTACHED_RECORDS: Final = 1_000_000
ATTACHED: Final = 8_000_000
"""Records, and bytes of raw operations, compressed, that a page holds; of more it says how to get them."""


@dataclass(frozen=True, slots=True)
class ToldIncident:
    """One incident: its page, the order of its partition, and what it is called there; `cycle`: its picture, SVG."""

    page: IncidentPage
    order: Order | None
    place: str
    cycle: str | None


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything of the range. `raw`: the operations as JSON lines, compressed; None where they are too many.
    `checked`: how far the checks have come; None where there is no table of findings. `following`: the first broken
    promise that was found soon after the range."""

    begin: datetime
    end: datetime
    topics: Sequence[str]
    cluster: str | None
    incidents: Sequence[Incident]
    told: Sequence[ToldIncident]
    figures: Figures
    happenings: Sequence[Happening]
    raw: bytes | None
    missing: Sequence[str]
    checked: Checked | None
    names: Mapping[int, str] = field(default_factory=dict)
    following: Incident | None = None


def stretch(sources: Sources) -> tuple[datetime, datetime]:
    """The time that is reported: as it was given; where no time was, around the newest incident, else the newest
    quarter of an hour, as far as the probe log has rows of it."""
    begin, end = sources.since, sources.until
    newest = sources.now
    if begin is None or end is None:
        told, _ = overview(
            sources.tables,
            sources.now,
            Filter(since=begin, until=end, topics=sources.topics, cluster=sources.cluster),
            sources.hold,
            sources.names,
        )
        newest = min(told.checked.newest or sources.now, sources.now)
        if begin is None and end is None and told.incidents:
            last = max(told.incidents, key=lambda one: (one.since, one.id))
            begin = last.since - AROUND
            end = min((last.until or last.last) + AROUND, begin + LONGEST)
    if end is None:
        end = sources.now if begin is not None else newest
    if begin is None:
        begin = end - timedelta(minutes=15)
    if sources.since is None and sources.until is None:
        with Database(replace(sources, since=begin, until=end)) as database:
            ((first, last),) = database.run("select min(completed), max(completed) from history")
        begin, end = (max(begin, first), min(end, last)) if first is not None and first < last else (begin, end)
    return begin, end


def gather(sources: Sources, begin: datetime, end: datetime, pictures: Path) -> Gathered:
    """Read all of it. `pictures`: the folder of the cycles' pictures. Raises UserError where there are no tables."""
    wanted = Filter(since=begin, until=end, topics=sources.topics, cluster=sources.cluster)
    told, _ = overview(sources.tables, sources.now, wanted, sources.hold, sources.names)
    incidents = sorted(told.incidents, key=_worst_first)
    checked = _checked(sources)
    reader = EvidenceReader(sources.tables, sources.history, sources.hold, called=sources.names)
    to_do = sections()
    explained = []
    known: dict[int, str] = {}
    for incident in incidents[:INCIDENTS]:
        evidence = reader.of(incident.id, sources.now)
        known |= evidence.explained.names
        drawn = pictures / f"{incident.id}.svg"
        explained.append(
            ToldIncident(
                page(evidence, sources.now, to_do, ""),
                order_of(evidence, sources.history),
                incident.subjects[0] if incident.subjects else "",
                drawn.read_text(encoding="utf-8") if drawn.is_file() else None,
            )
        )
    with Database(replace(sources, since=begin, until=end)) as database:
        told_of = figures(database, begin, end)
        raw = None
        if told_of.sent + told_of.polled <= ATTACHED_RECORDS:
            raw = _raw(sources.history, Range(since=begin, until=end, topics=sources.topics, cluster=sources.cluster))
        return Gathered(
            begin,
            end,
            sources.topics,
            sources.cluster,
            incidents,
            explained,
            told_of,
            [*_of_incidents(incidents, known), *happenings(database)],
            raw,
            list(database.missing),
            checked,
            known,
            _following(sources, end),
        )


def _following(sources: Sources, end: datetime) -> Incident | None:
    wanted = Filter(since=end, until=end + FOUND_WITHIN, topics=sources.topics, cluster=sources.cluster)
    told, _ = overview(sources.tables, sources.now, wanted, sources.hold, sources.names)
    broken = [one for one in told.incidents if one.kind == "violation" and one.since >= end]
    return min(broken, key=lambda one: (one.since, one.id), default=None)


def _worst_first(incident: Incident) -> tuple[str, bool, datetime, str]:
    """A promise that was broken comes before what was slow or away, as long as that was."""
    return incident.severity, incident.kind == "condition", incident.since, incident.id


def _checked(sources: Sources) -> Checked | None:
    if not is_table(sources.tables / "findings"):
        return None
    states = read_table(sources.tables, "partition_state")
    if sources.topics:
        states = states.filter(pc.is_in(states["topic"], value_set=pa.array(sources.topics)))
    if sources.cluster is not None:
        states = states.filter(pc.equal(states["cluster"], sources.cluster))
    return how_far(states)


def order_of(evidence: Evidence, history: TableLocation) -> Order | None:
    """The order of the partition around the first finding's records; None where it names none."""
    about, diagram = evidence.about, evidence.diagram
    if about is None or diagram is None or not diagram.lanes:
        return None
    marked = [mark.at for lane in diagram.lanes for mark in lane.marks]
    begin = min(marked) - _ORDER_AROUND
    end = min(max(marked), begin + _ORDER_LONGEST) + _ORDER_AROUND
    table = operations(history, about)
    if table is None:
        return None
    before = micros(begin - _ORDER_LONGEST)
    invoked = table["invoked"].cast("int64")
    near = table.filter(pc.and_(pc.greater_equal(invoked, before), pc.less_equal(invoked, micros(end))))
    known = names(history, set(pc.unique(near["process"]).to_pylist()))
    return order.order(near.to_pylist(), known, begin, end)


def _of_incidents(incidents: Sequence[Incident], known: Mapping[int, str]) -> Iterator[Happening]:
    for one in incidents:
        kind: Any = one.severity if one.severity in ("critical", "warning") else "change"
        for (since, until), message in zip(one.stretches, (*one.said_earlier, one.message), strict=True):
            ended = until if until is not None else one.last
            yield Happening(since, ended, kind, one.anomaly, named(message, known))


def _raw(history: TableLocation, wanted: Range) -> bytes | None:
    """The operations for another checker; none where there are too many for a page."""
    with tempfile.TemporaryDirectory(prefix="offsetwatch-") as scratch:
        packed = Path(scratch) / "operations.jsonl.gz"
        try:
            export(history, wanted, packed, "jsonl")
        except UserError:
            return None
        return packed.read_bytes() if packed.stat().st_size <= ATTACHED else None


# In words and in HTML


def sentences(gathered: Gathered) -> tuple[str, str]:
    """What happened, in two sentences: the incidents, and what the rest of the cluster did."""
    incidents = gathered.incidents
    if not incidents:
        return _without_incident(gathered)[1], _cluster(gathered)
    worst = incidents[0]
    others = f", and {len(incidents) - 1} other incident{'s' * (len(incidents) != 2)}" if len(incidents) > 1 else ""
    first = (
        f"{worst.severity.capitalize()} {worst.anomaly} in {where(worst)} since {clock(worst.holds_since)}{others}: "
    )
    first += f"{named(worst.message, gathered.names).partition(';')[0].rstrip('.')}."
    if like := gathered.told[0].page.looks_like if gathered.told else "":
        first += f" It looks like {like.partition(',')[0]}."
    through = gathered.checked.through if gathered.checked is not None else None
    late = through is not None and gathered.end - through > SILENT
    return first, _cluster(gathered) + (f" Checked only through {clock(through)}." if through and late else "")


def _without_incident(gathered: Gathered) -> tuple[State, str]:
    """What it means that there is no incident: only what was recorded and checked is known to be well."""
    checked, known = gathered.checked, "No incident is known in this time, but"
    if not gathered.figures.rows:
        return "silent", "Nothing was recorded in this time: nobody knows whether a promise was broken."
    if checked is None:
        return "failed", "Nothing was checked: there is no table of findings, and nobody knows what was broken."
    if checked.failed:
        return "failed", f"{known} the checks of {', '.join(checked.failed[:3])} have failed: nobody knows how it was."
    if checked.through is None:
        return "silent", f"{known} nothing of it has been checked."
    if gathered.end - checked.through > SILENT:
        return "behind", f"{known} it is checked only through {clock(checked.through)}."
    if (soon := gathered.following) is not None:
        after = span((soon.since - gathered.end).total_seconds())
        return "warning", (
            f"No incident begins in this time, but one does {after} after it: {soon.severity} {soon.anomaly} in "
            f"{where(soon)} ({soon.id}), which may be about what was done before."
        )
    through = f" through {clock(checked.through)}" if checked.through < gathered.end else ""
    return "ok", f"No promise was broken{through}: there is no incident in this time."


def _cluster(gathered: Gathered) -> str:
    of = gathered.figures
    if not of.rows:
        return "The probe log has no row of any client or observer in it."
    silent = sorted({one.row.split()[1] for one in gathered.happenings if one.row.endswith(UNANSWERED)})
    lacking = Counter(one.row.split()[1] for one in gathered.happenings if one.row.endswith(OUT_OF_SYNC))
    told = [
        f"{of.not_ok:,} of {of.operations:,} writes did not end ok"
        if of.not_ok
        else f"all {of.operations:,} writes ended ok"
        if of.operations
        else "nobody wrote"
    ]
    if silent:
        told.append(f"broker{'s' * (len(silent) > 1)} {', '.join(silent)} did not answer for a while")
    for broker, times in sorted(lacking.items()):
        told.append(f"replicas on broker {broker} were out of sync {'once' if times == 1 else f'{times:,} times'}")
    if of.unanswered:
        told.append(f"{of.unanswered:,} observation{'s were' if of.unanswered > 1 else ' was'} not answered")
    if not silent and not of.unanswered:
        told.append("every broker answered" if of.observations else "no broker was observed")
    clients = f"{of.clients} client{'s' * (of.clients != 1)} sent {of.sent:,} records and "
    clients += f"{'were' if of.clients != 1 else 'was'} given {of.polled:,}"
    return f"{clients}; {', '.join(told[:-1])}, and {told[-1]}."


def charts(gathered: Gathered) -> list[tuple[Chart, str]]:
    """What is drawn over time, and what it means."""
    of, begin, end = gathered.figures, gathered.begin, gathered.end
    if not (of.sent or of.polled):
        return []
    shaded = [(since, until or one.last) for one in gathered.incidents for since, until in one.stretches]

    def made(title: str, unit: str, series: Any) -> Chart:
        return Chart(title, unit, begin, end, series, shaded)

    told = [
        (
            made("Unseen records", "", of.unseen),
            "Acknowledged to their writers, and polled by nobody until then. What "
            "stays above zero was never delivered in this time.",
        ),
        (
            made("Realtime lag of readers", "s", of.lag),
            "How long after their acknowledgement the newest records of a "
            "poll were given: the slowest poll of each reader, the furthest behind first.",
        ),
        (
            made("Latency of writes", "ms", of.latency),
            "From the call until the outcome was told, the median of sends "
            "and of transactions, and the slowest of a hundred sends.",
        ),
        (
            made("Availability for writes", "%", of.availability),
            "Sends and transactions that ended ok; aborts that were asked for are no failures.",
        ),
    ]
    return [(one, meaning) for one, meaning in told if one.series]


_SIGN: Final[Mapping[str, str]] = {state: sign for state, (sign, _) in SIGNS.items()}


def html(gathered: Gathered, now: datetime) -> str:
    """The page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("monitor.postmortem", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=on_a_page,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    state = gathered.incidents[0].severity if gathered.incidents else _without_incident(gathered)[0]
    drawn = Timeline(gathered.begin, gathered.end, sorted(gathered.happenings))
    css = files("monitor.status").joinpath("static", "page.css").read_text(encoding="utf-8")
    return environment.get_template("report.html").render(
        of=gathered,
        css=Markup(css + space_time_svg.STYLE + frame.STYLE),
        headline=sentences(gathered)[0].partition(": "),
        cluster=sentences(gathered)[1],
        state=state,
        sign=_SIGN.get(state, "·"),
        title=f"{clock(gathered.begin)} to {_end_clock(gathered)}",
        lasted=span((gathered.end - gathered.begin).total_seconds()),
        made=clock(now),
        timeline=Markup(timeline.svg(drawn)),
        happenings=[(frame.clock(one.begin), one) for one in drawn.happenings],
        charts=[
            (one, meaning, Markup(chart.svg(one, f"chart-{i}"))) for i, (one, meaning) in enumerate(charts(gathered))
        ],
        orders=[Markup(order.svg(one.order, f"order-{i}")) if one.order else "" for i, one in enumerate(gathered.told)],
        moves=[
            [(frame.clock(m.invoked, 0.001), order.said(m)) for m in one.order.moves[:50]] if one.order else []
            for one in gathered.told
        ],
        diagrams=[_own_ids(one.page.diagram, i) for i, one in enumerate(gathered.told)],
        cycles=[_data_uri("image/svg+xml", one.cycle.encode()) if one.cycle else "" for one in gathered.told],
        raw=_data_uri("application/gzip", gathered.raw) if gathered.raw else "",
        named=lambda text: named(text, gathered.names),
        where=where,
        clock=clock,
        asked=_asked(gathered),
    )


def _asked(gathered: Gathered) -> str:
    """The options that name the same range to other commands."""
    times = (one.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S") for one in (gathered.begin, gathered.end))
    since, until = times
    of = f" --cluster {gathered.cluster}" if gathered.cluster is not None else ""
    return f"--since {since} --until {until}{of}" + "".join(f" --topic {topic}" for topic in gathered.topics)


def _end_clock(gathered: Gathered) -> str:
    same = gathered.begin.astimezone(UTC).date() == gathered.end.astimezone(UTC).date()
    return gathered.end.astimezone(UTC).strftime("%H:%M:%S UTC") if same else clock(gathered.end)


def _own_ids(svg: str, number: int) -> Markup:
    """The drawing with ids that no other one of the page has."""
    return Markup(re.sub(r'"space-time-(title|desc)"', rf'"space-time-{number}-\1"', svg))


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
