"""The stateful operator in PySpark's own tester, without a stream: what it reads, what it writes, what it survives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import orjson
import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.tws_tester import TwsTester

from rules.step import Stepped, Stored, UnknownFormat, step
from rules.vocabulary.finding import FACT_SCHEMA
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place, Slice, to_table
from streaming_jobs.history.bundles import BUNDLE_KEYS, PER_PART, bundles_of, unpack
from streaming_jobs.verdicts.checks import Check
from streaming_jobs.verdicts.kept import Kept, Recent, dump, load
from streaming_jobs.verdicts.operator import verdict_rows
from streaming_jobs.verdicts.part import Part
from tests.streaming_jobs.checks import instead
from tests.streaming_jobs.probe_log import duplicates, loose

HERE = Place("c", "t", 0)


class _Unwrapped(Part):
    """PySpark's tester wraps every key into a tuple of one, as if all keys were of one column."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N803
        return super().handleInputRows(key[0], rows, timerValues)


class Operator:
    """The operator of one part's partitions, fed batch by batch."""

    def __init__(self, check: Check | None = None, part: int = 0) -> None:
        self.tester = TwsTester(_Unwrapped(Objectives(), check or Check()))
        self.key = ("c", "t", part)

    def told(self, rows: Sequence[Slice] | pa.Table, pieces: int = 1) -> dict[int, dict[str, Any]]:
        """The verdicts by partition on a batch whose rows come in so many bundles."""
        table = rows if isinstance(rows, pa.Table) else to_table(rows)
        size = -(-table.num_rows // pieces)
        frames = []
        for i in range(0, table.num_rows, size):
            bundles = bundles_of(table.slice(i, size))
            keys = zip(*(bundles[name].to_pylist() for name in BUNDLE_KEYS), strict=True)
            frames.append(bundles.filter(pa.array([key == self.key for key in keys])))
        frame = pa.Table.from_batches(frames).to_pandas()[["rejected", "payload"]]
        out = self.tester.testInPandas(self.key, frame)
        assert len(out) == 1
        return {row["partition"]: row for row in verdict_rows(pa.Table.from_pandas(out)).to_pylist()}

    def feed(self, rows: Sequence[Slice], pieces: int = 1) -> dict[str, Any]:
        """The verdict on what of a batch is of the first partition."""
        return self.told([row for row in rows if row.partition == 0], pieces)[0]

    def kept(self) -> dict[int, Kept]:
        value = self.tester.peekValueState("partitions", self.key)
        return {} if value is None else load(value[0])

    def state(self) -> tuple[bytes | None, str | None, int] | None:
        return self.seen().get(0)

    def chunks(self, partition: int = 0) -> dict[str, bytes]:
        stored = {k[1]: v[0] for k, v in self.tester.peekMapState("chunks", self.key).items() if k[0] == partition}
        recent = {name: one.chunk for name, one in self.kept()[partition].recent.items()}
        return {name: chunk for name, chunk in (stored | recent).items() if chunk is not None}

    def seen(self) -> dict[int, tuple[bytes | None, str | None, int]]:
        """What is kept, but for the chunks."""
        return {partition: (one.hot, one.failed, one.behind) for partition, one in self.kept().items()}


def subjects(verdict: dict[str, Any]) -> list[tuple[str, str]]:
    if verdict["findings"] is None:
        return []
    rows = unpack(verdict["findings"]).to_pylist()
    return [(r["anomaly"], r["event"]) for r in rows]


def test_it_is_the_checks_with_their_state_kept() -> None:
    parts = duplicates(3)
    operator, stored = Operator(), Stored()
    for part in parts:
        rows = to_table([row for row in part if row.partition == 0])
        expected = step({HERE: stored}, rows, Objectives())[HERE]
        verdict = operator.feed(part, pieces=2)
        assert verdict["slices"] == rows.num_rows
        assert (verdict["sent"], verdict["polled"]) == (5, 6)
        assert sorted(unpack(verdict["findings"])["id"].to_pylist()) == sorted(f.id for f in expected.findings)
        assert orjson.loads(verdict["summary"])["polled"] == expected.summary["polled"]
        stored.take(expected)
        assert operator.state() == (expected.hot, None, 0)
        assert operator.chunks() == stored.chunks


def test_who_asks_what_state_there_is_imports_nothing_else(tmp_path: Path) -> None:
    """Spark begins a process for that at each start of a stream."""
    (tmp_path / "part").write_bytes(cast(Any, cloudpickle).dumps(Part(Objectives(), Check())))
    program = (
        "import pickle, sys; from pathlib import Path\n"
        "import pyspark.sql.streaming.transform_with_state_driver_worker\n"
        "part = pickle.loads(Path(sys.argv[1]).read_bytes())\n"
        "class Handle:\n"
        "    def getValueState(self, name, columns): print(name, columns, sep=': ')\n"
        "    getMapState = lambda self, name, key, value: print(name, key, value, sep=': ')\n"
        "part.init(Handle()); part.close()\n"
        "print(*{'numpy', 'pandas', 'pyarrow', 'rules'} & set(sys.modules))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "part")]
    ran = subprocess.run(command, cwd=Path(__file__).parents[3], check=True, capture_output=True, text=True)
    state = ["partitions: kept binary", "chunks: partition int, name string: chunk binary"]
    assert ran.stdout.splitlines() == [*state, ""]


class _Deletes:
    def __call__(self, stored: Any, slices: pa.Table, objectives: Objectives) -> dict[Place, Stepped]:
        ((place, kept),) = stored.items()
        chunks: dict[str, bytes | None] = {"a": None, "b": b"two"} if kept.hot else {"a": b"one"}
        return {place: Stepped(b"hot", chunks, [], FACT_SCHEMA.empty_table(), [], {"topic": "topic"})}


def test_it_writes_what_changed_and_removes_what_is_told() -> None:
    operator = Operator(instead(_Deletes(), ["a", "z"]))
    part = duplicates(1)[0]
    first = operator.feed(part)
    assert (first["state_bytes"], first["chunks_written"]) == (6, 1)
    second = operator.feed(part)
    assert (second["state_bytes"], second["chunks_written"]) == (3, 2)  # the hot value is the same: not written
    assert operator.chunks() == {"b": b"two"}


class _FailsOn:
    """The real checks, that raise on the given call."""

    def __init__(self, call: int, error: Exception) -> None:
        self.calls, self.call, self.error = 0, call, error

    def __call__(self, stored: Any, slices: pa.Table, objectives: Objectives) -> dict[Place, Stepped]:
        self.calls += 1
        if self.calls == self.call:
            raise self.error
        return step(stored, slices, objectives)


def test_a_rule_that_raises_quarantines_its_partition_with_its_last_good_state() -> None:
    operator = Operator(instead(_FailsOn(2, KeyError("polled"))))
    parts = duplicates(4)
    operator.feed(parts[0])
    good, chunks = operator.state(), operator.chunks()
    assert good is not None
    failed = operator.feed(parts[1])
    assert subjects(failed) == [("check-failed", "opened")]
    (row,) = unpack(failed["findings"]).to_pylist()
    assert row["severity"] == "critical"
    assert orjson.loads(row["evidence"])["error"] == "KeyError: 'polled'"
    behind = failed["slices"]
    assert operator.state() == (good[0], "KeyError: 'polled'", behind)
    later = operator.feed(parts[2])
    assert subjects(later) == []  # it opened once; the rows are counted and not checked
    assert orjson.loads(later["summary"])["slices_behind"] == behind + later["slices"]
    assert operator.state() == (good[0], "KeyError: 'polled'", behind + later["slices"])
    assert operator.chunks() == chunks


def test_a_state_of_another_version_is_not_taken_for_a_failed_rule() -> None:
    operator = Operator(instead(_FailsOn(1, UnknownFormat("version 7"))))
    with pytest.raises(UnknownFormat):
        operator.feed(duplicates(1)[0])


def test_several_partitions_of_one_call_are_checked_as_each_alone() -> None:
    parts = duplicates(3, partitions=PER_PART + 2)
    first, second = Operator(), Operator(part=1)
    alone = {Place("c", "t", p): Stored() for p in range(PER_PART + 2)}
    for part in parts:
        told = first.told(part, pieces=3) | second.told(part)
        expected = step(alone, to_table(part), Objectives())
        assert list(told) == list(range(PER_PART + 2))
        for place, stepped in expected.items():
            row = told[place.partition]
            assert sorted(unpack(row["findings"])["id"].to_pylist()) == sorted(f.id for f in stepped.findings)
            assert (row["sent"], row["polled"]) == (5, 6)
            assert row["state_bytes"] == len(stepped.hot) + sum(len(c) for c in stepped.chunks.values() if c)
            alone[place].take(stepped)
    assert set(first.kept()) == set(range(PER_PART)) and set(second.kept()) == {PER_PART, PER_PART + 1}
    for place, stored in alone.items():
        operator = first if place.partition < PER_PART else second
        assert operator.seen()[place.partition] == (stored.hot, None, 0)
        assert operator.chunks(place.partition) == stored.chunks


def test_a_partition_without_rows_keeps_what_it_had() -> None:
    operator = Operator()
    one, two = duplicates(2)
    operator.told(one)
    before = operator.kept()
    told = operator.told([row for row in two if row.partition == 1])
    assert list(told) == [1]
    assert operator.kept()[0] == before[0]
    assert operator.kept()[1] != before[1]


class _FailsIn:
    """The real checks, that raise in one partition."""

    def __call__(self, stored: Any, slices: pa.Table, objectives: Objectives) -> dict[Place, Stepped]:
        if slices["partition"][0].as_py() == 1:
            raise KeyError("polled")
        return step(stored, slices, objectives)


def test_a_rule_that_raises_leaves_the_other_partitions_of_the_call_checked() -> None:
    operator, sound = Operator(instead(_FailsIn())), Operator()
    parts = duplicates(2, partitions=3)
    for part in parts:
        told, expected = operator.told(part), sound.told(part)
        assert orjson.loads(told[1]["summary"])["check_failed"] == "KeyError: 'polled'"
        for partition in (0, 2):
            assert subjects(told[partition]) == subjects(expected[partition]) != []
            assert operator.kept()[partition] == sound.kept()[partition]
    behind = sum(row.partition == 1 for part in parts for row in part)
    assert operator.seen()[1] == (None, "KeyError: 'polled'", behind)
    assert operator.chunks(1) == {}


def test_rejected_rows_are_told_of_their_own_partition() -> None:
    (rows,) = duplicates(1)
    table = pa.concat_tables([loose(rows), loose(rows[-1:], f="sent"), loose(rows[-1:], type="perhaps")])
    told = Operator().told(table)
    assert [r["reason"] for r in unpack(told[1]["rejected"]).to_pylist()] == ["f is unknown", "type is unknown"]
    assert told[1]["slices"] > 0
    assert told[0]["rejected"] is None
    nowhere = Operator(part=-1)
    nowhere.key = ("", "", -1)
    (row,) = nowhere.told(loose(rows[:1], topic_id=None)).values()
    assert (row["cluster"], row["topic_id"], row["partition"], row["slices"]) == ("", "", -1, 0)
    assert nowhere.kept() == {}


def test_what_is_kept_of_a_part_is_read_as_it_was_written() -> None:
    recent = {"ü": Recent(b"chunk", True, 3), "a": Recent(None, False, 255), "b": Recent(b"", True)}
    kept = {7: Kept(b"hot", None, 0, recent), 4: Kept(None, "KeyError: 'ü'", 3), 6: Kept(b"", "", 2**40), 5: Kept()}
    assert load(dump(kept)) == kept
    assert list(load(dump(kept))) == [4, 5, 6, 7]
    assert dump(dict(reversed(kept.items()))) == dump(kept)
    assert load(dump({})) == {}
    whole = dump(kept)
    for broken in (b"", b"another", whole[:-1], whole[:20], whole + b"\0"):
        with pytest.raises(UnknownFormat):
            load(broken)
