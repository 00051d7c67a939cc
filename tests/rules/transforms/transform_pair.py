"""A pair of topics, and who transforms the one into the other: what the tests of `eos-violation` tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from rules.vocabulary.slices import Mark, Run, Slice
from rules.vocabulary.times import micros
from tests.rules.histories import START, History, number

W, OUT, X, Y = number("w"), number("o"), number("x"), number("y")


class Side(History):
    """One topic of a `Pair`, with its clock."""

    def __init__(self, pair: Pair, topic: str, topic_id: str = "") -> None:
        self._pair, self._topic, self._topic_id = pair, topic, topic_id or topic
        super().__init__()

    @property
    def time(self) -> float:
        return self._pair.time

    @time.setter
    def time(self, seconds: float) -> None:
        self._pair.time = seconds

    def row(self, *what: Any, **more: Any) -> Slice:
        made = super().row(*what, **more)
        made.topic_id, made.topic = self._topic_id, self._topic
        made.boot = "b"  # one clock, whose zero is the history's beginning
        made.mono_invoked, made.mono_completed = (
            1000 * (micros(t) - micros(START)) for t in (made.invoked, made.completed)
        )
        self._pair.rows.append(made)
        return made


class Pair:
    """An input topic and an output topic, partition 0 of each, a transform `x` of group g with one transactional id, a
    reader `r` of the input and a reader `q` of the output. Inputs stand at their numbers, less `gone`."""

    def __init__(self) -> None:
        self.rows: list[Slice] = []
        self.time = 0.0
        self.inputs, self.outputs = Side(self, "in"), Side(self, "out")
        self.start = self.input_end = self.output_end = self.gone = 0
        self.second = False
        for h in (self.inputs, self.outputs):
            self._begin(h)
        self.outputs.assign("q")

    def _begin(self, h: Side) -> None:
        h.row("x", "start", kind="transform", settings={"group.id": "g"})
        self.begun("x", h)
        if h is self.inputs:
            h.assign("x", f="subscribe")
            h.assign("r")

    def made_anew(self, gone: int) -> None:
        """The input's topic is deleted, and made again: its first record has the number `gone`."""
        self.inputs, self.gone, self.input_end, self.start = Side(self, "in", "in-anew"), gone, 0, 0
        self._begin(self.inputs)

    def begun(self, process: str, *sides: Side) -> None:
        """A life of the transform's transactional id."""
        for h in sides or (self.inputs, self.outputs):
            h.row(process, "init", transactional_id="h-y" if process == "y" and self.second else "g-x")

    def joined(self) -> None:
        """Another host's transform, `y`, of group h, reads the same input."""
        self.second = True
        for h in (self.inputs, self.outputs):
            h.row("y", "start", kind="transform", settings={"group.id": "h"})
            self.begun("y", h)
        self.inputs.assign("y", f="subscribe")

    def output_made_anew(self) -> None:
        """The output's topic is deleted, and made again."""
        self.outputs, self.output_end = Side(self, "out", "out-anew"), 0
        self._begin(self.outputs)
        self.outputs.assign("q")

    def feed(self, seq: int, count: int) -> None:
        """The input gets these values, and a reader reads them."""
        at = seq - self.gone
        self.inputs.send("w", seq, count, at=at)
        self.inputs.poll("r", [("w", seq, count, at)])
        self.input_end = max(self.input_end, at + count)

    def transform(
        self, op: int, seq: int, count: int, at: int | None, type: str = "ok", *, process: str = "x", read: bool = True
    ) -> None:
        """Operation `op` reflects these inputs at output offset `at`, None where none was acknowledged; what is
        committed is read."""
        group, id_ = ("h", "h-y") if process == "y" and self.second else ("g", "g-x")
        common = {"op": op + 10, "txn": op, "type": type, "group": group, "transactional_id": id_}
        self.time += 0.001
        times = {"invoked": self.inputs.at(self.time), "completed": self.inputs.at(self.time + 0.01)}
        self.inputs.row(
            process,
            "txn",
            **common,
            **times,
            polled=[Run(W, seq, seq - self.gone, count)],
            mode="subscribe",
            isolation="read_committed",
        )
        self.outputs.row(
            process,
            "txn",
            **common,
            **times,
            sources=[Run(W, seq, seq - self.gone, count)],
            sent=[Run(OUT, 900 + op * 10 if at is None else at, at, count)],
        )
        self.time += 0.01
        if at is not None:
            self.output_end = max(self.output_end, at + count + 1)
        if type == "ok" and at is not None and read:
            self.outputs.poll("q", [("o", at, count, at)])

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.time += 1.0
            for h, end, start in (
                (self.inputs, self.input_end, self.start),
                (self.outputs, self.output_end, 0),
            ):
                h.row("observer", "offsets", log_start=start, log_end=end, last_stable=end)
                now = h.at(self.time)
                marks = [Mark(number(p), h._slices[number(p), 0], now) for p in h.processes]
                h.row("committer", "mark", marks=marks, invoked=now, completed=now)


def by_another_clock(rows: list[Slice], process: int, late: float) -> list[Slice]:
    """The same, where this process is on another host, whose clock is `late` behind the others', and whose committer
    vouches for it."""
    shift = timedelta(seconds=late)
    for row in rows:
        if row.process == process:
            row.boot, row.invoked, row.completed = "c", row.invoked - shift, row.completed - shift
    marked = []
    for row in rows:
        marked.append(row)
        if row.f == "mark" and row.marks and any(mark.process == process for mark in row.marks):
            (own,) = (mark for mark in row.marks if mark.process == process)
            row.marks = [mark for mark in row.marks if mark.process != process]
            now = row.completed - shift
            marked.append(
                replace(
                    row,
                    process=number("its committer"),
                    slice=len(marked),
                    boot="c",
                    invoked=now,
                    completed=now,
                    marks=[own._replace(through=own.through - shift)],
                )
            )
    slices: dict[tuple[str, int], int] = {}
    for row in marked:
        if row.process == number("its committer"):
            key = row.topic_id, row.process
            row.slice = slices[key] = slices.get(key, -1) + 1
    return marked
