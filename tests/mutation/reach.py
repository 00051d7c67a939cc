"""Which tests reach which lines of the rules, and how long each takes: learned by running them once, traced.

Where a module has changed since, its functions are known by name, and the lines no more.

A pytest plugin. `OFFSETWATCH_REACH` names the file to write: one JSON line a test, as it passes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import orjson
import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = tuple(str(ROOT / "rules" / room) for room in ("checks", "across", "audit", "registers"))


class Reach:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: set[tuple[CodeType, int]] = set()
        self._known: dict[CodeType, bool] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._passed = True
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._lines, began = set(), time.process_time()
        sys.settrace(self._called)
        try:
            result = yield
        finally:
            sys.settrace(None)
        self._write(item.nodeid, time.process_time() - began)
        return result

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        known = self._known.get(code)
        if known is None:
            known = self._known[code] = code.co_filename.startswith(ROOMS)
        return self._line if known else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        self._lines.add((frame.f_code, frame.f_lineno))
        return self._line

    def _write(self, test: str, seconds: float) -> None:
        lines: dict[str, set[int]] = {}
        functions: dict[str, set[str]] = {}
        for code, line in self._lines:
            file = str(Path(code.co_filename).relative_to(ROOT))
            lines.setdefault(file, set()).add(line)
            functions.setdefault(file, set()).update(code.co_qualname.split("."))
        told = {"test": test, "seconds": seconds, "lines": lines, "functions": functions}
        with self._path.open("ab") as out:
            out.write(orjson.dumps(told, default=list) + b"\n")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Reach(Path(os.environ["OFFSETWATCH_REACH"])))
