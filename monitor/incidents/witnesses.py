"""Who did what with a finding's records, from the probe log: who sent them, who was given them, who went past them.

Read from the table `history` alone: the rows of one partition, for half an hour around the finding. Processes are
called by their probes' names, which their start rows tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.audit.leader_epochs import epoch_at
from rules.vocabulary.times import micros
from streaming_jobs.location import TableLocation, opened

AROUND: Final = timedelta(minutes=30)
MOST: Final = 40
"""Operations that are told of one finding."""

Value = tuple[int, int]
"""Writer and sequence number."""

_COLUMNS: Final = (
    "process",
    "op",
    "f",
    "type",
    "error",
    "transactional_id",
    "txn",
    "txn_intent",
    "end_invoked",
    "invoked",
    "completed",
    "sent",
    "polled",
    "irregular",
    "epochs",
    "position_before",
    "position_after",
    "isolation",
    "mode",
)


@dataclass(frozen=True, slots=True)
class Witness:
    """`at`: when the operation was invoked, of what it was given when it returned. `did`: what, in words."""

    at: datetime
    process: int
    did: str


@dataclass(frozen=True, slots=True)
class FindingSubject:
    """What a finding is about: values, offsets and a transaction, in one partition. `topic_id`: empty where the finding
    tells of several partitions, and knows the `topic` by its name alone."""

    topic_id: str
    partition: int
    at: datetime
    values: Collection[Value]
    offsets: Collection[int]
    txn: int | None
    topic: str = ""


def asked(row: Mapping[str, Any], evidence: Mapping[str, Any]) -> FindingSubject | None:
    """What to look for, None where the finding names no record."""
    place: Mapping[str, Any] = evidence
    for part in ("absent", "seen"):
        if row["partition"] < 0 and isinstance(evidence.get(part), dict):
            place = evidence[part]
            break
    partition = place.get("partition", -1) if place is not evidence else row["partition"]
    values = {(one["writer"], one["seq"]) for one in _parts(place) if _whole(one, "writer") and _whole(one, "seq")}
    offsets = {one["offset"] for one in _parts(place) if _whole(one, "offset")}
    offsets |= {one for one in place.get("offsets", ()) if isinstance(one, int)}
    if partition < 0 or not (values or offsets):
        return None
    txn = evidence.get("txn")
    return FindingSubject(
        topic_id=row["topic_id"],
        partition=partition,
        at=row["first_at"],
        values=values,
        offsets=offsets,
        txn=txn if isinstance(txn, int) else None,
        topic=place.get("topic") or row.get("topic", ""),
    )


def around(row: Mapping[str, Any]) -> FindingSubject | None:
    """The partition and the time of a finding that names no record; None where it names no partition either."""
    if row["partition"] < 0:
        return None
    return FindingSubject(row["topic_id"], row["partition"], row["first_at"], (), (), None, row.get("topic", ""))


def _parts(place: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield place
    for name in ("values", "skipped", "first"):
        listed = place.get(name)
        yield from (one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, dict))


def _whole(place: Mapping[str, Any], name: str) -> bool:
    return isinstance(place.get(name), int)


def witnesses(history: TableLocation, about: FindingSubject) -> list[Witness]:
    """What the probe log says of these records, in the order of time; none where there is no log."""
    return witnesses_in(operations(history, about), about)


def operations(history: TableLocation, about: FindingSubject) -> pa.Table | None:
    """The sends, polls and transactions of the partition around that time, in its order, with the columns that tell
    what they did; None where there is no log."""
    log = opened(history)
    if log is None:
        return None
    field = pc.field
    rows = log.to_pyarrow_dataset()
    table = rows.to_table(
        columns=[name for name in _COLUMNS if name in rows.schema.names],  # an earlier version's lacks some
        filter=(field("date").isin(_dates(about.at)))
        & (field("topic_id") == about.topic_id if about.topic_id else field("topic") == about.topic)
        & (field("partition") == about.partition)
        & field("f").isin(["send", "poll", "txn"])
        & (field("invoked") >= pa.scalar(about.at - AROUND, pa.timestamp("us", tz="UTC")))
        & (field("invoked") <= pa.scalar(about.at + AROUND, pa.timestamp("us", tz="UTC"))),
    )
    return table.take(pc.sort_indices(table, sort_keys=[("invoked", "ascending")])).combine_chunks()


def witnesses_in(table: pa.Table | None, about: FindingSubject) -> list[Witness]:
    """What these operations say of the records, in the order of time; what one process did again, as audits do, is one
    line."""
    if table is None:
        return []
    known = set(about.offsets) | _offsets(table, about)
    found = [one for row in _candidates(table, about, known) for one in _told(row, about, known)]
    again: dict[tuple[int, str], list[Witness]] = {}
    for one in sorted(found, key=lambda one: one.at):
        again.setdefault((one.process, one.did), []).append(one)
    return [first if not more else _repeated(first, more) for first, *more in again.values()]


def _repeated(first: Witness, more: Sequence[Witness]) -> Witness:
    times = "once more" if len(more) == 1 else f"{len(more)} times more"
    until = more[-1].at.astimezone(UTC).strftime("%H:%M:%S")
    return replace(first, did=f"{first.did}, and {times} until {until}")


def nearby(table: pa.Table, about: FindingSubject, around: int, most: int) -> list[dict[str, Any]]:
    """The operations that sent, or went over, an offset at most `around` from one of the records', as rows in the order
    of time: of what a diagram shows, `most` at most, those nearest to the finding's time."""
    if not table.num_rows:
        return []
    chosen = np.zeros(table.num_rows, bool)
    before = pc.fill_null(table["position_before"], -1).to_numpy()
    after = pc.fill_null(table["position_after"], -1).to_numpy()
    parents, runs = _runs(table, "sent")
    chosen[parents[_holding(runs, about.values, ())]] = True
    for offset in set(about.offsets) | _offsets(table, about):
        chosen |= (before >= 0) & (before <= offset + around) & (offset - around < after) & (before != after)
        at = (runs["offset"] >= 0) & (runs["offset"] <= offset + around)
        chosen[parents[at & (offset - around < runs["offset"] + runs["length"])]] = True
    numbers = np.flatnonzero(chosen)
    if len(numbers) > most:
        away = np.abs(table["invoked"].cast(pa.int64()).to_numpy()[numbers] - micros(about.at))
        numbers = np.sort(numbers[np.argsort(away, kind="stable")[:most]])
    rows: list[dict[str, Any]] = table.take(pa.array(numbers)).to_pylist()
    return rows


def names(history: TableLocation, processes: Collection[int], days: int | None = None) -> dict[int, str]:
    """The probes' names of these processes, and of writers that they are; those that are not known are left out. Where
    probes of several runs, as of several hosts, began in a cluster, each name says of which: they have the same names.

    The log is read a day at a time, from its newest, until all are found: `days` of it at most."""
    table = opened(history) if processes else None
    if table is None:
        return {}
    log = table.to_pyarrow_dataset()
    found: dict[int, tuple[str, str, str]] = {}
    runs: defaultdict[str, set[str]] = defaultdict(set)
    wanted = set(processes)
    for day in sorted({one["date"] for one in table.partitions()}, reverse=True)[:days]:
        started = (pc.field("f") == "start") & (pc.field("date") == pa.scalar(date.fromisoformat(day)))
        starts = log.to_table(columns=["process", "settings", "cluster", "run"], filter=started)
        for one in starts.group_by(["cluster", "run"]).aggregate([]).to_pylist():
            runs[one["cluster"]].add(one["run"])
        found |= _named(starts, wanted - set(found))
        if len(found) == len(wanted):
            break
    return {
        process: f"{name} of {run}" if len(runs[cluster]) > 1 else name
        for process, (name, cluster, run) in found.items()
    }


def _named(starts: pa.Table, wanted: Collection[int]) -> dict[int, tuple[str, str, str]]:
    """(name, cluster, run) by process or writer"""
    found: dict[int, tuple[str, str, str]] = {}
    _, first = np.unique(starts["process"].to_numpy(), return_index=True)  # a start is told of every partition
    for row in starts.take(pa.array(first)).to_pylist():
        settings = dict(row["settings"] or ())
        for one in (row["process"], int(settings.get("writer", -1))):
            if settings.get("name") and one in wanted:
                found[one] = settings["name"], row["cluster"], row["run"]
    return found


def _dates(at: datetime) -> list[Any]:
    return sorted({(at + around).astimezone(UTC).date() for around in (-AROUND, timedelta(0), AROUND)})


def _runs(table: pa.Table, column: str) -> tuple[Any, dict[str, Any]]:
    """The runs of a column, and of which row each is."""
    lists = table[column].combine_chunks() if table.num_rows else table[column]
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) and lists.num_chunks else lists
    parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    flat = pc.list_flatten(lists)
    return parents, {
        name: pc.fill_null(pc.struct_field(flat, name), -1).to_numpy(zero_copy_only=False)
        for name in ("writer", "seq", "offset", "length")
    }


def _holding(runs: dict[str, Any], values: Collection[Value], offsets: Collection[int]) -> Any:
    """Which runs hold one of the values, or stand at one of the offsets."""
    holds = np.zeros(len(runs["seq"]), bool)
    for writer, seq in values:
        holds |= (runs["writer"] == writer) & (runs["seq"] <= seq) & (seq < runs["seq"] + runs["length"])
    for offset in offsets:
        holds |= (runs["offset"] >= 0) & (runs["offset"] <= offset) & (offset < runs["offset"] + runs["length"])
    return holds


def _offsets(table: pa.Table, about: FindingSubject) -> set[int]:
    """Where the values stand, by what was acknowledged and polled."""
    found: set[int] = set()
    if not table.num_rows:
        return found
    for column in ("sent", "polled"):
        _, runs = _runs(table, column)
        for writer, seq in about.values:
            holds = _holding(runs, [(writer, seq)], ()) & (runs["offset"] >= 0)
            found |= {int(one) for one in (runs["offset"] + seq - runs["seq"])[holds]}
    return found


def _candidates(table: pa.Table, about: FindingSubject, offsets: Collection[int]) -> list[dict[str, Any]]:
    """The rows that have to do with it, `MOST` at most of those that only went past."""
    if not table.num_rows:
        return []
    holding: set[int] = set()
    for column in ("sent", "polled"):
        parents, runs = _runs(table, column)
        holding |= {int(one) for one in parents[_holding(runs, about.values, offsets)]}
    before = pc.fill_null(table["position_before"], -1).to_numpy()
    after = pc.fill_null(table["position_after"], -1).to_numpy()
    past = np.zeros(table.num_rows, bool)
    for offset in offsets:
        past |= (before >= 0) & (before <= offset) & (offset < after)
    passing = [int(one) for one in np.flatnonzero(past) if int(one) not in holding]
    of_txn: list[int] = []
    if about.txn is not None:
        of_txn = [int(one) for one in np.flatnonzero(pc.fill_null(pc.equal(table["txn"], about.txn), False).to_numpy())]
    chosen = sorted({*sorted(holding)[:MOST], *passing[:MOST], *of_txn[:MOST]})
    rows: list[dict[str, Any]] = table.take(pa.array(chosen, pa.int64())).to_pylist()
    return rows


def _told(row: Mapping[str, Any], about: FindingSubject, offsets: Set[int]) -> Iterator[Witness]:
    """What one operation did with the records, in words."""
    at, process = row["invoked"], row["process"]
    outcome = row["type"] + (f", {row['error']}" if row["error"] else "")
    for one in _held(row["sent"], about.values, ()):
        where = f" to offset {one[1]}" if one[1] is not None else ""
        yield Witness(at, process, f"sent {one[0]}{where} ({outcome})")
    given = list(_held(row["polled"], about.values, offsets))
    how = ", ".join(part for part in (row["isolation"], row["mode"], row["type"]) if part)
    for value, offset in given:
        # A poll knows what it is given when it returns: called before a record is sent, it may well bring it.
        epoch = None if offset is None else epoch_at(row.get("epochs") or (), offset)
        led = "" if epoch is None else f" of leader epoch {epoch}"
        yield Witness(row["completed"] or at, process, f"was given {value} at offset {offset}{led} ({how})")
    broken = {one["offset"]: one["status"] for one in row["irregular"] or ()}
    for offset in sorted(offsets & broken.keys()):
        yield Witness(
            row["completed"] or at, process, f"was given a {broken[offset]} record at offset {offset} ({how})"
        )
    before, after = row["position_before"], row["position_after"]
    if not given and before is not None and after is not None:
        for offset in sorted(offsets - broken.keys()):
            if before <= offset < after:
                yield Witness(
                    at, process, f"went past offset {offset}, from {before} to {after}, and was given nothing ({how})"
                )
    if row["txn"] is not None and (row["txn"] == about.txn or any(_held(row["sent"], about.values, ()))):
        asked = f", {row['txn_intent']} asked at {_clock(row['end_invoked'])}" if row["end_invoked"] else ""
        told = f", told {outcome} at {_clock(row['completed'])}" if row["completed"] else ", told nothing"
        yield Witness(at, process, f"transaction {row['txn']} of {row['transactional_id']}{asked}{told}")


def _held(
    runs: Sequence[Mapping[str, Any]] | None, values: Collection[Value], offsets: Collection[int]
) -> Iterator[tuple[str, int | None]]:
    for run in runs or ():
        seqs = {
            seq for writer, seq in values if writer == run["writer"] and run["seq"] <= seq < run["seq"] + run["length"]
        }
        if run["offset"] is not None:
            seqs |= {
                run["seq"] + offset - run["offset"]
                for offset in offsets
                if run["offset"] <= offset < run["offset"] + run["length"]
            }
        for seq in sorted(seqs):
            yield f"{run['writer']}/{seq}", None if run["offset"] is None else run["offset"] + seq - run["seq"]


def _clock(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]
