"""Dependency cycles: operations of which each must have come before the next, and the last before the first.

Nodes and edges are those of `rules.cycles.dependencies`. A cycle of write-write edges alone is `G0`; with at least one
write-read edge it is `G1c`. One that closes only with the order of a process's operations is `-process`, one that
closes only with order in real time `-realtime`. Where two operations depend on each other in several ways the weakest
need counts: a step that is a write-read edge as well as an order in time needs no clock.

**Which are reported.** The names have an order: G0, G1c, G0-process, G1c-process, G0-realtime, G1c-realtime. For each
of them in turn the graph of its edges is searched: of every strongly connected part the shortest cycle is reported,
its dependencies (ww and wr) are set aside, and the search goes on in what remains. So a stronger name is given only to
a cycle that does not rest on dependencies alone that weaker ones have shown already; every cycle of the graph shares a
dependency with one that is reported under its own or a weaker name; and independent faults of one history are each
reported. Polls at read_uncommitted come last: a cycle that needs one says so in its context, and the policy allows it.

Info and failed operations are nodes like others: what they polled was polled before they completed. What an info
operation wrote may take effect after it; only write-write edges tell of that, and what the policy says of searches
with them allows for it.

**How.** Nearly every edge points forward in time, and a cycle needs one that does not: what no backward edge spans is
dropped by array operations (`rules.cycles.precedence`). What remains is divided into strongly connected parts by
`components`: rustworkx in memory, or another engine that the caller brings. Only those are searched for their shortest
cycles (`rules.cycles.components`). Memory is linear in the runs of records and the operations of the table, and nothing
is kept from one call to the next; how many cycles are reported is bounded by `Limits.most` of each name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rules.cycles.components import NAMES, Components, Limits, Searcher, parts, strongly_connected
from rules.cycles.dependencies import read
from rules.cycles.precedence import graph, suspects
from rules.cycles.words import finding
from rules.vocabulary.finding import Finding

__all__ = ["NAMES", "Components", "Found", "Limits", "search"]

_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`operations` and `dependencies` of the table; `suspects`: nodes that could have been in a cycle. `truncated`: the
    names of which there are more cycles than were reported."""

    findings: list[Finding]
    operations: int
    dependencies: int
    suspects: int
    truncated: tuple[str, ...]


def search(
    table: pa.Table, *, ww: bool = False, limits: Limits = _LIMITS, components: Components = strongly_connected
) -> Found:
    """The cycles among the operations of `table` (`SLICE_SCHEMA`, any partitions, any order).

    Raises `OverflowError` where sequence or operation numbers span more than 2^62 together."""
    history = read(table, ww=ww)
    size = len(history.dependencies)
    suspected = suspects(graph(history.operations, history.dependencies))
    searcher = Searcher(history, limits)
    found = [
        finding(cycle, history, ww=ww)
        for part in parts(suspected, components)
        if (part.dependency >= 0).any()
        for cycle in searcher.search(part)
    ]
    return Found(
        findings=found,
        operations=len(history.operations),
        dependencies=size,
        suspects=len(suspected.node),
        truncated=tuple(name for name in NAMES if name in searcher.truncated),
    )
