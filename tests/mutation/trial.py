"""Tries mutants: a pytest plugin that collects the tests once, and forks for each mutant.

The child puts the mutated functions in the place of the real ones, runs the tests that reach the mutant, those that
killed its neighbours before all others and then the quickest, and ends with the first that fails. So a mutant costs no
imports, no collecting and no copy of the tree, and the parent stays as it was. `OFFSETWATCH_TRIAL` names a file with
the mutants to try (`Task`s) and where verdicts go.
"""

from __future__ import annotations

import builtins
import os
import signal
import sys
import time
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from _pytest.runner import runtestprotocol

from tests.mutation import corrupt
from tests.mutation.mutants import mutated

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE: Final = 30.0
"""A mutant may take so many seconds longer than ten times what its tests take: it may never end."""


class Trial:
    def __init__(self, path: Path) -> None:
        self._told = orjson.loads(path.read_bytes())

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        setattr(builtins, corrupt.NAME, corrupt.corrupt)
        items = {item.nodeid: item for item in session.items}
        with Path(self._told["verdicts"]).open("ab", buffering=0) as out:
            killers: dict[str, list[str]] = {}  # by file, the last first
            for task in self._told["tasks"]:
                likely = killers.setdefault(task["file"], [])
                tests = {one.split(":", 1)[1]: one for one in task["tests"]}
                chosen = [items[test] for test in _ordered(list(tests), likely) if test in items]
                verdict = _try(task, chosen)
                if verdict in items:
                    likely[:] = [verdict, *(test for test in likely if test != verdict)]
                passed = [] if verdict else [tests[item.nodeid] for item in chosen]
                out.write(orjson.dumps({"key": task["key"], "verdict": verdict, "passed": passed}) + b"\n")
        return True


def _ordered(tests: list[str], likely: list[str]) -> list[str]:
    reaching = set(tests)
    first = [test for test in likely if test in reaching]
    return [*first, *(test for test in tests if test not in set(first))]


def _try(task: dict[str, Any], items: list[pytest.Item]) -> str:
    """Who killed it; "" if it survives."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        told = "an error"
        try:
            told = _in_child(task, items)
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"[:200]
        finally:
            os.write(writing, told.encode())
            os._exit(0)
    os.close(writing)
    return _wait(child, reading, time.monotonic() + PATIENCE + 10 * task["seconds"])


def _wait(child: int, reading: int, until: float) -> str:
    with open(reading, "rb") as told:
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "no end"
            time.sleep(0.01)
        return told.read().decode()


def _in_child(task: dict[str, Any], items: list[pytest.Item]) -> str:
    _put(task["file"], task["number"])
    for item, following in zip(items, [*items[1:], None], strict=True):
        for report in runtestprotocol(item, nextitem=following, log=False):
            if report.failed:
                return item.nodeid
    return ""


def _put(file: str, number: int) -> None:
    """Put the mutated code in the place of the module's own, whoever holds its functions."""
    module = import_module(file.removesuffix(".py").replace("/", "."))
    source = mutated((ROOT / file).read_text(encoding="utf-8"), number)
    namespace: dict[str, Any] = {"__name__": module.__name__, "__file__": module.__file__}
    spare = types.ModuleType(module.__name__)
    spare.__dict__.update(namespace)
    before = sys.modules[module.__name__]
    sys.modules[module.__name__] = spare
    try:
        exec(compile(source, str(ROOT / file), "exec"), spare.__dict__)
    finally:
        sys.modules[module.__name__] = before
    for name, function in _functions(vars(spare)):
        for known, mine in _functions(vars(module)):
            if known == name:
                mine.__code__ = function.__code__
                mine.__defaults__, mine.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    for name, value in vars(spare).items():
        if not name.startswith("__") and isinstance(value, str | int | float | tuple | dict | frozenset):
            setattr(module, name, value)


def _functions(names: dict[str, Any]) -> Iterator[tuple[str, types.FunctionType]]:
    """The functions and methods of a module."""
    for name, value in names.items():
        if isinstance(value, types.FunctionType) and value.__module__ == names["__name__"]:
            yield name, value
        elif isinstance(value, type) and value.__module__ == names["__name__"]:
            for inner, method in vars(value).items():
                plain = getattr(method, "__func__", method)
                plain = plain.fget if isinstance(plain, property) else plain
                if isinstance(plain, types.FunctionType):
                    yield f"{name}.{inner}", plain


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Trial(Path(os.environ["OFFSETWATCH_TRIAL"])))
