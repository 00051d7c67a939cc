"""What stage 2 keeps and writes over a day of log time: facts as partitions tell them, second by second.

At `RATE` transactions a second over all partitions a fifth is aborted, as the transactional probes do by default, each
over two partitions; once a minute a client dies in a transaction over three; a transform reflects its input in six
partitions. Healthy ok transactions tell nothing. Between the seconds that are measured, facts come ten seconds at a
time. The table on disk is written for `ON_DISK` batches, as the job writes it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rules.across.resolution import expired
from rules.store import MemoryStore
from rules.vocabulary.finding import FACT_SCHEMA
from rules.vocabulary.objectives import SECOND, Objectives
from streaming_jobs.tables.delta_tables import open_table
from streaming_jobs.verdicts.resolution import Resolution
from tests.bench.report import show

RATE: Final = 300
DEFAULT_RATE: Final = 15  # three transactional probes at five a second
ABORTED: Final = 0.2
TRANSFORMED: Final = 6
INPUTS: Final = 4  # records a second of each of these partitions
ON_DISK: Final = 600
MEASURED: Final = 30
BASE: Final = 1_735_689_600 * SECOND
KIB: Final = 1024


class Day:
    """The facts of any stretch of the day."""

    def __init__(self, rate: int, seed: int = 1) -> None:
        self._rate = rate
        self._dice = np.random.default_rng(seed)
        self._seq = 0

    def facts(self, second: int, seconds: int) -> pa.Table:
        """Those of `seconds` from `second` on."""
        rows = self._aborted(second, seconds) + self._transformed(second, seconds)
        rows += [row for minute in range(second, second + seconds) if minute % 60 == 0 for row in self._crash(minute)]
        return pa.Table.from_pylist(rows, schema=FACT_SCHEMA)

    def _aborted(self, second: int, seconds: int) -> list[dict[str, Any]]:
        rows = []
        for i in range(round(self._rate * ABORTED * seconds)):
            txn, at = int(self._dice.integers(2**62)), BASE + (second + i % seconds) * SECOND
            for partition in self._dice.choice(30, 2, replace=False).tolist():
                self._seq += 8
                rows.append(
                    _fact(
                        "absent",
                        at,
                        partition,
                        txn=txn,
                        outcome="fail",
                        writer=partition % 5 + 2**40,
                        seq=self._seq,
                        offset=2 * self._seq,
                        length=4,
                    )
                )
        return rows

    def _crash(self, second: int) -> list[dict[str, Any]]:
        txn, at = int(self._dice.integers(2**62)), BASE + second * SECOND
        about = (
            '{"txn":1,"told":"unknown","transactional_id":"offsetwatch-run-transactions-1","invoked":1,"completed":2}'
        )
        return [
            _fact(
                "absent",
                at,
                partition,
                txn=txn,
                outcome="info",
                writer=2**41 + second,
                seq=partition,
                offset=second,
                length=2,
                about=about,
            )
            for partition in range(3)
        ]

    def _transformed(self, second: int, seconds: int) -> list[dict[str, Any]]:
        rows = []
        for partition in range(TRANSFORMED):
            for at in range(second, second + seconds):
                run = {"writer": 2**42, "seq": at * INPUTS, "offset": at * INPUTS, "length": INPUTS}
                rows.append(_fact("reflected", BASE + at * SECOND, partition, group="g", **run))
                settled = {
                    name: value - 10 * INPUTS * (name != "length" and name != "writer") for name, value in run.items()
                }
                if at >= 10:
                    rows.append(_fact("input", BASE + at * SECOND, partition, group="g", **settled))
            end = BASE + (second + seconds - 1) * SECOND
            rows.append(_fact("horizon", end, partition, group="g"))
            rows.append(_fact("horizon", end, partition, group="g", about="input"))
        return rows


def _fact(kind: str, at: int, partition: int, **more: Any) -> dict[str, Any]:
    place = {"cluster": "bench", "topic_id": "bench-topic-id", "topic": "bench", "partition": partition}
    return place | {"kind": kind, "at": at} | more


def _size(changes: dict[str, bytes | None]) -> int:
    return sum(len(name) + len(value or b"") for name, value in changes.items())


def day(rate: int, hours: int) -> tuple[list[float], list[int], float]:
    """Of each hour: bytes changed a batch, mean; bytes kept. And seconds of one batch, mean."""
    store, facts = MemoryStore(), Day(rate)
    changed, kept, spent, batches = [], [], 0.0, 0
    for hour in range(hours):
        second, sizes = hour * 3600, []
        while second < (hour + 1) * 3600:
            step = 1 if second % 3600 >= 3600 - MEASURED else 10
            told = facts.facts(second, step)
            began = time.perf_counter()
            resolved = store.resolve(told)
            if step == 1:
                spent, batches = spent + time.perf_counter() - began, batches + 1
                sizes.append(_size(resolved.changes))
            second += step
        changed.append(sum(sizes) / len(sizes))
        gone = set(expired(store.across, BASE + second * SECOND))  # dropped now and then, at no time of the hour's
        kept.append(_size({name: value for name, value in store.across.items() if name not in gone}))
        print(f"  hour {hour + 1:>2}: {changed[-1]:>9,.0f} B a batch, {kept[-1]:>11,} B kept", flush=True)
    return changed, kept, spent / batches


def on_disk(rate: int) -> float:
    """Bytes of files a batch, mean, of the table as the job writes it, commits included."""
    facts = Day(rate)
    with tempfile.TemporaryDirectory() as root:
        resolution = Resolution(open_table(Path(root), "across"), "bench:q", Objectives())
        for batch in range(ON_DISK):
            resolution.take(batch, facts.facts(batch, 1))
            resolution.keep(batch)
        return sum(file.stat().st_size for file in Path(root).rglob("*") if file.is_file()) / ON_DISK


def run(hours: int = 24) -> bool:
    """True where what is written a batch is flat and small, and what is kept grows by the day's crashes alone."""
    changed, kept, seconds = day(RATE, hours)
    second = min(1, hours - 1)
    growth, kept_growth = max(changed[second:]) / changed[second], max(kept[second:]) / kept[second]
    small = on_disk(DEFAULT_RATE)
    show(
        f"stage 2 over {hours} hours of log time at {RATE} transactions a second",
        {
            "changed a batch, in the second hour": f"{changed[second]:,.0f} B",
            "the most of any later hour beside it": f"{growth:.2f} : 1",
            "kept, in the second hour": f"{kept[second]:,} B",
            "the most of any later hour beside that": f"{kept_growth:.2f} : 1",
            "one batch": f"{1000 * seconds:.1f} ms",
            f"on disk a batch, at {DEFAULT_RATE} a second": f"{small:,.0f} B (asked: at most {16 * KIB:,})",
        },
    )
    return growth <= 1.2 and kept_growth <= 1.5 and small <= 16 * KIB and changed[second] <= 16 * KIB
