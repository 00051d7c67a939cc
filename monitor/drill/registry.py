"""All drills by name, in the order of the table in which they are listed and reported.

A module of `monitor.drill.drills` holds the drills of one theme: what happens in those that are more than one lie or
one fault, and a row for each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from monitor.drill.definition.drill import Drill
from monitor.drill.drills import (
    brokers,
    clients,
    commits,
    coordinators,
    ending,
    forging,
    healthy,
    leaderless,
    losses,
    offsets,
    reading,
    replicas,
    topics,
    writing,
)
from monitor.errors import UserError

THEMES: Final = (
    brokers,
    clients,
    commits,
    coordinators,
    ending,
    forging,
    healthy,
    leaderless,
    losses,
    offsets,
    reading,
    replicas,
    topics,
    writing,
)
TABLE: Final = (
    "baseline",
    "retry-without-idempotence",
    "idempotent-duplicate",
    "wrong-ack-offset",
    "rewritten-record",
    "relocated-record",
    "reordered-log",
    "vanished-tail",
    "stale-tail",
    "indefinite-not-leader",
    "exposed-abort",
    "lso-off-by-one",
    "dirty-read",
    "rewind-in-transaction",
    "commit-says-invalid-state",
    "lost-in-transaction",
    "broker-crash",
    "silent-empty-poll",
    "auto-created-topic",
    "stuck-fetch",
    "stuck-produce",
    "zero-offset",
    "swallowed-commit",
    "filtered-fetch",
    "fenced-by-timeout",
    "hanging-close",
    "abort-positions",
    "delayed-end-txn",
    "delayed-abort",
    "delayed-produce",
    "reused-sequence",
    "zombie",
    "zombie-request",
    "hanging-transaction",
    "killed-in-transaction",
    "retention-overtakes-reader",
    "erased-segment",
    "offset-rollback",
    "corrupted-record",
    "phantom-record",
    "stale-register",
    "double-transform",
    "leader-partition",
    "pause",
    "clock-jump",
    "rolling-restart",
    "membership-change",
    "dropped-commit",
    "foreign-commit",
    "vanished-commit",
    "stale-end",
    "rewritten-timestamps",
    "too-large-retry",
    "refused-writes",
    "too-few-in-sync",
    "held-behind-aborted",
    "single-broker-away",
    "quota",
    "leaderless-transaction",
    "recreated-topic",
    "foreign-flood",
    "rebuilt-replica",
    "overtaken-load",
)

EVERY: Final = tuple(
    sorted((drill for theme in THEMES for drill in theme.DRILLS), key=lambda drill: TABLE.index(drill.name))
)
"""Every run of every drill, in the table's order."""


def names() -> list[str]:
    """The drills that there are."""
    return list(dict.fromkeys(drill.name for drill in EVERY))


def chosen(wanted: Sequence[str]) -> list[Drill]:
    """The runs of these drills; `name/case` chooses one run. Raises UserError for a name that is none."""
    found: dict[str, Drill] = {}
    for name in wanted:
        matching = {drill.title: drill for drill in EVERY if name in (drill.name, drill.title)}
        if not matching:
            close = get_close_matches(name, [*names(), *(drill.title for drill in EVERY)], n=1)
            hint = f"; did you mean {close[0]}?" if close else "; offsetwatch drill list shows them"
            raise UserError(f"there is no drill {name}{hint}")
        found |= matching
    return list(found.values())
