"""Shortest cycles in one strongly connected part of the graph, each under its name. See `rules.cycles.search`."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import rustworkx as rx

from rules.arrays.intervals import EMPTY, Bools, Ints
from rules.cycles.dependencies import PROCESS, REALTIME, WR, WW, History
from rules.cycles.precedence import Graph

Components = Callable[[int, Ints, Ints], Iterator[Ints]]
"""(number of nodes, sources, targets) -> the nodes, sorted, of each strongly connected part of two or more."""

LEVELS: Final = (
    ("G0", (WW,)),
    ("G1c", (WW, WR)),
    ("G0-process", (WW, PROCESS)),
    ("G1c-process", (WW, WR, PROCESS)),
    ("G0-realtime", (WW, PROCESS, REALTIME)),
    ("G1c-realtime", (WW, WR, PROCESS, REALTIME)),
)
"""The names in their order, the weakest first, each with the edges that its cycles may have."""

NAMES: Final = tuple(name for name, _ in LEVELS)

_BLOCK: Final = 1 << 20
_CANDIDATES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`most`: cycles that one search reports of one name. `exhaustive`: up to so many operations, the shortest cycle
    of a strongly connected part is searched among all; above it among those that close a few of the dependencies which
    point furthest back. `readable`: a cycle of more operations than that explains little, and leaves its dependencies
    to shorter cycles of stronger names."""

    most: int = 100
    exhaustive: int = 2_000
    readable: int = 12


@dataclass(frozen=True, slots=True)
class Cycle:
    """`steps[i]` leads from `operations[i]` to the next one: its kind and, for ww and wr, the dependency. `committed`
    is False where the cycle needs what a read_uncommitted reader polled. Begins at the lowest operation."""

    name: str
    operations: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    committed: bool


def strongly_connected(nodes: int, source: Ints, target: Ints) -> Iterator[Ints]:
    """`Components` in memory, by rustworkx."""
    found: rx.PyDiGraph[None, None] = rx.PyDiGraph()
    found.add_nodes_from([None] * nodes)
    for first in range(0, len(source), _BLOCK):
        block = slice(first, first + _BLOCK)
        found.extend_from_edge_list(list(zip(source[block].tolist(), target[block].tolist(), strict=True)))
    for part in rx.strongly_connected_components(found):
        if len(part) > 1:
            yield np.sort(np.array(part, np.int64))


def parts(graph: Graph, components: Components = strongly_connected) -> Iterator[Graph]:
    """The strongly connected parts of two nodes or more, in the order of their earliest time."""
    label = np.full(len(graph.node), -1, np.int64)
    members = sorted(components(len(graph.node), graph.source, graph.target), key=lambda m: int(graph.time[m].min()))
    for number, nodes in enumerate(members):
        label[nodes] = number
    inside = np.flatnonzero((label[graph.source] == label[graph.target]) & (label[graph.source] >= 0))
    inside = inside[np.argsort(label[graph.source[inside]], kind="stable")]
    bounds = np.searchsorted(label[graph.source[inside]], np.arange(len(members) + 1))
    for number, nodes in enumerate(members):
        yield graph.part(nodes, inside[bounds[number] : bounds[number + 1]])


class Searcher:
    """Searches parts one after another. `counts` tells how many cycles were reported of each name, `truncated` of which
    names there are more."""

    def __init__(self, history: History, limits: Limits) -> None:
        self._operations = history.operations
        self._dependencies = history.dependencies
        self._limits = limits
        self.counts: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.truncated: set[str] = set()

    def search(self, part: Graph) -> list[Cycle]:
        """The cycles of one strongly connected part, in the order of names."""
        between: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        numbers = part.dependency[part.dependency >= 0]
        d = self._dependencies
        for number, source, target in zip(
            numbers.tolist(), d.source[numbers].tolist(), d.target[numbers].tolist(), strict=True
        ):
            between[source, target].append(number)
        uncommitted = np.zeros(len(part.source), bool)
        is_dependency = part.dependency >= 0
        uncommitted[is_dependency] = d.uncommitted[part.dependency[is_dependency]]
        aside: set[int] = set()
        found: dict[tuple[int, ...], Cycle] = {}
        for also_uncommitted in (False, True) if uncommitted.any() else (False,):
            for name, kinds in LEVELS:
                usable = np.isin(part.kind, kinds) & (also_uncommitted | ~uncommitted)
                if np.isin(part.kind[usable], (WW, WR)).any():
                    self._level(part, name, usable, between, aside, found)
        return list(found.values())

    def _level(
        self,
        part: Graph,
        level: str,
        usable: Bools,
        between: defaultdict[tuple[int, int], list[int]],
        aside: set[int],
        found: dict[tuple[int, ...], Cycle],
    ) -> None:
        waiting = [part.part(np.arange(len(part.node)), np.flatnonzero(usable))]
        long: set[int] = set()
        while waiting:
            rest = waiting.pop()
            rest = rest.part(np.arange(len(rest.node)), np.flatnonzero(~np.isin(rest.dependency, list(aside))))
            for own in parts(rest):
                rings = self._shortest(own, dict(LEVELS)[level]) if (own.dependency >= 0).any() else []
                for ring in rings:
                    steps = list(zip(ring, (*ring[1:], ring[0]), strict=True))
                    numbers = [number for step in steps for number in between.get(step, ())]
                    if all(number in aside for number in numbers):
                        continue
                    cycle = self._named(ring, between)
                    if cycle is not None and cycle.operations not in found:
                        if self.counts[cycle.name] >= self._limits.most:
                            self.truncated.add(cycle.name)
                            aside -= long
                            return
                        found[cycle.operations] = cycle
                        self.counts[cycle.name] += 1
                    long.update(() if len(ring) <= self._limits.readable else set(numbers) - aside)
                    aside.update(numbers)
                if rings:
                    waiting.append(own)
        aside -= long

    # Shortest cycles

    def _shortest(self, own: Graph, kinds: tuple[int, ...]) -> list[tuple[int, ...]]:
        """All cycles of two operations, or else one of the shortest, as operations in order; none where every
        dependency of the part has order edges alone around it."""
        edges = np.flatnonzero(own.dependency >= 0)
        source, target = own.source[edges], own.target[edges]
        pairs = self._mutual(own, source, target, kinds)
        if pairs:
            return pairs
        backward = own.backward
        if not backward[own.dependency < 0].any():  # order never points backward, so one of these is in every cycle
            edges = edges[backward[edges]]
            source, target = own.source[edges], own.target[edges]
        order = np.lexsort((own.time[source], own.time[target]))
        if np.count_nonzero(own.node < own.operations) > self._limits.exhaustive:
            order = np.argsort(own.time[target] - own.time[source], kind="stable")[:_CANDIDATES]
        candidates = list(dict.fromkeys(zip(source[order].tolist(), target[order].tolist(), strict=True)))
        after = _adjacent(own)
        timer = own.node >= own.operations
        clock, best = timer.tolist(), EMPTY
        for begin, end in candidates:
            path = np.array(_path(after, clock, end, begin, len(best) - 1 if len(best) else None), np.int64)
            if len(path):
                best = path[~timer[path]]
        return [tuple(own.node[best].tolist())] if len(best) else []

    def _mutual(self, own: Graph, source: Ints, target: Ints, kinds: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Pairs of which each comes before the other, one of the two by a dependency."""
        o, size = self._operations, len(own.node)
        one, other = own.node[source], own.node[target]
        back = np.isin(target * size + source, source * size + target)
        if PROCESS in kinds:
            same = (o.cluster[one] == o.cluster[other]) & (o.process[one] == o.process[other])
            back |= same & (o.op[other] < o.op[one])
        if REALTIME in kinds:
            back |= (o.clock[one] >= 0) & (o.clock[one] == o.clock[other]) & (o.ended[other] < o.begun[one])
        low, high = np.minimum(one[back], other[back]), np.maximum(one[back], other[back])
        return sorted(dict.fromkeys(zip(low.tolist(), high.tolist(), strict=True)))

    # Names

    def _named(self, ring: tuple[int, ...], between: defaultdict[tuple[int, int], list[int]]) -> Cycle | None:
        """The cycle with the weakest name that holds for it. None for order alone, which no dependency contradicts."""
        first = ring.index(min(ring))
        ring = ring[first:] + ring[:first]
        for committed in (True, False):
            steps = [
                self._relations(source, target, between.get((source, target), ()), committed)
                for source, target in zip(ring, (*ring[1:], ring[0]), strict=True)
            ]
            for name, kinds in LEVELS:
                # The kind that gives the cycle its name goes first: ww in G0, wr in G1c.
                order = [k for k in ((WW, WR) if name.startswith("G0") else (WR, WW)) if k in kinds]
                order += [k for k in (PROCESS, REALTIME) if k in kinds]
                taken = [next(((k, step[k]) for k in order if k in step), None) for step in steps]
                chosen = [t for t in taken if t is not None]
                needed = WW if name.startswith("G0") else WR
                if len(chosen) == len(taken) and any(kind == needed for kind, _ in chosen):
                    return Cycle(name, ring, tuple(chosen), committed)
        return None

    def _relations(
        self, source: int, target: int, dependencies: list[int] | tuple[()], committed: bool
    ) -> dict[int, int]:
        """How `source` comes before `target`: kind -> dependency, or -1."""
        o, d = self._operations, self._dependencies
        found: dict[int, int] = {}
        for number in dependencies:
            if not (committed and d.uncommitted[number]):
                found.setdefault(int(d.kind[number]), number)
        same = o.cluster[source] == o.cluster[target] and o.process[source] == o.process[target]
        if same and o.op[source] < o.op[target]:
            found[PROCESS] = -1
        if o.clock[source] >= 0 and o.clock[source] == o.clock[target] and o.ended[source] < o.begun[target]:
            found[REALTIME] = -1
        return found


def _adjacent(own: Graph) -> list[list[int]]:
    """Of each node the nodes after it, the earliest first, each as twice its number, plus one for process order."""
    order = np.lexsort((own.time[own.target], own.source))
    bounds = np.searchsorted(own.source[order], np.arange(len(own.node) + 1)).tolist()
    listed = (2 * own.target[order] + (own.kind[order] == PROCESS)).tolist()
    return [listed[bounds[i] : bounds[i + 1]] for i in range(len(own.node))]


def _path(after: list[list[int]], timer: list[bool], begin: int, end: int, below: int | None) -> list[int]:
    """A shortest path from `begin` to `end`, counted in steps between operations: its nodes, both ends among them.
    Empty where there is none below `below` steps.

    A chain of time nodes is one step, and so is a stretch of process order: what comes later in a process comes after
    all that is earlier. Hence a place is a node and whether process order led there, and going on in it, or into a
    time node, costs nothing."""
    start = 2 * begin
    came = {start: -1}
    cost = {start: 0}
    queue = deque([start])
    done: set[int] = set()
    while queue:
        place = queue.popleft()
        if place in done:
            continue
        done.add(place)
        if place >> 1 == end:
            return _walked(came, place)
        for following in after[place >> 1]:
            free = timer[following >> 1] or place & following & 1
            reached = cost[place] + (0 if free else 1)
            if (below is not None and reached >= below) or cost.get(following, 1 << 60) <= reached:
                continue
            cost[following], came[following] = reached, place
            if free:
                queue.appendleft(following)
            else:
                queue.append(following)
    return []


def _walked(came: dict[int, int], place: int) -> list[int]:
    """The nodes of the path that ends at `place`, without those inside a stretch of process order."""
    path = [place]
    while came[path[-1]] >= 0:
        path.append(came[path[-1]])
    path.reverse()
    inner = [a for a, b in pairwise(path[1:]) if not a & b & 1]
    return [p >> 1 for p in (path[0], *inner, path[-1])] if len(path) > 1 else [place >> 1]
