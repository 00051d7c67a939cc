"""Which violations must be the same in every delivery.

Not so what is true until a record appears late after all; nor what is seen in a log that was cut, or by a reader that
comes by when all others have long gone on (an audit, a call that hung), since it may be told by an index that is
settled and forgotten; nor a step to or from a value that stands twice, or one so shortly before the end of a world that
its offsets may not be settled by then; nor a loss that is due as a log ends for ever, or of what is polled after all;
nor a loss, or what is told of a group, where somebody reads whose clock nobody can compare with the others; nor what is
told of a group within a minute after a member was lost with its host, since another delivery may bring too late what
compares the clock of the next boot with one that is over; nor what is told of a group as a world ends; nor a
loss that is due at a time to which the clock of a host, set back as it was booted, has hardly come when a world ends;
nor one that a reader may have polled who was lost with its host before anything of it had come; nor a step where a
stale listing made the log look cut, which counts by what is known of the send.
"""

from __future__ import annotations

from rules.vocabulary.finding import Finding
from rules.vocabulary.times import micros
from tests.rules.world.clocks import true_time
from tests.rules.world.engine import values_of
from tests.rules.world.explains import ALWAYS, CUT_TO_NOTHING, EXPLAINS, LOST, ORDER
from tests.rules.world.kernel import SECOND
from tests.rules.world.must import GRACE
from tests.rules.world.oracle import SILENT, Oracle
from tests.rules.world.skews import Skews
from tests.rules.world.truth import READERS

APART = 60 * SECOND
"""So far apart clocks may be that nobody can compare."""
COMMITTED = frozenset({"lost-commit", "foreign-commit", "offset-regression", "spurious-zero-offset"})


def is_lasting(oracle: Oracle, f: Finding) -> bool:
    if f.anomaly in ALWAYS:
        return False
    across, world = f.partition < 0, oracle.world
    here = {p.kind for p in world.planted if across or (p.topic_id, p.partition) == (f.topic_id, f.partition)}
    if f.anomaly in LOST and _is_just_due(oracle, f):
        return False
    if f.anomaly == "lost-write" and oracle.polled_after_all(f):
        return False
    if f.anomaly == "lost-write" and (_is_ahead_of_a_clock(oracle, f) or _an_unknown_reader_was_lost(oracle, f)):
        return False
    if f.anomaly in COMMITTED | {"lost-write"} and not _comparable(oracle, f):
        return False
    if f.anomaly in COMMITTED and (_is_told_last(oracle, f) or _a_member_was_lost(oracle, f)):
        return False
    if f.anomaly in ORDER and (_is_of_a_duplicate(oracle, f) or "stale" in here):
        return False
    if f.anomaly in ORDER | LOST:
        audits = {life.process for life in world.lives if life.kind == "audit"}
        untimely = _came_late(oracle, f) or _came_last(oracle, f)
        return "late" not in here and "cut" not in here and f.subject[0] not in audits and not untimely
    return not (f.anomaly in EXPLAINS["cut"] | CUT_TO_NOTHING and "cut" in here)


def _comparable(oracle: Oracle, f: Finding) -> bool:
    """Can the clocks of all that read here be compared with those that observe and write? Else a verdict waits for
    whoever is known to live, and that is another one in each delivery."""
    skews = Skews(oracle.world, f.topic_id)
    lives = [life for life in oracle.world.lives if life.topic_id == f.topic_id]
    here = [life for life in lives if any(e.row.partition == f.partition for e in life.entries)]
    reading = {life.host.name for life in here if life.kind in READERS}
    others = {life.host.name for life in here if life.kind not in READERS}
    return all(skews.known(f.partition, host, other) for host in reading for other in others)


def _is_just_due(oracle: Oracle, f: Finding) -> bool:
    """Skips name the values that they went over as long as the log knows them."""
    low, high = int(f.evidence.get("previous_offset", f.evidence["offset"])), int(f.evidence["offset"])
    over = {v for v, offset in oracle.just_due.items() if v[0] == f.partition and low < offset < high}
    return bool(over | (values_of(f) & oracle.just_due.keys()))


def _came_late(oracle: Oracle, f: Finding) -> bool:
    """Was this step made later than the grace after all that it went over had been acknowledged?"""
    if "previous_offset" not in f.evidence:
        return False
    ends = int(f.evidence["previous_offset"]), int(f.evidence["offset"])
    sent = [
        seen.entry.completed
        for (partition, _, _), seen in oracle.truths[f.topic_id].sends.items()
        if partition == f.partition and seen.offset is not None and min(ends) <= seen.offset <= max(ends)
    ]
    made = _made(oracle, f)
    return bool(sent and made) and min(made) > max(sent) + GRACE


def _is_of_a_duplicate(oracle: Oracle, f: Finding) -> bool:
    """Does this step touch a value that stands twice? It counts where it stands last; a step is not judged again where
    it is known only later that it does."""
    ends = [int(f.evidence[name]) for name in ("previous_offset", "offset") if name in f.evidence]
    here = [p for p in oracle.world.planted if (p.topic_id, p.partition) == (f.topic_id, f.partition)]
    twice = [offset for p in here if p.kind == "duplicate" for offset in p.offsets]
    return bool(ends) and any(min(ends) <= offset <= max(ends) for offset in twice)


def _came_last(oracle: Oracle, f: Finding) -> bool:
    """Was this step made so late that the world may be over before its offsets are settled? In one delivery a reader
    that has died is waited for until it counts as silent; in another it was known to be behind already."""
    if f.anomaly not in ORDER:
        return False
    settled = max(_made(oracle, f), default=0) + SILENT + GRACE + oracle.slack + 2 * oracle.spread
    return settled > oracle.world.plan.length


def _is_told_last(oracle: Oracle, f: Finding) -> bool:
    """May the world be over before log time comes to where this is told? Whoever is silent holds it up."""
    return true_time(f.decidable) + SILENT + oracle.slack + 2 * oracle.spread > oracle.world.plan.length


def _a_member_was_lost(oracle: Oracle, f: Finding) -> bool:
    """Was one whose host was booted anew so shortly before that only the next boot's clock tells that it was before?"""
    at = true_time(f.at)
    lost = [life for life in oracle.world.lives if life.kind == "group" and life.crashed is not None]
    for life in lost:
        crashed = life.crashed or 0
        back = min((boot for boot in life.host.boots if boot >= crashed), default=crashed)
        if crashed - oracle.spread <= at <= back + APART + oracle.spread:
            return True
    return False


def _is_ahead_of_a_clock(oracle: Oracle, f: Finding) -> bool:
    """Had the clock of a host hardly come to when it is due as the world ended? A log that is read again by its times
    ends where that clock is."""
    ends = min(micros(host.clock.at(oracle.world.plan.length)) for host in oracle.world.hosts)
    return f.at > ends - oracle.slack


def _an_unknown_reader_was_lost(oracle: Oracle, f: Finding) -> bool:
    """Was one lost with its host, of which nothing has ever come? Whoever judges before the next boot tells of that
    does not know that it lived."""
    at = true_time(f.at)
    for life in oracle.world.lives:
        if life.kind in READERS and life.topic_id == f.topic_id and life.crashed is not None and not life.appended:
            back = min((boot for boot in life.host.boots if boot >= life.crashed), default=life.crashed)
            if life.began - oracle.spread <= at <= back + oracle.spread:
                return True
    return False


def _made(oracle: Oracle, f: Finding) -> list[int]:
    """When the operation of a step was completed."""
    return [
        entry.completed
        for life in oracle.world.lives
        if life.process == f.evidence["process"]
        for entry in [*life.entries, *life.gone]
        if entry.row.op == f.evidence["op"] and entry.row.partition == f.partition
    ]
