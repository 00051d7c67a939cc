"""Where rules put what they found: one report a step and partition, which knows the place and bounds a flood."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from rules.kept import dropped
from rules.kept.codec import Table, take
from rules.kept.facts import Facts
from rules.kept.outages import FOREVER, SLACK, Outages
from rules.kept.state import State
from rules.vocabulary.finding import Event, Finding, Recheck
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place

REMEMBERED: Final = 256
T = TypeVar("T")


class Report:
    """The findings of one step in one partition."""

    def __init__(self, place: Place, state: State, objectives: Objectives) -> None:
        self.place = place
        self.state = state
        self.objectives = objectives
        self._findings: dict[tuple[str, Event, tuple[int | str, ...], int], Finding] = {}
        self._counts: Counter[str] = Counter()
        self.facts = Facts()
        self.rechecks: list[Recheck] = []
        self.outages = Outages()

    def add(
        self,
        anomaly: str,
        subject: tuple[int | str, ...],
        message: str,
        *,
        at: int,
        evidence: Mapping[str, Any] | None = None,
        context: Mapping[str, str] | None = None,
    ) -> None:
        """Report what is decidable when it is told, once per step and subject."""
        self.tell(
            Finding(
                **self.here,
                anomaly=anomaly,
                subject=subject,
                message=message,
                evidence=evidence or {},
                context=context or {},
                at=at,
                decidable=at,
            )
        )

    @property
    def here(self) -> dict[str, Any]:
        """The fields of a `Finding` that name this partition."""
        place = self.place
        return {
            "cluster": place.cluster,
            "topic_id": place.topic_id,
            "topic": self.state.topic,
            "partition": place.partition,
        }

    def tell(self, finding: Finding) -> None:
        """Report a finding once per step and subject. Beyond `findings_per_step`, only counts."""
        key = (finding.anomaly, finding.event, finding.subject, 0 if finding.event == "raised" else finding.at)
        if key in self._findings:
            return
        counted = _counted(finding.anomaly, finding.context)
        self._counts[counted] += 1
        if self._counts[counted] <= self.objectives.findings_per_step:
            self._findings[key] = finding

    def take(self, finding: Finding) -> None:
        """Take a finding that was made elsewhere, once per step and subject."""
        self._findings.setdefault((finding.anomaly, finding.event, finding.subject, 0), finding)

    def once(self, key: str) -> bool:
        """Is this the first time that this partition hears of `key`? Remembers the newest `REMEMBERED` of them."""
        told = self.state.told
        if key in told:
            return False
        told.append(key)
        del told[:-REMEMBERED]
        return True

    def drop(self, what: str, number: int) -> None:
        """So many of these waited for a verdict, and were dropped for want of room: that is told."""
        dropped.note(self.state, what, int(number))

    def newest(self, waiting: list[T], most: int, what: str) -> list[T]:
        """The last `most` of what waits for a verdict; the others are dropped."""
        self.drop(what, len(waiting) - most)
        return waiting[-most:]

    def last(self, waiting: T, most: int, what: str) -> T:
        """The same of a table."""
        self.drop(what, len(cast(Table, waiting)) - most)
        return take(waiting, slice(-most, None))

    def recheck(self, start: int, end: int, seen: int) -> None:
        """Ask for the rows that polled in [start, end), once for what was `seen` there, and once in a step."""
        if self.once(f"recheck:{start}:{end}:{seen}") and (asked := Recheck(start, end)) not in self.rechecks:
            self.rechecks.append(asked)

    def room(self, anomaly: str, context: Mapping[str, str] | None = None) -> int:
        """How many more findings of this anomaly are reported one by one; callers need not build the rest."""
        return max(0, self.objectives.findings_per_step - self._counts[_counted(anomaly, context)])

    def each(self, anomaly: str, start: int, end: int, context: Mapping[str, str] | None = None) -> Iterator[int]:
        """Of start .. end-1, each of which is a finding to add in this context, those to build; the others are
        counted."""
        stop = min(end, start + self.room(anomaly, context) + 1)
        yield from range(start, stop)
        self.skip(anomaly, end - stop, context)

    def skip(self, anomaly: str, number: int, context: Mapping[str, str] | None = None) -> None:
        """Count findings that were not built because there was no room."""
        self._counts[_counted(anomaly, context)] += number

    def condition(
        self,
        name: str,
        message: str | None,
        *,
        at: int,
        since: int | None = None,
        evidence: Mapping[str, Any],
        subject: tuple[int | str, ...] = (),
    ) -> None:
        """Open the partition's condition when it begins to hold, close it when it ends; nothing in between.

        It holds where there is a `message`. `subject` names whose condition it is, where a partition can have several
        of one name. What waits on a cluster that answers nobody is opened as explained by that, and once more, as not
        explained, where it outlasts it (`rules.kept.outages`)."""
        opened = self.state.open_conditions
        key = ":".join((name, *map(str, subject)))
        run = self._run_of(evidence, subject)
        if message is not None and key in opened:
            until = self.explained_until(name, key, run)
            if at < until:
                return
            since = until
        if message is not None:
            if not self.outages.undecided(name, at, run):
                opened[key] = at if since is None else since
                cause = self.outages.cause(name, opened[key], run, at)
                if cause and at >= self.outages.explained_until(name, opened[key], run) + SLACK:
                    cause = None  # told late: what explained it at first is over
                self._note_explained(key, cause is not None)
                self.tell(
                    Finding(
                        **self.here,
                        anomaly=name,
                        subject=subject,
                        event="opened",
                        message=message,
                        evidence=evidence,
                        at=at,
                        decidable=opened[key],
                        implied_by=cause,
                    )
                )
        elif key in opened:
            self._close(name, key, at, evidence, subject)

    def explained_until(self, name: str, key: str, run: str = "") -> int:
        """Until when an open condition of a run's process is explained, as it was told to be; `FOREVER` where it was
        told to stand for itself."""
        known = self.state
        if key not in known.explained:
            return FOREVER
        return self.outages.explained_until(name, known.open_conditions[key], run)

    def _run_of(self, evidence: Mapping[str, Any], subject: tuple[int | str, ...]) -> str:
        """The run of the process that a condition is about, where one run may be cut off from what others reach: its
        number stands in the evidence, or the subject says it; "" where there is none, or it does not matter."""
        if not self.outages.alone or not subject:
            return ""
        told = str(subject[0]).rpartition(" of run ")[2] if isinstance(subject[0], str) else ""
        return self.state.run_of(evidence.get("process", subject[0])) or told

    def _note_explained(self, key: str, explained: bool) -> None:
        known = self.state.explained
        if (key in known) != explained:
            (known.append if explained else known.remove)(key)

    def _close(self, name: str, key: str, at: int, evidence: Mapping[str, Any], subject: tuple[int | str, ...]) -> None:
        since = self.state.open_conditions.pop(key)
        self._note_explained(key, False)
        lasted = (at - since) / 1e6
        self.tell(
            Finding(
                **self.here,
                anomaly=name,
                subject=subject,
                event="closed",
                at=at,
                decidable=at,
                message=f"{name} ended after {lasted:.1f} s",
                evidence={**evidence, "lasted_s": round(lasted, 3)},
                implied_by=self.outages.cause(name, since, self._run_of(evidence, subject), at),
            )
        )

    def findings(self) -> list[Finding]:
        """All, in the order reported; the last of a flood says how many more there were."""
        found = list(self._findings.values())
        for i in range(len(found) - 1, -1, -1):
            more = self._counts.pop(_counted(found[i].anomaly, found[i].context), 0) - self.objectives.findings_per_step
            if more > 0:
                more += found[i].evidence.get("more_of_the_same", 0)
                found[i] = replace(found[i], evidence={**found[i].evidence, "more_of_the_same": more})
        return found


def _counted(anomaly: str, context: Mapping[str, str] | None) -> str:
    """What a finding counts as in a flood. The policy judges by the context: a flood of what is allowed, or is a
    warning, must not hide what is critical."""
    return " ".join((anomaly, *(f"{name}={value}" for name, value in sorted((context or {}).items()))))
