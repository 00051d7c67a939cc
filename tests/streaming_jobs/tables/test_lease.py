"""The lease of tables in an object store: one holds it at any time, whatever becomes of answers, and what one that has
lost it has under way is refused. At moto's server; time is the tests' own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from threading import Thread
from typing import IO

import pytest
from deltalake import DeltaTable

from streaming_jobs import location
from streaming_jobs.errors import LeaseLost, TableError
from streaming_jobs.location import TableUrl
from streaming_jobs.tables.delta_tables import Table, close_to_others, read_table
from streaming_jobs.tables.fence import fenced
from streaming_jobs.tables.lease import HOLD, RENEW, WAIT, Held, Lease
from streaming_jobs.tables.schemas import SPECS
from tests.object_store import known_here, store
from tests.streaming_jobs.conftest import CHECKOUT

NOBODY = "http://127.0.0.1:9"


class Clock:
    """One host's."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with store() as port:
        yield port


@pytest.fixture
def tables(server: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableUrl]:
    with known_here(server, monkeypatch):
        yield TableUrl(f"s3://bucket/{request.node.name}")


@contextmanager
def proxied(server: int, **manners: object) -> Iterator[tuple[int, IO[str]]]:
    """A proxy with these manners (its attributes): its port, and what it prints. In a process of its own: deltalake
    holds the interpreter while it reads what a commit says."""
    runs = (
        "from tests.object_store import Proxy\n"
        f"proxy = Proxy({server}); proxy.__dict__.update({manners!r}); print(proxy.server_port, flush=True)\n"
        "proxy.serve_forever()"
    )
    with subprocess.Popen([sys.executable, "-c", runs], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        yield int(proxy.stdout.readline()), proxy.stdout
        proxy.kill()


@pytest.mark.long
def test_one_that_waits_takes_it_when_it_was_not_renewed_for_long_enough(tables: TableUrl) -> None:
    # Two hosts whose clocks tell what they like.
    here, there = Clock(1_000_000.0), Clock(5.0)
    first, second = Lease(tables, here), Lease(tables, there)
    assert first.take() and first.lost is None
    assert not second.take()
    assert second.seen is not None and second.seen.called == first._called
    for _ in range(10):
        here.now += RENEW
        there.now += RENEW
        first.renew()
        assert not second.take() and first.lost is None
    there.now += WAIT - 0.1
    assert not second.take()
    here.now += HOLD  # since it asked for the last renewal
    with pytest.raises(TableError, match=r"^The lease in \S+ could not be renewed for 9 s\.$"):
        first.require()
    there.now += 0.1
    assert second.take() and second.term > first.term
    second.require()
    first.renew()
    with pytest.raises(LeaseLost, match=r"^Another monitor \(process \d+ on \S+\) has taken the lease in "):
        first.require()
    assert HOLD + 2 * RENEW > WAIT > HOLD + 1, "nor does one that waits wait much longer than it must"


def test_one_that_slept_knows_that_another_has_taken_it(tables: TableUrl) -> None:
    here, there = Clock(0.0), Clock(0.0)
    first, second = Lease(tables, here), Lease(tables, there)
    assert first.take() and not second.take()
    there.now += WAIT
    assert second.take()
    first.renew()  # its clock stood still
    assert first.lost == f"another monitor ({second._called}) has taken the lease in {tables}/lease"
    second.renew()
    second.require()


def test_what_is_given_up_need_not_be_waited_for(tables: TableUrl) -> None:
    first, second = Lease(tables, Clock(0.0)), Lease(tables, Clock(0.0))
    assert first.take() and not second.take()
    first.release()
    with pytest.raises(TableError):
        first.require()
    assert second.take()


def test_of_many_who_try_at_once_one_has_it(tables: TableUrl) -> None:
    leases = [Lease(tables, Clock(0.0)) for _ in range(6)]
    taken: list[bool] = []
    threads = [Thread(target=lambda one=one: taken.append(one.take())) for one in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [False] * 5 + [True]


def test_a_renewal_whose_answer_is_lost_is_one(tables: TableUrl, server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Clock(0.0)
    lease = Lease(tables, here)
    with proxied(server, lost=2) as (port, _):  # of the commit that makes the table, and of the one that takes it
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        assert lease.take()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server}")
    location._store.cache_clear()
    again = Lease(tables, Clock(0.0))
    assert not again.take()
    assert again.seen is not None and again.seen.holder == lease.holder


def test_a_renewal_that_came_through_unheard_is_no_other_monitors(
    tables: TableUrl, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is lost, and when it looks whether it is there the store is away: the next one finds it there."""
    here, newest = Clock(0.0), Lease._newest
    lease = Lease(tables, here)
    assert lease.take()
    with monkeypatch.context() as then, proxied(server, lost=1) as (port, _):
        then.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        lease._table = None
        newest(lease)

        def away(self: Lease) -> Held:
            raise OSError("away")

        then.setattr(Lease, "_newest", away)
        lease.renew()
    assert lease._complaint.endswith("away"), "it does not know what became of it"
    location._store.cache_clear()
    lease._table = DeltaTable(str(lease.place))
    lease._table.load_as_version(lease._version)
    here.now += RENEW
    lease.renew()
    assert lease.lost is None and not lease._complaint
    here.now = HOLD + RENEW - 0.5
    lease.require()


@pytest.mark.long
def test_a_renewal_asks_the_store_little(tables: TableUrl, server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that answers in a second would else be too slow for `HOLD`, and each question costs money."""
    lease = Lease(tables, Clock(0.0))
    with proxied(server, verbose=True) as (port, asked):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        assert lease.take()
        for _ in range(3):
            lease.renew()
        lease.require()
        (tables / "over").exists()
        questions = list(takewhile(lambda line: "/over" not in line, asked))
    commits = [i for i, line in enumerate(questions) if line.startswith("PUT")]
    assert len(commits) == 1 + 1 + 3, "of the table, of who takes it, and of each renewal"
    assert commits[-1] - commits[-4] <= 3 * 5 + 1, "one of them looks for what has expired"


@pytest.mark.long
def test_one_that_was_taken_from_is_refused_by_the_store(tables: TableUrl) -> None:
    """It has not looked since, and puts what follows its own last commit."""
    here, there = Clock(0.0), Clock(0.0)
    lease, other = Lease(tables, here), Lease(tables, there)
    assert lease.take() and not other.take()
    there.now += WAIT
    assert other.take()
    lease.renew()
    assert lease.lost is not None and "another monitor" in lease.lost
    other.renew()
    assert other.lost is None
    other.require()


def test_a_store_that_is_away_holds_up_what_is_written_until_it_is_back(
    tables: TableUrl, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Clock(0.0), Clock(0.0)
    lease, other = Lease(tables, here), Lease(tables, there)
    assert lease.take() and not other.take()

    def away() -> None:
        lease._table = None  # what is open goes on with the address that it has
        monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
        location._store.cache_clear()

    def back() -> None:
        lease._table = None
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server}")
        location._store.cache_clear()

    away()
    for _ in range(2):
        here.now += RENEW
        lease.renew()
        lease.require()
    here.now = HOLD
    with pytest.raises(TableError, match=r"not be renewed for 9 s: The lease in \S+ cannot .*refused \(os error 111\)"):
        lease.require()
    with pytest.raises(TableError, match=r"^The lease in \S+ cannot be asked for: "):
        Lease(tables).take()
    back()
    lease.renew()
    lease.require()
    assert lease.lost is None
    away()
    here.now += HOLD
    there.now += WAIT
    back()
    assert not other.take(), "it was renewed since it looked"
    there.now += WAIT
    assert other.take()
    lease.renew()
    assert lease.lost is not None


@pytest.mark.long
def test_what_is_under_way_when_the_lease_is_lost_is_refused(tables: TableUrl) -> None:
    """The one that has lost it does not know: its clock stands still. What it sends comes after the other's first
    look."""
    here, there = Clock(0.0), Clock(0.0)
    first, second = Lease(tables, here), Lease(tables, there)
    assert first.take()
    row = SPECS["rejected"].schema.empty_table()
    row = row.from_pylist([{"cluster": "c", "reason": "r", "batch": 0, "recorded": 0}], schema=row.schema)
    with fenced(tables, first):
        close_to_others(tables)
        late, later = Table(tables, SPECS["rejected"]), Table(tables, SPECS["findings"])
        late.write(row, mode="append", app_id="job:q", batch=0)
    assert not second.take()
    there.now += WAIT
    assert second.take()
    with fenced(tables, second):
        close_to_others(tables)
        taking_over = Table(tables, SPECS["rejected"])
    first.require()
    for again in (1, 2):
        with pytest.raises(LeaseLost, match=f"^Another monitor has taken the lease, and written in {tables}/rejected"):
            late.write(row, mode="append", app_id="job:q", batch=again)
    taking_over.write(row, mode="append", app_id="job:q", batch=1)
    assert read_table(tables, "rejected").num_rows == 2
    here.now += HOLD
    with pytest.raises(TableError, match="could not be renewed"):
        later.write(SPECS["findings"].schema.empty_table(), mode="overwrite")


@pytest.mark.long
def test_who_takes_it_knows_whose_work_it_goes_on_with(tables: TableUrl) -> None:
    """Where checkpoints are not shared, one that was at work before another is behind the tables."""
    held_by: list[str] = []
    for home in ("a", "a", "b", "a"):
        lease = Lease(tables, Clock(0.0), home=home)
        assert lease.take() and lease.seen is not None
        held_by.append(lease.seen.home)
        lease.release()
    assert held_by == ["", "a", "a", "b"]
