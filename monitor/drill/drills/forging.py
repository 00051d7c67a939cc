"""Drills that forge: records that nobody sent, and registers that are not what they say."""

from __future__ import annotations

from typing import ClassVar

from monitor.drill.definition.drill import ORDER, found
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.drill import Lying
from monitor.drill.lies.fetch import HideRange
from monitor.drill.lies.produce import CopyLater, Forged
from monitor.drill.proxy import Lie, When, Where

REGISTERS = {"registers": {"count": 3, "rate": 20.0, "registers": 2}}


class PhantomRecord(Lying):
    """A record that no probe sent, with a well-formed tag of a known writer."""

    name = "phantom-record"
    seen_in = "the field's checkers"
    must = (found("phantom-read"),)
    may = ORDER

    def make(self) -> Lie:
        return Forged(Where(client_id="offsetwatch-writer-1"), When(times=1), armed=False)


class StaleRegister(Lying):
    """A client's reads of a register are answered from an old prefix of its log: what others wrote since is left out of
    what the client fetches. It passes over records that others have read, and its log tells that, too."""

    name = "stale-register"
    case = "old-prefix"
    seen_in = "Gobekli"
    must = (found("nonlinearizable-register"),)
    may = ORDER | {"vanished-record", "late-record"}
    probes: ClassVar = REGISTERS

    def make(self) -> Lie:
        where = Where(client_id="offsetwatch-registers-1", topic="*-registers")
        return HideRange(40, where, armed=False, skip=1)


class RegisterTwice(Lying):
    """A register's writes are applied twice: the second time after others had written."""

    name = "stale-register"
    case = "applied-twice"
    seen_in = "Gobekli"
    must = (found("nonlinearizable-register"),)
    may = ORDER | {"duplicate"}
    probes: ClassVar = REGISTERS

    def make(self) -> Lie:
        where = Where(client_id="offsetwatch-registers-*", topic="*-registers")
        return CopyLater(8, where, When(times=40), armed=False)

    def act(self, stage: Stage) -> None:
        super().act(stage)
        stage.wait(lambda: len(self.lie.acts) >= 40, 30, "that forty operations were applied twice")
