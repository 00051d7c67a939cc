"""The guilty histories that docs/anomalies.md shows, an anomaly each: those of the rules' own tests, drawn.

`python -m tests.docs.guilty_histories` draws them anew into docs/pictures; a test holds these against the code. Each is
judged by the checks before it is drawn: what they do not find is no picture.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from monitor.diagrams.story import story, svg
from rules.cycles.search import search
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Altered, Run, Slice, to_table
from tests.rules import test_cases as cases
from tests.rules import test_classified as classified
from tests.rules.committed import test_committed_offsets as commits
from tests.rules.committed import test_foreign_commits as foreign_commits
from tests.rules.committed.committed_offsets import later
from tests.rules.cut_logs import log_end_histories
from tests.rules.cut_logs import test_stale_log_ends as stale_ends
from tests.rules.cycles import test_cycles as cycles
from tests.rules.cycles import test_registers as register_cases
from tests.rules.histories import History, Store, number
from tests.rules.losses import test_fates as fates
from tests.rules.order import test_sequences as sequences
from tests.rules.transactions import test_dirty_reads as dirty_reads
from tests.rules.transactions import test_stability as stability
from tests.rules.transactions import test_transactions as transactions
from tests.rules.transforms import test_transforms as transforms
from tests.rules.transforms.transform_pair import Pair

PICTURES: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
Build = Callable[[Any], object]
Judged = tuple[Sequence[Slice], Sequence[Finding]]


def finished(build: Build, made: Callable[[], Any] = History) -> Callable[[], Judged]:
    """A history of the rules' tests, judged as a finished one."""

    def judged() -> Judged:
        h, store = made(), Store()
        build(h)
        store.feed(h.rows, finished=True)
        return h.rows, store.findings

    return judged


def observed(build: Build, made: Callable[[], Any] = History, seconds: int = 30) -> Callable[[], Judged]:
    """The same while it goes on: judged after some seconds in which only the observer looks."""

    def judged() -> Judged:
        h, store = made(), Store()
        build(h)
        rows = list(h.rows)
        for _ in range(seconds):
            h.mark(1.0)
        store.feed(h.rows)
        return rows, store.findings

    return judged


def of_cycle(told: str, **options: Any) -> Callable[[], Judged]:
    """A history of the cycles' tests."""

    def judged() -> Judged:
        rows = cycles.rows(told)
        return rows, search(to_table(rows), **options).findings

    return judged


def registers() -> Judged:
    rows = register_cases.rows(register_cases.CASES["stale read"][0])
    store = Store()
    store.feed(rows, finished=True)
    return rows, store.findings


def late(h: History) -> None:
    h.poll("r", [("w", 1, 1, 1), ("w", 5, 1, 5)])
    h.poll("s", [("w", 2, 1, 2)])
    h.poll("s", [("w", 3, 1, 3), ("w", 4, 1, 4)])


def altered(h: History) -> None:
    h.send("w", 0, 3, at=10)
    h.row(
        "r",
        "poll",
        polled=[Run(number("w"), 0, 10, 3)],
        mode="assign",
        isolation="read_committed",
        altered=[Altered(number("w"), 1, 11, 1, "key", "a", "b", 4)],
    )


def twice(pair: Pair) -> None:
    transforms.twice(pair)
    pair.wait(30)


def stopped(h: History) -> None:
    """`s` goes on, and `r` does not."""
    for reader in "rs":
        h.assign(reader)
    for seq in (0, 3):
        h.send("w", seq, 3, at=seq)
        for reader in "s" if seq else "rs":
            h.poll(reader, [("w", seq, 3, seq)])
    for _ in range(60):
        h.observe(end=6)
        h.mark(1.0)


def partly(h: History) -> None:
    h.txn("t", sends=[("w", 0, 4, 0)], txn=1, txn_intent="commit")
    h.poll("r", [("w", 0, 2, 0)])
    h.poll("r", [("w", 2, 2, 2)])


def torn(h: transactions.Log) -> None:
    h.filled(1, 0, 4)
    transactions.committed_and_torn(h)


def observed_after(build: Build) -> Build:
    def both(h: History) -> None:
        build(h)
        later(h)

    return both


HISTORIES: Final[dict[str, Callable[[], Judged]]] = {
    "duplicate": finished(cases.duplicate),
    "inconsistent-offsets": finished(cases.inconsistent_polls),
    "G1a": finished(cases.aborted_read),
    "precommitted-read": finished(cases.own_write_polled),
    "lost-write": finished(cases.lost),
    "poll-skip": finished(cases.skipped),
    "nonmonotonic-poll": finished(cases.went_back),
    "int-poll-skip": finished(cases.skipped_inside),
    "int-nonmonotonic-poll": finished(cases.went_back_inside),
    "int-send-skip": finished(cases.interleaved_inside),
    "int-nonmonotonic-send": finished(cases.wrote_backwards_inside),
    "nonmonotonic-send": finished(cases.wrote_backwards),
    "relocated-write": finished(cases.relocated),
    "corrupted-record": finished(cases.corrupted),
    "altered-record": finished(altered),
    "spurious-zero-offset": finished(cases.zero_committed),
    "vanished-record": finished(cases.skipped),
    "late-record": finished(late),
    "phantom-read": finished(fates.phantom),
    "torn-transaction": observed(torn, transactions.Log, seconds=0),
    "zombie-write": finished(fates.committed_after_its_successor_began),
    "dirty-read": finished(dirty_reads.shown_too_early, dirty_reads.Host),
    "offset-regression": finished(observed_after(commits.went_back)),
    "lost-commit": finished(observed_after(commits.dropped)),
    "foreign-commit": finished(observed_after(foreign_commits.too_high)),
    "log-truncation": finished(log_end_histories.truncated),
    "sequence-loss": finished(lambda h: sequences.broken(h, start=0)),
    "eos-violation": finished(twice, Pair),
    "nonlinearizable-register": registers,
    **{name: of_cycle(pair[0], ww=True) for name, pair in cycles.WRITE_WRITE.items()},
    **{name: of_cycle(pair[0]) for name, pair in cycles.WRITE_READ.items()},
    "unseen": observed(cases.not_yet_polled, seconds=60),
    "stuck-consumer": observed(stopped, seconds=0),
    "hanging-transaction": observed(stability.hanging),
    "stale-log-end": observed(stale_ends.stale),
    "foreign-record": finished(cases.foreign),
    "misleading-fence": finished(lambda h: classified.fenced(h, before=("s",))),
    "benign-retention": finished(lambda h: sequences.broken(h, start=10)),
    "G1b": finished(partly),
}


def picture(anomaly: str) -> str:
    """The SVG of an anomaly. Raises LookupError where the checks do not find it in its history."""
    rows, findings = HISTORIES[anomaly]()
    found = [one for one in findings if one.anomaly == anomaly and one.event != "closed"]
    if not found:
        raise LookupError(f"the checks do not find {anomaly}, but {sorted({one.anomaly for one in findings})}")
    names = (
        {1: "a", 2: "b", 3: "c"}
        | {number(name): name for name in string.ascii_lowercase}
        | {number(name): name for name in ("observer", "first", "second")}
    )
    names[number("o-None")] = "observer"
    return svg(story(rows, names, found[0]), f"{anomaly}: {CATALOGUE[anomaly].meaning}")


def main() -> int:
    """Write the pictures that are not up to date, and say which."""
    PICTURES.mkdir(exist_ok=True)
    for anomaly in HISTORIES:
        file, drawn = PICTURES / f"{anomaly}.svg", picture(anomaly)
        if not file.is_file() or file.read_text(encoding="utf-8") != drawn:
            file.write_text(drawn, encoding="utf-8")
            print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
