"""Indefinite transactions of which nobody will ever hear more, and which a broken broker may still make visible.

Part of `rules.checks.transaction_outcomes`. A run that readers went over without seeing it is written down in a
chunk of its writer. When a value of it is polled after all, however late, it is recognised: the transaction is visible,
and a `zombie-write` where it must not be.

State: a chunk for each writer of such runs (a writer is one client's life, so that is one crash or one lost answer),
and an entry each in the hot value, dropped when the log start has passed the run; at most `KEPT`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import orjson

from rules.arrays import intervals
from rules.arrays.columns import INFO, TXN, Runs
from rules.arrays.intervals import among, indices
from rules.checks import zombie_writes
from rules.checks.transaction_evidence import of_row
from rules.checks.transaction_runs import GivenUp, Outcomes, Written, name_of
from rules.kept.check import Asked, Passage
from rules.kept.codec import concat, take
from rules.kept.facts import Transactions
from rules.settling import listed_ends

KEPT: Final = 4096


def chunk_name(writer: int) -> str:
    """The chunk that holds a writer's runs that were given up."""
    return f"given-up.{writer:x}"


def needs(own: Outcomes, asked: Asked) -> Iterable[str]:
    """The writers of runs that may be given up now, and those of which one was that are polled."""
    columns, polls = asked.columns, asked.state.polls
    sent = columns.sent
    unsure = (columns.type[sent.row] == INFO) & (columns.f[sent.row] == TXN)
    writers = np.concatenate((own.written.writer[own.written.type == INFO], sent.writer[unsure]))
    if len(own.given_up):
        polled = np.concatenate((polls.writer, columns.polled.writer))
        writers = np.concatenate((writers, own.given_up.writer[among(own.given_up.writer, polled)]))
    return {chunk_name(writer) for writer in intervals.each(writers)}


def give_up(own: Outcomes, passage: Passage, rows: Written) -> None:
    """Write these rows down, of which nothing has been polled yet."""
    for i in range(len(rows)):
        writer = int(rows.writer[i])
        record = _record(own, passage, rows, i)
        known = _stored(passage, writer)
        passage.chunks.put(chunk_name(writer), orjson.dumps([*known, record]))
        until = int(rows.high[i])
        if until < 0:
            until = listed_ends.end_after(passage.state, int(rows.at[i]), int(rows.boot[i]))
        own.given_up = concat(own.given_up, GivenUp(np.array([writer]), np.array([until])))


def _record(own: Outcomes, passage: Passage, rows: Written, i: int) -> dict[str, Any]:
    asked = zombie_writes.suspects(own, passage.state, take(rows, slice(i, i + 1)))
    fenced = zombie_writes.fenced(own, passage.state, rows, i) if len(asked) else None
    names = ("process", "op", "txn", "type", "at", "said", "writer", "seq", "offset", "length")
    return {name: int(getattr(rows, name)[i]) for name in names} | {
        "transactional_id": name_of(own, rows, i),
        "fenced": None if fenced is None else [fenced.why, fenced.evidence],
        "about": of_row(passage.state, own, rows, i).evidence,
    }


def _stored(passage: Passage, writer: int) -> list[dict[str, Any]]:
    stored = passage.chunks.blob(chunk_name(writer))
    return [] if stored is None else list(orjson.loads(stored))


def recognise(own: Outcomes, passage: Passage) -> None:
    """Look the polls up that are folded now."""
    polls = passage.polls
    if not len(own.given_up) or not len(polls):
        return
    polled = intervals.distinct(polls.writer[among(polls.writer, own.given_up.writer)])
    for writer in polled.tolist():
        mine = take(polls, indices(polls.writer == writer))
        mine = take(mine, mine.at.argsort(kind="stable"))
        left = []
        for record in _stored(passage, writer):
            inside = (mine.seq < record["seq"] + record["length"]) & (record["seq"] < mine.seq + mine.length)
            hits = indices(inside)
            if not len(hits):
                left.append(record)
                continue
            hit = int(hits[0])
            seq = max(record["seq"], int(mine.seq[hit]))
            _tell(passage, record, seq, int(mine.offset[hit] + seq - mine.seq[hit]), int(mine.at[hit]))
        passage.chunks.put(chunk_name(writer), orjson.dumps(left) if left else None)
        if not left:
            own.given_up = take(own.given_up, own.given_up.writer != writer)


def _tell(passage: Passage, record: dict[str, Any], seq: int, offset: int, at: int) -> None:
    """A value of a run that was given up was polled."""
    report = passage.report
    passage.revealed.add((record["process"], record["op"]))
    one, writer = np.array([at]), np.array([record["writer"]])
    report.facts.add(
        "visible", one, of=Transactions(np.array([record["txn"]]), np.array([record["type"]])),
        runs=Runs(one, writer, np.array([seq]), np.array([offset]), np.array([1])),
        about=[orjson.dumps(record["about"]).decode()],
    )  # fmt: skip
    told = {name: record[name] for name in ("process", "op", "txn", "transactional_id", "writer")} | {"seq": seq}
    if record["fenced"] is not None:
        zombie_writes.report(told, zombie_writes.Fenced(*record["fenced"]), report, at=at)
    if record["said"]:
        report_misleading(record["process"], record["op"], record["writer"], seq, passage, at=at)


def report_misleading(process: int, op: int, writer: int, seq: int, passage: Passage, *, at: int) -> None:
    """`misleading-error`: the client was told that it failed, and this value of it was polled."""
    passage.report.add(
        "misleading-error",
        (process, op),
        f"operation {op} of {passage.state.called(process)} was told that it failed, and its write is visible",
        at=at,
        evidence={"process": process, "op": op, "writer": writer, "seq": seq},
    )


def forget(own: Outcomes, passage: Passage) -> None:
    """Drop the runs that the log start has passed, and the oldest of too many."""
    kept = own.given_up
    gone = (kept.until >= 0) & (kept.until <= passage.state.log_start)
    over = np.arange(len(kept)) < len(kept) - KEPT
    passage.report.drop("indefinite transactions that nobody was shown", int((over & ~gone).sum()))
    gone |= over
    if gone.any():
        own.given_up = take(kept, ~gone)
        for writer in set(kept.writer[gone].tolist()) - set(own.given_up.writer.tolist()):
            passage.chunks.put(chunk_name(writer), None)
