"""What the linters cannot say of the code: how long a function may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("rules", "probes", "streaming_jobs", "alerts", "deploy", "monitor")
LONGEST = 60
"""Lines, from `def` to the last one: what fits on a screen."""


def longer(text: str, limit: int = LONGEST) -> Iterator[tuple[str, int]]:
    """The functions of a module that are longer, and how many lines they have."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > limit:
                yield node.name, lines


def test_a_function_that_is_too_long_is_found() -> None:
    text = "class A:\n    @property\n    def a(self):\n        b = 1\n\n        return b\n"
    assert list(longer(text, 4)) == []
    assert list(longer(text, 3)) == [("a", 4)]


def test_a_function_fits_on_a_screen() -> None:
    modules = [path for package in PACKAGES for path in (PROJECT / package).rglob("*.py")]
    assert len(modules) > 100
    assert {
        f"{path.relative_to(PROJECT)}: {name}": lines for path in modules for name, lines in longer(path.read_text())
    } == {}
