"""What diagrams over time have in common: the line of time with its ticks, and the style sheet of their colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

WIDTH: Final = 960
LEFT: Final = 218
RIGHT: Final = 24
_STEPS: Final = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    30,
    60,
    120,
    300,
    600,
    1_800,
    3_600,
    10_800,
    21_600,
    86_400,
)
_TICKS: Final = 8

STYLE: Final = """
.over-time { --ot-paper: #fbfbf9; --ot-ink: #1d2129; --ot-soft: #5b6472; --ot-line: #d4d6d1; --ot-critical: #b3261e;
  --ot-warning: #9a6700; --ot-c0: #0b5a8f; --ot-c1: #8a4b08; --ot-c2: #2e6b3a; --ot-c3: #6a1b9a; --ot-c4: #00696b;
  --ot-c5: #8f1d52; display: block; width: 100%; min-width: 46rem; height: auto; font: 12px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { .over-time { --ot-paper: #14181e; --ot-ink: #e8eaed; --ot-soft: #a3adba;
  --ot-line: #303945; --ot-critical: #ff8f86; --ot-warning: #f5cd74; --ot-c0: #7cc0ee; --ot-c1: #f0b667;
  --ot-c2: #86d69a; --ot-c3: #d3a6f2; --ot-c4: #6fd3d5; --ot-c5: #f29bc4; } }
.over-time text { fill: var(--ot-soft); }
.over-time .ot-paper { fill: var(--ot-paper); }
.over-time .ot-tick { stroke: var(--ot-line); fill: none; }
.over-time .ot-name { fill: var(--ot-ink); font-weight: 600; }
.over-time .ot-series { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.over-time .ot-incident { fill: var(--ot-critical); fill-opacity: .13; }
.over-time .ot-critical { fill: var(--ot-critical); }
.over-time .ot-warning { fill: var(--ot-warning); }
.over-time .ot-fault { fill: var(--ot-c3); }
.over-time .ot-change { fill: var(--ot-c0); }
.over-time .ot-client { fill: var(--ot-c1); }
.over-time .ot-send { fill: none; stroke: var(--ot-c1); stroke-width: 3; }
.over-time .ot-poll { fill: none; stroke: var(--ot-c0); stroke-width: 1.4; stroke-opacity: .75; }
.over-time .ot-not-ok { stroke-dasharray: 3 2; }
.over-time .ot-skip { fill: none; stroke: var(--ot-critical); stroke-width: 2.4; }
@media print { .over-time { min-width: 0; } }
"""
"""The style sheet of these diagrams: classes for the inside of a page, light and dark."""


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Time from `begin` to `end`, laid from `LEFT` to the right."""

    begin: datetime
    end: datetime

    def x(self, at: datetime) -> float:
        """Where a time lies; one beyond the ends lies at the end."""
        whole = max((self.end - self.begin).total_seconds(), 1e-6)
        share = min(max((at - self.begin).total_seconds() / whole, 0.0), 1.0)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> list[tuple[float, str]]:
        """Places and their times of day; with the date where a day begins."""
        whole = (self.end - self.begin).total_seconds()
        step = next((one for one in _STEPS if one * _TICKS >= whole), float(_STEPS[-1]))
        first = -(-self.begin.timestamp() // step) * step
        found = []
        for n in range(10 * _TICKS):
            at = datetime.fromtimestamp(first + n * step, UTC)
            if at > self.end:
                break
            found.append((self.x(at), clock(at, step)))
        return found


def clock(at: datetime, step: float = 1.0) -> str:
    """The time of day, as precise as steps of so many seconds need it."""
    if step >= 86_400:
        return f"{at:%m-%d}"
    if step >= 60:
        return f"{at:%H:%M}"
    if step >= 1:
        return f"{at + timedelta(milliseconds=500):%H:%M:%S}"
    return f"{at + timedelta(microseconds=500):%H:%M:%S.%f}"[:-3]


def time_axis(line: TimeLine, top: float, bottom: float) -> Iterator[str]:
    """Ticks from top to bottom, their times below."""
    for x, told in line.ticks():
        yield f'<path class="ot-tick" d="M{x:.1f} {top}V{bottom}"/>'
        if x < WIDTH - 36:
            yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{told}</text>'
    yield f'<text x="12" y="{bottom + 16}">UTC</text>'


def opening(name: str, title: str, described: str, height: float) -> Sequence[str]:
    """The beginning of the SVG element; `name` keeps its ids apart from others of the page. Title and description are
    escaped by the caller."""
    return (
        f'<svg class="over-time" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="{name}-title" '
        f'aria-describedby="{name}-desc">',
        f'<title id="{name}-title">{title}</title><desc id="{name}-desc">{described}</desc>',
        f'<rect class="ot-paper" width="{WIDTH}" height="{height:.0f}" rx="6"/>',
    )
