"""Whether a partition's leader answers: everybody who asks it, or those of one run alone.

A *side* is one of these. It is asked in vain from the first question that the observer gives up, and answered again by
whatever only the leader can have said. What it is told of the other brokers that answer nobody stands beside it.

Time in which nobody asked does not count. A host that stood still, as one that was stopped by SIGSTOP, gives up when it
goes on what it had asked before, and had waited for nothing meanwhile. An observer that runs gives up far sooner, and
asks again. So where nothing was given up for longer than `RECENT` it is asked in vain anew from the next question on,
or, where that was under way meanwhile, from its end. What was told holds until somebody is answered.

Neither does an outage of all count as a run's own: all are back at about the same time, not at the same moment, and who
is a second later than another was not cut off alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rules.kept.outages import SLACK
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import NO_LOGIN

RECENT: Final = 15 * SECOND
"""The observer asks at least this often, a new life of it included."""
NAMED_FOR: Final = 10 * SECOND
"""So long a broker has to be named without a break before it is told to answer nobody: where answers are slow, an
observer that gives up sooner names it now and then, and others are answered meanwhile."""
KEPT: Final = 8
"""Spells of a side, and the runs that it names."""


@dataclass(slots=True)
class Side:
    """`answered`: when the leader answered last; `asked`, `unanswered`: when the first and the newest of the observer's
    requests since then were invoked and given up, `asker`: which observer's, `words`: what it said then; `runs`: whose
    observers have asked in vain since, at most `KEPT`; `named`: the brokers that these have named as silent, each since
    when without a break; `opened`: when it was called away, or others were; `told` when last. -1 where there is none.
    `spells` and `elsewhere`: see `rules.kept.outages`; the last of `elsewhere` has no end while the observer names a
    broker that does not answer."""

    answered: int = -1
    asked: int = -1
    unanswered: int = -1
    asker: int = -1
    opened: int = -1
    told: int = -1
    words: dict[str, str] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)
    spells: list[list[int]] = field(default_factory=list)
    elsewhere: list[list[int]] = field(default_factory=list)

    @property
    def since(self) -> int:
        """Since when it has not been answered, as far as somebody asked."""
        return self.answered if self.asked <= self.answered + RECENT else self.asked

    @property
    def all_spells(self) -> list[list[int]]:
        """The spells without an answer, that which goes on included."""
        return [*self.spells, [self.since, self.opened, -1]] if self.unanswered >= 0 else self.spells

    def ask(self, time: int, invoked: int, asker: int, words: dict[str, str]) -> None:
        """The observer asked, and gave up."""
        if time <= self.answered:
            return
        if self.unanswered >= 0 and self.told < 0 and time - self.unanswered > RECENT:
            self.end(max(self.unanswered, self.opened))
        if self.asked < 0:
            self.asked = invoked if time - invoked <= RECENT else time
        if self.words.get("error") in NO_LOGIN and words.get("error") not in NO_LOGIN:
            words = words | {"error": self.words["error"]}  # that says why, and the client tells it now and then
        self.unanswered, self.asker, self.words = max(self.unanswered, time), asker, words
        self.named = {broker: self.named.get(broker, time) for broker in words.get("silent", "").split(",") if broker}
        run = words.get("run")
        if run and run not in self.runs:
            self.runs = sorted([*self.runs, run])[:KEPT]

    def answers(self, since: int) -> bool:
        """Does an answer that came at the earliest at `since` end that it is asked in vain?"""
        return since > self.answered and (self.asked < 0 or since > self.asked)

    def answer(self, since: int, time: int) -> None:
        """It was answered, at the earliest at `since`, at the latest at `time`; what that ends was ended before."""
        if since > self.answered:
            within = self.asked >= 0 and since > self.asked
            self.answered = time if within else since

    def name(self, time: int, invoked: int, silent: bool, liveness: int) -> None:
        """The observer, which the leader answered, named brokers that do not answer, or none."""
        going_on = bool(self.elsewhere) and self.elsewhere[-1][2] < 0
        if silent and not going_on:
            self.elsewhere = [*self.elsewhere, [invoked, invoked + liveness, -1]][-KEPT:]
        elif going_on and not silent:
            since, opened, _ = self.elsewhere[-1]
            self.elsewhere[-1] = [since, opened if opened <= time else -1, time]

    def end(self, at: int) -> None:
        """It is asked in vain no more."""
        self._keep([self.since, self.opened, at])
        self.asked = self.unanswered = self.asker = self.opened = self.told = -1
        self.words, self.runs, self.named = {}, [], {}

    def silent(self, at: int) -> list[str]:
        """The brokers that are known then to answer nobody."""
        return [broker for broker, since in self.named.items() if at - since >= NAMED_FOR]

    def _keep(self, spell: list[int]) -> None:
        """Room is made for it by the oldest that explains nothing, being short: where two take turns in being answered
        there is one each second."""
        self.spells = [*self.spells, spell]
        if len(self.spells) > KEPT:
            short = (i for i, (since, opened, end) in enumerate(self.spells) if opened < 0 and end - since < SLACK)
            del self.spells[next(short, 0)]

    def left_alone(self, at: int) -> None:
        """The others, who were not answered either, are again: what is told of it by itself counts from then."""
        if self.unanswered >= 0 and self.told < 0:
            self._keep([self.since, self.opened, at])
            self.asked, self.opened = at, -1

    def forget(self, before: int) -> None:
        """Drop what was over before then."""
        if self.spells or self.elsewhere:
            self.spells = [spell for spell in self.spells if spell[2] >= before]
            self.elsewhere = [spell for spell in self.elsewhere if spell[2] < 0 or spell[2] >= before]
