"""What the board keeps of what it is told, and what it makes of it for a view."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from monitor.status.board import Board
from tests.alerts.findings import event
from tests.alerts.findings import finding as alert
from tests.alerts.incidents import incident
from tests.monitor.rows import NOON, events, finding
from tests.monitor.status.serving import Monitor, S, state, states


def batch(*rows: dict[str, Any], sent: int = 0, polled: int = 0) -> Any:
    return SimpleNamespace(states=states(*rows), stats=SimpleNamespace(sent=sent, polled=polled))


def progress(seconds: float) -> Any:
    return SimpleNamespace(duration=seconds)


def test_partitions_go_on_from_the_tables_and_the_newest_row_of_each_stands() -> None:
    monitor = Monitor()
    board = monitor.board(state(1), state(2, log_end=5))
    board.checked(batch(state(2, log_end=9), state(3)))
    assert [(row["partition"], row["log_end"]) for row in board.seen().partitions] == [(1, 100), (2, 9), (3, 100)]
    monitor.now += 2 * S
    board.checked(batch(state(3, topic_id="created anew", log_end=0)))
    assert board.seen().partitions[2]["log_end"] == 0


def test_what_is_only_counted_goes_on_from_the_table() -> None:
    past = events(
        finding("rebalance", (1,)), finding("rebalance", (2,)), finding("rebalance", (2,)), finding("duplicate")
    )
    board = Monitor().board(recorded=past)
    again = event(alert("rebalance", 3), "info", replayed=True)
    board.deliver([event(alert("rebalance", 4), "info"), again, event(alert("duplicate", 5))])
    assert dict(board.seen().overview.counted) == {("rebalance", "info"): 3}


def test_a_view_of_the_same_second_is_the_same() -> None:
    monitor = Monitor()
    board = monitor.board(state(1))
    first = board.seen()
    monitor.now += timedelta(milliseconds=900)
    assert board.seen() is first
    monitor.now += timedelta(milliseconds=100)
    assert board.seen() is not first
    monitor.now -= timedelta(hours=1)
    assert board.seen().now == monitor.now, "the machine's clock was set back"


@pytest.mark.parametrize(
    ("changed", "concerned"),
    [
        ({"subjects": ("orders/3",)}, {3: "critical"}),
        ({"subjects": ("orders/3", "orders/9"), "places": 2}, {3: "critical"}),
        ({"subjects": ("orders",)}, {1: "critical", 2: "critical", 3: "critical"}),
        ({"subjects": ("other/3",)}, {}),
        ({"cluster": "d", "subjects": ("orders/3",)}, {}),
        ({"subjects": ("writer-1",)}, {}),
        ({"subjects": ("orders/3",), "ended": NOON}, {}),
        ({"subjects": ("orders/3",), "places": 21}, {1: "critical", 2: "critical"}),
    ],
)
def test_which_partitions_an_incident_concerns(changed: dict[str, Any], concerned: dict[int, str]) -> None:
    one = incident()
    monitor = Monitor(incidents=[incident(**changed) if "ended" not in changed else incident(ended=0.0)])
    monitor.places = {one.occurrence: ["orders/1", "orders/2"]}
    seen = monitor.board(state(1), state(2), state(3)).seen()
    assert {place[2]: one.severity for place, one in seen.concerned.items()} == concerned


def test_of_two_incidents_the_worse_one_is_shown() -> None:
    mild, grave = incident("00000000000000aa", severity="warning", since=NOON - S), incident("00000000000000bb")
    seen = Monitor(incidents=[mild, grave]).board(state(3)).seen()
    assert seen.concerned["c", "orders", 3].id == grave.id


def test_how_fast_things_are_checked() -> None:
    monitor = Monitor(now=NOON - 100 * S)
    board: Board = monitor.board(state(3))
    for ago in (100, 20, 10, 0):
        monitor.now = NOON - ago * S
        board.checked(batch(sent=300, polled=700))
        board.done(progress(0.5 + ago))
    seen = board.seen()
    assert [beat.seconds for beat in seen.beats] == [100.5, 20.5, 10.5, 0.5]
    assert seen.records_per_second == pytest.approx(100.0), (
        "of the last half minute, the first of whose batches began before"
    )
    board.deliver([event(alert(subject=n, ago=ago)) for n, ago in enumerate((1.0, 2.0, 9.0))])
    monitor.now += 2 * S
    assert board.seen().latency == 2.0
    assert Monitor().board().seen().records_per_second is None


def test_how_fast_where_a_batch_takes_longer_than_half_a_minute() -> None:
    monitor = Monitor(now=NOON - 200 * S)
    board = monitor.board(state(3))
    for ago in (200, 100, 50):
        monitor.now = NOON - ago * S
        board.checked(batch(sent=5_000))
        board.done(progress(50.0))
    monitor.now = NOON
    assert board.seen().records_per_second == pytest.approx(100.0)
