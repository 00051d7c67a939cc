"""A sparkline: how one number went lately, as a small SVG for the inside of a page. Words for it stand beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WIDTH: Final = 120
HEIGHT: Final = 26
_PAD: Final = 2.0


def sparkline(values: Sequence[float]) -> str:
    """The SVG element, from the oldest value to the newest, the lowest line being 0; empty for fewer than two."""
    if len(values) < 2:
        return ""
    top = max(*values, 1e-9)
    step = (WIDTH - 2 * _PAD) / (len(values) - 1)
    points = [
        (_PAD + number * step, HEIGHT - _PAD - max(value, 0.0) / top * (HEIGHT - 2 * _PAD))
        for number, value in enumerate(values)
    ]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return (
        f'<svg class="sparkline" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="spark-area" d="M{points[0][0]:.1f} {HEIGHT}L{line}L{points[-1][0]:.1f} {HEIGHT}z"/>'
        f'<path class="spark-line" d="M{line}"/></svg>'
    )
