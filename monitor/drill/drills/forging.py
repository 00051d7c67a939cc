"""Drills that forge: records that nobody sent, and registers that are not what they say."""

from __future__ import annotations

from typing import Final

from monitor.drill.definition.drill import ORDER, Drill, found
from monitor.drill.lies.fetch import HideRange
from monitor.drill.lies.plays import OneLie
from monitor.drill.lies.produce import CopyLater, Forged
from monitor.drill.proxy import ONCE, When, Where

REGISTERS: Final = {"registers": {"count": 3, "rate": 20.0, "registers": 2}}

DRILLS: Final = (
    Drill(
        name="phantom-record",
        what="A record that no probe sent, with a well-formed tag of a known writer.",
        seen_in="the field's checkers",
        must=(found("phantom-read"),),
        may=ORDER,
        play=lambda: OneLie(Forged(Where(client_id="offsetwatch-writer-1"), ONCE)),
    ),
    Drill(
        name="stale-register",
        case="old-prefix",
        what="A client's reads of a register are answered from an old prefix of its log: what others wrote since is"
        " left out of what the client fetches. It passes over records that others have read, and its log tells that,"
        " too.",
        seen_in="Gobekli",
        must=(found("nonlinearizable-register"),),
        may=ORDER | {"vanished-record", "late-record"},
        probes=REGISTERS,
        play=lambda: OneLie(
            HideRange(Where(client_id="offsetwatch-registers-1", topic="*-registers"), length=40, skip=1)
        ),
    ),
    Drill(
        name="stale-register",
        case="applied-twice",
        what="A register's writes are applied twice: the second time after others had written.",
        seen_in="Gobekli",
        must=(found("nonlinearizable-register"),),
        may=ORDER | {"duplicate"},
        probes=REGISTERS,
        # Only a copy that the register takes shows, and few are: most were conditional on what is there no more.
        play=lambda: OneLie(
            CopyLater(Where(client_id="offsetwatch-registers-*", topic="*-registers"), When(times=400), behind=8),
            ends=True,
        ),
    ),
)
