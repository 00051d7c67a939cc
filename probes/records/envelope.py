"""What goes with a record's value: its key, headers and timestamp, all made of the value's tag.

So whoever reads a record knows what was sent, and can tell what was altered on the way:

- the key is the 16 bytes of the tag's writer and seq;
- the timestamp is the tag's `sent`, in whole milliseconds, and of the type CreateTime;
- the first record of each batch has one header, `offsetwatch`, with the value's checksum; the others have none:
  headers cost the client more than all the rest.

The tag's flags say which records promise this. Those of earlier versions promise nothing and are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Producer

from probes.records.tag import CHECKSUM, COLUMNS, ENVELOPED, HEADED, KEY
from rules.vocabulary.slices import Altered

HEADER: Final = "offsetwatch"
_SHOWN: Final = 64
"""Characters of a key or a header that are shown."""

KEYS, HEADERS, TIMESTAMP, TIMESTAMP_TYPE = 1, 2, 4, 8
_NAMES: Final = {KEYS: "key", HEADERS: "headers", TIMESTAMP: "timestamp", TIMESTAMP_TYPE: "timestamp-type"}
_TYPES: Final = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}

Headers = Sequence[tuple[str, bytes | None]] | None


def headers_of(value: bytes) -> list[tuple[str, bytes]]:
    """The headers of a batch's first record."""
    return [(HEADER, value[-CHECKSUM:])]


def queue(
    producer: Producer, where: tuple[str, int], values: Sequence[bytes], sent: int, report: Callable[[Any, Any], None]
) -> int:
    """Give a batch of encoded values to the client, with what goes with them; `sent` in microseconds. Returns how many
    of them, from the first on, its queue had room for. Raises what else the client raises."""
    topic, partition = where
    millis = sent // 1000
    produce = producer.produce  # its call for whole batches takes neither timestamps nor headers, and is hardly faster
    queued = 0
    try:
        for value in values:
            headers = headers_of(value) if not queued else None
            produce(topic, value, value[KEY], partition, report, timestamp=millis, headers=headers)
            queued += 1
    except BufferError:
        pass  # what comes behind would overtake
    return queued


def alterations(records: Sequence[Any], values: Sequence[bytes | None], irregular: Sequence[int]) -> list[Altered]:
    """What differs from what was sent, of the polled `records` of one partition in their order; their `values`, and
    the places of those that are `irregular`: nobody knows what was sent of those.

    Whole columns are compared; single records are looked at only where a column differs."""
    if len(irregular):
        odd = set(irregular)
        records = [record for i, record in enumerate(records) if i not in odd]
        values = [value for i, value in enumerate(values) if i not in odd]
    tags = _Tags.of(values)
    promised = (tags.head["flags"] & ENVELOPED) != 0
    if not promised.all():
        chosen = np.flatnonzero(promised).tolist()
        records, tags = [records[i] for i in chosen], _Tags.of([values[i] for i in chosen])
    if not len(records):
        return []
    differs = _keys(records, tags) | _timestamps(records, tags) | _headers(records, tags)
    return _folded(records, tags, differs) if differs.any() else []


class _Tags(NamedTuple):
    """The heads of values, as bytes (n, 44) and as columns."""

    values: Sequence[Any]
    raw: npt.NDArray[np.uint8]
    head: npt.NDArray[Any]

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> _Tags:
        raw = np.frombuffer(b"".join([value[: COLUMNS.itemsize] for value in values if value]), np.uint8)
        raw = raw.reshape(-1, COLUMNS.itemsize)
        return cls(values, raw, np.ascontiguousarray(raw).view(COLUMNS).reshape(-1))


def _keys(records: Sequence[Any], tags: _Tags) -> npt.NDArray[np.int8]:
    keys = [record.key() for record in records]
    size = KEY.stop - KEY.start
    whole = None not in keys and set(map(len, keys)) == {size}
    if whole and b"".join(keys) == np.ascontiguousarray(tags.raw[:, KEY]).tobytes():
        return np.zeros(len(keys), np.int8)
    return _codes([key != value[KEY] for key, value in zip(keys, tags.values, strict=True)], KEYS)


def _timestamps(records: Sequence[Any], tags: _Tags) -> npt.NDArray[np.int8]:
    told, sent = [record.timestamp() for record in records], tags.head["sent"] // 1000
    # Records of a batch were sent at one time: neighbours mostly share it, and are compared together.
    cuts = [0, *(np.flatnonzero(np.diff(sent)) + 1).tolist(), len(told)]
    if all(told[a:b].count((TIMESTAMP_CREATE_TIME, sent[a].item())) == b - a for a, b in pairwise(cuts)):
        return np.zeros(len(told), np.int8)
    other_type = [kind != TIMESTAMP_CREATE_TIME for kind, _ in told]
    other_time = [
        kind == TIMESTAMP_CREATE_TIME and at != ours for (kind, at), ours in zip(told, sent.tolist(), strict=True)
    ]
    return _codes(other_type, TIMESTAMP_TYPE) | _codes(other_time, TIMESTAMP)


def _headers(records: Sequence[Any], tags: _Tags) -> npt.NDArray[np.int8]:
    told = [record.headers() or None for record in records]
    headed = np.flatnonzero(tags.head["flags"] & HEADED).tolist()
    if told.count(None) == len(told) - len(headed) and all(told[i] == headers_of(tags.values[i]) for i in headed):
        return np.zeros(len(told), np.int8)
    expected: list[Headers] = [None] * len(told)
    for i in headed:
        expected[i] = headers_of(tags.values[i])
    return _codes([there != ours for there, ours in zip(told, expected, strict=True)], HEADERS)


def _codes(differs: list[bool], code: int) -> npt.NDArray[np.int8]:
    return np.asarray(differs, np.int8) * np.int8(code)


def _folded(records: Sequence[Any], tags: _Tags, differs: npt.NDArray[np.int8]) -> list[Altered]:
    """Neighbours that differ in the same respects, together."""
    offsets = np.array([record.offset() for record in records], np.int64)
    writers, seqs = tags.head["writer"], tags.head["seq"]
    cut = (np.diff(differs) != 0) | (np.diff(offsets) != 1) | (np.diff(seqs) != 1) | (np.diff(writers) != 0)
    bounds = [0, *(np.flatnonzero(cut) + 1).tolist(), len(records)]
    return [
        _altered(records[a], tags.values[a], tags.head[a], code, b - a)
        for a, b in pairwise(bounds)
        if (code := int(differs[a]))
    ]


def _altered(record: Any, value: bytes, tag: Any, code: int, length: int) -> Altered:
    """`length` neighbours from `record` on."""
    kind, at = record.timestamp()
    ours = f"timestamp {int(tag['sent']) // 1000} {_TYPES[TIMESTAMP_CREATE_TIME]}"
    theirs = f"timestamp {at} {_TYPES.get(kind, 'of no type')}"
    expected = headers_of(value) if tag["flags"] & HEADED else None
    both = {
        KEYS: (f"key {_shown(value[KEY])}", f"key {_shown(record.key())}"),
        HEADERS: (f"headers {_listed(expected)}", f"headers {_listed(record.headers())}"),
        TIMESTAMP: (ours, theirs),
        TIMESTAMP_TYPE: (ours, theirs),
    }
    what = [name for name in _NAMES if code & name]
    sent, told = (", ".join(dict.fromkeys(both[name][side] for name in what)) for side in (0, 1))
    return Altered(
        int(tag["writer"]),
        int(tag["seq"]),
        record.offset(),
        length,
        ",".join(_NAMES[name] for name in what),
        sent,
        told,
        record.leader_epoch(),
    )


def _shown(data: bytes | None) -> str:
    return "none" if data is None else data.hex()[:_SHOWN] or "empty"


def _listed(headers: Headers) -> str:
    return " ".join(f"{name[:_SHOWN]}={_shown(data)}" for name, data in headers or ()) or "none"
