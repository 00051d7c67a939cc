"""`nonlinearizable-register`: the registers that probes keep on top of the log behave like no single register.

A probe appends each operation to the log, and a client's copy of a register follows from the log's order: a write
sets it, a cas sets it where it holds what the cas expects, and every client decides this alike. A read appends a
record that does nothing, and reads the log up to it. A broker that loses, repeats, reorders or hides a record, or
serves an old prefix, shows in what clients were told: `rules.registers.linearizability` says exactly when, and what
must be kept to know it.

Operations are taken in the order of their invocations once the horizon (`rules.settling.completeness`) has passed them:
every operation invoked before it is known then. An id that nobody wrote is called so `grace` after it was shown, when
its writer's log must be there. Ids are taken as written by somebody where the log does not tell: while a process's log
is missing (`unverifiable`) and for an hour after, and at the beginning of a log whose older rows are gone. A finished
history begins with every register at id 0. Of operations whose rows come too late only what is certain by itself is
said.

Registers are told apart by number within a partition. A probe numbers them anew at each boot of its host, so that all
times of one register are of one clock. State: one chunk, a few operations a register (see there for the caps), at
most `REGISTERS_KEPT` registers, those used last, and the operations that the horizon has not passed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pyarrow as pa

from rules.arrays.columns import REGISTER, Columns
from rules.kept.check import Asked, Check, News, Passage
from rules.kept.chunks import Chunks
from rules.kept.report import Report
from rules.kept.state import State, UnknownFormat
from rules.registers.blocks import NEVER, Contradiction, Op
from rules.registers.form import pack, unpack
from rules.registers.linearizability import Register
from rules.settling.frontier import TICK
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.times import from_micros

NAME: Final = "registers"
"""The chunk."""
FORMAT: Final = 1
REGISTERS_KEPT: Final = 256
LOST_LOG: Final = 3_600 * SECOND
BEGINNING: Final = 60 * SECOND

_CODEC: Final = pa.Codec("zstd", 1)


@dataclass(slots=True)
class Kept:
    """What is kept of a partition's registers. `ops`: (register, operation) that the horizon has not passed. `assume`:
    ids shown before that log time may be of writers whose log is lost. `dropped`: some registers were forgotten."""

    ops: list[tuple[int, Op]] = field(default_factory=list)
    registers: dict[int, Register] = field(default_factory=dict)
    assume: int = -1
    dropped: bool = False

    def due(self) -> int:
        """The earliest log time at which there is something to do."""
        waiting = [w.shown.until for register in self.registers.values() for w in register.waiting]
        return min([op.at for _, op in self.ops] + waiting, default=NEVER)


@dataclass(slots=True)
class Registers:
    """`due`: the log time at which the chunk is next needed, -1 where there are no registers."""

    due: int = -1


def needs(own: Registers, asked: Asked) -> Iterable[str]:
    """The chunk, once there are registers."""
    return [NAME] if own.due >= 0 or asked.columns.where(REGISTER).any() else []


def arrive(own: Registers, new: News) -> None:
    """Keep the operations of new rows until their time is complete."""
    rows = new.where(REGISTER)
    if not len(rows):
        return
    kept = _load(new.chunks.blob(NAME))
    kept.ops.extend(_operations(new.columns, rows.tolist()))
    _store(own, new.chunks, kept)


def fold(own: Registers, passage: Passage) -> None:
    """Take the operations of which everything that was invoked before them is known."""
    state, chunks, report = passage.state, passage.chunks, passage.report
    end = min(passage.end, passage.gate.known_through())
    if not 0 <= own.due < end:
        return
    kept = _load(chunks.blob(NAME))
    kept.assume = max([kept.assume, *(hole[2] + LOST_LOG for hole in state.holes)])
    ripe = sorted((one for one in kept.ops if one[1].at < end), key=lambda one: one[1][:4])
    kept.ops = [one for one in kept.ops if one[1].at >= end]
    cut = state.begins >= 0 or kept.dropped
    for number, op in ripe:
        register = kept.registers.get(number)
        if register is None:
            register = kept.registers[number] = Register()
            register.begin(None if cut else 0, op.at)
        register.decide(op.at, assume=_assumed_before(kept, state, register, cut))
        register.take(op, report.objectives.grace)
    for number in sorted(kept.registers):
        register = kept.registers[number]
        register.decide(end, assume=_assumed_before(kept, state, register, cut))
        _report(number, register, report)
    _forget(kept, report)
    _store(own, chunks, kept)


def finish(own: Registers, passage: Passage) -> None:
    """Nothing more will come: take everything, from registers that begin at id 0."""
    chunks, report = passage.chunks, passage.report
    if own.due < 0:
        return
    kept = _load(chunks.blob(NAME))
    for number, op in sorted(kept.ops, key=lambda one: one[1][:4]):
        register = kept.registers.get(number)
        if register is None:
            register = kept.registers[number] = Register()
            register.begin(0, op.at)
        register.decide(op.at)
        register.take(op, report.objectives.grace)
    kept.ops = []
    for number in sorted(kept.registers):
        kept.registers[number].decide(NEVER)
        _report(number, kept.registers[number], report)
    _store(own, chunks, kept)


def _assumed_before(kept: Kept, state: State, register: Register, cut: bool) -> int:
    if not cut:
        return kept.assume
    return max(kept.assume, state.begins, register.began + BEGINNING)


def _operations(columns: Columns, rows: list[int]) -> Iterable[tuple[int, Op]]:
    names = ("boot", "mono_invoked", "mono_completed", "type", "registers")
    picked = (columns.arrays[name].take(pa.array(rows)).to_pylist() for name in names)
    for row, boot, start, end, outcome, told in zip(rows, *picked, strict=True):
        if start is None or end is None:
            boot, start, end = None, -1, -1
        if outcome == "info":
            end = NEVER
        at, done = int(columns.invoked[row]), int(columns.completed[row])
        process, number = int(columns.process[row]), int(columns.op[row])
        for one in told or ():
            yield (
                one["register"],
                Op(
                    at,
                    done,
                    process,
                    number,
                    boot or "",
                    start,
                    end,
                    one["action"],
                    outcome,
                    one["id"],
                    one["expected"],
                    one["observed"],
                ),
            )


def _forget(kept: Kept, report: Report) -> None:
    """Keep the registers that were used last."""
    if len(kept.registers) > REGISTERS_KEPT:
        last = sorted(kept.registers, key=lambda number: kept.registers[number].seen)
        for number in last[: len(last) - REGISTERS_KEPT]:
            del kept.registers[number]
        kept.dropped = True
        report.drop("registers", len(last) - REGISTERS_KEPT)


# What is said


def _report(number: int, register: Register, report: Report) -> None:
    report.drop("operations on registers", register.let_go)
    register.let_go = 0
    found, register.found = register.found, []
    for one in found:
        report.tell(
            Finding(
                **report.here,
                anomaly="nonlinearizable-register",
                subject=(number, *(part for op in one.ops for part in (op.process, op.op))),
                message=_message(number, one),
                evidence={
                    "register": number,
                    "reason": one.reason,
                    "operations": [_plain(op) for op in one.ops],
                },
                at=-(-one.at // TICK) * TICK,
                decidable=one.at,
            )
        )


def _message(number: int, one: Contradiction) -> str:
    first, *others = one.ops
    because = "".join(f"; {_told(op)}" for op in others)
    return f"register {number}: {_told(first)}; but {one.sentence}{because}"


def _told(op: Op) -> str:
    match op.action, op.type:
        case "read", _:
            did = f"read id {op.observed}"
        case "cas", "fail":
            did = f"was refused to replace id {op.expected} by id {op.id}, and found id {op.observed}"
        case "cas", _:
            did = f"replaced id {op.expected} by id {op.id}"
        case _:
            did = f"wrote id {op.id}"
    began = from_micros(op.at).strftime("%H:%M:%S.%f")
    ended = "with unknown outcome" if op.end == NEVER else f"until {from_micros(op.done).strftime('%H:%M:%S.%f')}"
    return f"process {op.process} {did} (operation {op.op}, from {began} {ended})"


def _plain(op: Op) -> dict[str, Any]:
    return {
        "process": op.process,
        "op": op.op,
        "action": op.action,
        "type": op.type,
        "id": op.id,
        "expected": op.expected,
        "observed": op.observed,
        "invoked": from_micros(op.at).isoformat(),
        "completed": from_micros(op.done).isoformat(),
        "boot": op.boot,
        "mono_invoked": op.start,
        "mono_completed": None if op.end == NEVER else op.end,
    }


# The chunk


def _store(own: Registers, chunks: Chunks, kept: Kept) -> None:
    plain = {
        "ops": [[number, list(op)] for number, op in kept.ops],
        "registers": [[number, pack(register)] for number, register in kept.registers.items()],
        "assume": kept.assume,
        "dropped": kept.dropped,
    }
    data = orjson.dumps(plain)
    chunks.put(NAME, struct.pack("<BI", FORMAT, len(data)) + _CODEC.compress(data, asbytes=True))
    own.due = max(kept.due(), 0)


def _load(data: bytes | None) -> Kept:
    if data is None:
        return Kept()
    version, size = struct.unpack_from("<BI", data)
    if version != FORMAT:
        raise UnknownFormat(f"a partition's registers have format {version}, this version reads {FORMAT}")
    plain = orjson.loads(_CODEC.decompress(data[5:], size, asbytes=True))
    return Kept(
        [(number, Op(*op)) for number, op in plain["ops"]],
        {number: unpack(register) for number, register in plain["registers"]},
        plain["assume"],
        plain["dropped"],
    )


CHECK: Final = Check(
    "nonlinearizable-register",
    Registers,
    needs=needs,
    arrive=arrive,
    fold=fold,
    finish=finish,
    rows=frozenset({REGISTER}),
    rests=True,
)
