"""Incidents that receivers were told of and that are none any more.

A later version may see otherwise what belongs together: what was told alone is part of another incident then, or has
never been one. Whoever was told that it is open is told that it is over, and where it is told now.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from alerts.event import FindingEvent
from alerts.incidents.group import Group
from alerts.incidents.grouping import Incidents
from alerts.incidents.incident import Became, Incident, Names


def told_before(
    occurrences: Collection[str], recorded: Sequence[FindingEvent], *, hold: timedelta, names: Names
) -> list[Incident]:
    """The `occurrences` that the findings `recorded` make no incident of, each as it ended with the newest of these.
    Of one whose finding is not among them nothing can be told."""
    if not occurrences or not recorded:
        return []
    today = Incidents(hold=hold, kept=None, names=names)
    today.take(recorded)
    standing = today.at(max(event.counted for event in recorded))
    by_occurrence = {one.occurrence: one for one in standing}
    made = (
        _ended(occurrence, recorded, by_occurrence.get(today.of(_finding(occurrence)) or ""), names)
        for occurrence in sorted(set(occurrences) - by_occurrence.keys())
    )
    return [one for one in made if one is not None]


def _finding(occurrence: str) -> str:
    return occurrence.partition("@")[0]


def _ended(occurrence: str, recorded: Sequence[FindingEvent], within: Incident | None, names: Names) -> Incident | None:
    own = [event for event in recorded if event.id == _finding(occurrence)]
    first = next((one for one in own if Group.begun(one).occurrence == occurrence), None)
    if first is None:
        return None
    group = Group.begun(first)
    group.take(first)
    closed = next((event for event in own if event.event == "closed" and event.at >= first.at), None)
    if closed is not None:
        group.shut(closed)
    if within is not None and within.id != first.id:
        group.end_as_part(Became(within.anomaly, within.id), recorded[-1])
    return group.incident(group.closed or recorded[-1].counted, names(first.cluster))
