"""The search for cycles beside a plain one, on many small random histories, in both directions.

`HISTORIES=20000 pytest tests/rules/cycles/test_cycles_random.py` looks further.
"""

from __future__ import annotations

import os
import random
from datetime import timedelta

import pytest

from rules.cycles.search import NAMES, search
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Isolation, Outcome, Run, Slice, to_table
from rules.vocabulary.times import EPOCH
from tests.rules.cycles.cycle_reference import Node, Reference

HISTORIES = int(os.environ.get("HISTORIES", "800"))
LONGEST = 5
START = EPOCH + timedelta(days=20_000)


def random_history(chance: random.Random) -> list[Slice]:
    """A few operations that send and poll anything anywhere, at any time and outcome: cycles are common."""
    processes = [(p, chance.choice([None, "one", "one", "two"])) for p in range(chance.randint(2, 4))]
    dirty = chance.random() < 0.2
    rows: list[Slice] = []
    sent: list[tuple[int, int, int, int | None]] = []
    ends = [0, 0]
    seqs: dict[tuple[int, int], int] = {}
    clock = dict.fromkeys(range(len(processes)), 0)
    plan = []
    for op in range(chance.randint(2, 7)):
        process, boot = chance.choice(processes)
        begun = clock[process] + chance.randint(0, 4)
        ended = begun + chance.randint(0, 6)
        clock[process] = ended
        sends: dict[int, list[Run]] = {0: [], 1: []}
        for _ in range(chance.choice([0, 1, 1, 2])):
            partition, length = chance.randint(0, 1), chance.choice([1, 1, 2])
            seq = seqs.get((process, partition), 0)
            if chance.random() < 0.95:
                seqs[process, partition] = seq + length
            offset = None if chance.random() < 0.2 else max(0, ends[partition] + chance.choice([0, 0, 0, 1, -1]))
            ends[partition] = max(ends[partition], (offset or 0) + length)
            sends[partition].append(Run(process, seq, offset, length))
            sent += [(partition, process, seq + i, None if offset is None else offset + i) for i in range(length)]
        plan.append((process, boot, op, begun, ended, sends))
    slices: dict[tuple[int, int], int] = {}
    for process, boot, op, begun, ended, sends in plan:
        polls: dict[int, list[Run]] = {0: [], 1: []}
        for _ in range(chance.choice([0, 1, 1, 2])):
            if sent:
                partition, writer, seq, offset = chance.choice(sent)
                offset = chance.randint(0, 6) if chance.random() < 0.1 else offset
                polls[partition].append(Run(writer, seq, offset, 1))
        kind: Outcome = chance.choice(["ok", "ok", "ok", "info", "fail"])
        isolation: Isolation = "read_uncommitted" if dirty and chance.random() < 0.5 else "read_committed"
        for partition in (0, 1):
            if not sends[partition] and not polls[partition] and chance.random() < 0.8:
                continue
            number = slices[process, partition] = slices.get((process, partition), -1) + 1
            rows.append(
                Slice(
                    cluster="c",
                    topic_id="t",
                    topic="t",
                    partition=partition,
                    run="r",
                    process=process,
                    op=op,
                    slice=number,
                    f="txn",
                    type=kind,
                    boot=boot,
                    mono_invoked=begun,
                    mono_completed=ended,
                    invoked=START + timedelta(microseconds=begun),
                    completed=START + timedelta(microseconds=ended),
                    sent=sends[partition],
                    polled=polls[partition],
                    isolation=isolation,
                )
            )
    chance.shuffle(rows)
    return rows


def ring(finding: Finding) -> tuple[Node, ...]:
    numbers = [int(n) for n in finding.subject]
    return tuple((finding.cluster, numbers[i], numbers[i + 1]) for i in range(0, len(numbers), 2))


def links(cycle: tuple[Node, ...]) -> list[tuple[Node, Node]]:
    return list(zip(cycle, (*cycle[1:], cycle[0]), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("ww", [False, True])
def test_finds_what_a_plain_search_finds_and_nothing_else(ww: bool) -> None:
    chance = random.Random(7 + ww)
    seen: set[str] = set()
    healthy = 0
    for _ in range(HISTORIES):
        rows = random_history(chance)
        reference = Reference(rows, ww=ww)
        findings = search(to_table(rows), ww=ww).findings
        reported = [(ring(f), f.anomaly, "isolation" not in f.context) for f in findings]
        assert len({f.id for f in findings}) == len(findings)
        for cycle, name, committed in reported:
            assert reference.name(cycle) == (name, committed), (rows, cycle)
        known = [(cycle, named) for cycle in reference.cycles(LONGEST) if (named := reference.name(cycle))]
        for cycle, (name, committed) in known:
            rank = (not committed, NAMES.index(name))
            dependent = {link for link in links(cycle) if reference.depends(*link)}
            assert any((not c, NAMES.index(n)) <= rank and dependent & set(links(r)) for r, n, c in reported), (
                rows,
                cycle,
                name,
                reported,
            )
        if known:
            weakest = min((not committed, NAMES.index(name)) for _, (name, committed) in known)
            shortest = min(len(c) for c, (n, ok) in known if (not ok, NAMES.index(n)) == weakest)
            found = [len(r) for r, n, c in reported if (not c, NAMES.index(n)) == weakest]
            assert min(found) == shortest, (rows, reported)
        healthy += not known
        seen.update(name for _, (name, _) in known)
    assert seen == (set(NAMES) if ww else {name for name in NAMES if name.startswith("G1c")})
    assert healthy > HISTORIES / 20  # the twin without a cycle is common, too
