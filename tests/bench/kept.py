"""What the checks keep: of one partition after very many records, and of a canary over a day.

The store is a dictionary of bytes here, as RocksDB's would be: hot values and chunks, their names counted in.
"""

from __future__ import annotations

import gc
import time

import psutil
import pyarrow as pa

from rules.arrays.columns import by_place
from rules.store import MemoryStore
from tests.bench import plainly
from tests.bench.canary import Traffic
from tests.bench.report import mib, rate, show

MIB = 2**20


class Kept:
    """States as a job keeps them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.findings = 0
        self.seconds = 0.0

    def feed(self, rows: pa.Table) -> None:
        for place, part in by_place(rows).items():
            began = time.perf_counter()
            stepped = self.store.step_one(place, part)
            self.seconds += time.perf_counter() - began
            self.findings += sum(1 for f in stepped.findings if f.event == "raised")

    def size(self) -> int:
        """Bytes of hot values and of chunks with their names."""
        return sum(
            len(one.hot or b"") + sum(len(name) + len(chunk) for name, chunk in one.chunks.items())
            for one in self.store.stored.values()
        )


def partition(records: int = 100_000_000, writers: int = 20) -> bool:
    """One partition after `records` records; True where its state stays within 1 MiB."""
    traffic = Traffic(per_send=500, interval=0.05, writers=writers, restart=float(10**9), retention=float(10**9))
    kept, sends, per_window, plain = Kept(), records // 500, 2_000, 0.0
    for first in range(0, sends, per_window):
        rows = traffic.window(first, min(per_window, sends - first))
        plain += plainly.seconds(rows)
        kept.feed(rows)
    (one,) = kept.store.stored.values()
    show(
        f"state of one partition after {records:,} records by {writers} writers, nothing below the log start",
        {
            "hot value": f"{len(one.hot or b''):,} B",
            "chunks": f"{len(one.chunks):,}",
            "everything, names included": f"{kept.size():,} B (asked: at most {MIB:,})",
            "polled records": rate(2 * records, kept.seconds),
            "beside plain reading of the same rows": f"1 : {kept.seconds / plain:.1f}",
            "findings": kept.findings,
        },
    )
    return kept.size() <= MIB and not kept.findings


def day(hours: int = 24, partitions: int = 64) -> bool:
    """A canary's day: 1,000 records a second over all partitions, one writer restart a minute, an hour's retention.
    True where memory is flat after the first hours."""
    traffic = [Traffic(per_send=16, interval=16 * partitions / 1000, partition=p) for p in range(partitions)]
    per_hour = round(3600 / traffic[0].interval)
    pieces = 12
    kept, plain, sizes, resident = Kept(), 0.0, [], []
    me = psutil.Process()
    for hour in range(hours):
        for piece in range(pieces):
            low, high = (hour * pieces + piece) * per_hour // pieces, (hour * pieces + piece + 1) * per_hour // pieces
            for one in traffic:
                rows = one.window(low, high - low)
                plain += plainly.seconds(rows)
                kept.feed(rows)
        gc.collect()
        sizes.append(kept.size())
        resident.append(me.memory_info().rss)
        print(f"  hour {hour + 1:>2}: state {sizes[-1]:>12,} B, process {mib(resident[-1])}", flush=True)
    records = hours * per_hour * 16 * partitions
    later = range(min(2, hours - 1), hours)
    flat = max(sizes[h] for h in later) <= 1.1 * sizes[later[0]]
    flat &= max(resident[h] for h in later) <= 1.15 * resident[later[0]]
    show(
        f"{hours} hours of a canary: {records:,} records over {partitions} partitions, a writer restart a minute",
        {
            "state after the second hour and at the end": f"{sizes[later[0]]:,} and {sizes[-1]:,} B",
            "process then": f"{mib(resident[later[0]])} and {mib(resident[-1])}",
            "flat": "yes" if flat else "NO",
            "polled records": rate(2 * records, kept.seconds),
            "beside plain reading of the same rows": f"1 : {kept.seconds / plain:.1f}",
            "findings": kept.findings,
        },
    )
    return flat and not kept.findings
