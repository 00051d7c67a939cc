"""Is a topic still the one that a row says? A topic that is deleted and made again has another id under the same name.

Clients write, read and commit by the name. Until somebody tells them, they take a new topic for the one that they knew,
and their rows say of the old one what happened in the new. So before the committer appends rows it asks the cluster
which id each topic of theirs has now (`Ask`):

- the id that the rows say: it was so all the time, since ids do not come again. What had completed when the question
  was put is confirmed;
- another id: what completed after the last confirmation may have happened in either topic. It is not counted for the
  one, see `uncounted`;
- there is no such topic: brokers that have just begun say so, too. The rows wait for `UNKNOWN_FOR`, and are then not
  counted;
- no answer: they wait for `SILENT_FOR`. Longer than that the log cannot be without rows, which tell of the outage; and
  while no broker answers anybody, nobody makes topics.

What is not counted is a matter of the plan, so that it is the same when the plan is carried out again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from probes.clock import Clock
from probes.log.rows import AT, FIELDS, Row, Shared
from rules.vocabulary.times import micros

Ask = Callable[[Collection[str]], Mapping[str, str | None] | None]
"""The ids that topics of these names have now, None for one that is not there; None where nobody answers."""

Moment = tuple[str, int, int]
"""Boot, its monotonic nanoseconds, and microseconds of the wall clock."""

NEVER: Final[Moment] = ("", -1, -1)
SILENT_FOR: Final = 5.0
UNKNOWN_FOR: Final = 5.0
REPLACED: Final = "topic-replaced"
"""The error code of rows that are not counted."""

_TOPIC_ID, _TOPIC, _F, _TYPE, _ERROR = (AT[name] for name in ("topic_id", "topic", "f", "type", "error"))
_COMPLETED, _MONO, _BOOT = AT["completed"], AT["mono_completed"], AT["boot"]
_SENT, _REGISTERS, _SOURCES, _TOUCHED = AT["sent"], AT["registers"], AT["sources"], AT["txn_partitions"]
_ABOUT_THE_LOG: Final = frozenset({"send", "poll", "txn", "commit", "position", "offsets", "register"})
_TOLD: Final = tuple(
    AT[name]
    for name in (
        "polled",
        "irregular",
        "altered",
        "epochs",
        "position_before",
        "position_after",
        "reached",
        "log_start",
        "log_end",
        "last_stable",
        "committed",
        "settings",
    )
)
"""What a row tells of a log, beside what it sent."""


@dataclass(slots=True)
class Confirmations:
    """What is known of the topics of one cluster. `seconds`: a monotonic clock, for how long to wait; `followers`: the
    clusters that have taken its place since, whose topics are those that `ask` tells of now."""

    cluster: str
    ask: Ask
    clock: Clock
    seconds: Callable[[], float] = time.monotonic
    followers: set[str] = field(default_factory=set)
    _waiting_since: float | None = field(default=None)

    def told(
        self, groups: Sequence[tuple[Shared, Sequence[Row]]], before: Mapping[str, Moment]
    ) -> tuple[dict[str, Moment], dict[str, Moment]] | None:
        """(confirmed, replaced) by topic id, for what was read in `groups`; None where the rows have to wait.

        `before`: when each topic id was last confirmed. `replaced`: the same of those whose name has another id."""
        named = self._named(groups)
        if not named:
            return {}, {}
        said, mono = self.clock.both()
        moment: Moment = (self.clock.boot, mono, micros(said))
        present = self.ask(sorted(set(named.values())))
        unsure = present is None or any(present.get(name) is None for name in named.values())
        if not unsure:
            self._waiting_since = None
        elif self._wait(SILENT_FOR if present is None else UNKNOWN_FOR):
            return None
        if present is None:
            return {}, {}
        confirmed = {topic_id: moment for topic_id, name in named.items() if present.get(name) == topic_id}
        replaced = {topic_id: before.get(topic_id, NEVER) for topic_id in named if topic_id not in confirmed}
        return confirmed, replaced

    def _wait(self, limit: float) -> bool:
        now = self.seconds()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since < limit

    def _named(self, groups: Sequence[tuple[Shared, Sequence[Row]]]) -> dict[str, str]:
        """The topics, by id, of which there are rows that tell of their logs."""
        return {
            row[_TOPIC_ID]: row[_TOPIC]
            for shared, rows in groups
            if shared.cluster == self.cluster or shared.cluster in self.followers
            for row in rows
            if row[_F] in _ABOUT_THE_LOG
        }


def counted(shared: Shared, rows: Sequence[Row], replaced: Mapping[str, Moment]) -> Sequence[Row]:
    """The rows as they may be logged, where these topics (last confirmed at that moment) were `replaced`."""
    if not replaced:
        return rows
    names = {row[_TOPIC]: row[_TOPIC_ID] for row in rows if row[_TOPIC_ID] in replaced}
    return [_counted(shared, row, replaced, names) for row in rows]


def _counted(shared: Shared, row: Row, replaced: Mapping[str, Moment], names: Mapping[str, str]) -> Row:
    if row[_F] not in _ABOUT_THE_LOG:
        return row
    # Outputs name inputs, by their numbers and offsets in a topic that their transaction polled.
    if len(row) > _SOURCES and row[_SOURCES]:
        inputs = {replaced[names[topic]] for topic, _ in row[_TOUCHED] or () if topic in names and topic != row[_TOPIC]}
        if any(not _by(shared, row, moment) for moment in inputs):
            row = [*row[:_SOURCES], None, *row[_SOURCES + 1 :]]
    confirmed = replaced.get(row[_TOPIC_ID])
    return row if confirmed is None or _by(shared, row, confirmed) else uncounted(row)


def _by(shared: Shared, row: Row, moment: Moment) -> bool:
    """Had it completed by then?"""
    own = row[_BOOT] if len(row) > _BOOT else None
    mono = row[_MONO] if len(row) > _MONO else None
    if mono is not None and (shared.boot if own is None else own) == moment[0]:
        return bool(mono <= moment[1])
    return bool(row[_COMPLETED] <= moment[2])


def uncounted(row: Row) -> Row:
    """What such a row may say of the topic: that this may have been sent to it, and nothing that was told of a log.

    What certainly failed did so in either topic."""
    full: list[Any] = row + [None] * (len(FIELDS) - len(row))
    for at in _TOLD:
        full[at] = None
    full[_SENT] = [(writer, seq, None, length) for writer, seq, _, length in full[_SENT] or ()] or None
    full[_REGISTERS] = [
        (register, action, number, expected, None)
        for register, action, number, expected, _ in full[_REGISTERS] or ()
        if action != "read"
    ] or None
    if full[_TYPE] == "ok":
        full[_TYPE] = "info"
    full[_ERROR] = full[_ERROR] or REPLACED
    return full
