"""A data file of the probe log holds its rows and little else, and the table's log says what is in it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import cramjam
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from probes.log.commits.append_plan import PLAN, load, save
from probes.log.commits.committer import committer
from probes.log.commits.compaction import tend
from probes.log.rows import Shared, pack, table
from rules.vocabulary.file_statistics import statistics
from rules.vocabulary.slices import Slice
from tests.known import known
from tests.probes.log.lives import Prober, StillClock, table_rows

AT = datetime(2026, 3, 1, 12, 0, 0, 1_500, tzinfo=UTC)


def rows_at(*times: datetime) -> pa.Table:
    shared = Shared("c", "r", 7, "boot")
    made = [
        Slice(
            cluster="c",
            topic_id="t",
            topic="topic",
            partition=i,
            run="r",
            process=7,
            op=i,
            slice=-1,
            f="poll",
            type="ok",
            invoked=at,
            completed=at,
            boot="boot",
        )
        for i, at in enumerate(times)
    ]
    return table([(shared, [pack(row, shared, 0) for row in made])])


def test_bounds_of_times_are_milliseconds_that_hold_the_times_between_them() -> None:
    told = statistics(rows_at(AT, AT + timedelta(microseconds=700)), ["invoked", "op", "group"])
    assert told == {
        "numRecords": 2,
        "minValues": {"invoked": "2026-03-01T12:00:00.001Z", "op": 0},
        "maxValues": {"invoked": "2026-03-01T12:00:00.003Z", "op": 1},
        "nullCount": {"invoked": 0, "op": 0, "group": 2},
    }
    whole = statistics(rows_at(AT.replace(microsecond=2_000)), ["invoked"])
    assert whole["minValues"] == whole["maxValues"] == {"invoked": "2026-03-01T12:00:00.002Z"}


def test_a_file_leaves_out_what_is_empty_and_the_table_has_all_columns(
    folder: Path, history: Path, clock: StillClock
) -> None:
    prober = Prober.start(folder, 1, clock)
    prober.send(0)
    with committer(folder, history, clock) as one:
        one.commit()
    (file,) = history.glob("date=*/*.parquet")
    assert {"irregular", "altered", "registers"}.isdisjoint(pq.ParquetFile(file).schema_arrow.names)
    rows = table_rows(history)
    assert {row["irregular"] for row in rows} == {None} and prober.must_be_logged()
    (action,) = _added(history)
    assert action["stats"]["numRecords"] == len(rows)
    assert action["stats"]["minValues"]["process"] == min(row["process"] for row in rows)
    assert len(action["path"]) < 50, "checkpoints of the table's log tell it for hours"


def test_numbers_that_go_on_by_small_steps_are_written_as_these(folder: Path, history: Path, clock: StillClock) -> None:
    prober = Prober.start(folder, 1, clock)
    for _ in range(50):
        prober.send(0)
    with committer(folder, history, clock) as one:
        one.commit()
        assert encodings(*history.glob("date=*/*.parquet")) == {"slice"}
        rows = table_rows(history)
        prober.send(1)
        one.commit()
    written = {*history.glob("date=*/*.parquet")}
    assert tend(str(history), 2) == 2
    (compact,) = {*history.glob("date=*/*.parquet")} - written
    assert encodings(compact) >= {"slice", "op", "completed", "invoked", "mono_invoked", "mono_completed"}
    assert [row for row in table_rows(history) if row in rows] == rows


def encodings(file: Path) -> set[str]:
    """The columns of a file that are written by their steps."""
    told = pq.ParquetFile(file).metadata.row_group(0)
    columns = [told.column(i) for i in range(told.num_columns)]
    return {one.path_in_schema for one in columns if "DELTA_BINARY_PACKED" in one.encodings}


def _added(history: Path) -> list[dict[str, Any]]:
    lines = [line for file in (history / "_delta_log").glob("*.json") for line in file.read_bytes().splitlines()]
    added = [one["add"] for line in lines if "add" in (one := orjson.loads(line))]
    return [one | {"stats": orjson.loads(one["stats"])} for one in added]


def test_the_plan_of_an_earlier_version_which_did_not_compress_it_is_read(
    folder: Path, history: Path, clock: StillClock
) -> None:
    Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        one.commit()
    plan = known(load(folder))
    packed = (folder / PLAN).read_bytes()
    plain = bytes(cramjam.zstd.decompress(packed))
    assert orjson.loads(plain)["version"] == 1
    (folder / PLAN).write_bytes(plain)
    assert load(folder) == plan
    save(folder, plan)
    assert (folder / PLAN).read_bytes() == packed
