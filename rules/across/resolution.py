"""Stage 2: what one partition cannot decide alone. Facts of many partitions in, findings out; nothing flows back.

Whether a transaction is torn, or an indefinite one visible, may be proven in another partition than the one where a
value of it is missed. So partitions emit *facts* (`rules.vocabulary.finding.FACT_SCHEMA`): of this transaction a value
was polled here (`visible`), a value is absent although a reader passed its acknowledged offset (`absent`), this finding
holds if the transaction is visible (`guarded`). Joined by transaction they give

- `torn-transaction`: one value visible, another absent, whatever the outcome;
- `lost-write` for the absent values of an indefinite transaction that is visible;
- the guarded findings of visible transactions.

What was shown after it had been absent (`AGAIN`) proves nothing of the other partitions where the transaction had been
absent by then: whoever is shown the one part, as by a broker that has lost which transactions were aborted, may not
have come to the next. What was absent before it was shown is, where nothing of it is shown until the partition that did
tells that this was long enough (`awaited`).

Most transactions are ok and healthy, and nothing at all is told of them. When a value of an ok transaction is absent,
its other values are *looked up*: `Resolved.questions` names the transaction, and the rows of the probe log tell whether
a value of it was polled anywhere (`rules.across.lookups`). What a transform reflected of its input is joined by
`rules.across.transforms`, conditions that many partitions see by `rules.across.shared_conditions`.

**State** is a mapping of names to bytes, of which a batch changes few: an entry for each indefinite transaction, and
for each aborted one of which something was seen, for `OPEN_KEPT` of log time; what is absent of aborted transactions,
as it should be, in one piece a batch, for `ABORTED_KEPT`, since a torn one shows its other side soon; what waits for
the transforms; and the shared conditions that are open. Facts come once and in any order; what is found is found as
soon as both sides are here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rules.across import shared_conditions, transforms
from rules.across.lookups import EVIDENCE, Question, order_of, torn
from rules.arrays.intervals import EMPTY, Ints
from rules.checks.transactions.given_up import AGAIN
from rules.kept import codec
from rules.kept.codec import Table, UnknownFormat
from rules.vocabulary.finding import FACT_SCHEMA, Finding
from rules.vocabulary.objectives import SECOND, Objectives

FORMAT: Final = b"3"
FORMAT_KEY: Final = "format"
CONDITIONS_KEY: Final = "conditions"
CONDITIONS: Final = frozenset({*shared_conditions.CONDITIONS, "check-failed"})
"""The conditions that are found here, and not in one partition. Where what was found here is found again, it tells
which of them are open."""
ABORTED_KEPT: Final = 900 * SECOND
OPEN_KEPT: Final = 86_400 * SECOND
_NEVER: Final = 2**63 - 1

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
_NO_TRANSACTIONS: Final = TRANSACTION_SCHEMA.empty_table()


@dataclass(slots=True)
class Resolved:
    """What these facts change of the state (None deletes), what they prove, what is to be looked up, and what became of
    indefinite transactions (a table of `TRANSACTION_SCHEMA`; the same one may come again from another partition)."""

    changes: dict[str, bytes | None]
    findings: list[Finding]
    questions: list[Question]
    transactions: pa.Table


@dataclass(slots=True)
class Absences(Table):
    """Values of aborted transactions that are absent; `place` is a number of `Aborted.places`."""

    place: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    txn: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Aborted:
    """Those of one batch. `places`: [cluster, topic id, topic, partition]."""

    places: list[list[Any]] = field(default_factory=list)
    absent: Absences = field(default_factory=Absences)


def check_format(stored: Mapping[str, bytes]) -> None:
    """Raises `UnknownFormat` for a state of another version."""
    if stored and stored.get(FORMAT_KEY) != FORMAT:
        raise UnknownFormat(
            f"the state of stage 2 has format {stored.get(FORMAT_KEY)!r}, this version reads {FORMAT!r}"
        )


def resolve(
    stored: Mapping[str, bytes], facts: pa.Table, objectives: Objectives, *, finished: bool = False
) -> Resolved:
    """Take facts in. Raises `UnknownFormat` for a state of another version."""
    check_format(stored)
    if not facts.num_rows:
        return Resolved({}, [], [], _NO_TRANSACTIONS)
    changes: dict[str, bytes | None] = {}
    findings: list[Finding] = []
    questions: list[Question] = []
    told = facts.filter(pc.is_valid(facts["txn"]))
    if told.num_rows and finished:
        findings.extend(_joined_all(told))
    elif told.num_rows:
        certain = pc.equal(told["outcome"], "ok")
        questions = _questions(told.filter(pc.and_(certain, pc.equal(told["kind"], "absent"))).to_pylist())
        _join(stored, told.filter(pc.invert(certain)), changes, findings)
    findings.extend(_conditions(stored, facts, changes))
    changed, missing = transforms.join(stored, facts.filter(pc.is_valid(facts["group"])), objectives, finished=finished)
    changes |= changed
    if changes and FORMAT_KEY not in stored:
        changes[FORMAT_KEY] = FORMAT
    return Resolved(changes, findings + missing, questions, _transactions(told))


def _conditions(stored: Mapping[str, bytes], facts: pa.Table, changes: dict[str, bytes | None]) -> list[Finding]:
    """Open and close what many partitions see."""
    if CONDITIONS_KEY not in stored and not shared_conditions.of(facts).num_rows:
        return []
    before = stored.get(CONDITIONS_KEY, b"{}")
    now = int(pc.max(facts["at"]).as_py()) if facts.num_rows else -1
    known, events = shared_conditions.join(orjson.loads(before), facts, now)
    after = orjson.dumps(known) if known else None
    if after != stored.get(CONDITIONS_KEY):
        changes[CONDITIONS_KEY] = after
    return events


def expired(stored: Mapping[str, bytes], now: int) -> list[str]:
    """The names of what is older, at log time `now`, than anything is kept for. It may stay for any time longer."""
    gone = []
    for key, value in stored.items():
        if key.startswith("aborted|"):
            if int(key.split("|")[1], 16) < now - ABORTED_KEPT:
                gone.append(key)
        elif key.startswith("txn|") and max(fact["at"] for fact in _unpacked(value)[0]) < now - OPEN_KEPT:
            gone.append(key)
    return gone + list(transforms.forgotten(stored, now))


def _key(fact: Mapping[str, Any]) -> str:
    return f"txn|{fact['txn']:x}|{fact['cluster']}"


def _join(
    stored: Mapping[str, bytes], told: pa.Table, changes: dict[str, bytes | None], findings: list[Finding]
) -> None:
    """Facts of indefinite and aborted transactions."""
    if not told.num_rows:
        return
    absent = pc.and_(pc.equal(told["outcome"], "fail"), pc.equal(told["kind"], "absent")).to_numpy()
    new: dict[str, list[dict[str, Any]]] = {}
    for fact in told.filter(pa.array(~absent)).to_pylist():
        new.setdefault(_key(fact), []).append(fact)
    aborted = told.filter(pa.array(absent))
    if aborted.num_rows:
        for fact in _wanted(aborted, set(new), stored).to_pylist():
            new.setdefault(_key(fact), []).append(fact)
    fresh = {key for key in new if key not in stored and any(f["outcome"] == "fail" for f in new[key])}
    earlier = _earlier(stored, fresh) if fresh else {}
    for key in sorted(new):
        known, is_torn = _unpacked(stored[key]) if key in stored else (earlier.get(key, []), False)
        facts = [(fact, False) for fact in known] + [(fact, True) for fact in new[key]]
        found, is_torn = _of_transaction(facts, is_torn)
        findings.extend(found)
        changes[key] = _packed([fact for fact, _ in facts], is_torn)
    if aborted.num_rows:
        piece = _piece(aborted)
        newest, number = int(piece.absent.at.max()), 0
        while (name := f"aborted|{newest:x}|{number:x}") in stored:
            number += 1
        changes[name] = codec.dump(piece, {}, {})


def _packed(facts: list[dict[str, Any]], is_torn: bool) -> bytes:
    """The facts about one transaction, and whether it has been called torn."""
    rows = [[fact[name] for name in FACT_SCHEMA.names] for fact in facts]
    return zlib.compress(orjson.dumps([is_torn, rows]), 1)


def _unpacked(stored: bytes) -> tuple[list[dict[str, Any]], bool]:
    is_torn, rows = orjson.loads(zlib.decompress(stored))
    return [dict(zip(FACT_SCHEMA.names, row, strict=True)) for row in rows], is_torn


def _wanted(aborted: pa.Table, new: set[str], stored: Mapping[str, bytes]) -> pa.Table:
    """The absences of aborted transactions of which something was seen."""
    pairs = zip(aborted["txn"].to_pylist(), aborted["cluster"].to_pylist(), strict=True)
    keys = [f"txn|{txn:x}|{cluster}" for txn, cluster in pairs]
    return aborted.filter(pa.array([key in new or key in stored for key in keys]))


def _piece(aborted: pa.Table) -> Aborted:
    rows = aborted.select(["cluster", "topic_id", "topic", "partition"]).to_pylist()
    places = [list(row.values()) for row in rows]
    numbered = [list(place) for place in dict.fromkeys(map(tuple, places))]
    columns = {name: aborted[name].to_numpy() for name in ("at", "txn", "writer", "seq", "offset", "length")}
    return Aborted(numbered, Absences(np.array([numbered.index(place) for place in places]), **columns))


def _earlier(stored: Mapping[str, bytes], keys: set[str]) -> dict[str, list[dict[str, Any]]]:
    """What was absent of these aborted transactions before anything of them was seen."""
    wanted = np.array([int(key.split("|")[1], 16) for key in keys], np.int64)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(stored):
        if not name.startswith("aborted|"):
            continue
        piece, _ = codec.load(stored[name], Aborted, {})
        for i in np.flatnonzero(np.isin(piece.absent.txn, wanted)).tolist():
            cluster, topic_id, topic, partition = piece.places[int(piece.absent.place[i])]
            fact: dict[str, Any] = dict.fromkeys(FACT_SCHEMA.names) | {
                "cluster": cluster,
                "topic_id": topic_id,
                "topic": topic,
                "partition": partition,
                "kind": "absent",
                "outcome": "fail",
            }
            for column in ("at", "txn", "writer", "seq", "offset", "length"):
                fact[column] = int(getattr(piece.absent, column)[i])
            found.setdefault(_key(fact), []).append(fact)
    return found


def _questions(facts: list[dict[str, Any]]) -> list[Question]:
    """What is to be looked up of ok transactions."""
    by_transaction: dict[str, list[dict[str, Any]]] = {}
    for fact in facts:
        by_transaction.setdefault(_key(fact), []).append(fact)
    return [Question.of(own) for _, own in sorted(by_transaction.items())]


def _joined_all(told: pa.Table) -> Iterator[Finding]:
    """A finished history: every fact is here, and stage 1 has told the losses."""
    kind, txn = told["kind"].to_numpy(zero_copy_only=False), told["txn"].to_numpy()
    both = np.intersect1d(txn[kind == "visible"], txn[kind == "absent"])
    if not len(both):
        return
    by_transaction: dict[str, list[dict[str, Any]]] = {}
    for fact in told.filter(pc.is_in(told["txn"], value_set=pa.array(both))).to_pylist():
        by_transaction.setdefault(_key(fact), []).append(fact)
    for _, own in sorted(by_transaction.items()):
        seen, absent = ([f for f in own if f["kind"] == name] for name in ("visible", "absent"))
        if seen and absent:
            yield torn(min(seen, key=order_of), min(absent, key=order_of))


def _of_transaction(facts: list[tuple[dict[str, Any], bool]], told: bool) -> tuple[list[Finding], bool]:
    """What the facts (each with: is it new?) prove of their transaction; and whether it has been called torn, as it
    has been before where it is `told`."""
    seen = [f for f, _ in facts if f["kind"] == "visible"]
    if not seen:
        return [], told
    before = [f for f, new in facts if not new]
    since, since_before, shown = _shown_late(f for f, _ in facts), _shown_late(before), _shown_late(seen)
    until = min((f["at"] for f, _ in facts if f["kind"] == "awaited"), default=-1)
    proof = min(seen, key=lambda fact: (AGAIN in _about(fact), order_of(fact)))
    found: list[Finding] = []
    facts = list(_standing(facts))
    absent = [f for f, _ in facts if f["kind"] == "absent" and f["at"] > since]
    if absent and not told:
        found.append(torn(proof, min(absent, key=order_of)))
    for fact, new in facts:
        if fact["kind"] == "guarded" and (new or since_before == _NEVER):
            found.append(_guarded(fact, proof))
        elif fact in absent and fact["outcome"] == "info" and (new or fact["at"] <= since_before):
            found.extend(_lost(fact, proof))  # else it was told when it came
    if shown >= 0:  # nothing else could be told before
        found = [replace(one, decidable=max(one.decidable, until)) for one in found]
    return found, told or bool(absent)


def _shown_late(facts: Iterable[dict[str, Any]]) -> int:
    """Since when something of a transaction is visible of which all that is visible had been absent before: what was
    absent by then waits. -1 where it was visible from the first, or has waited for long; `_NEVER` where nothing is."""
    facts = list(facts)
    seen = [(_about(fact).get(AGAIN), fact["at"]) for fact in facts if fact["kind"] == "visible"]
    if any(again is None for again, _ in seen) or any(fact["kind"] == "awaited" for fact in facts):
        return -1
    return min((at for _, at in seen), default=_NEVER)


def _about(fact: dict[str, Any]) -> dict[str, Any]:
    return dict(orjson.loads(fact["about"] or "{}"))


def _standing(facts: list[tuple[dict[str, Any], bool]]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Without what had been absent from a partition where the transaction became visible after that."""
    again: dict[tuple[str, int], int] = {}
    for fact, _ in facts:
        if fact["kind"] == "visible" and (at := _about(fact).get(AGAIN)) is not None:
            place = fact["topic_id"], fact["partition"]
            again[place] = max(again.get(place, -1), at)
    for fact, new in facts:
        if fact["kind"] != "absent" or fact["at"] > again.get((fact["topic_id"], fact["partition"]), -1):
            yield fact, new


def _guarded(fact: dict[str, Any], proof: dict[str, Any]) -> Finding:
    told = orjson.loads(fact["about"])
    at = max(fact["at"], proof["at"])
    return Finding(
        **{**told, "subject": tuple(told["subject"])},
        cluster=fact["cluster"],
        topic_id=fact["topic_id"],
        topic=fact["topic"],
        partition=fact["partition"],
        at=at,
        decidable=at,
    )


def _lost(fact: dict[str, Any], proof: dict[str, Any]) -> Iterator[Finding]:
    """The absent values of an indefinite transaction that is visible elsewhere, where their partition does not tell."""
    at = max(fact["at"], proof["at"])
    about = _about(fact)
    if about.get("told_here"):
        return
    own = {name: told for name, told in about.items() if name in EVIDENCE}
    for seq in range(fact["seq"], fact["seq"] + fact["length"]):
        offset = fact["offset"] + seq - fact["seq"]
        yield Finding(
            anomaly="lost-write",
            cluster=fact["cluster"],
            topic_id=fact["topic_id"],
            topic=fact["topic"],
            partition=fact["partition"],
            subject=(fact["writer"], seq),
            message=f"value {fact['writer']}/{seq} was acknowledged at offset {offset} and never polled; its"
            f" transaction {fact['txn']} is visible in partition {proof['partition']} of {proof['topic']}",
            evidence={
                "writer": fact["writer"],
                "seq": seq,
                "offset": offset,
                "txn": fact["txn"],
                "seen": {name: proof[name] for name in ("topic", "partition", "writer", "seq", "offset")},
            }
            | own,
            at=at,
            decidable=at,
        )


def _transactions(facts: pa.Table) -> pa.Table:
    of = facts.filter(
        pc.and_(pc.equal(facts["outcome"], "info"), pc.is_in(facts["kind"], value_set=pa.array(["visible", "absent"])))
    )
    columns = [
        of["cluster"],
        of["txn"],
        of["kind"],
        of["at"].cast(pa.timestamp("us", tz="UTC")),
        of["topic"],
        of["partition"],
        of["writer"],
        of["seq"],
        of["offset"],
    ]
    return pa.table(columns, schema=TRANSACTION_SCHEMA)
