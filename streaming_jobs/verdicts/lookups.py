"""Look-ups: a value of an ok transaction is absent, and the rows of the probe log tell whether another was polled
(`rules.across.lookups`).

Asked by a batch and answered on a thread of its own, since most batches ask nothing, and the rows are on disk. The
table `lookups` holds both, so that a question outlives the process. What is found is reported by the id of its finding,
once. A transaction of which nothing has been polled is looked for again, ever more rarely, until `GIVEN_UP` of log time
has passed; one that its partitions have told to be absent altogether is not torn, and settled.

The first answers wait for the transaction's partitions to be checked through the time in question, so that whatever
they have to tell is told; for `PATIENCE` tries at most.

The log is read from the transaction on, a stretch of `WINDOW` after the other, until one holds a poll of it: so the
earliest poll is the evidence, however the log's files are cut.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
import pyarrow as pa

from rules.across.lookups import (
    MARGIN,
    Question,
    Through,
    Values,
    answer,
    is_lost,
    is_ripe,
    own_rows,
    polls_of,
    read_through,
    values_of,
)
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.times import micros
from streaming_jobs.errors import JobError
from streaming_jobs.history.replay import Replay
from streaming_jobs.location import TableLocation
from streaming_jobs.tables.delta_tables import Table, open_table, read_table
from streaming_jobs.tables.schemas import LOOKUPS

log = logging.getLogger(__name__)

TOGETHER: Final = 256
"""Transactions that are looked up with one reading of the rows."""
WINDOW: Final = 600 * SECOND
FIRST_WAIT: Final = timedelta(seconds=2)
"""Before a question is answered for the first time: the transaction's other partitions may have more to tell."""
PATIENCE: Final = 5
LONGEST_WAIT: Final = timedelta(minutes=10)
LATE: Final = 7200 * SECOND
"""Rows may come so late: what was read before is read again as far back."""
GIVEN_UP: Final = 86_400 * SECOND


@dataclass(slots=True)
class _Waiting:
    """A question, when it is to be answered next, the wait after that, how many times that was tried, and up to which
    log time polls were read."""

    question: Question
    due: datetime
    wait: timedelta = FIRST_WAIT
    tried: int = 0
    through: int = 0


@dataclass(frozen=True, slots=True)
class PendingLookup:
    """`through`: the log time up to which its polls were read before. `impatient`: answer it from what there is."""

    question: Question
    through: int
    impatient: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """`settled`: it need not be asked again. `through`: the log time up to which polls were read."""

    finding: Finding | None
    settled: bool
    through: int


class Lookups:
    """Answers what is asked. `report` writes findings and tells them to the listeners (`Sink.report`). Thread-safe."""

    def __init__(
        self,
        history: TableLocation,
        tables: TableLocation,
        report: Callable[[list[Finding]], None],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._history = history
        self._tables = tables
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: Table | None = None
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        self.ask(unanswered(read_table(tables, "lookups")))

    def ask(self, questions: Iterable[Question]) -> None:
        """These are in the table, and to be answered."""
        with self._lock:
            for question in questions:
                known = self._waiting.get(question.key)
                if known is None:
                    self._waiting[question.key] = _Waiting(question, self._clock() + FIRST_WAIT)
                else:
                    known.question = known.question.joined(question)

    def answer(self, stopping: Callable[[], bool] = lambda: False, *, last: bool = False) -> None:
        """Answer those whose time has come; all, where nobody will call again (`last`). What fails is told in the log
        and tried again."""
        now = self._clock()
        with self._lock:
            due = sorted(
                (one for one in self._waiting.values() if last or one.due <= now), key=lambda one: one.question.invoked
            )
            ready = [PendingLookup(one.question, one.through, last or one.tried >= PATIENCE) for one in due]
        through = _read_through(read_table(self._tables, "partition_state")) if ready else {}
        for first in range(0, len(ready), TOGETHER):
            if stopping():
                return
            together = ready[first : first + TOGETHER]
            try:
                self._settle(looked_up(Replay(self._history), together, through))
            except (JobError, OSError, pa.ArrowException) as error:
                log.warning("%s transactions could not be looked up, and are tried again: %s", len(together), error)
                self._put_off(one.question for one in together)

    def _put_off(self, questions: Iterable[Question]) -> None:
        with self._lock:
            for question in questions:
                one = self._waiting[question.key]
                one.due, one.wait = self._clock() + one.wait, min(2 * one.wait, LONGEST_WAIT)
                one.tried += 1

    def _settle(self, answers: dict[Question, Answer]) -> None:
        """Tell what was found, and write down which questions need not be asked again."""
        self._tell([told.finding for told in answers.values() if told.finding is not None])
        over = [question for question, told in answers.items() if told.settled]
        if over:
            told = {"answered": True, "batch": None, "recorded": self._clock()}
            rows = pa.Table.from_pylist([asked_row(question) | told for question in over], schema=LOOKUPS)
            self._answers = self._answers or open_table(self._tables, "lookups")
            self._answers.write(rows, mode="append")
        with self._lock:
            for question in over:
                del self._waiting[question.key]
            for question, told_of in answers.items():
                if question.key in self._waiting:
                    self._waiting[question.key].through = told_of.through
        self._put_off(question for question, told_of in answers.items() if not told_of.settled)

    def _tell(self, found: list[Finding]) -> None:
        if not found:
            return
        known = set(read_table(self._tables, "findings")["id"].to_pylist())
        if fresh := [finding for finding in found if finding.id not in known]:
            self._report(fresh)


def looked_up(replay: Replay, together: Sequence[PendingLookup], through: Through) -> dict[Question, Answer]:
    """What the rows of the log say of these transactions. `through`: how far the log of their partitions' readers is
    here."""
    questions = [one.question for one in together]
    newest = replay.newest() + 1
    begin = min(question.invoked for question in questions) - MARGIN
    own = replay.select(begin, max(question.completed for question in questions) + MARGIN, own_rows(questions))
    wrote = {question: values_of(question, own) for question in questions}
    ripe = [one for one in together if one.impatient or is_ripe(one.question, wrote[one.question], through)]
    start = {one.question: max(one.question.invoked, one.through - LATE) for one in ripe if wrote[one.question]}
    found: dict[Question, Finding] = {}
    at = min(start.values(), default=newest)
    while at < newest and len(found) < len(start):
        waiting = [question for question in start if question not in found and start[question] < at + WINDOW]
        if waiting:
            polls = replay.select(at, at + WINDOW, polls_of([wrote[question] for question in waiting]))
            found.update(_proven(waiting, wrote, polls))
        at += WINDOW
    answers = {one.question: Answer(None, False, one.through) for one in together}
    for one in ripe:
        question = one.question
        over = question in found or is_lost(question, wrote[question]) or newest > question.due + GIVEN_UP
        answers[question] = Answer(found.get(question), over, newest)
    return answers


def _read_through(states: pa.Table) -> Through:
    """What rows of the table `partition_state` tell. What an earlier version wrote does not tell it."""
    return read_through(
        (row["cluster"], row["topic"], row["partition"], row.get("read_through")) for row in states.to_pylist()
    )


def _proven(
    questions: Sequence[Question], wrote: dict[Question, Values], polls: pa.Table
) -> Iterable[tuple[Question, Finding]]:
    if not polls.num_rows:
        return
    for question in questions:
        finding = answer(question, wrote[question], polls)
        if finding is not None:
            yield question, finding


def asked_row(question: Question) -> dict[str, Any]:
    """The columns of the table `lookups` that say what is asked."""
    told = {name: getattr(question, name) for name in ("invoked", "completed", "absent")}
    return {"cluster": question.cluster, "txn": question.txn, "question": orjson.dumps(told).decode()}


def asked_of(row: dict[str, Any]) -> Question:
    """The question of a row of the table."""
    told = orjson.loads(row["question"])
    return Question(row["cluster"], row["txn"], told["invoked"], told["completed"], tuple(told["absent"]))


def unanswered(rows: pa.Table) -> list[Question]:
    """What was asked and not answered since, of the table `lookups`."""
    open_: dict[tuple[str, int], Question] = {}
    for row in sorted(rows.to_pylist(), key=lambda row: (micros(row["recorded"]), row["answered"])):
        question = asked_of(row)
        if row["answered"]:
            open_.pop(question.key, None)
        else:
            known = open_.get(question.key)
            open_[question.key] = question if known is None else known.joined(question)
    return list(open_.values())
