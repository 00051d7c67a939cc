"""Latency and throughput, from the newest rows of a real probe log."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import write_deltalake

from monitor.status.traffic import KEPT, Recent
from rules.vocabulary.slices import Run, to_table
from tests.monitor.rows import NOON
from tests.monitor.status.folder import READER, WRITER, S, slice_


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def write(history: Path, *rows: object) -> None:
    write_deltalake(str(history), to_table(rows), partition_by=["date"], mode="append")  # type: ignore[arg-type]


def test_of_the_last_half_minute(tmp_path: Path) -> None:
    sends = [
        slice_(
            "send",
            WRITER,
            -20 + n / 10,
            completed=NOON + (-20 + n / 10) * S + (n + 1) * S / 1_000,
            sent=[Run(WRITER, n, n, 3)],
        )
        for n in range(100)
    ]
    write(
        tmp_path / "history",
        *sends,
        slice_("send", WRITER, -31, sent=[Run(WRITER, 900, 900, 50)]),
        slice_("send", WRITER, 1, sent=[Run(WRITER, 901, 901, 50)]),
        slice_("send", WRITER, -5, type="info", error="_TIMED_OUT"),
        slice_("txn", WRITER, -5, type="fail"),
        slice_("poll", READER, -5, polled=[Run(WRITER, 0, 0, 600)]),
        slice_("offsets", READER, -5),
    )
    got = Recent(tmp_path / "history").pace(NOON)
    assert got is not None
    assert (got.sent_per_second, got.polled_per_second, got.not_ok) == (10.0, 20.0, 1)
    assert got.median == pytest.approx(50.5) and got.slow == pytest.approx(99.01)


def test_it_is_read_again_after_a_while_and_not_before(tmp_path: Path) -> None:
    clock = Clock()
    recent = Recent(tmp_path / "history", clock)
    assert recent.pace(None) is None
    write(tmp_path / "history", slice_("send", WRITER, -5, sent=[Run(WRITER, 0, 0, 30)]))
    first = recent.pace(NOON)
    assert first is not None and first.sent_per_second == 1.0
    write(tmp_path / "history", slice_("send", WRITER, -4, sent=[Run(WRITER, 30, 30, 30)]))
    clock.now = KEPT - 0.1
    assert recent.pace(NOON) is first
    clock.now = KEPT
    again = recent.pace(NOON)
    assert again is not None and again.sent_per_second == 2.0


def test_a_log_that_is_not_there_or_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    clock = Clock()
    recent = Recent(tmp_path / "history", clock)
    assert recent.pace(NOON) is None
    clock.now = KEPT
    write(tmp_path / "history", slice_("poll", READER, -5))
    got = recent.pace(NOON)
    assert got is not None and (got.median, got.slow) == (None, None), "nothing was sent"
    for file in (tmp_path / "history").rglob("*.parquet"):
        file.unlink()
    clock.now = 2 * KEPT
    assert recent.pace(NOON) is got, "what was known last"
