"""How often a transform's group has begun again: a group whose offsets have expired starts where the log does.

A broker keeps what a group has committed for the offsets' retention after the group's last member has gone. A group
that reflects nothing for so long may have been without members, and its next transform reflects anew what is in the
log: none of it stands there twice because of an error.

State: the offsets' retention as it was told last, and of each group the newest `KEPT` times at which it began again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rules.arrays.columns import OFFSETS, Columns
from rules.arrays.intervals import indices
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.settings import natural

WEEK: Final = 7 * 86_400 * SECOND
"""How long a broker keeps the offsets of a group that is gone, where nobody tells."""
MINUTE: Final = 60 * SECOND
RETENTION: Final = "offsets_retention_minutes"
KEPT: Final = 8
"""Each is the offsets' retention after the one before, a week by default: older inputs are gone."""
GROUPS_KEPT: Final = 256


@dataclass(slots=True)
class Beginnings:
    """`retention`: [when it was told, minutes]. `since`: by group, how many beginnings are forgotten, and when those
    after them were."""

    retention: list[int] = field(default_factory=list)
    since: dict[str, list[int]] = field(default_factory=dict)


def note_retention(own: Beginnings, columns: Columns) -> None:
    """Take in what observers' settings tell of it."""
    own.retention = max([own.retention, *_told(columns)])


def may_expire_after(own: Beginnings, columns: Columns) -> int:
    """The least that `expires_after` may be once these rows are taken in."""
    return min([expires_after(own), *(minutes * MINUTE for _, minutes in _told(columns))])


def _told(columns: Columns) -> list[list[int]]:
    """[when, minutes], as often as they tell it."""
    if not columns.tells("settings"):
        return []
    rows = indices(columns.where(OFFSETS)).tolist()
    settings, told = columns.table["settings"], []
    for row in rows:
        minutes = natural(dict(settings[row].as_py() or ()).get(RETENTION))
        if minutes > 0:
            told.append([int(columns.completed[row]), minutes])
    return told


def expires_after(own: Beginnings) -> int:
    """Microseconds after which a group's offsets may be gone."""
    return own.retention[1] * MINUTE if own.retention else WEEK


def begin_again(own: Beginnings, group: str, at: int) -> None:
    """The group has begun again, at this time or not long before."""
    times = own.since.setdefault(group, [0])
    times.append(at)
    if len(times) > 1 + KEPT:
        times[:2] = [times[0] + 1]
    if len(own.since) > GROUPS_KEPT:
        del own.since[min(own.since, key=lambda name: own.since[name][-1])]


def name_at(own: Beginnings, group: str, at: int) -> str:
    """The group as of this time: under another name after each beginning."""
    return _named(group, _number(own, group, at))


def names_until(own: Beginnings, group: str, low: int, at: int, expires: int) -> Iterable[str]:
    """The names that it can have at this time once all is known of it that came after `low`, where its offsets may
    expire after so long."""
    number, more = _number(own, group, at), max(0, (at - low) // max(expires, 1))
    return (_named(group, n) for n in range(number, number + more + 1))


def _number(own: Beginnings, group: str, at: int) -> int:
    times = own.since.get(group)
    return times[0] + bisect_right(times, at, lo=1) - 1 if times else 0


def _named(group: str, number: int) -> str:
    return f"{group}\n{number}" if number else group
