"""The graph in which cycles are searched: dependencies, process order and realtime order; and where a cycle can be.

Nodes 0 .. n-1 are the operations, those from n on are time nodes (see `rules.cycles.dependencies`): a path through them
is one realtime step between two operations. Every node has a time, so that an edge points forward or backward in it: an
operation the time of its completion, a time node its own; nanoseconds, the clocks of several hosts laid side by side by
their walls' time. That time serves to search where cycles can be, and is no evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules.arrays.columns import Codes
from rules.arrays.intervals import EMPTY, Bools, Ints, merge
from rules.cycles.dependencies import PROCESS, REALTIME, Dependencies, Operations

_ROUNDS = 16


@dataclass(slots=True)
class Graph:
    """`operations` is the number of nodes that are operations. `dependency` is an edge's number among the dependencies,
    -1 for order. Nodes and edges are those of the whole graph or a part; `node` leads back from a part's to the
    whole's."""

    operations: int
    node: Ints
    time: Ints
    source: Ints
    target: Ints
    kind: Codes
    dependency: Ints

    @property
    def backward(self) -> Bools:
        """Which edges do not point forward in time. At one time, time nodes stand before operations."""
        source, target = self.time[self.source], self.time[self.target]
        waits = (self.node[self.source] >= self.operations) & (self.node[self.target] < self.operations)
        found: Bools = (source > target) | ((source == target) & ~waits)
        return found

    def part(self, nodes: Ints, edges: Ints) -> Graph:
        """The part of these nodes (sorted) and edges, whose ends must be among them."""
        number = np.empty(len(self.node), np.int64)
        number[nodes] = np.arange(len(nodes))
        return Graph(
            self.operations,
            self.node[nodes],
            self.time[nodes],
            number[self.source[edges]],
            number[self.target[edges]],
            self.kind[edges],
            self.dependency[edges],
        )


def graph(operations: Operations, dependencies: Dependencies) -> Graph:
    """The whole graph, linear in the operations and the dependencies."""
    first, second = process_order(operations)
    before, after, times = realtime_order(operations)
    size = len(operations)
    sources = (dependencies.source, first, before)
    kinds = (dependencies.kind, np.full(len(first), PROCESS, np.int8), np.full(len(before), REALTIME, np.int8))
    edges = np.full(len(dependencies) + len(first) + len(before), -1, np.int64)
    edges[: len(dependencies)] = np.arange(len(dependencies))
    return Graph(
        size,
        np.arange(size + len(times)),
        np.concatenate((_completed(operations), times)),
        np.concatenate(sources),
        np.concatenate((dependencies.target, second, after)),
        np.concatenate(kinds),
        edges,
    )


def process_order(operations: Operations) -> tuple[Ints, Ints]:
    """(operation, the next one of its process): operations are sorted so."""
    o = operations
    first = np.flatnonzero((o.process[1:] == o.process[:-1]) & (o.cluster[1:] == o.cluster[:-1]))
    return first, first + 1


def realtime_order(operations: Operations) -> tuple[Ints, Ints, Ints]:
    """(sources, targets, times of the time nodes) of the realtime order of every clock."""
    sources, targets, times = [EMPTY], [EMPTY], [EMPTY]
    size = len(operations)
    for clock, shift in enumerate(_shifts(operations).tolist()):
        own = np.flatnonzero(operations.clock == clock)
        begun = operations.begun[own]
        moments, moment = np.unique(begun, return_inverse=True)
        following = np.searchsorted(moments, operations.ended[own], side="right")
        ends = following < len(moments)
        needed = np.unique(following[ends])
        # Operations invoked from a needed moment until the next one hang on it: no completion lies between.
        behind = np.searchsorted(needed, moment, side="right") - 1
        hung = behind >= 0
        node = size + np.arange(len(needed))
        sources += [own[ends], node[:-1], node[behind[hung]]]
        targets += [node[np.searchsorted(needed, following[ends])], node[1:], own[hung]]
        times.append(moments[needed] + shift)
        size += len(needed)
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(times)


def _shifts(operations: Operations) -> Ints:
    """What to add to each clock's nanoseconds to come near the wall's."""
    o = operations
    shifts = np.zeros(int(o.clock.max(initial=-1)) + 1, np.int64)
    clocks, first = np.unique(o.clock, return_index=True)
    known = clocks >= 0
    shifts[clocks[known]] = o.completed[first[known]] * 1000 - o.ended[first[known]]
    return shifts


def _completed(operations: Operations) -> Ints:
    o = operations
    timed = o.clock >= 0
    shifts = np.append(_shifts(o), 0)
    found: Ints = np.where(timed, o.ended + shifts[o.clock], o.completed * 1000)
    return found


def suspects(whole: Graph) -> Graph:
    """The part of the graph outside of which no cycle has a node.

    Going round a cycle, every time that it spans is crossed backward: all of it lies in one union of the stretches
    that backward edges span. A node without predecessor or successor in there is in no cycle either."""
    backward = np.flatnonzero(whole.backward)
    if not len(backward):
        return whole.part(EMPTY, EMPTY)
    start, end = merge(whole.time[whole.target[backward]], whole.time[whole.source[backward]] + 1)
    stretch = np.searchsorted(start, whole.time, side="right") - 1
    stretch[(stretch >= 0) & (whole.time >= end[stretch])] = -1
    edges = np.flatnonzero((stretch[whole.source] == stretch[whole.target]) & (stretch[whole.source] >= 0))
    alive = np.zeros(len(whole.node), bool)
    for _ in range(_ROUNDS):
        ends = np.zeros(len(whole.node), np.int8)
        ends[whole.source[edges]] |= 1
        ends[whole.target[edges]] |= 2
        alive = ends == 3
        kept = alive[whole.source[edges]] & alive[whole.target[edges]]
        if kept.all():
            break
        edges = edges[kept]
    alive[whole.source[edges]] = alive[whole.target[edges]] = True
    return whole.part(np.flatnonzero(alive), edges)
