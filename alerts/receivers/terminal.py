"""Writes for the person at the terminal when an incident opens, grows worse, and is over; what is only counted is not
told.
What is silenced is written, with a line that says so.

03:12:07 CRITICAL lost-write in orders-canary/3
  Value writer:3390/2 was acknowledged at offset 224348, and nobody polled it.
  What to do: offsetwatch explain 2fd078
03:31:40 over after 4 min: lost-write in orders-canary/3
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from alerts.incidents.incident import Incident, clock, explanation, span, summary, where
from alerts.receivers.memory import Memory
from alerts.receivers.webhook import State, due, told

Format = Literal["auto", "text", "json"]

_STYLE: Final = {"critical": "bold red", "warning": "bold yellow"}


def for_people(form: Format, stream: TextIO) -> bool:
    """Is this stream written to for people? "auto" asks whether it is a terminal."""
    return form == "text" or (form == "auto" and stream.isatty())


class Terminal:
    """One stream, which stays its owner's."""

    name = "terminal"

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False, emoji=False, markup=False)

    def tell(self, incidents: Sequence[Incident], memory: Memory, now: datetime) -> None:
        for one, state in due(incidents, memory, ("critical", "warning"), now, silenced=True):
            for line in _lines(one, state, now):
                self._console.print(line)
            told(memory, one, state, now)


def _lines(incident: Incident, state: State, now: datetime) -> Iterator[Text | Padding]:
    if state == "over":
        ended = incident.until or incident.last
        after = span((ended - incident.holds_since).total_seconds())
        told = f"{incident.anomaly} in {where(incident)}"
        if incident.became is None:
            yield Text(f"{_at(ended, now)} over after {after}: {told}", style="green")
        else:
            became = f"{incident.became.anomaly} ({incident.became.id[:_ID]})"
            yield Text(f"{_at(ended, now)} {'lost,' if incident.lost else 'part of'} {became}: {told}")
        return
    said = Text(f"{_at(now if state == 'worse' else incident.since, now)} ")
    said.append(incident.severity.upper(), style=_STYLE.get(incident.severity, ""))
    if state == "worse" or incident.spells > 1:
        said.append(" worse:" if state == "worse" else " again:")
    said.append(f" {summary(incident).removesuffix(f' ({incident.severity})')}", style="bold")
    yield said
    if incident.silence is not None:
        until = _at(incident.silence.until, now)
        quiet = f"Silenced until {until}, so nobody else is told: {incident.silence.because}"
        yield Padding(Text(quiet, style="dim"), (0, 0, 0, 2), expand=False)
    yield Padding(Text(explanation(incident)), (0, 0, 0, 2), expand=False)
    yield Padding(Text(f"What to do: offsetwatch explain {incident.id[:_ID]}", style="dim"), (0, 0, 0, 2), expand=False)


def _at(at: datetime, now: datetime) -> str:
    """The time of day, UTC; with the date where it is not today's."""
    at = at.astimezone(UTC)
    return at.strftime("%H:%M:%S") if at.date() == now.astimezone(UTC).date() else clock(at).removesuffix(" UTC")


_ID: Final = 6
