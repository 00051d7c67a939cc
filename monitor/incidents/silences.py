"""Which brokers did not answer the observers, and when each of them answered again, by whom the questions asked.

A question is about what one broker leads. Where the leader moves while a broker is silent, the partitions are answered
by another one: that says nothing of the first, which is asked no more. It answers again when itself has answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from rules.checks.conditions.unreachable_brokers import NO_LEADER

Row = Mapping[str, Any]
Place = tuple[str, int]
_ANSWERS: Final = ("log_start", "log_end", "last_stable")
_NOBODY: Final = "nobody"


@dataclass(slots=True)
class _Silence:
    """`since`: its first question without an answer; `longer`: no answer of it is known before that, so that it may
    have been silent before. `asked`: its last question. `waiting`: what it was asked about, and nobody has answered
    since. `left`: since when it is not asked, as others lead what it led."""

    since: datetime
    longer: bool
    asked: datetime
    waiting: set[Place] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    left: datetime | None = None


def silences(rows: Iterable[Row]) -> Iterator[tuple[datetime, str]]:
    """When a broker began to be silent, was asked no more, and answered again. Rows are the observers', of all
    partitions that they asked about."""
    ordered = sorted(rows, key=_question)
    heard = _Heard()
    for _, question in groupby(ordered, key=_question):
        yield from heard.hear(list(question))


def _question(row: Row) -> tuple[datetime, int, int]:
    return row["completed"], row["process"], row["op"]


class _Heard:
    """What is known once these questions are over."""

    def __init__(self) -> None:
        self._led: dict[tuple[int, Place], list[tuple[Row, str]]] = {}
        self._silent: dict[str, _Silence] = {}
        self._answered: dict[str, datetime] = {}
        """When the last question was asked that the broker has answered."""
        self._answers: dict[Place, tuple[datetime, str]] = {}
        """The same of a partition, and who answered."""

    def hear(self, question: list[Row]) -> Iterator[tuple[datetime, str]]:
        """Take in the rows of one question, which has been answered or given up."""
        told: dict[str, set[Place]] = {}
        unheard: dict[str, set[Place]] = {}
        for row in question:
            if (broker := self._asked(row)) is None:
                continue
            if row["type"] == "ok":
                told.setdefault(broker, set()).add(_place(row))
            elif _in_vain(row) and broker in dict(row["settings"]).get("silent", "").split(","):
                unheard.setdefault(broker, set()).add(_place(row))
        invoked, completed = min(row["invoked"] for row in question), question[0]["completed"]
        for broker in sorted(told):
            yield from self._answer(broker, told[broker], invoked, completed)
        for broker in sorted(set(unheard) - set(told)):
            yield from self._fail(broker, unheard[broker], invoked)

    def _asked(self, row: Row) -> str | None:
        """Whom the row's question asked: the leader that was known by then, whoever it is when the row is written."""
        settings: dict[str, str] = dict(row["settings"] or ())
        known = self._led.setdefault((row["process"], _place(row)), [])
        if "led_by" in settings:
            known.append((row, settings["led_by"]))
        teller, leader = next(
            ((one, leader) for one, leader in reversed(known) if one["invoked"] <= row["invoked"]), (None, None)
        )
        if (teller is None or teller is row) and "leader" in settings:
            return settings["leader"]
        return None if leader == _NOBODY else leader

    def _answer(
        self, broker: str, places: set[Place], invoked: datetime, completed: datetime
    ) -> Iterator[tuple[datetime, str]]:
        self._answered[broker] = max(invoked, self._answered.get(broker, invoked))
        own = self._silent.get(broker)
        if own is not None and invoked > own.asked:
            del self._silent[broker]
            if own.left is None:
                silent = (completed - own.since).total_seconds()
                yield completed, f"broker {broker} answers again, after {silent:.1f} s{' or longer' * own.longer}"
            else:
                # By another observer, whose clock may be behind.
                unasked = max((invoked - own.left).total_seconds(), 0.0)
                yield completed, f"broker {broker} answers again, and was not asked for {unasked:.1f} s before"
        for place in places:
            self._answers[place] = max((invoked, broker), self._answers.get(place, (invoked, broker)))
        for other, silence in self._silent.items():
            if other == broker or not silence.waiting & places:
                continue
            silence.waiting -= places
            silence.moved.add(broker)
            if not silence.waiting:
                silence.left = completed
                by = ", ".join(sorted(silence.moved))
                yield completed, f"broker {other} is asked no more: leadership moved to broker {by}"

    def _fail(self, broker: str, places: set[Place], invoked: datetime) -> Iterator[tuple[datetime, str]]:
        if broker in self._answered and invoked <= self._answered[broker]:
            return  # a question that was asked later has been answered
        own = self._silent.get(broker)
        if own is None:
            longer = broker not in self._answered
            own = self._silent[broker] = _Silence(invoked, longer, invoked)
            yield invoked, f"broker {broker} does not answer{', since then or longer' * longer}"
        elif own.left is not None and invoked > own.left:
            own.left = None
            own.moved.clear()
            yield invoked, f"broker {broker} is asked again, and does not answer"
        own.asked = max(own.asked, invoked)
        if own.left is None:
            own.waiting |= {place for place in places if not self._elsewhere(place, broker, invoked)}

    def _elsewhere(self, place: Place, broker: str, invoked: datetime) -> bool:
        """Has another broker answered a question about the partition that was asked later?"""
        at, by = self._answers.get(place, (invoked, broker))
        return at > invoked and by != broker


def _in_vain(row: Row) -> bool:
    """Did nothing come back? An error of the broker's own, as that the epoch is another, is a word of it."""
    error = row["error"]
    word = error is not None and not error.startswith("_") and error not in NO_LEADER
    return not word and "leader" in dict(row["settings"] or ()) and all(row[name] is None for name in _ANSWERS)


def _place(row: Row) -> Place:
    return row["topic"], row["partition"]
