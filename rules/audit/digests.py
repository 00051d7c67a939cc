"""Block digests: a log that changes behind its readers is found, in constant memory.

The log is cut into *blocks* of 1,024 offsets. Whoever reads a whole block in assign mode, without a break, in ok
operations at read_committed, gives it a digest: the order-independent sum of a hash of each (offset, value) polled
there. The first digest of a block is kept; a later one that differs names a range of offsets to *recheck*: two readers
saw it differently, and the rows of the probe log tell how (`rules.audit.explain`). So an audit reader that reads the
log from its start finds what changed below the settled frontier, where nothing else is remembered.

A block that is not full yet is compared as far as somebody has read it (`rules.audit.beginnings`).

Readers that begin anew in the middle of a block, as all do when their fleet does, would leave none that has read it
whole. So one that begins there, where another reading has been, takes that over: what it reads again up to there does
not count, and from there on it goes on with the other's digest.

Blocks are kept in *buckets* of 65,536 offsets, with a roster of the chunks of values that stand there: when the log
start has passed a bucket, it is dropped, and with it the chunks that no later bucket names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Final

import numpy as np

from rules.arrays.intervals import EMPTY, Bools, Ints, among, distinct, each, indices, numbered
from rules.audit.beginnings import PART, Beginnings, Tail, learn
from rules.audit.sums import BLOCK, Words, folded, run_digests
from rules.checks.records.phantom_reads import record_name, record_top
from rules.kept.check import Asked, Check, News, Passage
from rules.kept.chunks import SPAN, Chunks, chunk_name
from rules.kept.codec import Table, concat, take
from rules.kept.state import Polls
from rules.settling.positions import Passes

BLOCKS: Final = 64
BUCKET: Final = BLOCK * BLOCKS
BUCKETS_AT_ONCE: Final = 64
"""A step that reads over more buckets than this leaves those between unaudited: a jump, not a read."""
DROPPED_AT_ONCE: Final = 16
READINGS_KEPT: Final = 16
"""Readings of processes that are no more which another one may go on with: those that went furthest."""

_BUCKET: Final = struct.Struct("<QIB")


@dataclass(slots=True)
class Bucket:
    """The digests of 64 blocks, -1 where none is known, and the chunks (writer, number) that have values here."""

    digests: Ints = field(default_factory=lambda: np.full(BLOCKS, -1, np.int64))
    roster: set[tuple[int, int]] = field(default_factory=set)

    def dump(self) -> bytes:
        """Mask of the digests known, the digests, then for each writer its id and its first and last chunk, in the
        narrowest width that holds these: a log may have a thousand buckets."""
        known = self.digests >= 0
        mask = int.from_bytes(np.packbits(known, bitorder="little").tobytes(), "little")
        spans: dict[int, tuple[int, int]] = {}
        for writer, number in self.roster:
            low, high = spans.get(writer, (number, number))
            spans[writer] = min(low, number), max(high, number)
        listed = sorted(spans.items())
        numbers = np.array([span for _, span in listed], np.int64).reshape(-1, 2)
        width = next(w for w in (1, 2, 4, 8) if w == 8 or int(numbers.max(initial=0)) < 2 ** (8 * w))
        return b"".join(
            (
                _BUCKET.pack(mask, len(listed), width),
                self.digests[known].astype("<u4").tobytes(),
                np.array([writer for writer, _ in listed], "<i8").tobytes(),
                numbers.astype(f"<u{width}").tobytes(),
            )
        )

    @classmethod
    def load(cls, data: bytes | None) -> Bucket:
        if data is None:
            return cls()
        mask, count, width = _BUCKET.unpack_from(data)
        known = np.unpackbits(np.frombuffer(mask.to_bytes(8, "little"), np.uint8), bitorder="little").astype(bool)
        at = _BUCKET.size
        digests = np.full(BLOCKS, -1, np.int64)
        digests[known] = np.frombuffer(data, "<u4", int(known.sum()), at)
        at += 4 * int(known.sum())
        writers = np.frombuffer(data, "<i8", count, at).tolist()
        spans = np.frombuffer(data, f"<u{width}", 2 * count, at + 8 * count).reshape(-1, 2).tolist()
        roster = {
            (writer, number)
            for writer, (low, high) in zip(writers, spans, strict=True)
            # A writer that leaps has no chunks in between.
            for number in (range(low, high + 1) if high - low < BUCKET else (low, high))
        }
        return cls(digests, roster)


def bucket_name(number: int) -> str:
    """The chunk that holds a bucket. No writer's chunk is called so."""
    return f"blocks.{number}"


def _bucket(chunks: Chunks, number: int) -> Bucket:
    return chunks.decoded(bucket_name(number), Bucket.load)


@dataclass(slots=True)
class Reading(Table):
    """Where readers in assign mode are inside a block of the log (`rules.audit.digests`): they read [start, end)
    without a break, the last of it at `when`, and `digest` is that of what they polled in the block that `end` lies in.
    `at`: how far one has come itself that has taken over another's reading, below its `end`; -1 for all others."""

    process: Ints = field(default_factory=lambda: EMPTY)
    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)
    digest: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    when: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Audit:
    """`reading`: where readers in assign mode are inside a block, one entry for each that lives, and `READINGS_KEPT` of
    those that do not. `beginnings`: how the newest blocks begin. `kept_from`: the first bucket that is kept.
    `dropping`: [writer, chunk] that the next step drops, or finds to reach further, `reaching`: [writer, chunk, offset]
    of those that do, as many as stand in a dropped bucket and above the log start; chunk -1 is what is known of the
    writer."""

    reading: Reading = field(default_factory=Reading)
    beginnings: Beginnings = field(default_factory=Beginnings)
    kept_from: int = -1
    dropping: list[list[int]] = field(default_factory=list)
    reaching: list[list[int]] = field(default_factory=list)


def needs(own: Audit, asked: Asked) -> Iterable[str]:
    """The buckets that the step touches, and the chunks that it may drop."""
    yield from map(bucket_name, _buckets_needed(own, asked))
    for writer, number in own.dropping:
        yield record_name(writer) if number < 0 else chunk_name(writer, number)


def _buckets_needed(own: Audit, asked: Asked) -> set[int]:
    state = asked.state
    every = (asked.columns.sent, asked.columns.polled, state.polls)
    offset, length = (np.concatenate([getattr(runs, name) for runs in every]) for name in ("offset", "length"))
    known = offset >= 0
    known[known.size - len(state.polls) :] = True  # what waits is asked for also where its offset is unknown
    start, end = offset[known], (offset + length)[known]
    numbers = each(np.concatenate((start, end, own.reading.end)) // BUCKET)
    needed = {number for number in numbers if number >= 0}
    for low, high in pairwise(numbers):
        if 1 < high - low <= BUCKETS_AT_ONCE:  # a reader may go over what holds no record
            needed.update(range(low, high))
    if own.kept_from >= 0:
        gone = min(max(state.log_start, 0) // BUCKET, own.kept_from + DROPPED_AT_ONCE)
        needed.update(range(own.kept_from, gone + 1))
    return needed


def arrive(own: Audit, new: News) -> None:
    """Values were placed: note which chunks stand in which bucket, and how far each chunk and writer reaches. Runs are
    far shorter than either."""
    chunks, placed = new.chunks, new.placed.places
    known = placed.offset >= 0
    if not known.any():
        return
    labels, writer = numbered(placed.writer[known])
    offset, seq, more = placed.offset[known], placed.seq[known], placed.length[known] - 1
    # Both ends of each run: (bucket, chunk) as one number, writer by writer.
    low, base = int(offset.min()) // BUCKET, int(seq.min()) // SPAN
    width = int((seq + more).max()) // SPAN - base + 1
    ends = (0, more)
    if width * (int((offset + more).max()) // BUCKET - low + 1) * len(labels) < 2**62:
        keys = [
            (writer + ((offset + end) // BUCKET - low) * len(labels)) * width + (seq + end) // SPAN - base
            for end in ends
        ]
        rest, numbers = np.divmod(distinct(np.concatenate(keys)), width)
        touched = rest // len(labels) + low, rest % len(labels), numbers + base
    else:
        columns = [np.stack(((offset + end) // BUCKET, writer, (seq + end) // SPAN)) for end in ends]
        touched = tuple(np.unique(np.concatenate(columns, axis=1), axis=1))
    tops = _tops(writer, offset + more, low)
    for number, label, chunk in zip(*(column.tolist() for column in touched), strict=True):
        writer_id = int(labels[label])
        chunks.stands(writer_id, chunk, tops.get((label, number - low), -1))
        if not chunks.declares(bucket_name(number)):
            continue
        if own.kept_from < 0 or number < own.kept_from:
            own.kept_from = number
        bucket = _bucket(chunks, number)
        if (writer_id, chunk) not in bucket.roster:
            bucket.roster.add((writer_id, chunk))
            chunks.keep(bucket_name(number), Bucket.dump)


def _tops(writer: Ints, last: Ints, low: int) -> dict[tuple[int, int], int]:
    """The highest offset of each (writer label, bucket less `low`)."""
    tops: dict[tuple[int, int], int] = {}
    order = np.lexsort((last, last // BUCKET, writer))
    writer, last = writer[order], last[order]
    ends = np.append((writer[1:] != writer[:-1]) | (last[1:] // BUCKET != last[:-1] // BUCKET), True)
    for label, top in zip(writer[ends].tolist(), last[ends].tolist(), strict=True):
        tops[label, top // BUCKET - low] = top
    return tops


def fold(own: Audit, passage: Passage) -> None:
    """Digest what readers have read to its end, compare it with what others read there, and drop what is below the log
    start."""
    if len(passage.passes):
        _digest(own, passage)
    _forget(own, passage.chunks, max(passage.state.log_start, 0))


def _digest(own: Audit, passage: Passage) -> None:
    """Readers in assign mode passed these offsets, in the order of process and slice, and polled these runs, all
    complete in log time. Those that begin come after the others, one after the other as they began: they may go on with
    a reading of the same step."""
    passes, polls = passage.passes, passage.polls
    process, first = np.unique(passes.process, return_index=True)
    new = ~among(process, own.reading.process)
    goes_on = among(passes.process, process[~new])
    if goes_on.any():
        _digest_of_known(own, passage, _taken(passes, goes_on), polls)
    began = first[new]
    for i in began[passes.at[began].argsort(kind="stable")].tolist():
        mine = passes.process == passes.process[i]
        _take_over(own, int(passes.process[i]), int(passes.start[i]))
        _digest_of_known(own, passage, _taken(passes, mine), polls)
    _forget_readings(own, passage)


def _taken(passes: Passes, keep: Bools) -> Passes:
    return Passes(*(getattr(passes, f.name)[keep] for f in fields(passes)))


def _take_over(own: Audit, process: int, start: int) -> None:
    """A process begins at `start`: where others have read on from before that in its block, it has what the first of
    them has: who read there only lately may have seen no more than itself. Who begins with a block reads it by itself.
    """
    others = own.reading
    fit = indices((others.start < start) & (start <= others.end) & (others.at < 0))
    if len(fit):
        i = int(fit[others.when[fit].argmin()])
        taken = (process, others.start[i], others.end[i], others.digest[i], start, others.when[i])
        own.reading = concat(others, Reading(*(np.array([value], np.int64) for value in taken)))


def _caught_up(own: Audit, passes: Passes, polls: Polls) -> tuple[Passes, Polls]:
    """Without what those read again who took over another's reading. Who does not come to its end in one go is on its
    own from where it was."""
    for i in indices(own.reading.at >= 0).tolist():
        process, at, until = int(own.reading.process[i]), int(own.reading.at[i]), int(own.reading.end[i])
        mine = indices(passes.process == process)
        if not len(mine):
            continue
        start, end = passes.start[mine], passes.end[mine]
        before = np.concatenate(([at], end[:-1]))
        again = before < until
        if ((start[again] < before[again] - 1) | (start[again] > before[again])).any():
            own.reading = take(own.reading, np.arange(len(own.reading)) != i)
            return _caught_up(own, passes, polls)
        passes = replace(passes, start=passes.start.copy(), end=passes.end.copy())
        passes.start[mine] = np.where(again, np.maximum(start, until), start)
        passes.end[mine] = np.where(again, np.maximum(end, until), end)
        cut = np.where((polls.process == process) & among(polls.op, passes.op[mine[again]]), until - polls.offset, 0)
        cut = np.clip(np.where(polls.offset >= 0, cut, 0), 0, None)
        left = cut < polls.length
        polls = replace(
            take(polls, left),
            offset=(polls.offset + cut)[left],
            seq=(polls.seq + cut)[left],
            length=(polls.length - cut)[left],
        )
        come = int(end.max())
        own.reading = replace(own.reading, at=own.reading.at.copy())
        own.reading.at[i] = come if come < until else -1
    return passes, polls


def _digest_of_known(own: Audit, passage: Passage, passes: Passes, polls: Polls) -> None:
    passes, polls = _caught_up(own, passes, polls)
    segment, process, start, end, carried = _segments(own, passes)
    runs, of_segment = _runs(passes, segment, polls)
    keys, sums = _sums(passes, segment, runs, of_segment, carried)
    first, last = -(-start // BLOCK), end // BLOCK
    count = np.maximum(last - first, 0)
    count = np.where(count <= BUCKETS_AT_ONCE * BLOCKS, count, 0)
    owner = np.repeat(np.arange(len(start)), count)
    block = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    complete = _digest_of(keys, sums, owner, block)
    _compare(passage, block, complete)
    # What is left of each process's last segment is carried to the next step.
    tails = np.append(indices(np.diff(process)), len(process) - 1)
    rest = _digest_of(keys, sums, tails, last[tails], short=False)
    ended = _tails(passes, (runs, of_segment, segment), (start[tails], carried[tails], rest), tails)
    learn(own.beginnings, ended, passage.state.log_start, passage.report)
    catching = dict(zip(own.reading.process.tolist(), own.reading.at.tolist(), strict=True))
    at = np.array([catching.get(one, -1) for one in process[tails].tolist()], np.int64)
    when = passes.at[np.append(indices(np.diff(passes.process)), len(passes) - 1)]
    kept = Reading(process[tails], np.maximum(start[tails], last[tails] * BLOCK), end[tails], rest, at, when)
    own.reading = concat(take(own.reading, ~among(own.reading.process, process)), kept)


def _forget_readings(own: Audit, passage: Passage) -> None:
    """Of processes that are no more those are kept that went furthest."""
    gone = indices(~among(own.reading.process, passage.state.processes))
    if len(gone) > READINGS_KEPT:
        keep = np.ones(len(own.reading), bool)
        keep[gone[own.reading.end[gone].argsort(kind="stable")[:-READINGS_KEPT]]] = False
        own.reading = take(own.reading, keep)


def _segments(audit: Audit, passes: Passes) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """What was read without a break: (segment of each pass, then of each segment its process, start, end, and the
    digest that an earlier step had of its unfinished block)."""
    known = {int(p): i for i, p in enumerate(audit.reading.process)}
    head = np.concatenate(([True], passes.process[1:] != passes.process[:-1]))
    before = np.concatenate(([-1], passes.end[:-1]))
    before[head] = -1
    digest = np.zeros(len(passes), np.int64)
    begun = passes.start.copy()
    for i in indices(head).tolist():
        at = known.get(int(passes.process[i]))
        if at is not None:
            before[i] = audit.reading.end[at]
            if before[i] - 1 <= passes.start[i] <= before[i]:
                begun[i], digest[i] = audit.reading.start[at], audit.reading.digest[at]
    goes_on = (passes.start >= before - 1) & (passes.start <= before) & ~head
    segment = np.cumsum(~goes_on) - 1
    heads = indices(~goes_on)
    tails = np.append(heads[1:], len(passes)) - 1
    return segment, passes.process[heads], begun[heads], passes.end[tails], digest[heads]


def _tails(passes: Passes, polled: tuple[Polls, Ints, Ints], begun: tuple[Ints, Ints, Ints], tails: Ints) -> list[Tail]:
    """Of each reader that has come to the end of a part of a block in this step its last segment (`tails`): one of each
    that have read alike. `polled`: the runs, of which segment each is, and of which each pass is; `begun`: where each
    of the tails began, what it carried, and its digest now."""
    runs, of_segment, segment = polled
    begin = passes.start[segment.searchsorted(tails)]
    end = passes.end[segment.searchsorted(tails, side="right") - 1]
    came = indices(begin // PART < end // PART)
    alike: dict[tuple[int, ...], Tail] = {}
    columns = [column[came].tolist() for column in (begun[0], begin, end, *begun[1:], tails)]
    for start, low, high, carried, digest, t in zip(*columns, strict=True):
        key = (start // BLOCK, low // PART, high, carried, digest)
        if key not in alike:
            alike[key] = Tail(start, low, high, carried, digest, take(runs, of_segment == t))
    return list(alike.values())


def _runs(passes: Passes, segment: Ints, polled: Polls) -> tuple[Polls, Ints]:
    """What was polled in segments, and in which."""
    _, inverse = numbered(np.concatenate((passes.process, polled.process)))
    ops, op = numbered(np.concatenate((passes.op, polled.op)))
    label = inverse * len(ops) + op
    own, of = label[: len(passes)], label[len(passes) :]
    order = own.argsort(kind="stable")
    at = np.minimum(np.searchsorted(own[order], of), len(own) - 1)
    found = (own[order][at] == of) & (polled.offset >= 0)
    return take(polled, found), segment[order[at[found]]]


def _sums(passes: Passes, segment: Ints, runs: Polls, of_segment: Ints, carried: Ints) -> tuple[Ints, Words]:
    """The digest of each (segment, block) in which something was polled: sorted keys, and sums."""
    run, block, digest = run_digests(runs.offset, runs.writer, runs.seq, runs.length)
    unfinished = indices(carried != 0)
    # The block that a segment had begun before: the one that its first pass goes on in.
    heads = segment.searchsorted(unfinished)
    key = _keys(np.concatenate((of_segment[run], unfinished)), np.concatenate((block, passes.start[heads] // BLOCK)))
    values = np.concatenate((digest, carried[unfinished].astype(np.uint64)))
    if not len(key):
        return EMPTY, np.empty(0, np.uint64)
    order = key.argsort(kind="stable")
    key, values = key[order], values[order]
    heads = indices(np.concatenate(([True], key[1:] != key[:-1])))
    with np.errstate(over="ignore"):
        return key[heads], np.add.reduceat(values, heads)


def _keys(segment: Ints, block: Ints) -> Ints:
    """Offsets end far below 2**50, and a step has less than 2**22 segments."""
    return segment * (1 << 40) + block


def _digest_of(keys: Ints, sums: Words, segment: Ints, block: Ints, *, short: bool = True) -> Ints:
    """The digests of these blocks, 0 where nothing was polled; 32 bits of them, or (not `short`) all."""
    wanted = _keys(segment, block)
    if not len(keys):
        return np.zeros(len(wanted), np.int64)
    at = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
    whole = np.where(keys[at] == wanted, sums[at], np.uint64(0))
    if not short:
        return np.asarray(whole.astype(np.int64))
    return folded(whole)


def _compare(passage: Passage, block: Ints, digest: Ints) -> None:
    state, chunks, report = passage.state, passage.chunks, passage.report
    for number in each(block // BLOCKS):
        if not chunks.declares(bucket_name(number)):
            continue
        bucket = _bucket(chunks, number)
        own = indices(block // BLOCKS == number)
        for one in range(len(own)):  # usually one segment's blocks after another's
            i = int(own[one])
            at, known = int(block[i]) % BLOCKS, int(bucket.digests[int(block[i]) % BLOCKS])
            if known < 0:
                bucket.digests[at] = digest[i]
                chunks.keep(bucket_name(number), Bucket.dump)
            elif known != digest[i] and block[i] * BLOCK >= state.log_start:
                report.recheck(int(block[i]) * BLOCK, int(block[i] + 1) * BLOCK, int(digest[i]))


def _forget(own: Audit, chunks: Chunks, start: int) -> None:
    """Drop the buckets below the log start, and then the chunks whose values all stand below it.

    That a chunk is not in the next bucket does not mean that it is in none after that: how far it reaches stands in the
    chunk, which is asked for by the next step."""
    for writer, number in own.dropping:
        top = record_top(chunks, writer) if number < 0 else chunks.top(writer, number)
        if top >= start:
            own.reaching.append([writer, number, top])
        elif number < 0:
            chunks.put(record_name(writer), None)
        else:
            chunks.drop(writer, number)
    own.dropping = [[writer, number] for writer, number, top in own.reaching if top < start]
    own.reaching = [entry for entry in own.reaching if entry[2] >= start]
    if own.kept_from < 0:
        return
    keep = start // BUCKET
    for number in range(own.kept_from, min(keep, own.kept_from + DROPPED_AT_ONCE)):
        if not (chunks.declares(bucket_name(number)) and chunks.declares(bucket_name(number + 1))):
            return
        ended, later = _bucket(chunks, number).roster, _bucket(chunks, number + 1).roster
        own.dropping += [[writer, chunk] for writer, chunk in sorted(ended - later)]
        writers = {w for w, _ in ended} - {w for w, _ in later}
        own.dropping += [[writer, -1] for writer in sorted(writers)]
        chunks.put(bucket_name(number), None)
        own.kept_from = number + 1


CHECK: Final = Check("audit", Audit, needs=needs, arrive=arrive, fold=fold, live_only=True)
