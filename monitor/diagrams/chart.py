"""Numbers over time as lines, with the incidents behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from xml.sax.saxutils import escape

from monitor.diagrams.frame import LEFT, RIGHT, WIDTH, TimeLine, opening, time_axis

COLOURS: Final = 6
"""Lines that are told apart by colour; a chart shows no more."""
_TOP: Final = 30
_HEIGHT: Final = 150
_BOTTOM: Final = 26


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its name and its points in the order of time; None breaks the line."""

    name: str
    points: Sequence[tuple[datetime, float | None]]


@dataclass(frozen=True, slots=True)
class Chart:
    """`series`: `COLOURS` at most. `shaded`: stretches of time in which an incident went on."""

    title: str
    unit: str
    begin: datetime
    end: datetime
    series: Sequence[Series]
    shaded: Sequence[tuple[datetime, datetime]] = ()

    @property
    def highest(self) -> float:
        """The highest number, 0 where there is none."""
        return max((value for one in self.series for _, value in one.points if value is not None), default=0.0)


def svg(chart: Chart, name: str) -> str:
    """The SVG element."""
    bottom = _TOP + _HEIGHT
    line, top = TimeLine(chart.begin, chart.end), _nice(chart.highest)
    told = "; ".join(f"{one.name}: highest {_number(_highest(one))} {chart.unit}" for one in chart.series)
    parts = [*opening(name, escape(chart.title), escape(told), bottom + _BOTTOM)]
    for begin, end in chart.shaded:
        left, right = line.x(begin), line.x(end)
        parts.append(
            f'<rect class="ot-incident" x="{left:.1f}" y="{_TOP}" width="{max(right - left, 3):.1f}" '
            f'height="{_HEIGHT}"><title>incident</title></rect>'
        )
    parts += time_axis(line, _TOP, bottom)
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * _HEIGHT
        parts.append(f'<path class="ot-tick" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(share * top)} {chart.unit}</text>'
        )
    for number, one in enumerate(chart.series[:COLOURS]):
        parts += _line(one, number, line, top, bottom)
    parts += _legend(chart.series[:COLOURS])
    parts.append("</svg>")
    return "\n".join(parts)


def _line(one: Series, number: int, line: TimeLine, top: float, bottom: float) -> Iterator[str]:
    path, alone, pen = [], [], False
    for i, (at, value) in enumerate(one.points):
        if value is None:
            pen = False
            continue
        x, y = line.x(at), bottom - value / top * _HEIGHT
        path.append(f"{'L' if pen else 'M'}{x:.1f} {y:.1f}")
        if not pen and (i + 1 == len(one.points) or one.points[i + 1][1] is None):
            alone.append((x, y))
        pen = True
    yield (
        f'<path class="ot-series" style="stroke: var(--ot-c{number})" d="{"".join(path)}">'
        f"<title>{escape(one.name)}</title></path>"
    )
    for x, y in alone:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" style="fill: var(--ot-c{number})"/>'


def _legend(series: Sequence[Series]) -> Iterator[str]:
    x = float(LEFT)
    for number, one in enumerate(series):
        yield f'<path class="ot-series" style="stroke: var(--ot-c{number})" d="M{x:.0f} 14h16"/>'
        yield f'<text x="{x + 22:.0f}" y="18">{escape(one.name)}</text>'
        x += 40 + 6.6 * len(one.name)


def _highest(one: Series) -> float:
    return max((value for _, value in one.points if value is not None), default=0.0)


def _nice(highest: float) -> float:
    """A round number that is not below it."""
    size = 1e-3
    while size * 10 < highest:
        size *= 10
    return next((step * size for step in (1, 2, 5, 10) if step * size >= highest), 10 * size)


def _number(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1_000:.0f}k"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.3g}"
