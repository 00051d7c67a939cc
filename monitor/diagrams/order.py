"""The order of a partition: what each process sent and polled, against the log. Offsets upward, time to the right.

A send is a stroke at the offsets that it was told; a poll leads from where its process stood to where it stood then. A
poll that did not begin where the last one of its process had ended is marked: it skipped, or went back.

What is drawn is bounded: `MOST` operations, those nearest to the middle of the time; what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from xml.sax.saxutils import escape

from monitor.diagrams.frame import LEFT, RIGHT, WIDTH, TimeLine, clock, opening, time_axis

MOST: Final = 800
_TOP: Final = 28
_HEIGHT: Final = 300
_BOTTOM: Final = 26


@dataclass(frozen=True, slots=True)
class Stroke:
    """One operation, from `low` when it was invoked to `high` when it completed. `moved`: how its process came to
    stand where it began."""

    who: str
    sends: bool
    type: str
    invoked: datetime
    completed: datetime
    low: int
    high: int
    moved: Literal["skipped", "went back"] | None = None
    came_from: int | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """`begin`, `end`: the time that is shown. `left_out`: operations of that time that are not drawn."""

    begin: datetime
    end: datetime
    strokes: Sequence[Stroke]
    left_out: int = 0

    @property
    def moves(self) -> list[Stroke]:
        """The polls that skipped or went back, in the order of time."""
        return [one for one in self.strokes if one.moved is not None]


def order(rows: Sequence[Mapping[str, Any]], names: Mapping[int, str], begin: datetime, end: datetime) -> Order:
    """The order of these rows of the probe log: sends, polls and transactions of one partition, in the order of
    time. Rows before `begin` only tell where processes stood."""
    strokes = [one for one in _strokes(rows, names) if one.completed >= begin and one.invoked <= end]
    middle = begin + (end - begin) / 2
    ranked = sorted(strokes, key=lambda one: (one.moved is None, abs(one.invoked - middle)))
    drawn = sorted(ranked[:MOST], key=lambda one: one.invoked)
    return Order(begin, end, drawn, len(strokes) - len(drawn))


def _strokes(rows: Sequence[Mapping[str, Any]], names: Mapping[int, str]) -> Iterator[Stroke]:
    stood: dict[int, int] = {}
    for row in rows:
        process = row["process"]
        base = (names.get(process, f"process {process}"),)
        when = (row["type"], row["invoked"], row["completed"])
        for run in row["sent"] or ():
            if run["offset"] is not None:
                yield Stroke(*base, True, *when, run["offset"], run["offset"] + run["length"] - 1)
        before, after = row["position_before"], row["position_after"]
        if before is None or after is None:
            continue
        last = stood.get(process, before)
        stood[process] = after
        moved: Literal["skipped", "went back"] | None = None
        if before != last:
            moved = "skipped" if before > last else "went back"
        if moved is not None or before != after:
            yield Stroke(*base, False, *when, before, after, moved, last if moved else None)


def svg(diagram: Order, name: str) -> str:
    """The SVG element, empty where there is nothing to draw."""
    if not diagram.strokes:
        return ""
    bottom = _TOP + _HEIGHT
    line = TimeLine(diagram.begin, diagram.end)
    low = min(min(one.low, one.high) for one in diagram.strokes)
    high = max(max(one.low, one.high) for one in diagram.strokes) + 1
    told = f"{len(diagram.strokes)} operations on offsets {low} to {high - 1}; {len(diagram.moves)} skips and rewinds"
    parts = [*opening(name, "What each process sent and polled, against the log", told, bottom + _BOTTOM)]
    parts += time_axis(line, _TOP, bottom)

    def y(offset: float) -> float:
        return bottom - (offset - low) / (high - low) * _HEIGHT

    for n in range(5):
        offset = low + round((high - low) * n / 4)
        parts.append(f'<path class="ot-tick" d="M{LEFT} {y(offset):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(offset) + 4:.1f}" text-anchor="end">{offset}</text>')
    for one in diagram.strokes:
        x1, x2 = line.x(one.invoked), max(line.x(one.completed), line.x(one.invoked) + 1.5)
        kind = ("ot-send" if one.sends else "ot-poll") + (" ot-not-ok" if one.type != "ok" else "")
        y1, y2 = y(one.low), y(one.high + one.sends)
        words = escape(f"{clock(one.invoked, 0.001)} {said(one)}")
        parts.append(f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"><title>{words}</title></path>')
        if one.moved is not None and one.came_from is not None:
            way = f"M{x1:.1f} {y(one.came_from):.1f}V{y1:.1f}"
            parts.append(f'<path class="ot-skip" d="{way}m-4 -4l8 8m0 -8l-8 8"><title>{words}</title></path>')
    parts += _legend(diagram)
    parts.append("</svg>")
    return "\n".join(parts)


def said(one: Stroke) -> str:
    """What one operation did, in words."""
    if one.sends:
        what = f"sent to offsets {one.low} to {one.high}" if one.high > one.low else f"sent to offset {one.low}"
    else:
        what = f"polled from offset {one.low} to {one.high}"
        if one.moved is not None:
            what += f", where it had stood at {one.came_from}: it {one.moved}"
    return f"{one.who} {what} ({one.type})"


def _legend(diagram: Order) -> Iterator[str]:
    x = float(LEFT)
    for kind, words in (("ot-send", "a send"), ("ot-poll", "a poll"), ("ot-skip", "skipped, or went back")):
        yield f'<path class="{kind}" d="M{x:.0f} 14h16"/><text x="{x + 22:.0f}" y="18">{words}</text>'
        x += 44 + 6.6 * len(words)
    if diagram.left_out:
        left = f"{diagram.left_out} more operations are not drawn"
        yield f'<text x="{WIDTH - RIGHT}" y="18" text-anchor="end">{left}</text>'
