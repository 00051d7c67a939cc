"""A host that does not come back is declared gone, and what waited for it is judged; with a real Delta table."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from probes.log.commits.gone import Declared, declare_gone
from probes.log.commits.history import History as Table
from probes.log.errors import HistoryUnavailable, HostUnknown
from rules.vocabulary.slices import to_table
from tests.rules.histories import START, Store, found, number
from tests.rules.settling.test_late_evidence import Hosts, traffic

HOST = number("committer two")


def lost_at(h: Hosts, i: int) -> int:
    """A record that nobody polls: the reader of this host goes on behind it."""
    h.send("w", i, 1, at=i)
    return i + 1


def away(h: Hosts) -> None:
    """The second host, with a reader, is away from second 20 on; a record is lost at 30, and another after 100."""
    at = traffic(h, 20, reads="rs")
    h.silent.add("two")
    at = traffic(h, 10, first=at, reads="r")
    at = traffic(h, 70, first=lost_at(h, at), reads="r")


def tables(h: Hosts, tmp_path: Path) -> Table:
    table = Table(str(tmp_path / "history"))
    table.append(to_table(h.rows), "test", 1)
    return table


@pytest.mark.parametrize(
    ("declared", "since", "lost"),
    [(False, None, set()), (True, None, {101}), (True, 25.0, {30, 101})],
    ids=["nobody says so", "by now", "by second 25"],
)
def test_what_waited_for_a_host_that_is_gone_is_judged(
    declared: bool, since: float | None, lost: set[int], tmp_path: Path
) -> None:
    h, store = Hosts(one=("w", "r", "observer"), two=("s",)), Store()
    away(h)
    history = tables(h, tmp_path)
    half = next(i for i, row in enumerate(h.rows) if row.completed > h.at(50.0))
    store.feed(h.rows[:half])
    store.feed(h.rows[half:])  # nothing more has come of that host: it is down
    now = h.at(h.time)
    fed = len(h.rows)
    if declared:
        assert declare_gone(history, HOST, now, None if since is None else h.at(since)) == Declared(1)
        log = DeltaTable(history.uri).to_pyarrow_table()
        known = {number(name) for name in ("committer one", "committer two")}
        told = log.filter(
            pc.and_(
                pc.equal(log["f"], "mark"),
                pc.invert(pc.is_in(log["process"], value_set=pa.array(sorted(known), pa.int64()))),
            )
        )
        assert told.num_rows == 1
        store.feed(told.cast(to_table(h.rows).schema))
    traffic(h, 40, first=lost_at(h, 101), reads="r")
    store.feed(h.rows[fed:])
    assert {s[1] for name, s in found(store.findings) if name == "lost-write"} == lost
    late = [f.event for f in store.findings if f.anomaly == "evidence-late"]
    assert late == (["opened", "closed"] if declared else ["opened"])


def test_what_was_declared_gone_is_not_declared_again(tmp_path: Path) -> None:
    """Whatever time is given; what the host says after that is of one that lives again."""
    h = Hosts(one=("w", "r", "observer"), two=("s",))
    away(h)
    history, at, down = tables(h, tmp_path), h.at(h.time), h.at(25.0)
    assert declare_gone(history, HOST, at, down) == Declared(1)
    version = DeltaTable(history.uri).version()
    said = Declared(0, at, down - timedelta(microseconds=1))
    assert declare_gone(history, HOST, at + timedelta(minutes=8), h.at(22.0)) == said
    assert declare_gone(history, HOST, at + timedelta(minutes=9)) == said
    assert DeltaTable(history.uri).version() == version, "nothing was written"
    fed = len(h.rows)
    h.silent.clear()
    h.second()
    Table(history.uri).append(to_table(h.rows[fed:]), "test", 2)
    again = h.at(h.time) + timedelta(minutes=2)
    assert declare_gone(history, HOST, again) == Declared(1)
    assert declare_gone(history, HOST, again) == Declared(0, again, again - timedelta(microseconds=1))


def test_a_host_that_is_at_work_is_not_declared_gone(tmp_path: Path) -> None:
    h = Hosts(one=("w", "r", "observer"), two=("s",))
    traffic(h, 20)
    history = tables(h, tmp_path)
    with pytest.raises(HostUnknown, match=f"committer {HOST} is at work: it wrote to the probe log at 00:00:20 UTC"):
        declare_gone(history, HOST, START + timedelta(seconds=50))
    with pytest.raises(HostUnknown, match="holds no mark of a committer 17"):
        declare_gone(history, 17, START + timedelta(hours=1))


def test_where_there_is_no_log_nobody_is_declared_gone(tmp_path: Path) -> None:
    with pytest.raises(HistoryUnavailable, match=f"^there is no probe log at {tmp_path / 'history'}$"):
        declare_gone(Table(str(tmp_path / "history")), 17, START)
