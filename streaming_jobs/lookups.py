"""Lookups: of a transaction a value is absent, and the probe log tells whether another was polled
(`rules.across.lookups`).

Answered on the thread that answers rechecks. Questions are part of stage 2's state until they are answered; a torn
transaction is reported by the id of its finding, once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from rules.across.lookups import Question, answer, is_lost, own_rows, polls_of, values_of
from rules.vocabulary.finding import Finding
from streaming_jobs.errors import JobError
from streaming_jobs.replay import Replay

log = logging.getLogger(__name__)

TOGETHER: Final = 64
"""Questions that are answered with one reading of the log."""


def looked_up(replay: Replay, questions: Mapping[str, Question]) -> tuple[list[Finding], set[str]]:
    """What the rows of the log tell of these questions: torn transactions, and which questions are over: those, and
    those of transactions that are lost as a whole."""
    asked = list(questions.values())
    own = replay.matching(own_rows(asked))
    wrote: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for question in asked:
        for place, runs in values_of(question, own).items():
            wrote.setdefault(place, []).extend(runs)
    if not wrote:
        return [], set()
    rows = pa.concat_tables([own, replay.matching(polls_of(asked, wrote, -1))]).combine_chunks()
    found, over = [], set()
    for name, question in questions.items():
        finding = answer(question, rows)
        if finding is not None:
            found.append(finding)
        if finding is not None or is_lost(question, rows):
            over.add(name)
    return found, over


class Lookups:
    """Answers what stage 2 asks. `asked` tells what is open, `over` takes what is answered."""

    def __init__(
        self,
        history: Path,
        asked: Callable[[], Mapping[str, Question]],
        over: Callable[[set[str]], None],
        report: Callable[[list[Finding]], None],
    ) -> None:
        self._history, self._asked, self._over, self._report = history, asked, over, report

    def answer(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Answer what can be answered now; the rest is tried again by the next call."""
        waiting = list(self._asked().items())
        for first in range(0, len(waiting), TOGETHER):
            if stopping():
                return
            share = dict(waiting[first : first + TOGETHER])
            try:
                found, over = looked_up(Replay(self._history), share)
            except (JobError, OSError, pa.ArrowException) as error:
                log.warning("%s transactions are not looked up yet, and tried again: %s", len(share), error)
                return
            if found:
                self._report(found)
            self._over(over)
