"""Messages call a process by its probe's name, which people know, and by its number, which the tables know."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import History, Store, number, singly
from tests.rules.settling.test_late_evidence import Hosts, the, traffic

R, W, Q = number("r"), number("w"), number("q")


def went_back(h: History) -> str:
    h.assign("r")
    h.send("w", 0, 5, at=0)
    h.poll("r", [("w", 0, 3, 0)])
    h.poll("r", [("w", 1, 4, 1)])
    h.observe(end=5)
    return "nonmonotonic-poll"


def wrote_backwards(h: History) -> str:
    h.send("w", 0, 1, at=5)
    h.send("w", 1, 1, at=4)
    h.poll("r", [("w", 1, 1, 4), ("w", 0, 1, 5)])
    return "nonmonotonic-send"


def does_not_close(h: History) -> str:
    h.row("r", "close", type="info", error="_CLOSE_STUCK")
    return "stuck-close"


def settle(h: History) -> None:
    for _ in range(20):
        h.mark(1.0)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("build", "says"),
    [
        (went_back, "{r} went back from offset 2 to 1"),
        (wrote_backwards, "{w} wrote at offset 4 after offset 5"),
        (does_not_close, "closing the client of {r} does not return"),
    ],
)
def test_what_a_process_did_is_told_by_its_name(build: Callable[[History], str], says: str, named: bool) -> None:
    h = History()
    for process, name in (("r", "reader-1"), ("w", "writer-2")):
        h.row(process, "start", settings={"name": name} if named else {})
    anomaly = build(h)
    settle(h)
    (one,) = (f for f in row_by_row(h).findings if f.anomaly == anomaly and f.event != "closed")
    called = {"r": f"reader-1 (process {R})", "w": f"writer-2 (process {W})"}
    assert one.message == says.format(**called if named else {"r": f"process {R}", "w": f"process {W}"})


def test_whose_call_hangs_is_told_by_its_name() -> None:
    h = Hosts()
    h.assign("r")
    h.start("q", name="transform-2")
    i = traffic(h, 10, reads="r")
    h.open["q"] = h.time
    traffic(h, 40, first=i, reads="r")
    store = Store()
    for row in singly(h.rows):  # how late it is, is told as of the step
        store.feed(row)
    said = the(store, "evidence-late").message
    assert said == (
        f"transform-2 (process {Q}) of run run is known as of 30 s ago, since when an operation of it is open"
    )


def test_the_name_is_kept_with_the_state_and_goes_with_its_process() -> None:
    h, store = History(), Store()
    h.row("r", "start", settings={"name": "reader-1"})
    h.mark(1.0)
    store.feed(h.rows)
    before = len(h.rows)
    went_back(h)
    settle(h)
    store.feed(h.rows[before:])
    (one,) = (finding for finding in store.findings if finding.anomaly == "nonmonotonic-poll")
    assert one.message.startswith(f"reader-1 (process {R}) went back")
