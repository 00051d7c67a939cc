"""The times of an alert are those that Alertmanager was told first, whoever tells it again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.incidents.incident import Incident
from alerts.receivers.memory import Memory
from tests.alerts.findings import NOON
from tests.alerts.incidents import S, condition
from tests.alerts.test_receivers import Posted, alertmanager


class Told:
    """An Alertmanager, told by a monitor that is started anew each time."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, one: Incident, after: float) -> tuple[Any, Any]:
        """The beginning and the end as they are sent then."""
        posted, now = Posted(), NOON + after * S
        alertmanager(posted).tell([one], Memory(self.file, now), now)
        (alert,) = posted.bodies[-1]
        return alert["startsAt"], alert["endsAt"]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path / "alertmanager.json")


def at(seconds: float) -> str:
    return (NOON + seconds * S).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_one_that_was_over_keeps_its_times(told: Told) -> None:
    """A finding of it comes later, which tells of an earlier time and is over as well."""
    assert told(condition(spells=2), 5) == (at(0), at(245))
    assert told(condition(spells=2, ended=70, standing=0), 75) == (at(0), at(70))
    later = condition(spells=2, since=NOON - 100 * S, ended=240, standing=0)
    assert told(later, 250) == (at(0), at(70))


def test_one_that_is_open_keeps_its_beginning(told: Told) -> None:
    """What the monitor finds of itself begins as it is told, and an alert begins a second before that at the latest."""
    assert told(condition(since=NOON + 4.8 * S), 5) == (at(4), at(245))
    assert told(condition(since=NOON + 4.8 * S), 35) == (at(4), at(275))
    assert told(condition(since=NOON + 4.8 * S, ended=40, standing=0), 41) == (at(4), at(40))


def test_another_spell_has_times_of_its_own(told: Told) -> None:
    assert told(condition(), 5) == (at(0), at(245))
    assert told(condition(ended=70, standing=0), 75) == (at(0), at(70))
    assert told(condition(spells=2, since=NOON + 200 * S), 205) == (at(200), at(445))
    assert told(condition(spells=2, since=NOON + 200 * S, ended=270, standing=0), 275) == (at(200), at(270))


def test_one_that_goes_on_after_all_ends_when_that_does(told: Told) -> None:
    assert told(condition(), 5) == (at(0), at(245))
    assert told(condition(ended=70, standing=0), 75) == (at(0), at(70))
    assert told(condition(since=NOON - 9 * S), 80) == (at(0), at(320))
    assert told(condition(since=NOON - 9 * S, ended=90, standing=0), 95) == (at(0), at(90))


def test_what_an_earlier_version_kept_is_told_as_it_is_now(told: Told) -> None:
    told.file.write_text('{"began": "%s", "told": {"00000000000000ab@1": ["%s", null]}}' % ((NOON.isoformat(),) * 2))
    assert told(condition(since=NOON - timedelta(seconds=7)), 5) == (at(-7), at(245))
    assert told(condition(since=NOON - timedelta(seconds=9)), 35) == (at(-7), at(275))
