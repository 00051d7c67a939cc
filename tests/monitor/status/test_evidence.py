"""The evidence of an incident is read when it is asked for, little of the log for it, and not again for a while."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import write_deltalake

from monitor.errors import UserError
from monitor.incidents.log_around import Standing
from monitor.status.evidence import KEPT, REMEMBERED, EvidenceReader
from rules.vocabulary.slices import Run, to_table
from tests.monitor.rows import NOON, finding, record
from tests.monitor.status.folder import OTHER, READER, WRITER, S, lost_write, slice_


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def reader(data: Path, clock: Clock | None = None) -> EvidenceReader:
    tables = data / "tables"
    return EvidenceReader(tables, tables / "history", timedelta(minutes=15), clock or Clock())


def test_what_is_there(tmp_path: Path) -> None:
    found = lost_write(tmp_path)
    got = reader(tmp_path).of(found.id, NOON + S)
    assert got.explained.incident is not None and got.explained.incident.id == found.id
    assert got.names == {WRITER: "transactions-1", READER: "reader-1", OTHER: "reader-2"}
    assert got.diagram is not None
    assert [lane.name for lane in got.diagram.lanes] == ["transactions-1", "reader-1", "reader-2"]
    assert [one.offset for one in got.log] == list(range(97, 106))
    assert got.log[4] == Standing(101, (WRITER, 6), [WRITER], [READER], [OTHER], in_focus=True)
    assert got.log[0] == Standing(97, None, (), (), [], in_focus=False)


def test_many_who_were_woken_at_once_read_once(tmp_path: Path) -> None:
    found = lost_write(tmp_path)
    clock = Clock()
    of = reader(tmp_path, clock)
    first = of.of(found.id, NOON + S)
    more = slice_("poll", OTHER, 0.6, polled=[Run(WRITER, 6, 101, 1)], position_before=101, position_after=102)
    write_deltalake(str(tmp_path / "tables" / "history"), to_table([more]), mode="append")
    clock.now = KEPT - 0.1
    assert of.of(found.id, NOON + S) is first
    clock.now = KEPT
    later = of.of(found.id, NOON + S)
    assert later.log[4].given_to == [READER, OTHER]


def test_new_findings_are_seen(tmp_path: Path) -> None:
    lost_write(tmp_path)
    of = reader(tmp_path)
    another = finding("G1a", (9,))
    with pytest.raises(UserError, match="no finding and no incident"):
        of.of(another.id, NOON)
    record(tmp_path, another)
    assert of.of(another.id, NOON + S).explained.findings[0]["anomaly"] == "G1a"


def test_it_remembers_some_and_no_more(tmp_path: Path) -> None:
    found = [finding("G1a", (n,), topic=f"t{n}", evidence={}) for n in range(REMEMBERED + 1)]
    record(tmp_path, *found)
    of = reader(tmp_path)
    for one in found:
        of.of(one.id, NOON)
    assert len(of._known) == REMEMBERED
