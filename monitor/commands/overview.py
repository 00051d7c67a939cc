"""What stands now on a screen, for somebody who was asleep two minutes ago: what is open, what is over, what is only
counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from rich.text import Text

from alerts.incidents.incident import Incident
from monitor.commands.findings import STYLE
from monitor.incidents.ages import age
from monitor.incidents.overview import ID, Overview, clock, silence_words

SHORT: Final = {"critical": "crit", "warning": "warn"}
WIDE: Final = 100
_LEAST_MESSAGE: Final = 20
_LONG_NUMBER: Final = re.compile(r"\d{13,}")


def lines(overview: Overview, width: int, *, limit: int) -> Iterator[Text]:
    """The screen below the verdict: what is silenced, what is open, what is over, what is only counted."""
    yield from silences(overview)
    shown = 0
    over = sorted([*overview.over, *overview.before], key=lambda one: (one.since, one.id), reverse=True)
    for title, incidents in (("Open", overview.open), ("Over", over)):
        if not incidents:
            continue
        yield Text("")
        cut = incidents[: max(limit - shown, 0)]
        shown += len(cut)
        rest = f", the first {len(cut)} are shown (--limit)" if len(cut) < len(incidents) else ""
        yield Text(f"{title} ({len(incidents)}{rest})", style="bold")
        dated = any(one.since.date() != overview.now.date() for one in cut)
        clusters = len({one.cluster for one in overview.incidents if one.cluster}) > 1
        for one in cut:
            yield row(one, overview.now, width, dated=dated, clusters=clusters)
    if overview.counted:
        yield Text("")
        counts = sorted(overview.counted.items(), key=lambda one: (-one[1], one[0]))
        said = ", ".join(
            f"{number} {anomaly}{' (allowed)' * (severity == 'allowed')}" for (anomaly, severity), number in counts
        )
        yield Text(f"Only counted: {said}; --all lists them", style="dim")
    if overview.incidents and not overview.kept:
        first = (overview.open or overview.over)[0]
        yield Text("")
        yield Text(f"What happened, and what to do: offsetwatch explain {first.id[:ID]}")


def silences(overview: Overview) -> Iterator[Text]:
    """A sentence for each silence."""
    if overview.silences:
        yield Text("")
    for one in overview.silences:
        yield Text(silence_words(one, overview.now), style="magenta")


def row(incident: Incident, now: datetime, width: int, *, dated: bool = False, clusters: bool = False) -> Text:
    """One incident on one line. The anomaly's name is never cut; place and message share what is left. `clusters`:
    there are several, so that each is named."""
    began = clock(incident.holds_since, now, seconds=width >= WIDE)
    time_of_day = 8 if width >= WIDE else 5
    head = f"{incident.id[:ID]} {began:>{time_of_day + 6 * dated}} {age(incident.held_for(now)):>3} "
    own = incident.findings - sum(incident.folded.values())
    times = f" ×{own}" if own > max(incident.places, 1) else ""
    if incident.silence is not None:
        times += " silenced"
    room = width - len(head) - len(SHORT[incident.severity]) - 1 - len(incident.anomaly) - len(times)
    message, called = _short_numbers(" ".join(incident.short.split())), _short_numbers(incident.place)
    cluster = (incident.cluster_name or incident.cluster[:ID]) if clusters or incident.cluster_name else ""
    most = max(room - 2 - min(_LEAST_MESSAGE, len(message)), room // 2)
    cluster = f" {_cut(cluster, most // 2 if called else most)}" if cluster else ""
    place = cluster + (f" {_cut_head(called, most - len(cluster))}" if called else "")
    line = Text(head)
    line.append(SHORT[incident.severity], style=STYLE[incident.severity] if incident.open else "")
    line.append(" ")
    line.append(incident.anomaly, style="bold" if incident.open else "")
    line.append(f"{times}{place}")
    line.append(f" {_cut(message, room - len(place) - 1)}", style="dim")
    return line


def _short_numbers(text: str) -> str:
    return _LONG_NUMBER.sub(lambda number: f"…{number.group()[-4:]}", text)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…" if room > 1 else ""


def _cut_head(text: str, room: int) -> str:
    """Names of topics differ at their end, which holds the partition too; they are cut between two words of theirs."""
    if len(text) <= room:
        return text
    left = text[len(text) - room + 1 :]
    words = re.split(r"(?<=[-._ ])", left, maxsplit=1)
    return "…" + (words[1] if len(words) > 1 and "/" in words[1] else left)
