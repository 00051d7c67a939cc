"""Where the tests' processor time goes: `pytest -p tests.processor_time --processor-time FILE`.

Of each test the processor seconds, user and system, of this process and of all that it started, brokers and Spark among
them: what a busy machine does not change, where the time on the clock says who else was there. At the end the sums by
test file are shown, largest first, and FILE has a JSON line a test. What fixtures start and stop counts with the test
that asks first and last; what runs on between two tests counts with the later one.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

SHOWN = 40


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processor-time", metavar="FILE", type=Path, help="append what each test took to this file")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--processor-time")
    if file is not None:
        config.pluginmanager.register(Measuring(file.absolute()), "measuring")


def spent() -> float:
    """The seconds of this process, of its descendants, and of those that have ended and been waited for."""
    total = sum(os.times()[:4])
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:  # ended meanwhile: its parent's time has it
            continue
    return total


class Measuring:
    """`before`: what had been spent when the last test was over. It is 0 at first, so that imports count too."""

    def __init__(self, file: Path) -> None:
        self._file, self._before = file, 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        now = spent()
        with self._file.open("a") as out:
            out.write(json.dumps({"test": item.nodeid, "seconds": round(now - self._before, 3)}) + "\n")
        self._before = now
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._file.is_file() or hasattr(terminalreporter.config, "workerinput"):
            return
        by_file: Counter[str] = Counter()
        for line in self._file.read_text().splitlines():
            one = json.loads(line)
            by_file[one["test"].partition("::")[0]] += one["seconds"]
        terminalreporter.section("processor time")
        for name, seconds in by_file.most_common(SHOWN):
            terminalreporter.line(f"{seconds:8.1f} s  {name}")
        terminalreporter.line(f"{sum(by_file.values()):8.1f} s  of {len(by_file)} files")
