"""When a partition's leader, or another broker, answered nobody: for conditions that wait on the cluster.

What is stuck while nobody is answered is explained by one condition, `cluster-unreachable`: it says so by `implied_by`.
So is what is stuck while too few replicas are in sync, by `under-min-isr`: leaders answer then, and serve little; and
by `throttled` what is stuck while brokers hold their answers back, by a quota.
It may be due a moment before it is decided that the cluster is away. Then it waits for that decision, for `SLACK` at
most; `unseen`, whose objective is shorter, until the cluster is called away or answers. Where it answers just before it
would have been called away, what is due waits `SLACK` more: most of it gets going. It is explained until a
liveness objective after the cluster answered again, and so is what was begun before that answer, and is due only then:
what is stuck by then is stuck by itself.

A writer's operation goes to several brokers: it waits for each of them, also where this partition's leader answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rules.vocabulary.conditions import (
    THROTTLED,
    UNDER_MIN_ISR,
    UNREACHABLE,
    WAIT_ON_A_QUOTA,
    WAIT_ON_THE_CLUSTER,
)
from rules.vocabulary.finding import identity
from rules.vocabulary.objectives import SECOND, Objectives

SLACK: Final = 5 * SECOND
FOREVER: Final = 2**62
_ELSEWHERE: Final = frozenset({"stuck-producer", "evidence-late", "refused-reads", "hanging-transaction"})
"""Those that wait on any broker."""
_TOLD_ONCE: Final = frozenset({"stuck-close"})
"""Conditions that a single row tells: they do not wait for a decision."""


def cause_id(anomaly: str, cluster: str, run: str = "") -> str:
    """The id of the finding of a cluster that explains what waits: that it, or a part of it, is away, or accepts
    nothing; or that it is away for one run alone."""
    return identity(anomaly, cluster, "", -1, (run,) if run else ())


@dataclass(slots=True)
class OfOneRun:
    """`spells` and `elsewhere` as one run has them: see `Outages`."""

    spells: list[list[int]] = field(default_factory=list)
    elsewhere: list[list[int]] = field(default_factory=list)


@dataclass(slots=True)
class Outages:
    """`spells`: [since, opened, ended] of the times in which somebody asked and nobody was answered: since the last
    answer, called away since, answered again; -1 for not, or not yet. `elsewhere`: the same of any broker. `few`: since
    too few replicas were in sync, told since, enough again, known since. `throttled`: since when brokers held answers
    back for long, told since, no longer. `alone`: by run, where there are several, those of its own, in which nobody of
    it was answered, whoever else was."""

    cluster: str = ""
    objectives: Objectives = field(default_factory=Objectives)
    spells: list[list[int]] = field(default_factory=list)
    elsewhere: list[list[int]] = field(default_factory=list)
    few: list[list[int]] = field(default_factory=list)
    throttled: list[list[int]] = field(default_factory=list)
    alone: dict[str, OfOneRun] = field(default_factory=dict)

    def undecided(self, name: str, at: int, run: str = "") -> bool:
        """Does a condition that is due at `at` wait, because the cluster may be away?"""
        if name in _TOLD_ONCE:
            return False
        first = self._first(name)
        return any(
            spell[0] + first <= at < (spell[1] if spell[1] >= 0 else self._over(spell))
            for spell in self._of(name, run)
            if _known_since(spell) <= at
        )

    def cause(self, name: str, since: int, run: str = "", at: int = FOREVER) -> str | None:
        """The id of the finding that explains a condition that has held since then, if one does by `at`."""
        spell = self._spell(name, since, run, at)
        if spell is None:
            return None
        if any(one is spell for one in self._of_run(name, run)):
            # What was called away together with all is told of all, and not of the run.
            together = any(0 <= whole[1] <= spell[1] < _end(whole) for whole in self.spells)
            return cause_id(UNREACHABLE, self.cluster, "" if together else run)
        if any(one is spell for one in self.few):
            return cause_id(UNDER_MIN_ISR, self.cluster)
        throttled = any(one is spell for one in self.throttled)
        return cause_id(THROTTLED if throttled else UNREACHABLE, self.cluster)

    def explained_until(self, name: str, since: int, run: str = "") -> int:
        """Until when it is explained; `FOREVER` where the cluster has not answered yet, and `since` where nothing
        explains it, by what is known now. It goes on explaining where it is away again meanwhile."""
        spell = self._spell(name, since, run)
        if spell is None:
            return since
        last = _end(spell)
        for again in sorted(self._of(name, run)):
            if again[0] <= last + self.objectives.liveness and _end(again) - again[0] >= SLACK:
                last = max(last, _end(again))
        return min(last + self.objectives.liveness, FOREVER)

    def _over(self, spell: list[int]) -> int:
        """When a time without an answer that was not called an outage keeps nobody waiting any more."""
        nearly = _end(spell) - spell[0] >= self.objectives.liveness - SLACK
        return min(_end(spell) + SLACK, FOREVER) if nearly else _end(spell)

    def over(self, since: int, by: int) -> tuple[int, int] | None:
        """The last time, over by then and not before `since`, in which a broker answered nobody: from when to when.
        Only what is over is told, as that is all that is known of it whenever it is asked for; a request that came to
        nothing is no outage."""
        ended = [(end, start) for start, _, end in self.spells + self.elsewhere if since <= end <= by]
        ended = [(end, start) for end, start in ended if end - start >= SLACK]
        return max(ended)[::-1] if ended else None

    def ended(self, since: int, by: int) -> int:
        """When the last time was over, by then and not before `since`, in which a broker answered nobody, or too few
        replicas were in sync; `since` where there was none."""
        over = (one for one in self.spells + self.elsewhere + self.few if since <= one[2] <= by)
        return max([since, *(one[2] for one in over if one[2] - one[0] >= SLACK)])

    def silent(self) -> list[list[int]]:
        """The times in which a broker answered nobody."""
        return self.spells + self.elsewhere

    def _of(self, name: str, run: str) -> list[list[int]]:
        if name not in WAIT_ON_THE_CLUSTER:
            return []
        throttled = self.throttled if name in WAIT_ON_A_QUOTA else []
        of_all = self.spells + (self.elsewhere if name in _ELSEWHERE else []) + self.few + throttled
        return of_all + self._of_run(name, run)

    def _of_run(self, name: str, run: str) -> list[list[int]]:
        own = self.alone.get(run)
        if own is None:
            return []
        return own.spells + (own.elsewhere if name in _ELSEWHERE else [])

    def _first(self, name: str) -> int:
        waited = self.objectives.delivery if name == "unseen" else self.objectives.liveness
        return max(waited - SLACK, 0)

    def _spell(self, name: str, since: int, run: str, at: int = FOREVER) -> list[int] | None:
        first = self._first(name)
        for spell in self._of(name, run):
            if 0 <= spell[1] <= at and spell[0] + first <= since < _end(spell) + self.objectives.liveness:
                return spell
        return None


def _known_since(spell: list[int]) -> int:
    """Since when anybody knows of it; that replicas were out of sync is told when those that are left answer again."""
    return spell[3] if len(spell) > 3 else spell[0]


def _end(spell: list[int]) -> int:
    return spell[2] if spell[2] >= 0 else FOREVER
