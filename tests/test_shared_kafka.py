"""What several processes of a session share is started once, and is there for as long as one of them uses it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.shared_kafka import Shared, shared

LIMIT = 60.0


class Started:
    """Notes what is started and ended; each open file has locks of its own, so threads stand for processes."""

    def __init__(self) -> None:
        self.happened: list[str] = []

    @contextmanager
    def __call__(self, folder: Path) -> Iterator[str]:
        name = f"broker {len(self.happened)}"
        self.happened.append(f"{name} starts")
        yield name
        self.happened.append(f"{name} ends")


def test_it_is_started_once_and_ends_with_the_last_that_uses_it(tmp_path: Path) -> None:
    start, in_use, go_on = Started(), threading.Barrier(4), threading.Event()

    def first() -> str:
        with shared(tmp_path, start) as where:
            in_use.wait(LIMIT)
        return where

    def other() -> str:
        with shared(tmp_path, start) as where:
            in_use.wait(LIMIT)
            assert go_on.wait(LIMIT)
            assert start.happened == ["broker 0 starts"]
        return where

    with ThreadPoolExecutor(4) as pool:
        told = [pool.submit(one) for one in (first, other, other)]
        in_use.wait(LIMIT)
        with shared(tmp_path, start) as late:
            go_on.set()
            assert late == "broker 0"
        assert {one.result(LIMIT) for one in told} == {"broker 0"}
    assert start.happened == ["broker 0 starts", "broker 0 ends"]


def test_who_comes_after_the_end_starts_another(tmp_path: Path) -> None:
    start = Started()
    for number in (0, 2):
        with shared(tmp_path, start) as where:
            assert where == f"broker {number}"
    assert start.happened == ["broker 0 starts", "broker 0 ends", "broker 2 starts", "broker 2 ends"]


def test_where_it_does_not_start_the_next_one_tries(tmp_path: Path) -> None:
    @contextmanager
    def fails(folder: Path) -> Iterator[str]:
        raise OSError("no port")
        yield

    with pytest.raises(OSError, match="no port"), shared(tmp_path, fails):
        pass
    with shared(tmp_path, Started()) as where:
        assert where == "broker 0"


def test_nobody_handles_the_brokers_of_all(tmp_path: Path) -> None:
    cluster = Shared(tmp_path, "127.0.0.1:1")
    assert cluster.bootstrap == "127.0.0.1:1"
    with pytest.raises(AssertionError, match="starts a cluster for itself"):
        _ = cluster.brokers
