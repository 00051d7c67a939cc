"""A cycle as a finding: who wrote what and where, who read it, and why each operation came before the next, in words.

The evidence holds the cycle twice: as data (`operations`, and `steps` between them) and as sentences (`why`, one for
each step); of a long one only its two ends, with how many operations were `left_out` between them. A finding's subject
is the cycle itself, from its lowest operation on, so that every search that comes upon it gives it the same id. Its
partition is that of its dependencies where they have but one, else -1, and likewise its topic.
"""

from __future__ import annotations

from typing import Any, Final

from rules.cycles.components import Cycle
from rules.cycles.dependencies import KINDS, PROCESS, WR, WW, History
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import FUNCTIONS, OUTCOMES
from rules.vocabulary.times import from_micros

_TOLD: Final = 4
"""Steps that the message tells."""

_LISTED: Final = 24
"""Operations that the evidence lists."""


def finding(cycle: Cycle, history: History, *, ww: bool) -> Finding:
    """The finding of one cycle; `ww` is whether the search had write-write edges."""
    o, p, d = history.operations, history.partitions, history.dependencies
    places = sorted({int(d.place[number]) for _, number in cycle.steps if number >= 0})
    topics = {(p.topic_id[place], p.topic[place]) for place in places}
    topic_id, topic = topics.pop() if len(topics) == 1 else ("", "")
    many_topics = not topic_id
    length = len(cycle.operations)
    listed = list(range(length))
    if length > _LISTED:
        listed = [*listed[: _LISTED // 2], *listed[-_LISTED // 2 :]]
    steps = [_step(cycle, i, history, many_topics) for i in listed]
    last = max(int(o.completed[node]) for node in cycle.operations)
    context = {"ww": "true" if ww else "false"}
    if not cycle.committed:
        context["isolation"] = "read_uncommitted"
    return Finding(
        anomaly=cycle.name,
        cluster=o.clusters[int(o.cluster[cycle.operations[0]])],
        topic_id=topic_id,
        topic=topic,
        partition=p.partition[places[0]] if len(places) == 1 else -1,
        subject=tuple(number for node in cycle.operations for number in (int(o.process[node]), int(o.op[node]))),
        message=_message([step["why"] for step in steps], length),
        evidence={
            "length": length,
            "left_out": length - len(listed),
            "operations": [_operation(history, cycle.operations[i]) for i in listed],
            "steps": [{name: value for name, value in step.items() if name != "why"} for step in steps],
            "why": [step["why"] for step in steps],
        },
        context=context,
        at=last,
        decidable=last,
    )


def _message(why: list[str], length: int) -> str:
    told = "; ".join(why[:_TOLD])
    more = f"; and {length - _TOLD} steps more" if length > _TOLD else ""
    return f"{length} operations each come before the next, the last before the first: {told}{more}"


def _operation(history: History, node: int) -> dict[str, Any]:
    o = history.operations
    return {
        "process": int(o.process[node]),
        "op": int(o.op[node]),
        "f": FUNCTIONS[o.f[node]],
        "type": OUTCOMES[o.type[node]],
        "invoked": from_micros(int(o.invoked[node])).isoformat(),
        "completed": from_micros(int(o.completed[node])).isoformat(),
    }


def _step(cycle: Cycle, i: int, history: History, many_topics: bool) -> dict[str, Any]:
    kind, number = cycle.steps[i]
    source, target = cycle.operations[i], cycle.operations[(i + 1) % len(cycle.operations)]
    o, d, p = history.operations, history.dependencies, history.partitions
    one, other = _named(history, source), _named(history, target)
    told: dict[str, Any] = {"kind": KINDS[kind]}
    if kind not in (WR, WW):
        if kind == PROCESS:
            why = f"process {o.process[source]} began operation {o.op[source]} before its operation {o.op[target]}"
        else:
            why = f"{one} had completed before {other} was invoked, by one clock"
        return told | {"why": why}
    place = int(d.place[number])
    where = f"partition {p.partition[place]}" + (f" of {p.topic[place]}" if many_topics else "")
    value = f"{d.writer[number]}/{d.seq[number]}"
    told |= {"partition": p.partition[place], "writer": int(d.writer[number]), "seq": int(d.seq[number])}
    if many_topics:
        told["topic"] = p.topic[place]
    if d.offset[number] >= 0:
        told["offset"] = int(d.offset[number])
    at = f"offset {d.offset[number]} of {where}" if d.offset[number] >= 0 else where
    if kind == WR:
        return told | {"why": f"{one} wrote {value}, which {other} polled from {at}"}
    following = {
        "writer": int(d.next_writer[number]),
        "seq": int(d.next_seq[number]),
        "offset": int(d.next_offset[number]),
    }
    next_value = f"{d.next_writer[number]}/{d.next_seq[number]}"
    why = f"{one} wrote {value} at {at}, and {other} wrote the next value, {next_value} at {following['offset']}"
    return told | {"next": following, "why": why}


def _named(history: History, node: int) -> str:
    return f"operation {history.operations.op[node]} of process {history.operations.process[node]}"
