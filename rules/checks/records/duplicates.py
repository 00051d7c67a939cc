"""`duplicate` and `inconsistent-offsets`: what stands where in the log, from polls and acknowledgements.

One value at two offsets is a duplicate; two values at one offset are inconsistent. Both are proven by what is seen, at
once and for ever: see `rules.settling.window`. That a duplicate was told is one bit of its value.
"""

from __future__ import annotations

from typing import Final

from rules.arrays import intervals
from rules.arrays.intervals import indices
from rules.kept.check import Check, News, Passage, Stateless
from rules.kept.chunks import Chunks
from rules.kept.report import Report
from rules.kept.state import State, concat
from rules.settling.window import Placed


def arrive(own: Stateless, new: News) -> None:
    """What new rows place."""
    _judge(new.state, new.chunks, new.placed, new.report)


def fold(own: Stateless, passage: Passage) -> None:
    """What indefinite operations placed that turned out visible."""
    if passage.placed is not None:
        _judge(passage.state, passage.chunks, passage.placed, passage.report)


def _judge(state: State, chunks: Chunks, placed: Placed, report: Report) -> None:
    if placed.clashing:
        _report_inconsistent(placed, report)
    if len(placed.again[0]):
        _report_duplicates(state, chunks, placed, report)


def _report_inconsistent(placed: Placed, report: Report) -> None:
    old, both = placed.before, placed.after
    start, end = intervals.deeper(both.offset, both.offset + both.length)
    known = intervals.deeper(old.offset, old.offset + old.length)
    for a, b in zip(*intervals.subtract(start, end, *known), strict=True):
        for offset in report.each("inconsistent-offsets", int(a), int(b)):
            here = indices((both.offset <= offset) & (offset < both.offset + both.length))
            found = sorted((int(both.writer[i]), int(both.seq[i] + offset - both.offset[i])) for i in here)
            report.add(
                "inconsistent-offsets",
                (offset,),
                f"offset {offset} holds {len(found)} values: {' and '.join(f'{w}/{s}' for w, s in found)}",
                at=placed.proven([(w, s, offset) for w, s in found]),
                evidence={"offset": offset, "values": [{"writer": w, "seq": s} for w, s in found]},
            )


def _report_duplicates(state: State, chunks: Chunks, placed: Placed, report: Report) -> None:
    both, again = concat(placed.after, placed.late), chunks.lacking("duplicated", placed.again)
    chunks.add("duplicated", again)
    for writer, start, end in zip(*(a.tolist() for a in again), strict=True):
        context = {"idempotent": "false" if writer in state.not_idempotent else "true"}
        for seq in report.each("duplicate", start, end, context):
            own = (both.writer == writer) & (both.seq <= seq) & (seq < both.seq + both.length)
            offsets = sorted({*(both.offset[own] + seq - both.seq[own]).tolist()})
            listed = " and ".join(str(o) for o in offsets)
            where = f"offsets {listed}" if len(offsets) > 1 else f"offset {listed} and below the settled frontier"
            report.add(
                "duplicate",
                (writer, seq),
                f"value {writer}/{seq} stands at {where}",
                at=placed.proven([(writer, seq, offset) for offset in offsets]),
                evidence={"writer": writer, "seq": seq, "offsets": offsets},
                context=context,
            )


CHECK: Final = Check("duplicate", Stateless, arrive=arrive, fold=fold)
