"""Whether processes want nothing of the machine: real ones, that sleep, work, wait for their turn, or are stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from monitor.process import idleness
from monitor.process.idleness import EVERY, FORGOTTEN, Idleness

pytestmark = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")


@contextmanager
def running(program: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


SLEEPS = "import time; print(flush=True); time.sleep(600)"
WORKS = "print(flush=True)\nwhile True: pass"
IN_A_THREAD = f"import threading; threading.Thread(target=lambda: exec({WORKS!r})).start()"


def looked_at(*processes: int, monkeypatch: pytest.MonkeyPatch, for_: float = 1.5) -> float:
    monkeypatch.setattr(idleness, "EVERY", 0.2)
    watch, until = Idleness(lambda: processes), time.monotonic() + for_
    while time.monotonic() < until:
        seconds = watch.seconds()
        time.sleep(0.1)
    return seconds


def test_one_that_sleeps_is_idle_and_so_is_one_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(SLEEPS) as sleeps, running(WORKS) as works:
        os.kill(works, signal.SIGSTOP)
        assert looked_at(sleeps, works, monkeypatch=monkeypatch) > 0.8


@pytest.mark.parametrize("program", [WORKS, IN_A_THREAD], ids=["works", "works in a thread"])
def test_one_that_works_is_not_whatever_others_do(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(SLEEPS) as sleeps, running(program) as works:
        assert looked_at(sleeps, works, monkeypatch=monkeypatch) < 0.8


@pytest.fixture
def threads(tmp_path: Path) -> Callable[..., None]:
    """Writes what the kernel tells of the threads of process 7: by name, nanoseconds of running and of waiting."""

    def write(**told: tuple[int, int]) -> None:
        for number, (name, (ran, waited)) in enumerate(told.items()):
            folder = tmp_path / "7" / "task" / str(7 + number)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "comm").write_text(name.replace("_", " ") + "\n")
            (folder / "schedstat").write_text(f"{ran} {waited} 9\n")

    return write


def test_one_that_waits_for_its_turn_is_not_idle(tmp_path: Path, threads: Callable[..., None]) -> None:
    """As the kernel tells it of a thread that was ready to run for half of the time, and hardly ran."""
    now = [100.0]
    watch = Idleness(lambda: [7], lambda: now[0], tmp_path)
    for look in range(4):
        threads(Executor_task_l=(look * 1_000_000, look * 2_500_000_000))
        assert watch.seconds() == 0.0
        now[0] += EVERY
    assert watch.seconds() == EVERY
    now[0] += 2 * EVERY + 1
    assert watch.seconds() == 3 * EVERY + 1, "the machine was too busy to look, and it did nothing all the same"
    now[0] += FORGOTTEN + 1
    assert watch.seconds() == 0.0, "nobody looked for long"


def test_what_a_jvm_does_for_itself_is_no_work(tmp_path: Path, threads: Callable[..., None]) -> None:
    """On a machine with too much to do it waits for its turn each time that it wakes."""
    now = [100.0]
    watch = Idleness(lambda: [7], lambda: now[0], tmp_path)
    for look in range(4):
        own = look * 10_000_000, look * 1_000_000_000
        threads(java=own, VM_Periodic_Tas=own, GC_Thread=own, C1_CompilerThre=own, Executor_task_l=(5, 5))
        assert watch.seconds() == look * EVERY
        now[0] += EVERY
    threads(VM_Periodic_Tas=(4, 4), Executor_task_l=(5, 600_000_005))
    assert watch.seconds() == 0.0, "and a task that waits for its turn is at work"


def test_where_nobody_is_there_nobody_is_idle(tmp_path: Path) -> None:
    now = [100.0]
    watch = Idleness(list, lambda: now[0], tmp_path)
    for _ in range(4):
        assert watch.seconds() == 0.0
        now[0] += EVERY
