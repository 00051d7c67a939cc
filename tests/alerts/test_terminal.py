"""What the person at the terminal reads while the monitor runs."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest

from alerts.config import AlertsConfig
from alerts.incidents.silence import Silence
from alerts.paging import Paging
from alerts.receivers.memory import Memory
from alerts.receivers.terminal import Format, Terminal, for_people
from tests.alerts.findings import NOON, event, finding
from tests.alerts.incidents import Clock, S, condition, incident


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(*incidents: Any, now: float, memory: Memory | None = None) -> str:
    stream = io.StringIO()
    Terminal(stream).tell(incidents, memory or Memory(None, NOON - S), NOON + now * S)
    return stream.getvalue()


def test_an_incident_is_told_when_it_opens_and_when_it_is_over_and_no_more() -> None:
    memory = Memory(None, NOON - S)
    assert told(incident(), now=1, memory=memory) == (
        "12:00:00 CRITICAL lost-write in orders/3\n  A record is lost.\n  What to do: offsetwatch explain 000000\n"
    )
    assert told(incident(findings=7), now=2, memory=memory) == ""
    over = incident(ended=90, last=NOON + 90 * S)
    assert told(over, now=1000, memory=memory) == "12:01:30 over after 1 min 30 s: lost-write in orders/3\n"
    assert told(over, now=1001, memory=memory) == ""


def test_what_nobody_is_woken_by_is_not_told() -> None:
    assert told(condition(severity="info"), now=1) == ""


def test_what_is_silenced_is_written_and_says_so() -> None:
    until = NOON + timedelta(hours=1)
    silence = Silence(id="ab", cluster="c", topic="", since=NOON, until=until, because="new disks", by="ops")
    assert told(incident(silence=silence), now=1) == (
        "12:00:00 CRITICAL lost-write in orders/3\n"
        "  Silenced until 13:00:00, so nobody else is told: new disks\n"
        "  A record is lost.\n  What to do: offsetwatch explain 000000\n"
    )


def test_an_incident_of_another_day_has_its_date() -> None:
    day = timedelta(days=1)
    assert told(incident(since=NOON - day), now=1).startswith("2024-10-03 12:00:00 CRITICAL lost-write in orders/3\n")


def test_what_a_cluster_calls_itself_is_no_markup() -> None:
    said = told(incident(subjects=("[red]x[/red]:boom:/3",), message="[bold]no[/bold]"), now=1)
    assert "[red]x[/red]:boom:/3" in said
    assert "[bold]no[/bold]" in said


@pytest.mark.parametrize(
    ("form", "stream", "people"),
    [
        ("auto", Tty(), True),
        ("auto", io.StringIO(), False),
        ("text", io.StringIO(), True),
        ("json", Tty(), False),
    ],
)
def test_a_terminal_is_for_people_and_a_pipe_for_programs(form: Format, stream: io.StringIO, people: bool) -> None:
    assert for_people(form, stream) is people


def test_paging_tells_it_what_stood_before_a_restart_again() -> None:
    """Another process was told: this terminal has not seen it."""
    stream, clock = io.StringIO(), Clock()
    clock.at(3600)
    paging = Paging(AlertsConfig(), None, lambda _: None, clock, also=[Terminal(stream)])
    paging.begin([event(finding("unsafe-config", event="opened"), "warning")])
    paging.start()
    paging.stop()
    assert stream.getvalue().startswith("11:59:59 WARNING unsafe-config in ")
