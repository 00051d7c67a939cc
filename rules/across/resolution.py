"""Stage 2: what one partition cannot decide alone. Facts of many partitions in, findings out; nothing flows back.

Whether an indefinite transaction is visible may be proven in another partition than the one where its absence matters.
So partitions emit *facts* (`rules.vocabulary.finding.FACT_SCHEMA`): of this transaction a value was polled here
(`visible`), a value is absent although a reader passed its acknowledged offset (`absent`), this finding holds if the
transaction is visible (`guarded`). Joined by transaction they give

- `torn-transaction`: one value visible, another absent, whatever the outcome;
- `lost-write` for the absent values of an indefinite transaction that is visible;
- the guarded findings of visible transactions.

What a transform reflected of its input is joined by `rules.across.transforms`, conditions that many partitions see by
`rules.across.shared_conditions`.

The state is the facts that still wait for their counterpart, bounded by `KEPT` of log time. Facts come once and in any
order; what is found is found as soon as both sides are here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rules.across import shared_conditions, transforms
from rules.arrays.intervals import Bools, Ints
from rules.kept.state import UnknownFormat
from rules.vocabulary.finding import FACT_SCHEMA, Finding
from rules.vocabulary.objectives import SECOND, Objectives

RESOLUTION_VERSION: Final = 2
KEPT: Final = 900 * SECOND
"""How long a fact waits for its counterpart: longer than the longest wait for somebody's log."""

TRANSACTION_SCHEMA: Final = pa.schema(
    [
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("txn", pa.int64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("writer", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("offset", pa.int64()),
    ]
)
"""What became of each indefinite transaction: `visible`, with the value that proves it, or `absent`, with a value that
a reader passed without seeing it. `at` is log time."""


@dataclass(slots=True)
class Resolved:
    """The state after these facts, what they proved, and what became of indefinite transactions (a table of
    `TRANSACTION_SCHEMA`; the same transaction may come again from another partition)."""

    stored: bytes
    findings: list[Finding]
    transactions: pa.Table


def resolve(
    stored: bytes | None, facts: pa.Table, objectives: Objectives, *, now: int = -1, finished: bool = False
) -> Resolved:
    """Take facts in. `now` is the newest log time that is known (microseconds), -1 for that of the facts.

    Raises `UnknownFormat` for a state of another version."""
    waiting, reflected, conditions = _load(stored)
    new = facts.filter(pc.is_valid(facts["txn"]))
    findings: list[Finding] = []
    if new.num_rows:
        joined = pa.concat_tables([waiting, new]).combine_chunks()
        age = np.concatenate((np.zeros(waiting.num_rows, bool), np.ones(new.num_rows, bool)))
        findings.extend(_joined(joined, age, finished))
        waiting = joined
    if facts.num_rows:
        now = max(now, int(pc.max(facts["at"]).as_py()))
    if waiting.num_rows and now >= 0:
        oldest = int(pc.min(waiting["at"]).as_py())
        if oldest < now - KEPT - KEPT // 8:  # seldom, and not a little at each step
            waiting = waiting.filter(pc.greater_equal(waiting["at"], now - KEPT))
    conditions, events = shared_conditions.join(conditions, facts, now)
    findings.extend(events)
    reflections = facts.filter(pc.and_(pc.is_null(facts["txn"]), pc.is_valid(facts["group"])))
    reflected, found = transforms.join(reflected, reflections, objectives, finished=finished)
    return Resolved(_dump(waiting, reflected, conditions), findings + found, _transactions(new))


def _joined(facts: pa.Table, new: Bools, finished: bool) -> Iterator[Finding]:
    """What these facts prove of the transactions that a new one is about."""
    kind = facts["kind"].to_numpy(zero_copy_only=False)
    txn: Ints = facts["txn"].to_numpy()
    visible, other = kind == "visible", kind != "visible"
    if not visible.any() or not other.any():
        return
    both = np.intersect1d(txn[visible], txn[other])
    both = np.intersect1d(both, txn[new])
    if not len(both):
        return
    concerned = facts.filter(pc.is_in(facts["txn"], value_set=pa.array(both)))
    fresh = new[np.isin(txn, both)]
    by_transaction: dict[tuple[str, int], list[tuple[dict[str, Any], bool]]] = {}
    for fact, is_new in zip(concerned.to_pylist(), fresh.tolist(), strict=True):
        by_transaction.setdefault((fact["cluster"], fact["txn"]), []).append((fact, is_new))
    for (cluster, number), own in sorted(by_transaction.items()):
        yield from _of_transaction(cluster, number, own, finished)


def _of_transaction(
    cluster: str, txn: int, facts: list[tuple[dict[str, Any], bool]], finished: bool
) -> Iterator[Finding]:
    seen = [f for f, _ in facts if f["kind"] == "visible"]
    if not seen:
        return
    absent = [f for f, _ in facts if f["kind"] == "absent"]
    proof = min(seen, key=_order)
    first_proof = not any(f["kind"] == "visible" and not new for f, new in facts)
    if absent:
        torn_before = not first_proof and any(f["kind"] == "absent" and not new for f, new in facts)
        if not torn_before:
            yield _torn(cluster, txn, proof, min(absent, key=_order))
    if finished:  # stage 1 knew which transactions are visible, and has told the rest
        return
    for fact, new in facts:
        if not (new or first_proof):
            continue  # told when it came
        at = max(fact["at"], proof["at"])
        if fact["kind"] == "guarded":
            told = orjson.loads(fact["about"])
            yield Finding(
                **{**told, "subject": tuple(told["subject"])},
                cluster=cluster, topic_id=fact["topic_id"], topic=fact["topic"], partition=fact["partition"],
                at=at, decidable=at,
            )  # fmt: skip
        elif fact["kind"] == "absent" and fact["outcome"] == "info":
            for seq in range(fact["seq"], fact["seq"] + fact["length"]):
                offset = fact["offset"] + seq - fact["seq"]
                yield Finding(
                    anomaly="lost-write", cluster=cluster, topic_id=fact["topic_id"], topic=fact["topic"],
                    partition=fact["partition"], subject=(fact["writer"], seq),
                    message=f"value {fact['writer']}/{seq} was acknowledged at offset {offset} and never polled; its"
                    f" transaction {txn} is visible in {_where(proof)}",
                    evidence={
                        "writer": fact["writer"], "seq": seq, "offset": offset, "txn": txn, "seen": _value(proof),
                    },
                    at=at, decidable=at,
                )  # fmt: skip


def _torn(cluster: str, txn: int, seen: dict[str, Any], absent: dict[str, Any]) -> Finding:
    at = max(seen["at"], absent["at"])
    outcome = absent["outcome"]
    return Finding(
        anomaly="torn-transaction",
        cluster=cluster,
        topic_id="",  # it is about no single partition
        topic=absent["topic"],
        partition=-1,
        subject=(txn,),
        message=f"of transaction {txn} ({outcome}), value {seen['writer']}/{seen['seq']} was polled in {_where(seen)},"
        f" and value {absent['writer']}/{absent['seq']} is absent from offset {absent['offset']} of {_where(absent)},"
        " which a reader passed",
        evidence={"txn": txn, "outcome": outcome, "seen": _value(seen), "absent": _value(absent)},
        at=at,
        decidable=at,
    )


def _where(fact: dict[str, Any]) -> str:
    return f"partition {fact['partition']} of {fact['topic']}"


def _value(fact: dict[str, Any]) -> dict[str, Any]:
    return {name: fact[name] for name in ("topic", "partition", "writer", "seq", "offset")}


def _order(fact: dict[str, Any]) -> tuple[str, int, int, int]:
    return fact["topic_id"], fact["partition"], fact["writer"], fact["seq"]


def _transactions(facts: pa.Table) -> pa.Table:
    of = facts.filter(
        pc.and_(pc.equal(facts["outcome"], "info"), pc.is_in(facts["kind"], value_set=pa.array(["visible", "absent"])))
    )
    columns = [
        of["cluster"], of["txn"], of["kind"], of["at"].cast(pa.timestamp("us", tz="UTC")), of["topic"],
        of["partition"], of["writer"], of["seq"], of["offset"],
    ]  # fmt: skip
    return pa.table(columns, schema=TRANSACTION_SCHEMA)


def _dump(waiting: pa.Table, transforms: dict[str, Any], conditions: shared_conditions.Open) -> bytes:
    described = {
        b"version": str(RESOLUTION_VERSION).encode(),
        b"transforms": orjson.dumps(transforms),
        b"conditions": orjson.dumps(conditions),
    }
    table = waiting.replace_schema_metadata(described)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _load(stored: bytes | None) -> tuple[pa.Table, dict[str, Any], shared_conditions.Open]:
    if stored is None:
        return FACT_SCHEMA.empty_table(), {}, {}
    try:
        table = pa.ipc.open_stream(stored).read_all()
        described = table.schema.metadata or {}
        version = described.get(b"version")
    except pa.ArrowInvalid as error:
        raise UnknownFormat("the state of stage 2 cannot be read") from error
    if version != str(RESOLUTION_VERSION).encode():
        raise UnknownFormat(f"the state of stage 2 has format {version!r}, this version reads {RESOLUTION_VERSION}")
    waiting = table.replace_schema_metadata(None).cast(FACT_SCHEMA)
    return waiting, orjson.loads(described[b"transforms"]), orjson.loads(described[b"conditions"])
