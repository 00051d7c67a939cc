"""A plain search for cycles, for comparison: every record singly, every pair of operations, every simple cycle.

Written for clarity: dictionaries and sets over a whole history, the realtime relation with all of its pairs. Only for
small histories.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from rules.vocabulary.slices import Slice

Node = tuple[str, int, int]  # cluster, process, op
Value = tuple[Any, int, int]  # place, writer, seq
NAMES = ("G0", "G1c", "G0-process", "G1c-process", "G0-realtime", "G1c-realtime")


def records(runs: Iterable[Any]) -> Iterator[tuple[int, int, int | None]]:
    for run in runs:
        for i in range(run.length):
            yield run.writer, run.seq + i, None if run.offset is None else run.offset + i


class Reference:
    """`relations[a][b]`: how a comes before b."""

    def __init__(self, rows: list[Slice], *, ww: bool) -> None:
        self.rows = [row for row in rows if row.f in ("send", "poll", "txn")]
        self.operations: dict[Node, Slice] = {self.node(row): row for row in self.rows}
        self.relations: dict[Node, dict[Node, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.writers: dict[Value, set[Node]] = defaultdict(set)
        for row in self.rows:
            for writer, seq, _ in records(row.sent):
                self.writers[row.place, writer, seq].add(self.node(row))
        for row in self.rows:
            uncommitted = row.isolation == "read_uncommitted"
            for writer, seq, _ in records(row.polled):
                self.relate(self.writer((row.place, writer, seq)), self.node(row), "dirty" if uncommitted else "wr")
        if ww:
            self.write_write()
        for a, one in self.operations.items():
            for b, other in self.operations.items():
                if a[:2] == b[:2] and a[2] < b[2]:
                    self.relate(a, b, "process")
                clocks = one.boot is not None and one.boot == other.boot
                if (
                    clocks
                    and one.mono_completed is not None
                    and other.mono_invoked is not None
                    and one.mono_invoked is not None
                    and other.mono_completed is not None
                    and one.mono_completed < other.mono_invoked
                ):
                    self.relate(a, b, "realtime")

    @staticmethod
    def node(row: Slice) -> Node:
        return row.cluster, row.process, row.op

    def writer(self, value: Value) -> Node | None:
        who = self.writers[value]
        return next(iter(who)) if len(who) == 1 else None

    def relate(self, a: Node | None, b: Node | None, how: str) -> None:
        if a is not None and b is not None and a != b:
            self.relations[a][b].add(how)

    def write_write(self) -> None:
        visible = {n for n, row in self.operations.items() if row.type == "ok"}
        for row in self.rows:
            if row.type == "ok" and row.isolation != "read_uncommitted":
                for writer, seq, _ in records(row.polled):
                    who = self.writer((row.place, writer, seq))
                    if who is not None and self.operations[who].type == "info":
                        visible.add(who)
        log: dict[Any, dict[int, set[Value]]] = defaultdict(lambda: defaultdict(set))
        for row in self.rows:
            seen = list(records(row.polled)) if row.isolation != "read_uncommitted" else []
            if self.node(row) in visible:
                seen += list(records(row.sent))
            for writer, seq, offset in seen:
                if offset is not None:
                    log[row.place][offset].add((row.place, writer, seq))
        for offsets in log.values():
            last: dict[Value, int] = {}
            for offset, values in offsets.items():
                for value in values:
                    last[value] = max(last.get(value, -1), offset)
            order: list[Value | None] = []
            for offset in sorted(offsets):
                values = offsets[offset]
                if len(values) > 1:
                    order.append(None)
                elif last[next(iter(values))] == offset:
                    order.append(next(iter(values)))
            for one, other in pairwise(order):
                if one is not None and other is not None:
                    self.relate(self.writer(one), self.writer(other), "ww")

    def name(self, cycle: tuple[Node, ...]) -> tuple[str, bool] | None:
        """The weakest name that holds, and whether it does without polls at read_uncommitted."""
        for dirty in (False, True):
            steps = []
            for a, b in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
                how = set(self.relations[a][b])
                if dirty and "dirty" in how:
                    how.add("wr")
                steps.append(how)
            for name in NAMES:
                base, _, more = name.partition("-")
                usable = {"ww"} | ({"wr"} if base == "G1c" else set())
                usable |= {"process"} if more else set()
                usable |= {"realtime"} if more == "realtime" else set()
                needed = "wr" if base == "G1c" else "ww"
                if all(how & usable for how in steps) and any(needed in how for how in steps):
                    return name, not dirty
        return None

    def cycles(self, longest: int) -> Iterator[tuple[Node, ...]]:
        """Every simple cycle of at most `longest` operations, from its lowest on."""

        def extend(path: list[Node]) -> Iterator[tuple[Node, ...]]:
            for following, how in self.relations[path[-1]].items():
                if not how:
                    continue
                if following == path[0] and len(path) > 1:
                    yield tuple(path)
                elif following > path[0] and following not in path and len(path) < longest:
                    yield from extend([*path, following])

        for first in sorted(self.operations):
            yield from extend([first])

    def depends(self, a: Node, b: Node) -> bool:
        return bool(self.relations[a][b] & {"ww", "wr", "dirty"})
