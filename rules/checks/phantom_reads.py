"""`phantom-read`: a polled value that nobody sent.

Writers count their sequence numbers per partition and reserve them before they send, so that a value beyond the
highest one that its writer ever invoked was never sent. That is known once the writer's log is complete past the poll:
polls are looked at when the horizon has passed them, which no operation that was open at that time has held back any
longer. The writer's clock may be ahead of the reader's, though, and its send still to come: what no send is known of
then (`State.unsent`, at most `KEPT` runs) is reported when the horizon has passed it by the grace. A writer that this
partition's log does not know concludes nothing, nor does one whose log never completed.

One small chunk for each writer that sent here, dropped with its last values below the log start
(`rules.audit.digests`); a writer that sent nothing is known as long as its process is.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from rules.arrays.columns import Columns, Runs
from rules.arrays.intervals import Ints, distinct, numbered
from rules.kept.chunks import Chunks
from rules.kept.report import Report
from rules.kept.state import Polls, State, concat, take

KEPT: Final = 10_000
"""Runs of a partition that wait for their sends; of more, the newest are kept, and nothing is said of the others."""
_FORM = struct.Struct("<qq")


def record_name(writer: int) -> str:
    """The chunk that holds what is known of a writer."""
    return f"writer.{writer:x}"


def chunks_needed(state: State, columns: Columns) -> set[str]:
    """The records of the writers that a step will meet."""
    writers = distinct(
        np.concatenate((columns.sent.writer, columns.polled.writer, state.polls.writer, state.unsent.writer))
    )
    return {record_name(writer) for writer in writers.tolist()}


def note_sends(chunks: Chunks, columns: Columns, sent: Runs) -> None:
    """New sends, of any outcome."""
    if not len(sent):
        return
    writers, inverse = numbered(sent.writer)
    highest = np.full(len(writers), -1, np.int64)
    np.maximum.at(highest, inverse, sent.seq + sent.length - 1)
    first: Ints = np.zeros(len(writers), np.int64)
    first[inverse] = np.arange(len(sent))
    for writer, top, at in zip(writers.tolist(), highest.tolist(), first.tolist(), strict=True):
        stored = chunks.blob(record_name(writer))
        if stored is None or _FORM.unpack(stored)[0] < top:
            chunks.put(record_name(writer), _FORM.pack(top, int(columns.process[sent.row[at]])))


def judge(state: State, chunks: Chunks, polled: Polls, through: int, report: Report) -> None:
    """Polls that the horizon has passed. Those up to `through` wait for no send any longer."""
    polled = concat(state.unsent, polled)
    if not len(polled):
        return
    writers, inverse = numbered(polled.writer)
    limits = np.full(len(writers), np.iinfo(np.int64).max, np.int64)
    silent = {process.writer: number for number, process in state.processes.items() if process.writer >= 0}
    for i, writer in enumerate(writers.tolist()):
        stored = chunks.blob(record_name(writer))
        if stored is None and writer not in silent:
            continue
        highest, process = _FORM.unpack(stored) if stored is not None else (-1, silent[writer])
        known = state.processes.get(process)
        if process not in state.unverified and not (known is not None and known.unverifiable):
            limits[i] = highest
    beyond = polled.seq + polled.length - 1 > limits[inverse]
    state.unsent = take(polled, np.flatnonzero(beyond & (polled.at > through))[-KEPT:])
    for i in np.flatnonzero(beyond & (polled.at <= through)).tolist():
        highest = int(limits[inverse[i]])
        start, end = max(int(polled.seq[i]), highest + 1), int(polled.seq[i] + polled.length[i])
        for seq in range(start, min(end, start + report.room("phantom-read") + 1)):
            _report(polled, i, seq, highest, report)
        report.skip("phantom-read", max(0, end - start - report.objectives.findings_per_step - 1))


def _report(polled: Polls, i: int, seq: int, highest: int, report: Report) -> None:
    writer, offset = int(polled.writer[i]), int(polled.offset[i])
    offset = offset + seq - int(polled.seq[i]) if offset >= 0 else -1
    if not report.once(f"phantom:{writer}:{seq}"):
        return
    sent = f"it sent up to {highest}" if highest >= 0 else "it sent nothing here"
    report.add(
        "phantom-read",
        (writer, seq),
        f"value {writer}/{seq} was polled, and its writer never sent it: {sent}",
        at=int(polled.at[i]),
        evidence={
            "writer": writer,
            "seq": seq,
            "offset": offset if offset >= 0 else None,
            "highest_sent": highest if highest >= 0 else None,
            "process": int(polled.process[i]),
            "op": int(polled.op[i]),
        },
    )
