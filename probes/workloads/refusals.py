"""What a poll returned in place of records, as rows: an error of one partition, of a topic, or of all that is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from probes.kafka.errors import classify
from probes.log.life_log import Instant
from probes.records.polls import Problem
from probes.topology import Partition
from probes.workloads.probe import Probe
from rules.vocabulary.slices import Slice


def refusals(
    probe: Probe,
    problems: Iterable[Problem],
    invoked: Instant,
    completed: Instant,
    *,
    reads: Sequence[Partition],
    assigned: Collection[Partition],
) -> list[Slice]:
    """A row for each partition that an error tells of; the probe counts each error. `reads`: all that it may read."""
    rows = []
    for problem in problems:
        probe.on_error(problem.error)
        code, op = problem.error.code, probe.log.next_op()
        concerned = [where for where in _concerned(problem, reads, assigned) if probe.log.knows(where[0])]
        each: dict[Partition, dict[str, Any]] = {where: {} for where in concerned}
        how = {"error": code, "isolation": probe.isolation, "mode": probe.mode}
        rows += probe.log.rows_of(each, "poll", classify(code, "poll"), op, invoked, completed, **how)
    return rows


def _concerned(problem: Problem, reads: Sequence[Partition], assigned: Collection[Partition]) -> Sequence[Partition]:
    """The partition that the error names, else those of its topic, else all that are assigned; of all that there are
    where none is."""
    if problem.where is not None:
        return [problem.where]
    named = [where for where in reads if problem.topic in (None, where[0])]
    return [where for where in named if where in assigned] or named
