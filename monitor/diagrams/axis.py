"""An axis with breaks: numbers as places along a line, where long stretches of nothing are cut out.

A record that is read again an hour after it was written belongs into one picture with its writing; the hour does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

BREAK: Final = 22.0
"""What a break takes of the line, in its unit."""
_LEAST: Final = 0.08
"""The share of the line that a piece is given at least, before all are scaled to fit."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The numbers from `low` to `high` lie between `start` and `end` of the line."""

    low: float
    high: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Axis:
    """`pieces` in the order of their numbers, at least one."""

    pieces: Sequence[Piece]

    def at(self, number: float) -> float:
        """The place of a number. One in a break lies in its middle, one beyond the ends at the end."""
        first, last = self.pieces[0], self.pieces[-1]
        if number <= first.low:
            return first.start
        before = first
        for piece in self.pieces:
            if number < piece.low:
                return (before.end + piece.start) / 2
            if number <= piece.high:
                share = (number - piece.low) / (piece.high - piece.low)
                return piece.start + share * (piece.end - piece.start)
            before = piece
        return last.end

    @property
    def breaks(self) -> list[tuple[float, float]]:
        """Of each break the middle of its place, and how much it leaves out."""
        pairs = zip(self.pieces, self.pieces[1:], strict=False)
        return [((one.end + two.start) / 2, two.low - one.high) for one, two in pairs]


def axis(spans: Iterable[tuple[float, float]], start: float, end: float, *, longest: float) -> Axis:
    """An axis from `start` to `end` of a line (which may run backwards) that shows all of `spans`, and cuts out what
    lies between them where that is longer than `longest`. Raises ValueError where there are no spans."""
    stretches: list[list[float]] = []
    for low, high in sorted(spans):
        if stretches and low - stretches[-1][1] <= longest:
            stretches[-1][1] = max(stretches[-1][1], high)
        else:
            stretches.append([low, high])
    if not stretches:
        raise ValueError("an axis needs something to show")
    sign = 1 if end >= start else -1
    room = abs(end - start) - BREAK * (len(stretches) - 1)
    total = sum(high - low for low, high in stretches)
    shares = [max((high - low) / total, _LEAST) if total else 1.0 for low, high in stretches]
    pieces, at = [], start
    for (low, high), share in zip(stretches, shares, strict=True):
        length = sign * room * share / sum(shares)
        # A single number stands in the middle of its piece.
        pieces.append(Piece(low, high, at, at + length) if high > low else Piece(low - 0.5, low + 0.5, at, at + length))
        at += length + sign * BREAK
    return Axis(pieces)
