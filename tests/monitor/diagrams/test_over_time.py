"""Charts, timelines and orders: which shapes there are, and that they stand where their numbers say."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest

from monitor.diagrams import chart, order, timeline
from monitor.diagrams.chart import Chart, Series
from monitor.diagrams.frame import LEFT, RIGHT, WIDTH, TimeLine, clock
from monitor.diagrams.order import MOST, Stroke
from monitor.diagrams.timeline import Happening, Timeline

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
S = timedelta(seconds=1)


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def paths(svg: str, name: str) -> list[str]:
    """The paths of a class."""
    return [one.get("d", "") for one in parsed(svg).iter("path") if name in one.get("class", "").split()]


def titles(svg: str) -> list[str]:
    return [one.text or "" for one in parsed(svg).iter("title")]


def test_the_line_of_time() -> None:
    line = TimeLine(NOON, NOON + 80 * S)
    assert (line.x(NOON - S), line.x(NOON), line.x(NOON + 200 * S)) == (LEFT, LEFT, WIDTH - RIGHT)
    assert line.x(NOON + 40 * S) == (LEFT + WIDTH - RIGHT) / 2
    assert [told for _, told in line.ticks()] == [f"12:0{s // 60}:{s % 60:02d}" for s in range(0, 81, 10)]
    assert TimeLine(NOON, NOON).x(NOON) == LEFT, "no time at all"
    assert [clock(NOON + timedelta(microseconds=1_499_600), step) for step in (0.1, 1, 60, 86_400)] == [
        "12:00:01.500",
        "12:00:01",
        "12:00",
        "11-22",
    ]


def test_a_chart_breaks_where_nothing_is_known() -> None:
    points = [(NOON, 0.0), (NOON + 10 * S, 4.0), (NOON + 20 * S, None), (NOON + 40 * S, 2.0)]
    drawn = chart.svg(
        Chart("Lag <of> all", "s", NOON, NOON + 40 * S, [Series("a & b", points)], [(NOON, NOON + 4 * S)]), "c"
    )
    (line,) = [one for one in paths(drawn, "ot-series") if "h16" not in one]
    assert re.sub(r"[\d. ]+", "", line) == "MLM"
    assert line.startswith(f"M{LEFT:.1f} 180.0L") and line.count("M") == 2
    assert [one.get("class") for one in parsed(drawn).iter("rect")] == ["ot-paper", "ot-incident"]
    assert len(list(parsed(drawn).iter("circle"))) == 1, "a number that stands alone is a dot"
    assert titles(drawn)[0] == "Lag <of> all" and "a & b" in titles(drawn)
    assert "a & b: highest 4 s" in drawn.replace("&amp;", "&")


@pytest.mark.parametrize(("highest", "top"), [(0.0, "0.001"), (4.0, "5"), (11.0, "20"), (23_000.0, "50k")])
def test_the_axis_of_a_chart_ends_at_a_round_number(highest: float, top: str) -> None:
    drawn = chart.svg(Chart("t", "u", NOON, NOON + S, [Series("a", [(NOON, highest)])]), "c")
    assert f"{top} u" in [one.text for one in parsed(drawn).iter("text")]


def test_what_begins_together_has_an_order() -> None:
    """A moment and a stretch of time: both have a beginning, and only one has an end."""
    whole, moment = (
        Happening(NOON, NOON + S, "fault", "no leader", "a"),
        Happening(NOON, None, "fault", "no leader", "b"),
    )
    assert sorted([moment, whole]) == [whole, moment]


def test_a_timeline_has_incidents_first_then_faults() -> None:
    happened = [
        Happening(NOON, None, "client", "clients started", "a <b> started"),
        Happening(NOON + S, NOON + 2 * S, "fault", "broker 2 silent", "broker 2 did not answer for 1 s"),
        Happening(NOON + 3 * S, None, "critical", "lost-write", "lost"),
        Happening(NOON + 4 * S, None, "client", "clients started", "c started"),
    ]
    of = Timeline(NOON, NOON + 10 * S, happened)
    assert of.rows == ["lost-write", "broker 2 silent", "clients started"]
    drawn = timeline.svg(of)
    assert len(paths(drawn, "ot-client")) == 2 and len(paths(drawn, "ot-critical")) == 1
    assert "12:00:00 a <b> started" in titles(drawn)
    assert timeline.svg(Timeline(NOON, NOON + S, [])) == ""
    many = [Happening(NOON, None, "client", f"row {n}", "x") for n in range(30)]
    assert "6 more rows are in the table" in timeline.svg(Timeline(NOON, NOON + S, many))


def row(process: int, at: float, before: int | None = None, after: int | None = None, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "process": process,
        "type": "ok",
        "invoked": NOON + at * S,
        "completed": NOON + (at + 0.5) * S,
        "sent": None,
        "position_before": before,
        "position_after": after,
    }
    return given | more


def test_who_skipped_and_who_went_back() -> None:
    rows = [
        row(
            1,
            0,
            sent=[
                {"writer": 1, "seq": 0, "offset": 5, "length": 3},
                {"writer": 1, "seq": 9, "offset": None, "length": 1},
            ],
        ),
        row(2, 1, 0, 5),
        row(2, 2, 5, 8),
        row(2, 3, 9, 12),
        row(2, 4, 12, 12),
        row(2, 5, 3, 6),
        row(3, 5, 7, 9),
    ]
    of = order.order(rows, {1: "writer", 2: "reader"}, NOON + 1.8 * S, NOON + 9 * S)
    assert [(one.who, one.low, one.high, one.moved, one.came_from) for one in of.strokes] == [
        ("reader", 5, 8, None, None),
        ("reader", 9, 12, "skipped", 8),
        ("reader", 3, 6, "went back", 12),
        ("process 3", 7, 9, None, None),
    ]
    assert [order.said(one) for one in of.moves] == [
        "reader polled from offset 9 to 12, where it had stood at 8: it skipped (ok)",
        "reader polled from offset 3 to 6, where it had stood at 12: it went back (ok)",
    ]
    whole = order.order(rows, {}, NOON, NOON + 9 * S)
    assert order.said(whole.strokes[0]) == "process 1 sent to offsets 5 to 7 (ok)"
    drawn = order.svg(of, "o")
    assert len(paths(drawn, "ot-poll")) == 4 + 1 and len(paths(drawn, "ot-skip")) == 2 + 1, "and the legend"
    assert order.svg(order.order([], {}, NOON, NOON + S), "o") == ""


def test_what_is_not_drawn_is_counted_and_skips_are_drawn_first() -> None:
    rows = [row(2, n / 100, n, n + 1) for n in range(MOST)] + [row(2, 9, 5_000, 5_001)]
    of = order.order(rows, {}, NOON, NOON + 10 * S)
    assert (len(of.strokes), of.left_out, len(of.moves)) == (MOST, 1, 1)
    assert "1 more operations are not drawn" in order.svg(of, "o")
    assert isinstance(of.strokes[0], Stroke)
