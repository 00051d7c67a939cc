"""`eos-violation`, not at all: an input that no committed output reflects, while a later input is reflected.

Joins, per transform group and partition number, what the input's partition settled (`input`) with what the output's
partition reflected (`reflected`): see `rules.checks.transactions.transforms`. What is told of the output is taken in
the order of log time, up to where the output's log is complete. An input is missing when a later one was reflected, and
the grace after that is over in both logs, by the clock of whoever may have reflected it, without the input itself being
reflected. It is not called missing

- while an indefinite transaction may have reflected it (`doubtful`, until `dropped` or `reflected`);
- below the first input that was reflected at all: a transform begins somewhere; it does so again after a part of the
  output's log that will never be here (`hole`);
- where the input's log start had passed it by then (`gone`);
- in a topic that was deleted: where the input's partition has another topic id, it is another log, and what was
  reflected until then says nothing of it. Where the output's has another, the end of the one before it will never be
  here, as with a hole.

State, per group and partition: one small value for what was reflected, and the inputs that wait, in blocks of `BLOCK`
offsets, so that a batch writes only those that it changes. In a healthy group these are the records in flight. Those of
a group that is gone wait for its return, above the input's log start; a group that has reflected nothing for
`FORGET_GROUP` is forgotten, as a broker forgets its offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rules.arrays import intervals
from rules.arrays.intervals import EMPTY, Ints
from rules.checks.transactions.transforms import FORGET_GROUP
from rules.kept import codec
from rules.kept.codec import Table, concat, take
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives

BLOCK: Final = 2048
SPANS_KEPT: Final = 10_000
"""Where nobody tells of the input, no more stretches of it than these are remembered as reflected, or doubtful: of what
lies below them nothing is called missing."""
FOREVER: Final = 2**62
HEAD: Final = "transform|"
QUEUED: Final = ("hole", "doubtful", "dropped", "reflected")
"""Facts that are taken in the order of log time, and this order where the times are the same."""


@dataclass(slots=True)
class Inputs(Table):
    """Runs of settled inputs that wait; `at` is when they were settled."""

    offset: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Block:
    """The inputs that wait in one block."""

    inputs: Inputs = field(default_factory=Inputs)


@dataclass(slots=True)
class Group:
    """One group in one partition; offsets are the input's, -1 where unknown.

    `queue`: [at, kind, start, end] of what log time has not reached. `reflected`: merged [start, end) of what was
    reflected in time; `doubtful`: [start, end) of undecided transactions. `tops`: [at, one past
    the highest offset reflected], both rising; `gone`: [at, log start], likewise. `lowest`: the first input reflected.
    `told`: all inputs below were told. `earlier`: the id of the topic before this one, and `since` when the transform
    began in this one (-1: there was none before it); `written`, `written_before`: the output's topic id, and the one
    before it. `output`, `input`: how far their logs are complete. `apart`: by how much the
    clocks of those that reflect differ, at most. `blocks`: those in which inputs wait. `last`: when
    something was reflected last."""

    cluster: str = ""
    group: str = ""
    partition: int = -1
    topic_id: str = ""
    topic: str = ""
    earlier: str = ""
    since: int = -1
    written: str = ""
    written_before: str = ""
    queue: list[list[int]] = field(default_factory=list)
    reflected: list[list[int]] = field(default_factory=list)
    doubtful: list[list[int]] = field(default_factory=list)
    tops: list[list[int]] = field(default_factory=list)
    gone: list[list[int]] = field(default_factory=list)
    lowest: int = -1
    told: int = -1
    output: int = -1
    input: int = -1
    apart: int = 0
    blocks: list[int] = field(default_factory=list)
    last: int = -1


@dataclass(slots=True)
class _Open:
    """One group while facts are joined: what is stored of it, and what changes."""

    key: str
    stored: Mapping[str, bytes]
    group: Group
    blocks: dict[int, Inputs] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    moved: bool = False
    """Is there anything to write? How far the logs are complete is told again by the next batch."""

    def block(self, number: int) -> Inputs:
        if number not in self.blocks:
            stored = self.stored.get(_block_key(self.key, number))
            self.blocks[number] = Inputs() if stored is None else codec.load(stored, Block, {})[0].inputs
        return self.blocks[number]

    def put(self, number: int, inputs: Inputs) -> None:
        if len(inputs) or len(self.block(number)):
            self.blocks[number] = inputs
            self.changed.add(number)
            self.moved = True

    def changes(self) -> Iterator[tuple[str, bytes | None]]:
        numbers = set(self.group.blocks) | self.changed
        self.group.blocks = sorted(n for n in numbers if n not in self.blocks or len(self.blocks[n]))
        for number in sorted(self.changed):
            inputs = self.blocks[number]
            yield _block_key(self.key, number), codec.dump(Block(inputs), {}, {}) if len(inputs) else None
        if self.moved:
            yield self.key, codec.dump(self.group, {}, {})


def _block_key(key: str, number: int) -> str:
    return f"input|{number:x}|{key}"


def join(
    stored: Mapping[str, bytes], facts: pa.Table, objectives: Objectives, *, finished: bool = False
) -> tuple[dict[str, bytes | None], list[Finding]]:
    """Take the facts about transforms in; returns what changes of the state, and the inputs that are missing."""
    changes: dict[str, bytes | None] = {}
    findings: list[Finding] = []
    by_key: dict[str, list[dict[str, Any]]] = {}
    for fact in facts.to_pylist():
        by_key.setdefault(f"{HEAD}{fact['cluster']}|{fact['group']}|{fact['partition']}", []).append(fact)
    for key in sorted(by_key):
        one = _open(stored, key, by_key[key][0])
        inputs = _take(one, by_key[key])
        if finished:
            one.group.output = one.group.input = FOREVER
        _apply(one, objectives.grace + one.group.apart)
        if inputs:
            _take_inputs(one, Inputs(*np.array(inputs, np.int64).T.copy()))
        findings.extend(_missing(one, objectives.grace))
        _forget(one)
        changes.update(one.changes())
    return changes, findings


def _open(stored: Mapping[str, bytes], key: str, fact: dict[str, Any]) -> _Open:
    known = stored.get(key)
    if known is not None:
        return _Open(key, stored, codec.load(known, Group, {})[0])
    group = Group(cluster=fact["cluster"], group=fact["group"], partition=fact["partition"])
    return _Open(key, stored, group, moved=True)


def _take(one: _Open, facts: list[dict[str, Any]]) -> list[list[int]]:
    """Put what waits for log time into the queue; returns the inputs, as rows of `Inputs`."""
    group, inputs = one.group, []
    _begin_anew(one, facts)
    for fact in facts:
        kind, at = fact["kind"], fact["at"]
        if at < group.since if kind in QUEUED else fact["topic_id"] == group.earlier:
            continue
        if kind == "begun":
            one.moved = True
        elif kind == "horizon":
            side = "input" if fact["about"] else "output"
            if side == "output":
                group.apart = fact["length"] or 0
            if at > getattr(group, side):
                setattr(group, side, at)
                one.moved |= bool(group.blocks or group.queue)
        elif kind == "gone":
            group.gone.append([at, fact["offset"]])
            one.moved = True
        elif kind == "input":
            inputs.append([fact["offset"], fact["length"], fact["writer"], fact["seq"], at])
        else:
            start = fact["offset"] or 0
            if fact["topic_id"] == group.written_before:
                continue
            if kind in ("reflected", "doubtful") and fact["topic_id"] != group.written:
                if group.written:
                    group.written_before = group.written
                    group.queue.append([at, QUEUED.index("hole"), 0, 0])
                group.written = fact["topic_id"]
            group.queue.append([at, QUEUED.index(kind), start, start + (fact["length"] or 0)])
            one.moved = True
    group.gone.sort()
    return inputs


def _begin_anew(one: _Open, facts: list[dict[str, Any]]) -> None:
    """Where the input's topic was made anew, nothing that is known of the one before it counts."""
    group = one.group
    for fact in sorted((fact for fact in facts if fact["kind"] == "begun"), key=lambda fact: fact["at"]):
        if fact["topic_id"] in (group.topic_id, group.earlier):
            continue
        group.earlier, group.topic_id, group.topic = group.topic_id, fact["topic_id"], fact["topic"]
        if group.earlier:
            group.since, group.told, group.gone = fact["at"], -1, []
            group.queue = [entry for entry in group.queue if entry[0] >= group.since]
            _begin_again(one)


def _take_inputs(one: _Open, new: Inputs) -> None:
    one.group.told = max(one.group.told, int((new.offset + new.length).max()))
    first, last = new.offset // BLOCK, (new.offset + new.length - 1) // BLOCK
    for number in range(int(first.min()), int(last.max()) + 1):
        low, high = number * BLOCK, (number + 1) * BLOCK
        part = _cut(take(new, (first <= number) & (last >= number)), low, high)
        if len(part):
            both = concat(one.block(number), part)
            one.put(number, _joined(take(both, np.argsort(both.offset, kind="stable")), one.group))


def _cut(inputs: Inputs, low: int, high: int) -> Inputs:
    """What of the runs lies in [low, high)."""
    start, end = np.maximum(inputs.offset, low), np.minimum(inputs.offset + inputs.length, high)
    cut = Inputs(start, end - start, inputs.writer, inputs.seq + start - inputs.offset, inputs.at)
    return take(cut, start < end)


def _joined(inputs: Inputs, group: Group) -> Inputs:
    """Neighbours joined where nothing can be found between their times: both were settled before anything that is
    reflected later than they lie."""
    end = inputs.offset + inputs.length
    same = (inputs.writer[1:] == inputs.writer[:-1]) & (inputs.offset[1:] == end[:-1])
    same &= (inputs.seq - inputs.offset)[1:] == (inputs.seq - inputs.offset)[:-1]
    top = group.tops[-1][1] if group.tops else -1
    same &= inputs.offset[:-1] >= top
    same &= inputs.at[1:] <= min(group.output, group.input)
    heads = np.flatnonzero(np.append(True, ~same))
    tails = np.append(heads[1:], len(inputs)) - 1
    if len(heads) == len(inputs):
        return inputs
    return Inputs(
        inputs.offset[heads],
        end[tails] - inputs.offset[heads],
        inputs.writer[heads],
        inputs.seq[heads],
        np.maximum.reduceat(inputs.at, heads),
    )


def _apply(one: _Open, patience: int) -> None:
    """Take what log time has reached from the queue, in order."""
    group = one.group
    ready = sorted(entry for entry in group.queue if entry[0] <= group.output)
    if not ready:
        return
    one.moved = True
    group.queue = [entry for entry in group.queue if entry[0] > group.output]
    for at, kind, start, end in ready:
        name = QUEUED[kind]
        if name == "hole":
            _begin_again(one)
        elif name == "doubtful":
            group.doubtful.append([start, end])
        elif name == "dropped":
            if [start, end] in group.doubtful:
                group.doubtful.remove([start, end])
        else:
            _reflect(group, at, start, end, patience)


def _begin_again(one: _Open) -> None:
    """What was reflected is not known any more: the transform begins where it reflects next."""
    group = one.group
    for number in list(group.blocks):
        one.put(number, Inputs())
    group.lowest, group.reflected, group.doubtful, group.tops = -1, [], [], []


def _reflect(group: Group, at: int, start: int, end: int, patience: int) -> None:
    if group.lowest < 0:
        group.lowest = start
    # Too late for what lies below an input that was reflected longer ago than the grace, by whatever clock.
    over = max((top for time, top in group.tops if time + patience < at), default=-1)
    _add(group.reflected, max(start, over - 1), end)
    if not group.tops or end > group.tops[-1][1]:
        group.tops.append([at, end])
        group.tops.sort()
    group.last = max(group.last, at)


def _add(spans: list[list[int]], start: int, end: int) -> None:
    """Add [start, end) to a merged list; most come at its end."""
    if start >= end:
        return
    if spans and spans[-1][0] <= start <= spans[-1][1]:
        spans[-1][1] = max(spans[-1][1], end)
        return
    spans.append([start, end])
    if len(spans) > 1 and spans[-2][1] >= start:
        spans.sort()
        merged = [spans[0]]
        for span in spans[1:]:
            if span[0] <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], span[1])
            else:
                merged.append(span)
        spans[:] = merged


def _missing(one: _Open, grace: int) -> Iterator[Finding]:
    group = one.group
    limit = min(group.output, group.input) - grace - group.apart
    passed = max((top for at, top in group.tops if at <= limit), default=0) - 1
    for number in list(group.blocks) + sorted(one.changed - set(group.blocks)):
        if number * BLOCK >= passed:
            continue
        inputs, kept = one.block(number), []
        for i in range(len(inputs)):
            low, high = int(inputs.offset[i]), int(inputs.offset[i] + inputs.length[i])
            cut = max(low, min(high, passed))
            for start, end in _gaps(max(low, group.lowest), cut, group.reflected):
                for missing_from, until in _gaps(start, end, group.doubtful):
                    yield from _report(group, inputs, i, range(missing_from, until), grace)
                kept += [(i, a, b) for s, e in group.doubtful if (a := max(s, start)) < (b := min(e, end))]
            if cut < high:  # nothing later is reflected yet
                kept.append((i, cut, high))
        _keep(one, number, inputs, sorted(set(kept)))


def _keep(one: _Open, number: int, inputs: Inputs, kept: list[tuple[int, int, int]]) -> None:
    rows, starts, ends = (np.array(column, np.int64) for column in zip(*kept, strict=True)) if kept else [EMPTY] * 3
    if len(kept) == len(inputs) and (starts == inputs.offset).all() and (ends - starts == inputs.length).all():
        return
    seq = inputs.seq[rows] + starts - inputs.offset[rows]
    one.put(number, Inputs(starts, ends - starts, inputs.writer[rows], seq, inputs.at[rows]))


def _gaps(start: int, end: int, spans: list[list[int]]) -> list[tuple[int, int]]:
    """What of [start, end) is in none of the spans."""
    gaps = []
    for s, e in sorted(spans):
        if e <= start or s >= end:
            continue
        if s > start:
            gaps.append((start, s))
        start = max(start, e)
    if start < end:
        gaps.append((start, end))
    return gaps


def _report(group: Group, inputs: Inputs, i: int, offsets: range, grace: int) -> Iterator[Finding]:
    for offset in offsets:
        reflected_at, top = next((at, top) for at, top in group.tops if top > offset + 1)
        at = max(int(inputs.at[i]), reflected_at + grace)
        if any(when <= at + group.apart and log_start > offset for when, log_start in group.gone):
            continue
        writer, seq = int(inputs.writer[i]), int(inputs.seq[i] + offset - inputs.offset[i])
        evidence = {"writer": writer, "seq": seq, "offset": offset, "group": group.group, "reflected": top - 1}
        yield Finding(
            anomaly="eos-violation",
            cluster=group.cluster,
            topic_id=group.topic_id,
            topic=group.topic,
            partition=group.partition,
            subject=("missing", group.group, writer, seq),
            message=f"input {writer}/{seq} at offset {offset} is not reflected in the committed output of group"
            f" {group.group}, and the input at offset {top - 1} is",
            evidence=evidence,
            at=at,
            decidable=at,
        )


def _forget(one: _Open) -> None:
    """Drop what no input that waits, or is still to be told, can need, and inputs that retention has taken."""
    group = one.group
    start = max((log_start for _, log_start in group.gone), default=-1)
    for number in [n for n in group.blocks if (n + 1) * BLOCK <= start]:
        one.put(number, Inputs())
    waiting = sorted({n for n in set(group.blocks) | one.changed if n not in one.blocks or len(one.blocks[n])})
    if not waiting:
        needed = group.told
    elif waiting[0] in one.blocks:
        needed = int(one.blocks[waiting[0]].offset[0])
    else:
        needed = waiting[0] * BLOCK
    for name in ("reflected", "doubtful"):
        spans = getattr(group, name)
        if spans and min(s for s, _ in spans) < needed:
            setattr(group, name, [[max(s, needed), e] for s, e in spans if e > needed])
        _bound(one, getattr(group, name))
    group.tops = [entry for entry in group.tops[:-1] if entry[1] > needed + 1] + group.tops[-1:]
    group.gone = [entry for entry in group.gone[:-1] if entry[1] > needed] + group.gone[-1:]


def _bound(one: _Open, spans: list[list[int]]) -> None:
    """Of too many of these, drop those that no input needs that waits, or is still to be told. Of what lies below the
    last `SPANS_KEPT` of the others nothing is known any more: as if the transform had begun behind them."""
    if len(spans) <= SPANS_KEPT:
        return
    group = one.group
    inputs = [one.block(number) for number in sorted({*group.blocks, *one.changed})]
    waiting = intervals.merge(
        np.concatenate([EMPTY, *(kept.offset for kept in inputs)]),
        np.concatenate([EMPTY, *(kept.offset + kept.length for kept in inputs)]),
    )
    start, end = np.array(spans, np.int64).T
    needed = (end > group.told) | intervals.touched(*waiting, start, end)
    spans[:] = [span for span, wanted in zip(spans, needed.tolist(), strict=True) if wanted]
    over = len(spans) - SPANS_KEPT
    if over > 0:
        group.lowest = max(group.lowest, *(end for _, end in spans[:over]))
        del spans[:over]


def forgotten(stored: Mapping[str, bytes], now: int) -> Iterator[str]:
    """The keys of groups that have reflected nothing for so long that their offsets are forgotten, too."""
    for key, value in stored.items():
        if key.startswith(HEAD):
            group, _ = codec.load(value, Group, {})
            if 0 <= group.last < now - FORGET_GROUP:
                yield key
                yield from (_block_key(key, number) for number in group.blocks)
