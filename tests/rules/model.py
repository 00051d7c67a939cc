"""A small executable model of one partition's log and its clients, which keeps every promise unless told to break one.

Writers send plain and transactional batches; transactions commit or abort, leave a marker, and hold the last stable
offset; readers poll what is stable, pass over aborted records and markers, crash and come back; some outcomes are
indefinite. The model writes the rows that real probes would. `Fault` breaks one promise once, at a chosen record.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

from tests.rules.histories import History, number

Fault = Literal["none", "lost", "duplicate", "replaced", "aborted-read", "skip"]


@dataclass
class Record:
    writer: str
    seq: int
    state: Literal["open", "visible", "aborted", "marker"]


@dataclass
class Reader:
    name: str
    position: int
    lives: int = 0
    subscribed: bool = False


@dataclass
class Model:
    """`seed` decides everything. `expected` is filled in as the fault happens."""

    seed: int
    fault: Fault = "none"
    rounds: int = 60
    history: History = field(default_factory=History)
    log: list[Record] = field(default_factory=list)
    expected: set[tuple[str, tuple[int | str, ...]]] = field(default_factory=set)

    def run(self) -> Model:
        self.random = random.Random(self.seed)
        self.seqs = {"w1": 0, "w2": 0, "t1": 0}
        self.readers = [Reader("r1", 0), Reader("r2", 0), Reader("g1", 0, subscribed=True)]
        self.hidden: set[int] = set()
        self.skipping: set[int] = set()
        self.broken = False
        self.victim = self.random.randint(5, self.rounds // 2)
        for reader in self.readers:
            self._begin(reader)
        for turn in range(self.rounds):
            self._send(turn)
            if self.random.random() < 0.6:
                self._transact(turn)
            for reader in self.readers:
                for _ in range(self.random.randint(0, 2)):
                    self._poll(reader, turn)
                if self.random.random() < 0.03 and self.fault == "none":
                    self._restart(reader)
            self._tick()
        for _ in range(25):
            for reader in self.readers:
                self._poll(reader, self.rounds)
            self._tick()
        return self

    def _tick(self) -> None:
        self.history.observe(start=0, end=len(self.log), stable=len(self.log))
        self.history.mark(self.random.choice((0.5, 1.0, 1.7)))

    def _begin(self, reader: Reader) -> None:
        name = f"{reader.name}.{reader.lives}"
        self.history.start(name, kind="reader")
        self.history.assign(name, f="subscribe" if reader.subscribed else "assign")

    def _restart(self, reader: Reader) -> None:
        self.history.row(f"{reader.name}.{reader.lives}", "close", type=self.random.choice(("ok", "info")))
        reader.lives += 1
        if not reader.subscribed:
            reader.position = self.random.choice((0, reader.position))
        self._begin(reader)

    def _append(self, writer: str, count: int, state: Literal["open", "visible", "aborted"]) -> tuple[int, int]:
        seq, offset = self.seqs[writer], len(self.log)
        self.seqs[writer] += count
        self.log.extend(Record(writer, seq + i, state) for i in range(count))
        return seq, offset

    def _send(self, turn: int) -> None:
        writer = self.random.choice(("w1", "w2"))
        count = self.random.randint(1, 8)
        roll = self.random.random()
        if roll < 0.05:  # indefinite, and not there
            seq = self.seqs[writer]
            self.seqs[writer] += count
            self.history.send(writer, seq, count, at=None, type="info")
            return
        seq, offset = self._append(writer, count, "visible")
        if roll < 0.1:  # indefinite, and there
            self.history.send(writer, seq, count, at=None, type="info")
            return
        self.history.send(writer, seq, count, at=offset)
        if turn >= self.victim and not self.broken:
            self._break(writer, seq, offset, count)

    def _break(self, writer: str, seq: int, offset: int, count: int) -> None:
        place = self.random.randrange(count)
        if self.fault == "lost":
            self.hidden.add(offset + place)
            self.expected.add(("lost-write", (number(writer), seq + place)))
        elif self.fault == "duplicate":
            self.log.append(Record(writer, seq + place, "visible"))
            self.expected.add(("duplicate", (number(writer), seq + place)))
        elif self.fault == "replaced":
            self.log[offset + place] = Record("phantom", 7, "visible")
            self.expected.add(("inconsistent-offsets", (offset + place,)))
            self.expected.add(("lost-write", (number(writer), seq + place)))
        elif self.fault == "skip":
            self.skipping.add(offset + place)
        else:
            return
        self.broken = True

    def _transact(self, turn: int) -> None:
        count = self.random.randint(1, 4)
        outcome = self.random.choice(("ok", "ok", "fail", "info"))
        visible = outcome == "ok" or (outcome == "info" and self.random.random() < 0.5)
        exposed = self.fault == "aborted-read" and outcome == "fail" and turn >= self.victim and not self.broken
        seq, offset = self._append("t1", count, "visible" if visible or exposed else "aborted")
        self.log.append(Record("marker", 0, "marker"))
        self.history.txn("t1", sends=[("t1", seq, count, offset)], type=outcome)
        if exposed:
            self.expected.update(("G1a", (number("t1"), seq + i)) for i in range(count))
            self.broken = True

    def _poll(self, reader: Reader, turn: int) -> None:
        limit = self.random.choice((3, 20, 1000))
        runs: list[tuple[str, int, int, int]] = []
        offset = reader.position
        hidden = self.hidden | (self.skipping if reader.name == "r1" else set())
        while offset < len(self.log) and limit:
            record = self.log[offset]
            if record.state == "visible" and offset not in hidden:
                if runs and runs[-1][0] == record.writer and runs[-1][1] + runs[-1][2] == record.seq and (
                    runs[-1][3] + runs[-1][2] == offset
                ):  # fmt: skip
                    runs[-1] = (*runs[-1][:2], runs[-1][2] + 1, runs[-1][3])
                else:
                    runs.append((record.writer, record.seq, 1, offset))
                limit -= 1
            offset += 1
        if not runs:
            return
        mode = "subscribe" if reader.subscribed else "assign"
        name = f"{reader.name}.{reader.lives}"
        before = reader.position
        failed = self.fault == "none" and self.random.random() < 0.05
        self.history.poll(name, runs, mode=mode, position_before=before, type="info" if failed else "ok")
        if not failed:
            reader.position = offset
