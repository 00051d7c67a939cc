"""A process in which no Python runs any more is ended, with where its threads stood; one that runs, or could not, is
left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.monitor.commands import PROJECT

PROGRAM = """
import ctypes, time
from monitor.process.watchdog import watched
with watched({within}):
    print("begun", flush=True)
    {what}
print("over")
time.sleep({within})
"""
HOLDS_THE_LOCK = (
    "library, one = ctypes.PyDLL(None), ctypes.create_string_buffer(128); library.pthread_mutex_init(one, None);"
    " library.pthread_mutex_lock(one); library.pthread_mutex_lock(one)"
)
"""Waits for itself, with Python's lock in its hands."""


def program(within: float, what: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM.format(within=within, what=what)]
    begun = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert begun.stdout is not None and begun.stdout.readline() == "begun\n"
    return begun


@pytest.mark.long
@pytest.mark.parametrize(
    ("within", "what", "code", "said"),
    # The one that may not be ended is on a machine that may stand still, too.
    [(1, HOLDS_THE_LOCK, -signal.SIGKILL, ""), (8, "time.sleep(10)", 0, "over\n")],
    ids=["it stands still", "it waits"],
)
def test_a_process_that_stands_still_is_ended(within: int, what: str, code: int, said: str) -> None:
    with program(within, what) as running:
        out, err = running.communicate(timeout=300)
    assert (running.returncode, out) == (code, said)
    assert (f"process {running.pid} stands still, for 1 s" in err) == (code != 0)
    assert ("<module>" in err) == (code != 0), "it says where it stood"


def test_a_process_that_was_stopped_goes_on() -> None:
    """By SIGSTOP, for longer than it may stand still: nobody could run."""
    with program(2, "time.sleep(8)") as running:
        running.send_signal(signal.SIGSTOP)
        time.sleep(5)
        running.send_signal(signal.SIGCONT)
        out, err = running.communicate(timeout=300)
    assert (running.returncode, out, err) == (0, "over\n", "")


@pytest.mark.long
def test_a_process_that_was_stopped_with_the_one_beside_it_goes_on() -> None:
    """As in a container that was frozen, or a laptop that was closed: all of that time is one step."""
    with program(2, "time.sleep(8)") as running:
        (beside,) = psutil.Process(running.pid).children()
        both = (running.pid, beside.pid)
        for pid in both:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(5)
        for pid in reversed(both):  # who watches goes on first
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.3)
        out, err = running.communicate(timeout=300)
    assert (running.returncode, out, err) == (0, "over\n", "")
    assert not beside.is_running()


def test_a_process_that_was_stopped_and_then_stands_still_is_ended() -> None:
    with program(1, HOLDS_THE_LOCK) as running:
        running.send_signal(signal.SIGSTOP)
        time.sleep(3)
        assert running.poll() is None
        running.send_signal(signal.SIGCONT)
        running.communicate(timeout=300)
    assert running.returncode == -signal.SIGKILL


def test_who_watches_and_was_killed_is_followed_by_another() -> None:
    with program(2, f"time.sleep(2); {HOLDS_THE_LOCK}") as running:
        (beside,) = psutil.Process(running.pid).children()
        beside.kill()
        _, err = running.communicate(timeout=300)
    assert running.returncode == -signal.SIGKILL and "stands still" in err


def test_who_watches_ends_with_the_process() -> None:
    with program(60, "time.sleep(600)") as running:
        (beside,) = psutil.Process(running.pid).children()
        running.kill()
        running.communicate(timeout=300)
    beside.wait(10)
