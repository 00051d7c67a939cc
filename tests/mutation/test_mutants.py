"""The mutants of a module, and what they do to it."""

from __future__ import annotations

import ast
import tomllib

import pytest

from tests.mutation.__main__ import EQUIVALENT, _tasks
from tests.mutation.corrupt import corrupt
from tests.mutation.mutants import function_source, mutants, mutated


def changes(source: str) -> list[str]:
    return [mutant.change for mutant in mutants(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a and b", ["drop `a` from and", "drop `b` from and"]),
        ("x = a & (b > 1) & c", ["drop `a` from &", "drop `b > 1` from &", "drop `c` from &"]),
        ("x = offset & (SIZE - 1)", []),
        ("x &= a", ["drop `x &= a`"]),
        ("x = 0 < a <= b", ["drop `0 < a` from the chain", "drop `a <= b` from the chain"]),
        ("x = [a for a in b if c]", ["drop `if c`"]),
        ("x = a or b", []),
        ("if a or b:\n    report()", ["drop `a` from or", "drop `b` from or"]),
        (
            "def f():\n    if a:\n        return",
            ["`if a` is always true", "`if a` is always false"],
        ),
        ("def f():\n    if not len(a):\n        return", []),
        ("if a:\n    b = 1", []),
        (
            "report.add('n', (a, 'word'), f'so it {is_}', at=t, evidence={'k': v, **more})",
            [
                "corrupt `a` of the subject",
                "corrupt `'word'` of the subject",
                "corrupt message f'so it {is_}'",
                "corrupt at of add",
                "corrupt evidence 'k'",
                "drop evidence 'k'",
                "drop `**more`",
            ],
        ),
        ("evidence['k'] = v", ["drop `evidence['k'] = v`", "corrupt evidence['k']"]),
        ("x = evidence | more", ["drop `evidence |`", "drop `| more`"]),
        ('"""A docstring with words."""', []),
    ],
)
def test_mutants(source: str, expected: list[str]) -> None:
    assert sorted(changes(source)) == sorted(expected)


def test_one_change_is_made() -> None:
    source = "def f(a, b):\n    if a and b:\n        report.add('n', (a,), f'{b} is so', at=a, evidence={'k': b})\n"
    for mutant in mutants(source):
        changed = mutated(source, mutant.number)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), mutant
    drop = next(mutant for mutant in mutants(source) if mutant.change == "drop `b` from and")
    assert "if a:" in mutated(source, drop.number)
    assert (drop.function, drop.line, drop.lines) == ("f", 2, (2, 2))


def test_a_function_is_the_same_wherever_it_stands() -> None:
    source = "def f():\n    return 1\n"
    assert function_source(source, "f") == function_source("\n# more\n" + source, "f")
    assert function_source(source, "f") != function_source(source.replace("1", "2"), "f")


@pytest.mark.parametrize("value", [1, 1.5, True, "a", [], [1], (1,), {"a": 1}, None])
def test_a_corrupted_value_is_another(value: object) -> None:
    other = corrupt(value)
    assert other != value
    assert value is None or type(other) is type(value)


def test_what_is_called_equivalent_is_a_mutant_still() -> None:
    """`make mutate` counts it as a survivor otherwise, and is not run with each change."""
    for file, reasons in tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).items():
        named = {task.name for task in _tasks(file, {}, 0.0, {})}
        assert reasons.keys() <= named, (file, sorted(reasons.keys() - named))
