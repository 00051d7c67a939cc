"""`hanging-transaction` and `unrecovered-transaction`: the last stable offset stands still while the log grows.

An open transaction holds the last stable offset at its first record, and a healthy one for no longer than its timeout.
`hanging-transaction` holds once observers have seen the last stable offset at one place, with records beyond it, for
longer than the longest `transaction.timeout.ms` that any client of the log started with, and `SLACK`. Time in which
nobody saw it (`UNSEEN`) does not count: a cluster that was switched off ends nothing meanwhile, and much when it is
back. Nor does what was before a broker that answered nobody was back, or enough replicas were in sync again: no marker
could be written. While that lasts, it explains what hangs. Nothing hangs in a topic that somebody has deleted: that is
told where observers hear that it has been replaced, or for `ABSENT` that it is not there.

When init_transactions has returned, whatever earlier lives of that transactional id had left open has been ended, and
its markers are written. `unrecovered-transaction` holds when the last stable offset is still where it was before that
call returned, a grace time after it, and the only transactions that can hold it there are of earlier lives of that id.
Which these are follows from the log: transactions begun before the place was held, whose end is unknown or later, and
one of which certainly wrote where the place is: it may be the transaction of somebody else who uses the topic. If any
other of the log could hold it, nothing is concluded; nor while a process of another id has had something open since
before, of which the log does not tell yet.

State: the place held; the indefinite or long transactions that may hold it, those that log time has not come to, and
the last `KEPT` of the others. That more were dropped is told (`rules.kept.dropped`): they may hold the next place. For
the lives `rules.settling.transactional_ids`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays.columns import INFO, OFFSETS, START, TXN
from rules.arrays.intervals import indices
from rules.checks.ends.not_there import REPLACED, not_there
from rules.kept.check import Check, News, Passage
from rules.kept.report import Report
from rules.kept.state import State
from rules.settling.frontier import TICK
from rules.settling.transactional_ids import ids_of, initialised, under_another_id
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.settings import natural

SLACK: Final = 30 * SECOND
"""A coordinator looks for transactions that are over their time every ten seconds; where it is killed just then, its
broker is missed after nine, and its successor looks after ten more: by Kafka's defaults, 29 s in all."""
UNSEEN: Final = 15 * SECOND
"""Observers that are answered see each partition far more often."""
ABSENT: Final = 5 * SECOND
"""A broker that has just begun may not know of a topic yet."""
USUAL_TIMEOUT: Final = 60 * SECOND
"""Kafka's own default of transaction.timeout.ms, where no client's start row has told one."""
_LONGEST_MS: Final = 2**31 - 1
"""Kafka holds a timeout in 32 bits."""
KEPT: Final = 64
NAMED: Final = 10


@dataclass(slots=True)
class Doubtful:
    """A transaction that sent `records` here and whose end is unknown or came late. `first`: its first offset, -1 if
    unknown; `below`: the log end observed first after it, beyond which it wrote nothing, -1 while not observed."""

    name: str
    process: int
    txn: int
    invoked: int
    completed: int
    indefinite: int
    first: int
    below: int = -1
    records: int = 0


@dataclass(slots=True)
class Stability:
    """`held`: where the last stable offset stands with records beyond it, `since` when, and where the log's `end` was
    then, -1 while it does not; `seen`: the newest observation. `sound`: since when, of that time, no broker was known
    to be silent and enough replicas in sync. `longest`: the longest transaction timeout told, 0 before. `doubtful`: by
    process and operation, at most `KEPT`, in the order of their ends. `absent`: when observers were told that the
    partition is not there, since it was seen last, and of which of these that there is another one: the first, and
    the newest `KEPT` that log time has not come to."""

    held: int = -1
    since: int = -1
    end: int = -1
    seen: int = -1
    longest: int = 0
    sound: int = -1
    doubtful: dict[str, Doubtful] = field(default_factory=dict, metadata={"of": Doubtful})
    absent: list[list[int]] = field(default_factory=list)


def arrive(own: Stability, new: News) -> None:
    """Remember what may hold the last stable offset, and how long a transaction may last."""
    columns = new.columns
    for row in new.where(START).tolist():
        told = dict(columns.table["settings"][row].as_py() or ()).get("transaction.timeout.ms")
        own.longest = max(own.longest, min(natural(told), _LONGEST_MS) * 1000)
    for row in not_there(columns, new.where(OFFSETS)).tolist():
        own.absent.append([int(columns.completed[row]), int(columns.table["error"][row].as_py() == REPLACED)])
    late = (columns.type == INFO) | (columns.completed - columns.invoked >= new.report.objectives.grace)
    for row in indices(new.fresh & columns.where(TXN) & late).tolist():
        mine = new.sent.row == row
        offsets = new.sent.offset[mine]
        if not len(offsets):
            continue
        known = offsets[offsets >= 0]
        name = columns.table["transactional_id"][row].as_py() or ""
        own.doubtful[f"{columns.process[row]}/{columns.op[row]}"] = Doubtful(
            name,
            int(columns.process[row]),
            int(columns.txn[row]),
            int(columns.invoked[row]),
            int(columns.completed[row]),
            int(columns.type[row] == INFO),
            int(known.min()) if len(known) else -1,
            records=int(new.sent.length[mine].sum()),
        )
    if len(own.doubtful) > KEPT:
        _bound(own, new.state.tick, new.report)


def _bound(own: Stability, tick: int, report: Report) -> None:
    """Keep what may hold the place; of what log time has come to beside that the last `KEPT` to end."""
    own.doubtful = dict(sorted(own.doubtful.items(), key=lambda entry: (entry[1].completed, entry[0])))
    others = [key for key, one in own.doubtful.items() if one.completed <= tick and not _may_hold(one, own)]
    for key in others[:-KEPT]:
        del own.doubtful[key]
    report.drop("transactions whose end is not known", len(others) - KEPT)


def _may_hold(one: Doubtful, own: Stability) -> bool:
    """May it have begun before the place was held, and have written there?"""
    return own.held >= 0 and one.invoked <= own.since and one.first in (-1, own.held)


def fold(own: Stability, passage: Passage) -> None:
    """Go through the observations up to the last tick."""
    _observe(own, passage)
    if own.absent:
        _look_whether_it_is_there(own, passage)


def _look_whether_it_is_there(own: Stability, passage: Passage) -> None:
    """Was the topic deleted by now? Then nothing holds its last stable offset any more."""
    said = sorted(entry for entry in own.absent if own.seen < entry[0] <= passage.end)
    gone = [at for at, replaced in said if replaced or at - said[0][0] >= ABSENT]
    if gone and own.held >= 0:
        _close(passage.state, -(-gone[0] // TICK) * TICK, passage.report)
        own.held, own.since, own.end = -1, -1, -1
    own.absent = [*said[:1], *sorted(entry for entry in own.absent if entry[0] > passage.end)[-KEPT:]]


def _observe(own: Stability, passage: Passage) -> None:
    moves, report = passage.moves, passage.report
    seen = (moves.f == OFFSETS) & (moves.stable >= 0) & (moves.end >= 0)
    rows = indices(seen & (moves.at > own.seen))  # of a second observer's, not what comes late
    if not len(rows):
        return
    last, own.seen = own.seen, int(moves.at[rows[-1]])
    limit = (own.longest or USUAL_TIMEOUT) + SLACK
    ticks = (-(-moves.at[rows] // TICK) * TICK).tolist()
    for i, tick in zip(rows.tolist(), ticks, strict=True):
        time, stable, end = int(moves.at[i]), int(moves.stable[i]), int(moves.end[i])
        _narrow(own, time, stable, end)
        if own.since >= 0 and time - last >= UNSEEN:
            own.since += time - last
        last = time
        if end <= stable or stable != own.held:
            if own.held >= 0:
                _close(passage.state, tick, report)
            own.held, own.since, own.end = (stable, time, end) if end > stable else (-1, -1, -1)
            continue
        own.sound = max(own.sound, report.outages.ended(own.since, time))
        if time - own.sound >= limit:
            ids, whose = _whose(own, passage.state, time)
            report.condition(
                "hanging-transaction",
                f"the last stable offset stands at {own.held} for {(time - own.since) / 1e6:.0f} s, and the log ends"
                f" at {end}{whose}",
                at=tick,
                since=own.sound + limit,
                evidence={"last_stable": own.held, "log_end": end, "since": own.since}
                | ({"transactional_ids": ids} if ids else {}),
            )
        if own.doubtful:
            _judge_recovery(own, passage.state, time, tick, report)


def _close(state: State, tick: int, report: Report) -> None:
    for key in list(state.open_conditions):
        name, _, subject = key.partition(":")
        if name in ("hanging-transaction", "unrecovered-transaction"):
            who = (subject,) if subject else ()
            report.condition(name, None, at=tick, evidence={}, subject=who)


def _narrow(own: Stability, time: int, stable: int, end: int) -> None:
    """Learn from an observation how far each of them can have written; drop those that it has gone past."""
    for one in own.doubtful.values():
        if one.below < 0 and time > one.completed:
            one.below = end
    if any(0 <= one.below <= stable for one in own.doubtful.values()):
        own.doubtful = {key: one for key, one in own.doubtful.items() if one.below < 0 or stable < one.below}


def _holders(own: Stability, time: int) -> list[Doubtful]:
    """Those of the log's transactions that may hold the last stable offset where it is."""
    return [one for one in own.doubtful.values() if _may_hold(one, own) and (one.indefinite or one.completed >= time)]


def _wrote(one: Doubtful, own: Stability, state: State) -> bool:
    """Did it certainly write where the place is? It was acknowledged there, or it sent as many records as the log held
    beyond that place at first of which nobody else was told that they are his."""
    if one.first >= 0:
        return one.first == own.held
    start = np.maximum(state.log.offset, own.held)
    others = np.maximum(np.minimum(state.log.offset + state.log.length, own.end) - start, 0)
    return int(others.sum()) + one.records == own.end - own.held


def _whose(own: Stability, state: State, time: int) -> tuple[list[str], str]:
    """The ids of the probes whose transaction it is, where it is known who wrote there, else whose it may be: those of
    which the log tells none that would have ended it, and those that have had something open since before, `NAMED` at
    most. And that in words."""
    holders = _holders(own, time)
    known = sorted({one.name for one in holders if _wrote(one, own, state)} - {""})
    if known:
        return known, f": it is a transaction of {known[0]}"
    named = {one.name for one in holders}
    for name, number in ids_of(state):
        process = state.processes.get(number)
        if process is not None and process.known_through <= own.since:
            named.add(name)
    ids = sorted(named - {""})[:NAMED]
    return ids, f": it may be a transaction of {', '.join(ids)}, or of somebody else" if ids else ""


def _judge_recovery(own: Stability, state: State, time: int, tick: int, report: Report) -> None:
    holders = _holders(own, time)
    names = {one.name for one in holders}
    if len(names) != 1 or not (name := names.pop()) or not any(_wrote(one, own, state) for one in holders):
        return
    others = under_another_id(state, name) & state.processes.keys()
    if any(state.processes[number].known_through <= own.since for number in others):
        return
    for life in initialised(state, name):
        settled = own.since < life.completed <= time - report.objectives.grace
        if settled and all(one.process != life.process and one.completed <= life.completed for one in holders):
            report.condition(
                "unrecovered-transaction",
                f"init_transactions of {name} returned, and an earlier life's transaction still holds offset"
                f" {own.held}",
                at=tick,
                since=life.completed + report.objectives.grace,
                evidence={
                    "transactional_id": name,
                    "earlier": holders[0].process,
                    "later": life.process,
                    "txn": holders[0].txn,
                    "last_stable": own.held,
                },
                subject=(name,),
            )
            return


CHECK: Final = Check(
    "hanging-transaction", Stability, arrive=arrive, fold=fold, live_only=True, rows=frozenset({START, TXN, "error"})
)
