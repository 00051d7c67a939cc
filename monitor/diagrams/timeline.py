"""What happened when: incidents, faults, changes in the cluster and of its clients, one row each, time to the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from xml.sax.saxutils import escape

from monitor.diagrams.frame import LEFT, RIGHT, WIDTH, TimeLine, clock, opening, time_axis

MOST: Final = 24
"""Rows that are drawn."""
_TOP: Final = 10
_ROW: Final = 24
_BOTTOM: Final = 26
_LABEL: Final = 28

Kind = Literal["critical", "warning", "fault", "change", "client"]
"""An incident by its severity; a broker that does not answer; what the cluster changed; what befell a client."""


@dataclass(frozen=True, slots=True)
class Happening:
    """`end`: None for a moment, and `begin` where it began before the range. `row`: those of one name share a row. They
    are in the order of their beginnings."""

    begin: datetime
    end: datetime | None
    kind: Kind
    row: str
    told: str

    def __lt__(self, other: Happening) -> bool:
        return (self.begin, self.row, self.told) < (other.begin, other.row, other.told)


@dataclass(frozen=True, slots=True)
class Timeline:
    """`happenings` in the order of time. `left_out`: rows that are not drawn."""

    begin: datetime
    end: datetime
    happenings: Sequence[Happening]

    @property
    def rows(self) -> list[str]:
        """The rows from top to bottom: incidents, faults, changes, clients, each in the order of their first."""
        order = ("critical", "warning", "fault", "change", "client")
        first: dict[str, tuple[int, datetime]] = {}
        for one in self.happenings:
            first.setdefault(one.row, (order.index(one.kind), one.begin))
        return sorted(first, key=lambda row: first[row])


def svg(timeline: Timeline, name: str = "timeline") -> str:
    """The SVG element, empty where nothing happened."""
    rows = timeline.rows[:MOST]
    if not rows:
        return ""
    line, bottom = TimeLine(timeline.begin, timeline.end), _TOP + _ROW * len(rows)
    left = len(timeline.rows) - len(rows)
    told = f"{len(timeline.happenings)} things that happened; the table that follows lists them"
    parts = [*opening(name, "What happened when", told, bottom + _BOTTOM + (16 if left else 0))]
    parts += time_axis(line, _TOP, bottom)
    for number, row in enumerate(rows):
        y = _TOP + _ROW * number
        label = row if len(row) <= _LABEL else f"{row[: _LABEL - 1]}…"
        parts.append(
            f'<g><title>{escape(row)}</title><text class="ot-name" x="12" y="{y + 16}">{escape(label)}</text></g>'
        )
        parts.append(f'<path class="ot-tick" d="M{LEFT} {y + _ROW}H{WIDTH - RIGHT}"/>')
        parts += [_drawn(one, line, y) for one in timeline.happenings if one.row == row]
    if left:
        parts.append(f'<text x="12" y="{bottom + _BOTTOM + 8}">{left} more rows are in the table</text>')
    parts.append("</svg>")
    return "\n".join(parts)


def _drawn(one: Happening, line: TimeLine, y: float) -> str:
    x = line.x(one.begin)
    title = f"<title>{escape(f'{clock(one.begin)} {one.told}')}</title>"
    if one.end is None:
        return f'<path class="ot-{one.kind}" d="M{x:.1f} {y + 5}l6 7l-6 7l-6 -7z">{title}</path>'
    width = max(line.x(one.end) - x, 5)
    return f'<rect class="ot-{one.kind}" x="{x:.1f}" y="{y + 6}" width="{width:.1f}" height="12" rx="2">{title}</rect>'
