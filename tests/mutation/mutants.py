"""The mutants of a module: each is one change of its syntax tree.

- Of evidence (any mapping written down with words for keys): each value is corrupted, each entry dropped, each mapping
  that is merged into it left out.
- Of a finding: each part of its subject, its message (any text with spaces), and its times are corrupted.
- Of a condition (`and`, `&`, `&=`, a chain of comparisons, the `if`s of comprehensions, `or` where it guards a
  statement): each conjunct is dropped. An `if` with one condition is made always true and always false where what it
  guards reports, keeps, skips or ends; but for the short cut `if not ...: return`, which only saves time.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.mutation.corrupt import MILLISECOND, NAME

TIMES: Final = ("at", "decidable", "since")
WORDS: Final = ("told", "evidence", "following", "about", "own")
REPORTS: Final = ("add", "condition", "Finding", "_Held")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change. `lines`: those that a test must reach to notice; `number`: its place among the module's."""

    number: int
    function: str
    line: int
    lines: tuple[int, int]
    change: str


@dataclass(slots=True)
class _Site:
    node: ast.AST
    change: str
    apply: Callable[[], None]


@dataclass(slots=True)
class _Place:
    """Where a node hangs: it can be replaced there."""

    parent: ast.AST
    field: str
    index: int | None

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants(source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    tree = ast.parse(source)
    about = _functions(tree)
    statements = _statements(tree)
    found = []
    for number, site in enumerate(_sites(tree)):
        line = getattr(site.node, "lineno", 0)
        lines = min((span for span in statements if span[0] <= line <= span[1]), key=lambda s: s[1] - s[0])
        function = min((f for f in about if f[0] <= line <= f[1]), key=lambda f: f[1] - f[0], default=(0, 0, ""))
        found.append(Mutant(number, function[2], line, lines, site.change))
    return found


def mutated(source: str, number: int) -> str:
    """The module with that change."""
    tree = ast.parse(source)
    _sites(tree)[number].apply()
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def function_source(source: str, name: str) -> str:
    """The function of that name, as Python sees it: comments and lines do not matter."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return ast.dump(node)
    return ast.dump(tree)


def _functions(tree: ast.Module) -> list[tuple[int, int, str]]:
    return [
        (node.lineno, node.end_lineno or node.lineno, node.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]


def _statements(tree: ast.Module) -> list[tuple[int, int]]:
    """The lines of each statement; of a compound one, those of its head."""
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None) or getattr(node, "cases", None)
            end = body[0].pattern.lineno - 1 if body and isinstance(node, ast.Match) else None
            end = body[0].lineno - 1 if body and end is None else end
            spans.append((node.lineno, max(node.lineno, end or node.end_lineno or node.lineno)))
    return spans


def _sites(tree: ast.Module) -> list[_Site]:
    found = []
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(node, ast.AST) and id(node) not in docstrings:
                    found += list(_of_node(node, _Place(parent, name, index)))
    return sorted(found, key=lambda site: (getattr(site.node, "lineno", 0), getattr(site.node, "col_offset", 0)))


def _of_node(node: ast.AST, place: _Place) -> Iterator[_Site]:
    match node:
        case ast.BoolOp(op=ast.And()):
            yield from _operands(node, node.values, place, "and")
        case ast.BoolOp(op=ast.Or()) if isinstance(place.parent, ast.If | ast.comprehension):
            yield from _operands(node, node.values, place, "or")
        case ast.BinOp(op=ast.BitAnd()) if not _is_and(place.parent) and not _is_mask(node.right):
            yield from _operands(node, _flat(node), place, "&")
        case ast.AugAssign(op=ast.BitAnd()):
            yield _Site(node, f"drop `{_text(node)}`", lambda: place.put(ast.Pass()))
        case ast.BinOp(op=ast.BitOr()) if _of_evidence(node.left) or _of_evidence(node.right):
            yield _Site(node, f"drop `{_text(node.left)} |`", lambda: place.put(node.right))
            yield _Site(node, f"drop `| {_text(node.right)}`", lambda: place.put(node.left))
        case ast.Compare(ops=[_, _, *_]):
            yield from _chain(node, place)
        case ast.comprehension(ifs=[_, *_]):
            yield from _filters(node)
        case ast.If():
            yield from _guard(node)
        case ast.Dict():
            yield from _entries(node, place)
        case ast.JoinedStr() if " " in "".join(str(p.value) for p in node.values if isinstance(p, ast.Constant)):
            yield _corrupted(node, place, "message")
        case ast.Constant(value=str(text)) if text.count(" ") > 1 and not isinstance(place.parent, ast.JoinedStr):
            yield _corrupted(node, place, "message")
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str()))]):
            if name in WORDS:
                yield _corrupted(node.value, _Place(node, "value", None), _text(node.targets[0]))
                yield _Site(node, f"drop `{_text(node)}`", lambda: place.put(ast.Pass()))
        case ast.Call() if _called(node) in REPORTS:
            yield from _finding(node)


# Conditions


def _operands(node: ast.AST, values: list[ast.expr], place: _Place, word: str) -> Iterator[_Site]:
    for i, operand in enumerate(values):
        rest = [*values[:i], *values[i + 1 :]]
        yield _Site(operand, f"drop `{_text(operand)}` from {word}", partial(_put_joined, place, node, rest))


def _put_joined(place: _Place, node: ast.AST, rest: list[ast.expr]) -> None:
    place.put(_joined(node, rest))


def _joined(node: ast.AST, rest: list[ast.expr]) -> ast.expr:
    if len(rest) == 1:
        return rest[0]
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(node.op, rest)
    joined = rest[0]
    for one in rest[1:]:
        joined = ast.BinOp(joined, ast.BitAnd(), one)
    return joined


def _flat(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return [*_flat(node.left), *_flat(node.right)]
    return [node]


def _is_and(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd)


def _is_mask(node: ast.expr) -> bool:
    """Bits, and no truths: a number, or made of constants."""
    named = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
    return all(name.isupper() for name in named) and not any(isinstance(n, ast.Call) for n in ast.walk(node))


def _chain(node: ast.Compare, place: _Place) -> Iterator[_Site]:
    terms = [node.left, *node.comparators]
    links = [ast.Compare(terms[i], [op], [terms[i + 1]]) for i, op in enumerate(node.ops)]
    for i, link in enumerate(links):
        rest: list[ast.expr] = [*links[:i], *links[i + 1 :]]
        kept = rest[0] if len(rest) == 1 else ast.BoolOp(ast.And(), rest)
        yield _Site(node, f"drop `{_text(link)}` from the chain", partial(place.put, kept))


def _filters(node: ast.comprehension) -> Iterator[_Site]:
    for condition in node.ifs:
        if not isinstance(condition, ast.BoolOp):
            text = f"drop `if {_text(condition)}`"
            yield _Site(condition, text, partial(node.ifs.remove, condition))


def _guard(node: ast.If) -> Iterator[_Site]:
    if isinstance(node.test, ast.BoolOp) or not _guards([*node.body, *node.orelse]) or _is_short_cut(node):
        return
    for value in (True, False):
        text = f"`if {_text(node.test)}` is always {str(value).lower()}"
        yield _Site(node.test, text, partial(setattr, node, "test", ast.Constant(value)))


def _guards(body: list[ast.stmt]) -> bool:
    """Does it report, keep, skip or end?"""
    for node in (one for statement in body for one in ast.walk(statement)):
        if isinstance(node, ast.Continue | ast.Break | ast.Return):
            return True
        if isinstance(node, ast.Call):
            name = _called(node)
            if name in ("add", "append", "condition", "put", "update", "discard", "pop") or name.startswith("_"):
                return True
    return False


def _is_short_cut(node: ast.If) -> bool:
    return (
        isinstance(node.test, ast.UnaryOp)
        and isinstance(node.test.op, ast.Not)
        and len(node.body) == 1
        and isinstance(node.body[0], ast.Return)
        and not node.orelse
    )


# Findings


def _finding(node: ast.Call) -> Iterator[_Site]:
    for keyword in node.keywords:
        if keyword.arg in TIMES:
            place = _Place(keyword, "value", None)
            yield _corrupted(keyword.value, place, f"{keyword.arg} of {_called(node)}", MILLISECOND)
    subjects = [keyword.value for keyword in node.keywords if keyword.arg == "subject"]
    subjects += node.args[1:2] if _called(node) == "add" and len(node.args) > 2 else []
    for subject in subjects:
        for one in ast.walk(subject):
            if isinstance(one, ast.Tuple):
                for i, part in enumerate(one.elts):
                    if not isinstance(part, ast.Starred):
                        yield _corrupted(part, _Place(one, "elts", i), f"`{_text(part)}` of the subject")


def _entries(node: ast.Dict, place: _Place) -> Iterator[_Site]:
    keys = [key for key in node.keys if key is not None]
    if not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in keys):
        return
    if isinstance(place.parent, ast.keyword) and place.parent.arg == "metadata":
        return
    for i, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):

        def drop(i: int = i) -> None:
            del node.keys[i], node.values[i]

        if key is None:
            yield _Site(value, f"drop `**{_text(value)}`", drop)
        else:
            yield _corrupted(value, _Place(node, "values", i), f"evidence {_text(key)}")
            yield _Site(value, f"drop evidence {_text(key)}", drop)


def _of_evidence(node: ast.expr) -> bool:
    if isinstance(node, ast.Dict):
        return True
    return isinstance(node, ast.Name | ast.Attribute) and _named(node) in WORDS


def _named(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _called(node: ast.Call) -> str:
    return _named(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""


def _corrupted(node: ast.AST, place: _Place, what: str, by: int = 1) -> _Site:
    arguments: list[Any] = [node, *([ast.Constant(by)] if by != 1 else [])]
    text = f" {_text(node)}" if what == "message" else ""
    return _Site(node, f"corrupt {what}{text}", lambda: place.put(ast.Call(ast.Name(NAME, ast.Load()), arguments, [])))


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:60]}...{text[-27:]}"
