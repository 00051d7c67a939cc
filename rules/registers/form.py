"""A register's state as plain lists, for storing. Operations that several places name are listed once."""

from __future__ import annotations

from typing import Any, Final

from rules.registers.blocks import Block, Cluster, Gone, Op, Shown, Waiting
from rules.registers.linearizability import Register

NONE: Final = -1

Plain = list[Any]


def pack(register: Register) -> Plain:
    """The register as JSON values; nothing may be in `found`, which belongs to the step that found it."""
    ops: dict[Op, int] = {}

    def at(op: Op | None) -> int:
        return NONE if op is None else ops.setdefault(op, len(ops))

    def by_boot(extremes: dict[str, Op]) -> dict[str, int]:
        return {boot: at(op) for boot, op in extremes.items()}

    blocks = [
        [
            [[c.id, at(c.write), by_boot(c.first), by_boot(c.last)] for c in block.clusters],
            block.initial,
            by_boot(block.first),
            by_boot(block.last),
        ]
        for block in register.blocks
    ]
    pending = [at(op) for op in register.pending.values()]
    waiting = [[w.id, at(w.op), *w.shown] for w in register.waiting]
    gone = [[g.id, at(g.write), at(g.by)] for g in register.gone]
    flags = [register.forgot, register.blind, register.began, register.seen]
    return [[list(op) for op in ops], blocks, pending, waiting, gone, register.floor, register.tainted, flags]


def unpack(plain: Plain) -> Register:
    """What was packed."""
    listed, blocks, pending, waiting, gone, floor, tainted, flags = plain
    ops = [Op(*op) for op in listed]

    def known(at: int) -> Op | None:
        return None if at == NONE else ops[at]

    def by_boot(extremes: dict[str, int]) -> dict[str, Op]:
        return {boot: ops[at] for boot, at in extremes.items()}

    register = Register(
        pending={ops[at].id: ops[at] for at in pending},
        waiting=[Waiting(id, ops[at], Shown(until, proven)) for id, at, until, proven in waiting],
        floor=floor,
        forgot=flags[0],
        blind=flags[1],
        gone=[Gone(id, known(write), known(by)) for id, write, by in gone],
        tainted=tainted,
        began=flags[2],
        seen=flags[3],
    )
    for clusters, initial, first, last in blocks:
        made = [Cluster(id, known(write), by_boot(soonest), by_boot(latest)) for id, write, soonest, latest in clusters]
        block = Block(made, initial, by_boot(first), by_boot(last))
        register.blocks.append(block)
        register.where.update((cluster.id, (block, cluster)) for cluster in made)
    return register
