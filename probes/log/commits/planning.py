"""How one append plan follows from another: what it takes over, and where it goes back to or parts from it."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from probes.log.commits.append_plan import AppendPlan, Part
from probes.log.commits.confirmations import Moment
from probes.log.commits.marks import COMMITTER, PlaceName, Vouched, current_places
from probes.log.journals.reader import LifeReader
from probes.log.journals.segments import is_held
from probes.log.rows import Row, Shared, table

Group = tuple[Shared, Sequence[Row]]
STARTS: Final = 32
"""Of a folder, so many are remembered: a topic's cluster that was put back tells one of before."""


def first_plan(table_id: str) -> AppendPlan:
    """What a new folder's first append comes after."""
    return AppendPlan(app=f"offsetwatch-committer-{uuid.uuid4()}", table=table_id, marker=_marker(), version=0, now=0)


def went_on(parts: Mapping[str, Part], names: Collection[str]) -> dict[str, Part]:
    """Where to begin to read each of these lives after that."""
    return {name: Part(part.end, part.end, part.until) for name, part in parts.items() if name in names}


def undone(plan: AppendPlan) -> AppendPlan:
    """The plan that this one follows, as far as it is known: where it is not carried out."""
    current = set() if plan.claim else set(plan.current)
    return replace(
        plan,
        start=plan.before,
        version=plan.version - 1,
        parts={name: Part(part.start, part.start) for name, part in plan.parts.items()},
        counters=[(c, t, topic, p, n - (i in current)) for i, (c, t, topic, p, n) in enumerate(plan.counters)],
    )


def starts_with(before: AppendPlan, start: int) -> list[int]:
    """The starts of the plan that follows, which this one makes."""
    return [*(one for one in before.starts if one != start), start][-STARTS:]


def claimed(before: AppendPlan, start: int) -> AppendPlan:
    """An append of no rows, by which a start says that it goes on."""
    parts = went_on(before.parts, before.parts)
    follows = replace(before, start=start, before=before.start, starts=starts_with(before, start))
    return replace(follows, version=before.version + 1, parts=parts, claim=True)


def parted(plan: AppendPlan, lives: Collection[str], there: Collection[str]) -> AppendPlan | None:
    """What the next append comes after where somebody else has gone on from the plan's folder; None where it holds
    nothing of its own. `lives`: all that are there now, `there`: the `lives_before`.

    All that was there is the other's, who finishes it. What began since goes on in a name of its own: what this host
    has done is logged, and vouched for."""
    own = set(lives) - set(there)
    if not own:
        return None
    ends = {name: plan.parts[name].start if name in plan.parts else 0 for name in lives if name not in own}
    others = {name: Part(end, end, plan.now) for name, end in ends.items()}
    begun = {name: Part(plan.parts[name].start, plan.parts[name].start) for name in own if name in plan.parts}
    first = first_plan(plan.table)
    return replace(first, now=plan.now, read=plan.read, parts=others | begun, confirmed=plan.confirmed)


def places(
    before: AppendPlan, readers: Sequence[LifeReader], now: int
) -> tuple[dict[PlaceName, int], dict[PlaceName, int]]:
    """The partitions to mark, with when each last had a process, and how many mark rows each partition ever had."""
    counters = {PlaceName(c, topic_id, topic, p): n for c, topic_id, topic, p, n in before.counters}
    known = list(counters)
    held = before.held or [before.now] * len(before.current)  # an earlier version did not tell
    marked = {known[i]: at for i, at in zip(before.current, held, strict=True)}
    places = current_places(((one.life, one.progress) for one in readers), marked, now)
    return places, counters


def journals_read(before: AppendPlan, unread: Sequence[LifeReader], now: int) -> int:
    """Through when all journals are read to their ends: with a backlog as far as those tell that have one. What was
    told before stands."""
    newest = [one.progress.newest for one in unread if one.progress.newest]
    return max(before.read or before.now, min([now, *newest]))


def confirmed(before: AppendPlan, told: Mapping[str, Moment], counters: Mapping[PlaceName, int]) -> dict[str, Moment]:
    """When each topic id was last confirmed, of those that have partitions in the log."""
    known = {place.topic_id for place in counters}
    return {topic_id: at for topic_id, at in ({**before.confirmed, **told}).items() if topic_id in known}


def of_reader(reader: LifeReader) -> Vouched:
    """What a mark says of this life."""
    broken = reader.broken is not None
    return Vouched(reader.life, reader.progress, broken, broken and is_held(reader.folder))


def planned_rows(plan: AppendPlan, groups: Sequence[Group]) -> pa.Table:
    """What the plan appends."""
    marks = [] if plan.claim else plan.marks.items()
    told = [(Shared(cluster, COMMITTER, plan.marker, ""), rows) for cluster, rows in marks]
    return table([*groups, *told])


def _marker() -> int:
    return uuid.uuid4().int >> 65
