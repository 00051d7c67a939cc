"""Which violations follow from which planted fault: all others are invented."""

from __future__ import annotations

from tests.rules.world.faults import Planted

ORDER = frozenset(
    {
        "poll-skip",
        "int-poll-skip",
        "nonmonotonic-poll",
        "int-nonmonotonic-poll",
        "nonmonotonic-send",
        "int-nonmonotonic-send",
        "int-send-skip",
    }
)
LOST = frozenset({"lost-write", "poll-skip", "int-poll-skip"})

EXPLAINS: dict[str, frozenset[str]] = {
    "lost": LOST,
    "duplicate": frozenset({"duplicate"}) | ORDER,
    "exposed": frozenset({"G1a", "torn-transaction", "zombie-write"}),
    "torn": LOST | {"torn-transaction"},
    "only": LOST | {"vanished-record", "late-record"},
    "vanished": frozenset({"vanished-record"}) | LOST | ORDER,
    "late": frozenset({"late-record", "vanished-record"}) | LOST | ORDER,
    "phantom": frozenset({"phantom-read"}),
    "cut": frozenset(
        {
            "log-truncation",
            "inconsistent-offsets",
            "vanished-record",
            "late-record",
            "sequence-loss",
            "torn-transaction",
        }
    )
    | LOST
    | ORDER,
    "zombie": frozenset({"zombie-write", "G1a"}),
    "stale": frozenset(),
    "dropped-commit": frozenset({"lost-commit"}),
    "told-low": frozenset({"lost-commit", "offset-regression", "foreign-commit", "spurious-zero-offset"}),
    "told-high": frozenset({"foreign-commit", "offset-regression", "lost-commit"}),
}

CUT_TO_NOTHING = frozenset({"spurious-zero-offset"})
"""What follows beside that from a log that was cut to nothing: its first offset is given again."""


def explained_by(planted: Planted) -> frozenset[str]:
    """The violations that this fault may explain."""
    nothing = planted.kind == "cut" and planted.offsets[0] == 0
    return EXPLAINS[planted.kind] | (CUT_TO_NOTHING if nothing else frozenset())


NAMED = frozenset({"lost-write", "duplicate", "G1a", "phantom-read", "zombie-write"})
"""Violations that name the value they hit: it has to be one of those planted. Of the others the partition must fit."""

ALWAYS = frozenset({"int-send-skip", "G0", "G0-process", "G0-realtime"})
"""Legal in Kafka, counted and always allowed."""
