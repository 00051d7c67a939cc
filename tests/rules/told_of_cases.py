"""The findings of the cases (`test_cases.py`), whole: their times are those of the finished history."""

from __future__ import annotations

from tests.rules.histories import number
from tests.rules.whole import Told

W, V, R, S, T = (number(name) for name in "wvrst")


def of_value(anomaly: str, writer: int, seq: int, message: str, at: float, **more: object) -> Told:
    return Told(anomaly, (writer, seq), f"value {writer}/{seq} {message}", {"writer": writer, "seq": seq, **more}, at)


def twice(seq: int, offsets: list[int], at: float) -> Told:
    where = " and ".join(map(str, offsets))
    told = of_value("duplicate", W, seq, f"stands at offsets {where}", at, offsets=offsets)
    return told._replace(context={"idempotent": "true"})


def inconsistent(offset: int, first: int, second: int, at: float) -> Told:
    """With these values of w and v."""
    return Told(
        "inconsistent-offsets",
        (offset,),
        f"offset {offset} holds 2 values: {W}/{first} and {V}/{second}",
        {"offset": offset, "values": [{"writer": W, "seq": first}, {"writer": V, "seq": second}]},
        at,
    )


ABORTED = of_value(
    "G1a",
    W,
    1,
    "was polled, and its write failed or its transaction aborted; its transaction 1 was told to be aborted",
    0.004,
    offset=1,
    process=R,
    op=0,
    failed_process=T,
    failed_op=0,
    txn=1,
    told="aborted",
)._replace(context={"isolation": "read_committed"})
CUT = Told(
    "G1b",
    (1, R, 0),
    f"operation 0 of process {R} polled a part of transaction 1, cut at value {W}/1",
    {"txn": 1, "process": R, "op": 0, "writer": W, "seq": 1},
    0.004,
)


def lost_at(offset: int, writer: int, seq: int, read_to: int, at: float) -> Told:
    message = f"was acknowledged at offset {offset} and never polled; readers are past {read_to - 1}"
    return of_value("lost-write", writer, seq, message, at, offset=offset, read_to=read_to)


def step(
    anomaly: str, who: int, ops: tuple[int, int], offsets: tuple[int, int], message: str, at: float, **more: object
) -> Told:
    """From one operation and offset to another, or inside one operation."""
    (before, op), (previous, offset) = ops, offsets
    return Told(
        anomaly,
        (who, op, offset) if anomaly.startswith("int-") else (who, op),
        f"process {who} {message}",
        {"process": who, "op": op, "previous_op": before, "previous_offset": previous, "offset": offset, **more},
        at,
        context={"idempotent": "true"} if anomaly.endswith("send") or "send" in anomaly else {"mode": "assign"},
    )


def skip(anomaly: str, ops: tuple[int, int], at: float) -> Told:
    """Reader r goes from offset 0 to 2."""
    one = [{"offset": 1, "writer": W, "seq": 1}]
    return step(anomaly, R, ops, (0, 2), "went from offset 0 to 2 over 1 known values", at, skipped=one)


def back(anomaly: str, ops: tuple[int, int], offset: int, at: float) -> Told:
    return step(anomaly, R, ops, (2, offset), f"went back from offset 2 to {offset}", at)


def sent(anomaly: str, who: int, ops: tuple[int, int], offsets: tuple[int, int], at: float) -> Told:
    return step(anomaly, who, ops, offsets, f"wrote at offset {offsets[1]} after offset {offsets[0]}", at)


def vanished(op: int, apart: float, at: float) -> Told:
    """Where a reader in assign mode skips what another had polled before, the record vanished."""
    return Told(
        "vanished-record",
        (1, W, 1),
        f"value {W}/1 was polled at offset 1 by process {S}, and process {R} passed that offset later without it",
        {
            "writer": W,
            "seq": 1,
            "offset": 1,
            "process": S,
            "op": 0,
            "passed_process": R,
            "passed_op": op,
            "apart_s": apart,
        },
        at,
    )


def broken(offset: int, at: float) -> Told:
    told = {"offset": offset, "hash": 99, "process": R, "op": 0}
    return Told(
        "corrupted-record",
        (offset, 99),
        f"the record at offset {offset} has no intact tag: it is damaged, or somebody else's",
        told,
        at,
    )


SEEN_HERE = {"offset": 7, "hash": 99, "process": R, "op": 0}
RELOCATED = Told(
    "relocated-write",
    (W, "topic", 3, 5, 7),
    f"value {W}/5 of topic/3 was polled here, at offset 7",
    {**SEEN_HERE, "writer": W, "seq": 5, "topic": "topic", "partition": 3},
    0.002,
)
FOREIGN = Told(
    "foreign-record",
    ("another",),
    "the record at offset 7 belongs to run another, which this log does not know",
    {**SEEN_HERE, "run": "another"},
    0.002,
)
ZERO_ACKNOWLEDGEMENT = Told(
    "spurious-zero-offset",
    ("acknowledgement", V, 0),
    f"value {V}/0 was acknowledged at offset 0 when offset 1 was known before",
    {"writer": V, "seq": 0, "known": 1, "process": V, "op": 0},
    0.006,
)
ZERO_COMMITTED = Told(
    "spurious-zero-offset",
    ("committed", "g"),
    "the committed offset of group g reads 0 when 5 was committed before",
    {"group": "g", "known": 5, "process": number("o")},
    0.004,
)
ZERO_POLL = step("spurious-zero-offset", R, (0, 1), (2, 0), "was at offset 2 and polled 0", 0.006)
