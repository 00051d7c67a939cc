"""A process in which no Python runs any more is ended, with where its threads stood; one that runs is left alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.monitor.commands import PROJECT

PROGRAM = """
import ctypes, time
from monitor.process.watchdog import watched
with watched({within}):
    {what}
print("over")
time.sleep({within})
"""
HOLDS_THE_LOCK = "ctypes.PyDLL(None).sleep(600)"


@pytest.mark.parametrize(
    ("within", "what", "code", "said"),
    # The one that may not be ended is on a machine that may stand still, too.
    [(1, HOLDS_THE_LOCK, 1, ""), (8, "time.sleep(10)", 0, "over\n")],
    ids=["it stands still", "it waits"],
)
def test_a_process_that_stands_still_is_ended(within: int, what: str, code: int, said: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(within=within, what=what)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (code, said)
    assert ("Timeout (0:00:01)!" in done.stderr) == (code == 1)
    assert ("<module>" in done.stderr) == (code == 1), "it says where it stood"
