"""All drills by name, in the order of the table in which they are listed and reported.

A module of `monitor.drill.drills` holds the drills of one theme; every subclass of `Drill` in it that has a name is a
drill, or one of the runs of a drill.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from typing import Final

from monitor.drill import drills
from monitor.drill.definition.drill import Drill
from monitor.errors import UserError

TABLE: Final = (
    "baseline",
    "retry-without-idempotence", "idempotent-duplicate", "wrong-ack-offset", "rewritten-record", "relocated-record",
    "reordered-log", "vanished-tail", "stale-tail", "indefinite-not-leader", "exposed-abort", "lso-off-by-one",
    "rewind-in-transaction", "commit-says-invalid-state", "lost-in-transaction", "broker-crash", "silent-empty-poll",
    "auto-created-topic", "stuck-fetch", "stuck-produce", "zero-offset", "swallowed-commit", "filtered-fetch",
    "fenced-by-timeout", "hanging-close", "abort-positions", "delayed-end-txn", "delayed-abort", "delayed-produce",
    "reused-sequence", "zombie", "hanging-transaction", "killed-in-transaction", "retention-overtakes-reader",
    "erased-segment", "offset-rollback", "corrupted-record", "phantom-record", "stale-register", "double-transform",
    "leader-partition", "pause", "clock-jump", "rolling-restart", "membership-change",
    "dropped-commit", "foreign-commit", "vanished-commit", "stale-end", "rewritten-timestamps", "too-large-retry",
    "held-behind-aborted", "single-broker-away", "leaderless-transaction",
    "recreated-topic",
)  # fmt: skip


@cache
def classes() -> tuple[type[Drill], ...]:
    """Every run of every drill, in the table's order."""
    made: list[type[Drill]] = []
    for module in pkgutil.iter_modules(drills.__path__):
        loaded = importlib.import_module(f"{drills.__name__}.{module.name}")
        for kind in vars(loaded).values():
            own = isinstance(kind, type) and issubclass(kind, Drill) and kind.__module__ == loaded.__name__
            if own and hasattr(kind, "name"):
                made.append(kind)
    unknown = {kind.name for kind in made} - set(TABLE)
    assert not unknown, f"drills that the table does not have: {unknown}"
    return tuple(sorted(made, key=lambda kind: TABLE.index(kind.name)))


def names() -> list[str]:
    """The drills that there are."""
    return list(dict.fromkeys(kind.name for kind in classes()))


def chosen(wanted: Sequence[str]) -> list[Drill]:
    """The runs of these drills; `name/case` chooses one run. Raises UserError for a name that is none."""
    found: list[Drill] = []
    for name in wanted:
        matching = [kind() for kind in classes() if name in (kind.name, kind().title)]
        if not matching:
            close = get_close_matches(name, [*names(), *(kind().title for kind in classes())], n=1)
            hint = f"; did you mean {close[0]}?" if close else "; offsetwatch drill list shows them"
            raise UserError(f"there is no drill {name}{hint}")
        found += matching
    return list({drill.title: drill for drill in found}.values())


def every() -> list[Drill]:
    """One instance of every run, in the table's order."""
    return [kind() for kind in classes()]


def meaning(drill: Drill) -> str:
    """What really happens: the first sentences of the docstring, on one line."""
    return " ".join((drill.__doc__ or "").split("\n\n")[0].split())
