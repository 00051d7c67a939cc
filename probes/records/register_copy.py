"""A client's copy of the registers, made by applying the log's records in the order of their offsets.

A record's payload is an operation: action, register, id, expected. The log decides: a write sets the register to its
id; a cas does so where the register holds what it expects, and is refused otherwise, by every client alike; a read
changes nothing. A copy that did not begin with the log's first record does not know what a register holds until a
write says so; a cas on a register that it does not know leaves it unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from probes.records.tag import Tag
from probes.topology import Partition
from rules.vocabulary.slices import RegisterAction, RegisterOp

ACTIONS: Final[tuple[RegisterAction, ...]] = ("write", "cas", "read")
_FORM: Final = struct.Struct("<Bqqq")
PAYLOAD_BYTES: Final = _FORM.size


class Entry(NamedTuple):
    """One operation as a record carries it; id and expected are 0 where the action has none."""

    action: RegisterAction
    register: int
    id: int = 0
    expected: int = 0

    def encode(self) -> bytes:
        return _FORM.pack(ACTIONS.index(self.action), self.register, self.id, self.expected)

    def told(self, observed: int | None = None) -> RegisterOp:
        """As it is logged, with the id that it observed."""
        return RegisterOp(
            self.register,
            self.action,
            None if self.action == "read" else self.id,
            self.expected if self.action == "cas" else None,
            observed,
        )


def decode(payload: bytes | None) -> Entry | None:
    """The operation of a payload, None where it is none."""
    if payload is None or len(payload) != PAYLOAD_BYTES or payload[0] >= len(ACTIONS):
        return None
    action, register, id, expected = _FORM.unpack(payload)
    return Entry(ACTIONS[action], register, id, expected)


@dataclass(slots=True)
class AwaitedOperation:
    """An operation of the copy's own client, whose record it waits for. `offset`: where the record was acknowledged,
    None if that was not told. Once `answered`, `held` is what the register held when the record had been applied, and
    `before` what it held just before; None where that is not known."""

    where: Partition
    register: int
    writer: int
    seq: int
    offset: int | None
    answered: bool = False
    applied: bool = False
    held: int | None = None
    before: int | None = None


@dataclass(slots=True)
class Copy:
    """`held`: the registers' ids by (partition, register). `whole`: partitions read from their first record on, whose
    registers begin at id 0. `next`: the offset to be applied next, by partition."""

    held: dict[tuple[Partition, int], int] = field(default_factory=dict)
    whole: set[Partition] = field(default_factory=set)
    next: dict[Partition, int] = field(default_factory=dict)
    asked: AwaitedOperation | None = None

    def begin(self, where: Partition, offset: int) -> None:
        """Reading begins at the end of what is there, `offset`."""
        self.next[where] = offset
        if offset == 0:
            self.whole.add(where)

    def holds(self, where: Partition, register: int) -> int | None:
        """What the register holds now, None where that is not known."""
        known = self.held.get((where, register))
        return 0 if known is None and where in self.whole else known

    def ask(self, asked: AwaitedOperation) -> None:
        """Wait for an operation's record: until it has been applied, or, for a read, all up to its offset have."""
        self.asked = asked
        self._reached(asked.where)

    def forget(self, where: Partition) -> None:
        """Records were passed over: nothing is known of this partition's registers any more."""
        self.whole.discard(where)
        for key in [key for key in self.held if key[0] == where]:
            del self.held[key]

    def apply(self, where: Partition, records: Iterable[tuple[int, Tag | None]], next: int) -> None:
        """Apply (offset, tag) of one poll of a partition; `next` is the offset after the last."""
        for offset, tag in records:
            self.next[where] = offset
            self._reached(where)
            entry = decode(tag.payload) if tag is not None else None
            if tag is not None and entry is not None:
                self._apply(where, tag, entry)
        self.next[where] = next
        self._reached(where)

    def _apply(self, where: Partition, tag: Tag, entry: Entry) -> None:
        before = self.holds(where, entry.register)
        if entry.action == "write" or (entry.action == "cas" and before == entry.expected):
            self.held[where, entry.register] = entry.id
        asked = self.asked
        own = asked is not None and not asked.answered and (tag.writer, tag.seq) == (asked.writer, asked.seq)
        if own and asked is not None and asked.where == where:
            asked.answered = asked.applied = True
            asked.before, asked.held = before, self.holds(where, entry.register)

    def _reached(self, where: Partition) -> None:
        """Has the copy passed the offset at which the record that is waited for was acknowledged?"""
        asked = self.asked
        if asked is None or asked.answered or asked.where != where or asked.offset is None:
            return
        if self.next[where] > asked.offset:
            asked.answered = True
            asked.before = asked.held = self.holds(where, asked.register)
