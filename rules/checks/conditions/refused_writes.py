"""`refused-writes`: the cluster refuses whatever a writer sends.

Its operations come back at once, so that it is not stuck, and each of them with an error: it may not write, its records
are too large for the topic, too few replicas are in sync. For the liveness objective it was refused from its first
refusal to its last, and nothing was acknowledged in between. That a transaction was aborted on purpose is an
acknowledgement, and has no error. Operations without an answer say neither. Refusals that are `SELDOM` apart and more
are no time of refusal: there may have been nothing to send.

Refused is what has failed with an error, and what nobody knows the outcome of (`info`) where its error is a broker's
no (`REFUSALS`): probes take nearly every error for `info`, since an earlier attempt may have been accepted. An error of
the client's own (`_REVOKE_PARTITIONS`, `_STATE`) may follow from a refusal, and is none without one.

A producer that is fenced when its transaction has been open for its own `transaction.timeout.ms` was refused nothing:
it was slow, or its host or the cluster was, and the coordinator did what it had been asked for. It has written nothing
either. Sooner than that somebody else has taken its transactional id, or the coordinator is wrong.

A transactional producer may not even get its producer id: that is a refusal wherever it sends. Has it got one, only the
refusals of what it sends count; who wrote elsewhere in between was refused twice, and not all the time.

It is told by the writer's own name where its start row tells one, and a life that ends does not end it: clients that
were refused are often made anew. It is over with the first acknowledgement, when the partition is not there any more,
and when the life that was refused last is over, and no other of that name has been refused here, for `SELDOM` liveness
objectives: who has nothing to send here any more, as a member of a group that was given other partitions, may write
elsewhere.

Who writes, and under which name, `stuck_producers` knows, whose state this is a part of. The newest `KEPT` names are
remembered.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from rules.kept.report import Report

NAME: Final = "refused-writes"
KEPT: Final = 64
SELDOM: Final = 4
"""Liveness objectives between two refusals. A writer that is refused begins anew within one, and may send seldom."""
REFUSALS: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "INVALID_TRANSACTION_TIMEOUT",
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_MSG",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "POLICY_VIOLATION",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "NOT_ENOUGH_REPLICAS",
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_TOPIC_OR_PART",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "PRODUCER_FENCED",
        "_FENCED",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
        "UNKNOWN",
    }
)
"""Errors by which a broker answers that it does not take what is sent. `UNKNOWN` is an error inside the broker,
whose log says which: one that cannot append to a log answers so to every send."""
_BESIDE: Final = "INVALID_RECORD"
"""Of the records of a batch of which one is refused for itself, the others are told so: where both are, that one's
error says why."""
FENCES: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"})
"""Of them, those by which a producer is told that it is not the newest of its transactional id: somebody else began as
such, or the coordinator ended its transaction."""
_TOLD_BY_METADATA: Final = frozenset({"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
"""The client says them, and rests them on what a broker told."""

Refused = list[list[Any]]
"""[name, when it was refused first, when last, by which error, process, its last acknowledgement here, -1 for none,
1 if only a producer id was refused]"""


class Refusal(NamedTuple):
    """An operation that was refused. `written`: when its writer had its last acknowledgement here. `unborn`: it asked
    for a producer id; its name had got one last at `ready`, -1 for never."""

    who: str
    process: int
    time: int
    error: str
    written: int
    unborn: bool = False
    ready: int = -1


def names(refused: Refused) -> set[str]:
    """Who is being refused."""
    return {entry[0] for entry in refused}


def refuse(refused: Refused, one: Refusal, report: Report) -> None:
    """A writer is refused, for the first time or again."""
    known = next((entry for entry in refused if entry[0] == one.who), None)
    if (known is not None and known[2] < one.ready and not _told(known, report)) or (
        known is not None and one.time - known[2] >= SELDOM * report.objectives.liveness and not _told(known, report)
    ):
        refused.remove(known)
        known = None
    if known is None and _is_own(one.error):
        return
    if known is None:
        known = [one.who, one.time, one.time, one.error, one.process, one.written, int(one.unborn)]
        refused.append(known)
        report.drop("writers that are refused", len(refused) - KEPT)
        del refused[:-KEPT]
    known[1:3] = min(known[1], one.time), max(known[2], one.time)
    known[4:] = one.process, max(known[5], one.written), min(known[6], int(one.unborn))
    if not (one.error.startswith("_") or one.error == _BESIDE):  # what follows from a refusal is the client's own
        known[3] = one.error
    who, since, last, error, process, written, _ = known
    if not _told(known, report):
        return
    evidence = {"process": process, "writer": who, "error": error, "acknowledged": written, "since": since}
    message = f"the cluster refuses what {who} sends, with {error} for {(last - since) / 1e6:.0f} s"
    decidable = since + report.objectives.liveness
    report.condition(NAME, message, at=last, since=decidable, evidence=evidence, subject=(who,))


def _told(entry: list[Any], report: Report) -> bool:
    """Was it refused for long enough?"""
    return bool(entry[2] - entry[1] >= report.objectives.liveness)


def _is_own(error: str) -> bool:
    """Is it one of the client, which no broker has told it?"""
    return error.startswith("_") and error not in REFUSALS | _TOLD_BY_METADATA


def ready(refused: Refused, who: str, time: int, report: Report) -> None:
    """It got a producer id: if nothing else was refused, it is not refused any more."""
    if any(entry[0] == who and entry[6] for entry in refused):
        end(refused, who, time, report)


def end(refused: Refused, who: str, time: int, report: Report) -> None:
    """It was not refused at that time. What was refused after it, and is known by now, may be the beginning of more."""
    known = next((entry for entry in refused if entry[0] == who and entry[1] <= time), None)
    if known is None:
        return
    if known[2] > time:
        known[1] = known[2]
    else:
        refused.remove(known)
    report.condition(NAME, None, at=time, evidence={"writer": who}, subject=(who,))


def forget(refused: Refused, living: Collection[int], time: int, report: Report) -> None:
    """End it for names whose life that was refused is over for long: the next one may wait before it begins anew."""
    for who, _, last, _, process, *_ in list(refused):
        over = last + SELDOM * report.objectives.liveness
        if process not in living and over < time:
            end(refused, who, over, report)
