"""`corrupted-record`, `relocated-write` and `foreign-record`: records that belong to no run, each proven by itself.

There may be as many of them as of our own: a second canary in the same topic, a broken disk. So they are counted one by
one and told in a bounded number of findings. Of each *stretch* of the log (65,536 offsets),

- the first `SINGLY` corrupted or relocated records are told one by one;
- those beyond are told together, when their number reaches each of `TOGETHER`, with the first and last offset and some
  examples;
- foreign records are told once for each run that they belong to, and once for all runs beyond the first `RUNS`.

The same record, seen by many readers, counts once: the offsets of irregular records are kept as one bitmap a stretch,
a chunk of at most 8 KiB, until the log start has passed it.

Relocated and foreign records are values, too: one that stands where another value was polled or acknowledged makes that
offset inconsistent (`inconsistent-offsets`), whichever is known first. Not so the same value: of two hosts that write
into one log, the probes of one may not know the run of the other.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rules.arrays import intervals
from rules.arrays.columns import CORRUPTED, FOREIGN, RELOCATED, Columns, Irregulars, irregulars, said_to_stand_here
from rules.arrays.intervals import Bools, Ints, indices
from rules.kept.check import Asked, Check, News, Passage
from rules.kept.report import Report
from rules.kept.state import Places, State
from rules.vocabulary.slices import UNTOLD_HASH

STRETCH: Final = 65_536
SINGLY: Final = 20
TOGETHER: Final = (SINGLY + 1, 100, 1_000, 10_000)
RUNS: Final = 64
KEPT: Final = 2048
WHAT: Final = "records that were meant for elsewhere"
STRETCHES: Final = 64
"""More separate intervals of stretches than this are taken for one."""

_SHIFT: Final = 16
_HEAD: Final = struct.Struct("<IHB")
_COUNT: Final = struct.Struct("<IHH")
_LISTED: Final = struct.Struct("<BHq")
NO_VALUE: Final = 0
"""The hash of no bytes: of a tombstone, or an empty value."""
_NAMES: Final = {CORRUPTED: "corrupted-record", RELOCATED: "relocated-write"}
_WORDS: Final = {CORRUPTED: "have no intact tag", RELOCATED: "were meant for other places"}


Value = dict[str, Any]
"""A value as evidence names it: its writer and seq, with its topic, partition and run where it was sent elsewhere; of
a record of another version of the tag, which names none, its hash."""
Displaced = list[Any]
"""[offset, value, at, hash, told]: a record that was sent elsewhere."""


@dataclass(slots=True)
class Stretch:
    """What is known of the irregular records of one stretch; offsets count from its beginning.

    `known`: where they are. `counts`: by status, how many, the first and the last offset. `listed`: (status, offset,
    hash) of those told one by one. `others`: were foreign runs beyond the first `RUNS` told of?"""

    known: BitMap = field(default_factory=BitMap)
    counts: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, STRETCH - 1, 0)] * 3)
    listed: list[tuple[int, int, int]] = field(default_factory=list)
    others: bool = False

    def dump(self) -> bytes:
        self.known.run_optimize()
        known = self.known.serialize()
        parts = [_HEAD.pack(len(known), len(self.listed), self.others), known]
        parts += [_COUNT.pack(*count) for count in self.counts] + [_LISTED.pack(*one) for one in self.listed]
        return b"".join(parts)

    @classmethod
    def load(cls, data: bytes) -> Stretch:
        size, listed, others = _HEAD.unpack_from(data)
        at = _HEAD.size + size
        end = at + 3 * _COUNT.size
        return cls(
            BitMap.deserialize(data[_HEAD.size : at]),
            list(_COUNT.iter_unpack(data[at:end])),
            list(_LISTED.iter_unpack(data[end : end + listed * _LISTED.size])),
            bool(others),
        )


def chunk_name(number: int) -> str:
    """The chunk of a stretch. No writer's chunk is called so."""
    return f"irregular.{number}"


@dataclass(slots=True)
class Known:
    """`records`: how many there were. `stretches`: which have a chunk, as merged [first, end) of their numbers, at most
    `STRETCHES`. `runs`: the foreign runs told of, and the offset of the last record of each; at most `RUNS`, until the
    log start has passed that. `displaced`: the newest `KEPT` relocated and foreign records above the settled
    frontier; that others were dropped is told (`rules.kept.dropped`)."""

    records: int = 0
    stretches: list[list[int]] = field(default_factory=list)
    runs: list[list[Any]] = field(default_factory=list)
    displaced: list[Displaced] = field(default_factory=list)


def needs(own: Known, asked: Asked) -> set[str]:
    """The chunks of the stretches that the new rows have irregular records of."""
    return {chunk_name(number) for number in intervals.each(irregulars(asked.columns).offset >> _SHIFT)}


def arrive(own: Known, new: News) -> None:
    """Report the irregular records of new rows, and where they stand beside the log's own values. Those beyond the
    newest `KEPT` are only compared with what is known now."""
    records = irregulars(new.columns)
    left = 0
    if len(records):
        _count(own, new, records)
        left = _note_displaced(own, new, records)
    _judge_displaced(own, new.state, new.report)
    new.report.skip("inconsistent-offsets", left)


def _count(own: Known, new: News, records: Irregulars) -> None:
    """The same record, seen by many readers, is one finding."""
    columns, chunks, report = new.columns, new.chunks, new.report
    records = _different(records.take(new.fresh[records.row]), columns)
    new_runs = _new_runs(own, columns, records, report)
    order = np.argsort(records.offset >> _SHIFT, kind="stable")
    numbers = (records.offset >> _SHIFT)[order]
    heads = indices(np.diff(numbers, prepend=-1))
    for inside in np.split(order, heads[1:]) if len(order) else ():
        number = int(records.offset[inside[0]]) >> _SHIFT
        stored = chunks.blob(chunk_name(number))
        stretch = Stretch.load(stored) if stored else Stretch()
        own.records += _tell(stretch, records.take(inside), columns, report)
        unlisted = inside[new_runs[inside]]
        if len(unlisted) and not stretch.others:
            stretch.others = True
            _tell_others(records, int(unlisted[0]), number, columns, report)
        chunks.put(chunk_name(number), stretch.dump())
    if len(order):
        _note_stretches(own, numbers[heads])


def _different(records: Irregulars, columns: Columns) -> Irregulars:
    """Each record once, as it was read first, in the order of these times: rows come in any order."""
    at = columns.completed[records.row]
    order = np.lexsort((at, records.hash, records.status, records.offset))
    same = np.zeros(len(order), bool)
    for column in (records.offset, records.status, records.hash):
        ordered = column[order]
        same[1:] = ordered[1:] == ordered[:-1] if column is records.offset else same[1:] & (ordered[1:] == ordered[:-1])
    once = np.sort(order[~same])
    return records.take(once[at[once].argsort(kind="stable")])


def _tell(stretch: Stretch, records: Irregulars, columns: Columns, report: Report) -> int:
    """Count the new records of one stretch, given in the order in which they were read, and report those to be told."""
    offset = records.offset & (STRETCH - 1)
    new = ~np.isin(offset, np.array(stretch.known.to_array(), np.int64))
    new[new] = np.isin(np.arange(int(new.sum())), np.unique(offset[new], return_index=True)[1])
    stretch.known.update(offset[new].astype(np.uint32))
    judged = indices(records.status != FOREIGN)
    for i in judged.tolist():
        if len(stretch.listed) == SINGLY:
            break
        one = int(records.status[i]), int(offset[i]), int(records.hash[i])
        if one not in stretch.listed:
            stretch.listed.append(one)
            _tell_one(records, i, columns, report)
    for status in (CORRUPTED, FOREIGN, RELOCATED):
        counted = indices(new & (records.status == status))
        if len(counted):
            if status != FOREIGN:
                _tell_many(stretch, records, counted, columns, report)
            number, first, last = stretch.counts[status]
            lows, highs = int(offset[counted].min()), int(offset[counted].max())
            stretch.counts[status] = number + len(counted), min(first, lows), max(last, highs)
    return int(new.sum())


def _evidence(records: Irregulars, i: int, columns: Columns) -> dict[str, Any]:
    row = records.row[i]
    return {
        "offset": int(records.offset[i]),
        "hash": int(records.hash[i]),
        "process": int(columns.process[row]),
        "op": int(columns.op[row]),
    }


def _tell_one(records: Irregulars, i: int, columns: Columns, report: Report) -> None:
    offset, at = int(records.offset[i]), int(columns.completed[records.row[i]])
    evidence = _evidence(records, i, columns)
    if records.status[i] == CORRUPTED:
        lacks = "value" if evidence["hash"] == NO_VALUE else "intact tag"
        report.add(
            "corrupted-record",
            (offset, evidence["hash"]),
            f"the record at offset {offset} has no {lacks}: it is damaged, or somebody else's",
            at=at,
            evidence=evidence,
        )
        return
    record = records.record(i)
    value = {name: record[name] for name in ("writer", "seq", "topic", "partition")}
    report.add(
        "relocated-write",
        (value["writer"], value["topic"], value["partition"], value["seq"], offset),
        f"value {value['writer']}/{value['seq']} of {value['topic']}/{value['partition']} was polled here,"
        f" at offset {offset}",
        at=at,
        evidence={**evidence, **value},
    )


def _tell_many(stretch: Stretch, records: Irregulars, counted: Ints, columns: Columns, report: Report) -> None:
    """Those of one status (`counted`, all new) reach some of `TOGETHER`."""
    status = int(records.status[counted[0]])
    before, first, last = stretch.counts[status]
    begins = int(records.offset[counted[0]]) & ~(STRETCH - 1)
    for number in TOGETHER:
        if not before < number <= before + len(counted):
            continue
        offsets, i = records.offset[counted[: number - before]], int(counted[number - before - 1])
        low, high = min(begins + first, int(offsets.min())), max(begins + last, int(offsets.max()))
        examples = [begins + offset for of, offset, _ in stretch.listed if of == status][:10]
        report.add(
            _NAMES[status],
            ("many", begins, number),
            f"at least {number} records between offsets {low} and {high} {_WORDS[status]}",
            at=int(columns.completed[records.row[i]]),
            evidence={"records": number, "first_offset": low, "last_offset": high, "examples": examples}
            | {name: told for name, told in _evidence(records, i, columns).items() if name in ("process", "op")},
        )


def _new_runs(own: Known, columns: Columns, records: Irregulars, report: Report) -> Bools:
    """Tell of foreign runs that were not known, as long as there is room; which records are of those left over?"""
    left = np.zeros(len(records), bool)
    foreign = indices(records.status == FOREIGN)
    if not len(foreign):
        return left
    encoded = pc.fill_null(records.listed.field("run").take(pa.array(records.at[foreign])), "").dictionary_encode()
    names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    highest = np.full(len(names), -1, np.int64)
    np.maximum.at(highest, codes, records.offset[foreign])
    told = own.runs
    place = {run: i for i, (run, _) in enumerate(told)}
    over = np.zeros(len(names), bool)
    first = np.unique(codes, return_index=True)[1]  # codes are given in the order of first appearance
    for code, run in enumerate(names):
        if run in place:
            told[place[run]][1] = max(told[place[run]][1], int(highest[code]))
        elif len(told) < RUNS:
            told.append([run, int(highest[code])])
            i = int(foreign[first[code]])
            offset = int(records.offset[i])
            report.add(
                "foreign-record",
                (run,),
                f"the record at offset {offset} belongs to {_of(run)}, which this log does not know",
                at=int(columns.completed[records.row[i]]),
                evidence={**_evidence(records, i, columns), "run": run},
            )
        else:
            over[code] = True
    left[foreign] = over[codes]
    return left


def _of(run: str | None) -> str:
    return f"run {run}" if run else "another version of the tag"


def _tell_others(records: Irregulars, i: int, number: int, columns: Columns, report: Report) -> None:
    offset, run = int(records.offset[i]), records.record(i)["run"]
    report.add(
        "foreign-record",
        ("others", number * STRETCH),
        f"the record at offset {offset} belongs to {_of(run)}, one of more than {RUNS} that this log does not know",
        at=int(columns.completed[records.row[i]]),
        evidence={**_evidence(records, i, columns), "run": run},
    )


def _note_stretches(own: Known, numbers: Ints) -> None:
    kept = np.array(own.stretches, np.int64).reshape(-1, 2)
    start, end = intervals.merge(np.append(kept[:, 0], numbers), np.append(kept[:, 1], numbers + 1))
    if len(start) > STRETCHES:
        over = len(start) - STRETCHES
        start, end = np.append(start[:1], start[over + 1 :]), end[over:]
    own.stretches = np.stack((start, end), axis=1).tolist()


def fold(own: Known, passage: Passage) -> None:
    """Judge them by what turned out visible, and drop what lies below the log start."""
    _judge_displaced(own, passage.state, passage.report)
    log_start = max(passage.state.log_start, 0)
    through = log_start >> _SHIFT
    if own.stretches and own.stretches[0][0] < through:
        for start, end in own.stretches:
            for number in range(start, min(end, through)):
                passage.chunks.put(chunk_name(number), None)
        own.stretches = [[max(start, through), end] for start, end in own.stretches if end > through]
    if own.runs:
        own.runs = [entry for entry in own.runs if entry[1] >= log_start]


# What stands where another value stands


def _note_displaced(own: Known, new: News, records: Irregulars) -> int:
    """Remember them; at how many offsets more than can be told do they clash?"""
    state, columns, kept = new.state, new.columns, own.displaced
    fresh = new.fresh[records.row]
    records = records.take(fresh & (records.status != CORRUPTED) & (records.offset >= state.settled))
    records = _different(records, columns)
    records = records.take(~_is_known(state.log, columns, records))
    records = records.take(records.offset.argsort(kind="stable"))
    clashing = _clashing(state.log, records.offset, np.array([entry[0] for entry in kept], np.int64))
    room = new.report.room("inconsistent-offsets")
    named = np.union1d(clashing[:room], np.arange(len(records))[-KEPT:])
    new.report.drop(WHAT, len(records) - len(np.union1d(named, clashing)))
    known = {(entry[0], entry[3]) for entry in kept}
    for record, row in zip(
        records.listed.take(pa.array(records.at[named])).to_pylist(), records.row[named].tolist(), strict=True
    ):
        if (record["offset"], record["hash"]) not in known:
            kept.append([record["offset"], _value(record), int(columns.completed[row]), record["hash"], 0])
    kept.sort(key=lambda entry: (entry[0], entry[3]))
    return len(np.setdiff1d(records.offset[clashing], records.offset[named]))


def _is_known(log: Places, columns: Columns, records: Irregulars) -> Bools:
    """Which of them are the very value that stands there in the log."""
    if not len(records) or not len(log):
        return np.zeros(len(records), bool)
    here, writer, seq = said_to_stand_here(columns, records)
    found: Bools = here & _stands(log, writer, seq, records.offset)
    return found


def _stands(log: Places, writer: Ints, seq: Ints, offset: Ints) -> Bools:
    """Does the log have these values at these offsets? Where two stand at one, the lower run alone is looked at."""
    run = np.maximum(log.offset.searchsorted(offset, side="right") - 1, 0)
    same: Bools = (log.writer[run] == writer) & (log.offset[run] - log.seq[run] == offset - seq)
    return same & (log.offset[run] <= offset) & (offset < log.offset[run] + log.length[run])


def _value(record: Mapping[str, Any]) -> Value:
    if record["writer"] is None or record["seq"] is None:
        return {"hash": record["hash"]}
    return {name: record[name] for name in ("writer", "seq", "topic", "partition", "run") if record[name] is not None}


def _words(value: Value) -> str:
    if "hash" in value:
        return f"a record of another version of the tag ({value['hash']})"
    where = f" of {value.get('topic')}/{value.get('partition')}" if "topic" in value or "partition" in value else ""
    run = f" of run {value['run']}" if "run" in value else ""
    return f"{value['writer']}/{value['seq']}{where}{run}"


_UNTOLD: Final = _words({"hash": UNTOLD_HASH})


def _clashing(log: Places, offset: Ints, kept: Ints) -> Ints:
    """Which of these records, sorted by offset, stand where something else is known: another of them, or one of those
    kept or of the log."""
    clash = np.isin(offset, kept)
    clash[1:] |= offset[1:] == offset[:-1]
    clash[:-1] |= offset[1:] == offset[:-1]
    if len(log):
        clash |= intervals.touched(*intervals.merge(log.offset, log.offset + log.length), offset, offset + 1)
    return indices(clash)


def _judge_displaced(own: Known, state: State, report: Report) -> None:
    """`inconsistent-offsets` of those: the log's own runs are placed already."""
    if not own.displaced:
        return
    kept = [entry for entry in own.displaced if entry[0] >= state.settled]
    standing = _standing(state.log, np.unique([entry[0] for entry in kept if not entry[4]]).astype(np.int64))
    for entry in kept:
        if entry[0] in standing and not _is_one_of(entry[1], standing[entry[0]], report):
            standing[entry[0]][_words(entry[1])] = entry[1]
    for found in standing.values():
        # Who told no hash of it may have read any of those that have one.
        if sum("hash" in value for value in found.values()) > 1:
            found.pop(_UNTOLD, None)
    for offset, found in standing.items():
        if len(found) > 1:
            here = [entry for entry in kept if entry[0] == offset]
            report.add(
                "inconsistent-offsets",
                (offset,),
                f"offset {offset} holds {len(found)} values: {' and '.join(sorted(found))}",
                at=max(entry[2] for entry in here),
                evidence={"offset": offset, "values": [found[words] for words in sorted(found)]},
            )
            for entry in here:
                entry[4] = 1
    report.drop(WHAT, sum(not entry[4] for entry in kept[:-KEPT]))
    own.displaced = kept[-KEPT:]


def _is_one_of(value: Value, standing: Mapping[str, Value], report: Report) -> bool:
    """Is it one of the log's own values, by the word of a reader that does not know its run?"""
    here = report.here
    meant = value.get("run") is not None and (value.get("topic"), value.get("partition"))
    if meant != (here["topic"], here["partition"]):
        return False
    return _words({"writer": value["writer"], "seq": value["seq"]}) in standing


def _standing(log: Places, offset: Ints) -> dict[int, dict[str, Value]]:
    """The log's values at these offsets, ascending, by their words."""
    found: dict[int, dict[str, Value]] = {at: {} for at in offset.tolist()}
    low, high = offset.searchsorted(log.offset), offset.searchsorted(log.offset + log.length)
    for i in indices(low < high).tolist():
        for at in offset[low[i] : high[i]].tolist():
            value = {"writer": int(log.writer[i]), "seq": int(log.seq[i] + at - log.offset[i])}
            found[at][_words(value)] = value
    return found


CHECK: Final = Check(
    "irregular-records",
    Known,
    needs=needs,
    arrive=arrive,
    fold=fold,
    rows=frozenset({"irregular"}),
    looks_back=True,
    rests=True,
)
"""What it remembers is compared with all that comes to stand in the log."""
