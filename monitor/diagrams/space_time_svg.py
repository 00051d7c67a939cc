"""A space-time diagram as SVG for the inside of an HTML page, and its style sheet.

The SVG has no style, script or font of its own: its classes are those of `STYLE`, which a page brings as a file or
inside itself, for light and dark. Colour is never the only sign: what was sent is a diamond, what was given a disc,
what was gone past a cross, and what did not end `ok` has a broken outline. Every shape carries its words as a title; a
page shows the same as a table beside it, from `rows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from monitor.diagrams.axis import Axis, axis
from monitor.diagrams.space_time import AROUND_OFFSETS, Arrow, Bar, Lane, Mark, SpaceTime

WIDTH: Final = 960
_LEFT: Final = 160
_RIGHT: Final = 72
_TOP: Final = 40
_LANE: Final = 58
_GAP: Final = 8
_BOTTOM: Final = 34
_PAD: Final = 9
"""Of a lane, above and below what is drawn in it."""
_LABEL: Final = 13
"""The height of a written offset."""
_NAME: Final = 20
"""Characters of a process's name that are shown; the whole is in its title."""
_STEPS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 1_800, 3_600)
_TICKS: Final = 6
_TICK_ROOM: Final = 92
_LONGEST_IDLE: Final = 2.0
"""Seconds in which nothing happens that are drawn; what is longer is cut out."""

STYLE: Final = """
.space-time { --st-paper: #fbfbf9; --st-lane: #f1f1ee; --st-ink: #1d2129; --st-soft: #5b6472; --st-line: #c9ccd1;
  --st-send: #8a4b08; --st-send-fill: #f0dcc0; --st-poll: #0b5a8f; --st-poll-fill: #d3e5f2; --st-bad: #b3261e;
  display: block; width: 100%; min-width: 46rem; height: auto; font: 12px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { .space-time { --st-paper: #14181e; --st-lane: #1c222a; --st-ink: #e8eaed;
  --st-soft: #a3adba; --st-line: #414b57; --st-send: #f0b667; --st-send-fill: #4a3616; --st-poll: #7cc0ee;
  --st-poll-fill: #173a52; --st-bad: #ff8f86; } }
.space-time text { fill: var(--st-soft); }
.space-time .st-paper { fill: var(--st-paper); }
.space-time .st-lane { fill: var(--st-lane); }
.space-time .st-name { fill: var(--st-ink); font-weight: 600; }
.space-time .st-guide, .space-time .st-tick { stroke: var(--st-line); fill: none; }
.space-time .st-guide { stroke-dasharray: 2 3; }
.space-time .st-offset { fill: var(--st-ink); font-variant-numeric: tabular-nums; }
.space-time .st-break { stroke: var(--st-soft); fill: none; stroke-dasharray: 1 4; stroke-width: 2; }
.space-time .st-bar { stroke-width: 1; }
.space-time .st-bar.st-sent { fill: var(--st-send-fill); stroke: var(--st-send); }
.space-time .st-bar.st-polled { fill: var(--st-poll-fill); stroke: var(--st-poll); }
.space-time .st-beside { fill-opacity: .45; stroke-opacity: .4; }
.space-time .st-not-ok { stroke-dasharray: 3 2; }
.space-time .st-bar.st-rewound { stroke: var(--st-bad); stroke-width: 2; }
.space-time .st-ending { stroke: var(--st-send); stroke-width: 1.5; fill: none; }
.space-time .st-arrow { stroke: var(--st-soft); stroke-opacity: .6; fill: none; }
.space-time .st-mark { stroke: var(--st-paper); stroke-width: 1; }
.space-time .st-mark.st-sent { fill: var(--st-send); }
.space-time .st-mark.st-given { fill: var(--st-poll); }
.space-time .st-mark.st-passed { fill: none; stroke: var(--st-bad); stroke-width: 2.5; }
@media print { .space-time { min-width: 0; } }
"""
"""The style sheet of these diagrams."""


class Row(NamedTuple):
    """One operation of the diagram in words, for its table. `in_focus`: it concerns one of the records."""

    at: datetime
    who: str
    did: str
    in_focus: bool


def rows(diagram: SpaceTime) -> list[Row]:
    """What the diagram shows, in the order of time."""
    told = [Row(bar.invoked, lane.name, bar.did, bar.in_focus) for lane in diagram.lanes for bar in lane.bars]
    return sorted(told)


def svg(diagram: SpaceTime, name: str = "space-time") -> str:
    """The SVG element, empty where there is nothing to draw. `name` keeps its ids apart from others of the page."""
    if not diagram.lanes:
        return ""
    times, offsets = _times(diagram), _offsets(diagram)
    height = _TOP + len(diagram.lanes) * (_LANE + _GAP) + _BOTTOM
    parts = [
        f'<svg class="space-time" viewBox="0 0 {WIDTH} {height}" role="img" '
        f"aria-labelledby={quoteattr(f'{name}-title')} aria-describedby={quoteattr(f'{name}-desc')}>",
        f"<title id={quoteattr(f'{name}-title')}>Who sent and who polled these records, and when</title>",
        f"<desc id={quoteattr(f'{name}-desc')}>{escape(_described(diagram))}</desc>",
        f'<rect class="st-paper" width="{WIDTH}" height="{height}" rx="6"/>',
    ]
    for number, lane in enumerate(diagram.lanes):
        parts += _frame(lane, number, offsets, diagram.offsets)
    parts += _time_axis(times, height)
    for number, lane in enumerate(diagram.lanes):
        parts += [_bar(bar, _top(number), times, offsets) for bar in lane.bars if not bar.in_focus]
        parts += [_bar(bar, _top(number), times, offsets) for bar in lane.bars if bar.in_focus]
    parts += [_arrow(one, diagram.lanes, times, offsets) for one in diagram.arrows]
    for number, lane in enumerate(diagram.lanes):
        parts += [_mark(mark, _top(number), times, offsets) for mark in lane.marks]
    parts += _legend(height - 12, diagram)
    parts.append("</svg>")
    return "\n".join(parts)


def _described(diagram: SpaceTime) -> str:
    senders = [lane.name for lane in diagram.lanes if lane.sends]
    others = len(diagram.lanes) - len(senders)
    said = f"{', '.join(senders) or 'nobody that is known'} sent; {others} others polled. "
    return said + "The table that follows tells the same."


# Axes


def _times(diagram: SpaceTime) -> Axis:
    bars = [bar for lane in diagram.lanes for bar in lane.bars]
    spans = [(bar.invoked.timestamp(), bar.completed.timestamp()) for bar in bars]
    return axis(spans, _LEFT + 12, WIDTH - _RIGHT - 8, longest=_LONGEST_IDLE)


def _offsets(diagram: SpaceTime) -> Axis:
    """Upward within a lane, from 0 at its bottom to minus its height."""
    around = [(one - AROUND_OFFSETS - 0.5, one + AROUND_OFFSETS + 0.5) for one in diagram.offsets] or [(0.0, 1.0)]
    return axis(around, -_PAD, _PAD - _LANE, longest=4.0 * AROUND_OFFSETS)


def _top(number: int) -> float:
    return _TOP + number * (_LANE + _GAP)


def _frame(lane: Lane, number: int, axis_: Axis, offsets: Sequence[int]) -> Iterator[str]:
    top = _top(number)
    yield f'<rect class="st-lane" x="{_LEFT}" y="{top}" width="{WIDTH - _LEFT - _RIGHT}" height="{_LANE}" rx="3"/>'
    shown = lane.name if len(lane.name) <= _NAME else f"{lane.name[: _NAME - 1]}…"
    does = "sends" if lane.sends else "polls"
    yield (
        f"<g><title>{escape(f'{lane.name} (process {lane.process})')}</title>"
        f'<text class="st-name" x="12" y="{top + _LANE / 2 - 2}">{escape(shown)}</text>'
        f'<text x="12" y="{top + _LANE / 2 + 14}">{does}</text></g>'
    )
    for offset in offsets:
        yield f'<path class="st-guide" d="M{_LEFT} {top + _LANE + axis_.at(offset):.1f}H{WIDTH - _RIGHT}"/>'
    for label, y in _labels(sorted({mark.offset for mark in lane.marks if mark.offset is not None}), axis_):
        yield f'<text class="st-offset" x="{WIDTH - _RIGHT + 6}" y="{top + _LANE + y:.1f}">{label}</text>'


def _labels(offsets: Sequence[int], axis_: Axis) -> list[tuple[str, float]]:
    """Which offsets are written beside a lane, and at which heights: as many as there is room for, none on another."""
    room = int((_LANE - 4) // _LABEL)
    shown = [str(one) for one in offsets]
    places = [axis_.at(one) for one in offsets]
    if len(shown) > room:
        left = len(shown) - room + 1
        shown, places = [*shown[: room - 1], f"+{left} more"], [*places[: room - 1], places[-1]]
    low = -3.0
    heights = []
    for number, place in enumerate(places):
        highest = _LABEL - _LANE + (len(places) - 1 - number) * _LABEL
        low = max(min(place + 4, low), highest)
        heights.append(low)
        low -= _LABEL
    return list(zip(shown, heights, strict=True))


def _time_axis(times: Axis, height: float) -> Iterator[str]:
    bottom = height - _BOTTOM
    total = sum(piece.high - piece.low for piece in times.pieces)
    step = next((one for one in _STEPS if one * _TICKS >= total), float(_STEPS[-1]))
    told = -float(_TICK_ROOM)
    for piece in times.pieces:
        first = -(-piece.low // step) * step
        ticks = [first + step * n for n in range(200) if first + step * n <= piece.high] or [piece.low]
        for at in ticks:
            x = times.at(at)
            yield f'<path class="st-tick" d="M{x:.1f} {_TOP - 6}V{bottom}" stroke-opacity=".35"/>'
            if x - told >= _TICK_ROOM and x < WIDTH - 40:
                told = x
                yield f'<text x="{x:.1f}" y="{_TOP - 12}" text-anchor="middle">{_clock(at, step)}</text>'
    for x, skipped in times.breaks:
        yield (
            f"<g><title>{escape(_span(skipped))} in which nothing happened</title>"
            f'<path class="st-break" d="M{x:.1f} {_TOP - 6}V{bottom}"/>'
            f'<text x="{x:.1f}" y="{_TOP - 26}" text-anchor="middle">{escape(_span(skipped))} left out</text></g>'
        )
    yield f'<text x="12" y="{_TOP - 12}">UTC</text>'


# Shapes


def _bar(bar: Bar, top: float, times: Axis, offsets: Axis) -> str:
    left, right = times.at(bar.invoked.timestamp()), times.at(bar.completed.timestamp())
    if bar.low is None or bar.high is None:
        high, low = top + _LANE - 6.0, top + _LANE - 1.0
    else:
        high, low = top + _LANE + offsets.at(bar.high + 0.5), top + _LANE + offsets.at(bar.low - 0.5)
    names = ["st-bar", "st-sent" if bar.sends else "st-polled"]
    names += ["st-beside"] * (not bar.in_focus) + ["st-not-ok"] * (bar.type != "ok") + ["st-rewound"] * bar.rewound
    drawn = (
        f'<rect class="{" ".join(names)}" x="{left:.1f}" y="{high:.1f}" width="{max(right - left, 2.5):.1f}" '
        f'height="{max(low - high, 3):.1f}" rx="1.5"><title>{escape(bar.did)}</title></rect>'
    )
    if bar.ending is not None and bar.in_focus:
        x = times.at(bar.ending[1].timestamp())
        drawn += (
            f'<path class="st-ending" d="M{x:.1f} {top + 2}v{_LANE - 4}"/>'
            f'<text class="st-offset" x="{x + 3:.1f}" y="{top + 11}">{escape(bar.ending[0])}</text>'
        )
    return drawn


def _point(mark: Mark, top: float, times: Axis, offsets: Axis) -> tuple[float, float]:
    y = -4.0 if mark.offset is None else offsets.at(mark.offset)
    return times.at(mark.at.timestamp()), top + _LANE + y


def _mark(mark: Mark, top: float, times: Axis, offsets: Axis) -> str:
    x, y = _point(mark, top, times, offsets)
    where = f"offset {mark.offset}" if mark.offset is not None else "no offset that is known"
    words = {"sent": "sent to", "given": "was given what stands at", "passed": "went past"}[mark.kind]
    title = escape(f"{words} {where} ({mark.type}), {_clock(mark.at.timestamp(), 0.001)}")
    return f'<path class="st-mark st-{mark.kind}" d="{_shape(mark.kind, x, y)}"><title>{title}</title></path>'


def _shape(kind: str, x: float, y: float) -> str:
    if kind == "sent":
        return f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"
    if kind == "given":
        return f"M{x - 4.5:.1f} {y:.1f}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z"
    return f"M{x - 4.5:.1f} {y - 4.5:.1f}l9 9m0 -9l-9 9"


def _arrow(arrow: Arrow, lanes: Sequence[Lane], times: Axis, offsets: Axis) -> str:
    source, target = lanes[arrow.from_lane].marks[arrow.from_mark], lanes[arrow.to_lane].marks[arrow.to_mark]
    x1, y1 = _point(source, _top(arrow.from_lane), times, offsets)
    x2, y2 = _point(target, _top(arrow.to_lane), times, offsets)
    return f'<path class="st-arrow" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def _legend(y: float, diagram: SpaceTime) -> Iterator[str]:
    x = 12.0
    for kind, words in (("sent", "sent"), ("given", "given"), ("passed", "gone past, not given")):
        yield f'<path class="st-mark st-{kind}" d="{_shape(kind, x + 6, y - 4)}"/>'
        yield f'<text x="{x + 18}" y="{y}">{words}</text>'
        x += 34 + 6.4 * len(words)
    bars = [("st-sent", "a send"), ("st-polled", "a poll"), ("st-polled st-not-ok", "did not end ok")]
    if any(bar.rewound for lane in diagram.lanes for bar in lane.bars):
        bars.append(("st-polled st-rewound", "went back"))
    for names, words in bars:
        yield f'<rect class="st-bar {names}" x="{x}" y="{y - 10}" width="16" height="10"/>'
        yield f'<text x="{x + 22}" y="{y}">{words}</text>'
        x += 38 + 6.4 * len(words)
    if diagram.left_out:
        left = f"{diagram.left_out} more operation{'s' * (diagram.left_out != 1)} not drawn"
        yield f'<text x="{WIDTH - 12}" y="{y}" text-anchor="end">{left}</text>'


# Times in words


def _clock(at: float, step: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    if step >= 1:
        return f"{moment + timedelta(milliseconds=500):%H:%M:%S}"
    return f"{moment + timedelta(microseconds=500):%H:%M:%S.%f}"[:-3]


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3_600:.1f} h"
