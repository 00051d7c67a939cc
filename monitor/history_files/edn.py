"""EDN, the notation of Clojure's data, as Python values.

| EDN | here |
|---|---|
| `nil` `true` `false` | None, True, False |
| integers `42` `+42` `42N`, and Clojure's `0x2A` `2r101010` | int |
| `1.5` `1e3` `1.5M` `##Inf` `##NaN` | float |
| `"text"` | str; one that begins with a colon is a `Literal`, so that no string is taken for a keyword |
| `:keyword` | str with its colon, `":keyword"` |
| vectors and lists | list |
| maps | dict; a key that is a collection is frozen (see `freeze`) |
| sets | frozenset of frozen elements |
| `#tag {...}`, as records print | the map without its tag |
| `#tag form` otherwise, `#inst "..."` | `Tagged` |
| characters, symbols, ratios | `Literal`, by their text |

Comments, `#_` discards and metadata are passed over. The reader goes through the text in chunks and yields the maps of
a top-level vector or list one by one, so that a large file is never held as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from monitor.history_files.errors import Malformed


@dataclass(frozen=True, slots=True)
class Literal:
    """A scalar that Python has no counterpart for, by its text."""

    text: str


@dataclass(frozen=True, slots=True)
class Tagged:
    """A tagged scalar or sequence: `#inst "2024-08-20"`."""

    tag: str
    form: Any


@dataclass(frozen=True, slots=True)
class _Prefix:
    """Something that acts on the `arity` forms after it: a tag, a discard or metadata."""

    text: str
    arity: int


_DISCARD: Final = _Prefix("#_", 1)
_META: Final = _Prefix("^", 2)

# Whitespace and commas match nothing, and so are skipped. A string or comment that is cut off by the end of a chunk
# matches to its end, and is read again with the next chunk.
_TOKEN: Final = re.compile(
    r"""[\[\](){}]
    | :[^\s,"()\[\]{};\\^]+          # keyword
    | [^\s,"()\[\]{};\\^\#][^\s,"()\[\]{};\\^]*   # number or symbol
    | \n
    | "(?:[^"\\]++|\\.)*+(?:"|\\?\Z)   # string
    | ;[^\n]*
    | \\(?:[^\W_][\w']*|[\s\S]|\Z)   # character
    | \#_ | \#\{ | \#\#-?[A-Za-z]* | \# [^\s,"()\[\]{};\\^\#]* | \^
    """,
    re.VERBOSE | re.DOTALL,
)

_CLOSED_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
LONGEST_STRING: Final = 16 * 2**20
"""In characters. A longer one is taken for a missing quote."""

_INT: Final = re.compile(r"([+-]?)(?:(0|[1-9]\d*)N?|0[xX]([0-9a-fA-F]+)|(\d{1,2})[rR]([0-9a-zA-Z]+))")
_FLOAT: Final = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?M?")
_RATIO: Final = re.compile(r"[+-]?\d+/\d+")
_SYMBOL: Final = re.compile(r"(?![0-9:]|[+-][0-9])[\w.*+!\-?$%&=<>/:#'|]+")
_NAMED: Final = {
    "nil": None,
    "true": True,
    "false": False,
    "##Inf": float("inf"),
    "##-Inf": float("-inf"),
    "##NaN": float("nan"),
}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}
_CLOSES: Final = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_KEPT_ATOMS: Final = 4096
_LONG: Final = 4000
"""Digits. Python refuses to read numbers that are a little longer."""


def freeze(form: Any) -> Any:
    """The form as something hashable, and equal to exactly what is equal in EDN: 1, 1.0 and true are three values."""
    kind = type(form)
    if kind is list or kind is tuple:
        return ("list", *map(freeze, form))
    if kind is dict:
        return ("map", frozenset((freeze(k), freeze(v)) for k, v in form.items()))
    if kind is frozenset:
        return ("set", form)
    if kind is bool or kind is float:
        return (kind.__name__, "nan" if form != form else form)
    return form


def read_to_the_top(chunks: Iterable[str], line: int) -> Generator[tuple[int, Any], None, int]:
    """(line, form) of every form at the top level, or, where such a form is a vector or list, of every form in it, up
    to the first chunk that ends at the top level. Returns the line in which the next chunk begins.

    `chunks` are pieces of the text that end at the end of a line; the first of them begins at the top level, in `line`.
    Lines are 1-based, and tell where a form begins. Raises `Malformed` with the line."""
    atoms: dict[str, Any] = {name: value for name, value in _NAMED.items() if name[0] != "#"}
    stack: list[tuple[list[Any], str, int, bool, bool]] = []
    # Of the open collection: the line of its bracket, whether its forms are yielded, and whether it holds prefixes.
    items: list[Any] = []
    bracket, since, streams, prefixed = "", line, True, False
    for tokens, cut in _tokens(chunks, line):
        for token in tokens:
            first = token[0]
            if "0" <= first <= "9":
                plain = first != "0" and len(token) < _LONG and token.isdecimal()
                items.append(int(token) if plain else _atom(token, line, atoms))
            elif token in atoms:
                items.append(atoms[token])
            elif first == "[" or first == "(" or first == "{" or token == "#{":
                stack.append((items, bracket, since, streams, prefixed))
                streams = first in "[(" and bracket == "" and not items
                items, bracket, since, prefixed = [], token, line, False
            elif first == "]" or first == ")" or first == "}":
                if _CLOSES.get(bracket) != first:
                    raise _unexpected(first, bracket, since, line)
                if prefixed and _waits(items := _apply(items)):
                    raise Malformed(f"a prefix has nothing after it before {first}", line)
                if streams:
                    yield from ((line, item) for item in items)
                    items, bracket, since, streams, prefixed = stack.pop()
                    continue
                form, began = (items if first != "}" else map_or_set(items, bracket, since)), since
                items, bracket, since, streams, prefixed = stack.pop()
                items.append(form)
                if streams:
                    prefixed = prefixed and _waits(items := _apply(items))
                    if not prefixed:
                        yield from ((began, item) for item in items)
                        items = []
            elif first == "\n":
                if streams and items:
                    prefixed = prefixed and _waits(items := _apply(items))
                    if not prefixed:
                        yield from ((line, item) for item in items)
                        items = []
                line += 1
            elif first == '"':
                items.append(_string(token, line))
                line += token.count("\n")
            elif prefix := _prefix(token):
                items.append(prefix)
                prefixed = True
            elif first != ";":
                items.append(_atom(token, line, atoms))
        if not stack and not items and not cut:
            return line
    if stack or items:
        raise _unfinished(bracket, since, line)
    return line


def _unexpected(closing: str, bracket: str, since: int, line: int) -> Malformed:
    opened = f"the {bracket} of line {since} is open" if bracket else "nothing is open"
    return Malformed(f"unexpected {closing}: {opened}", line)


def _unfinished(bracket: str, since: int, line: int) -> Malformed:
    """At the end: of the open collection, if there is one, else of a prefix at the top level."""
    if bracket:
        return Malformed(f"the {bracket} is never closed", since)
    return Malformed("a prefix has nothing after it", line)


def _tokens(chunks: Iterable[str], line: int) -> Iterator[tuple[list[str], bool]]:
    """The tokens of each chunk, and whether it cuts off a string, which then goes to the next one."""
    rest = ""
    for chunk in chunks:
        text = rest + chunk
        tokens = _TOKEN.findall(text)
        rest = ""
        if tokens and tokens[-1][0] == '"' and not _CLOSED_STRING.fullmatch(tokens[-1]):
            rest = tokens.pop()
            if len(rest) > LONGEST_STRING:
                line += text.count("\n", 0, len(text) - len(rest))
                raise Malformed("the string that begins here does not end", line)
        line += text.count("\n", 0, len(text) - len(rest))
        yield tokens, bool(rest)
    if rest:
        raise Malformed("the string that begins here is never closed", line)
    yield ["\n"], False


def _prefix(token: str) -> _Prefix | None:
    if token[0] == "^":
        return _META
    if token[0] == "#" and token[1:2] != "#":
        return _DISCARD if token == "#_" else _Prefix(token, 1)
    return None


def _apply(items: list[Any]) -> list[Any]:
    """Let the prefixes act on what follows them. A prefix that lacks a form stays, with what follows it."""
    done: list[Any] = []  # reversed
    for item in reversed(items):
        if type(item) is not _Prefix:
            done.append(item)
            continue
        own = 0
        while own < item.arity and own < len(done) and type(done[-1 - own]) is not _Prefix:
            own += 1
        if own < item.arity:
            done.append(item)
        elif item is _DISCARD or item is _META:
            done.pop()
        elif type(done[-1]) is not dict:
            done.append(Tagged(item.text, freeze(done.pop())))
    done.reverse()
    return done


def _waits(items: list[Any]) -> bool:
    """Is there a prefix that lacks a form?"""
    return any(type(item) is _Prefix for item in items)


def map_or_set(items: list[Any], bracket: str, line: int) -> Any:
    """The map or set that a bracket opened in this line. Raises `Malformed` where it is none."""
    if bracket == "#{":
        return frozenset(map(freeze, items))
    if len(items) % 2:
        raise Malformed("a map has a key without a value", line)
    entries = iter(items)
    try:
        form = dict(zip(entries, entries, strict=True))
    except TypeError:
        form = {}
    if 2 * len(form) != len(items):  # a key that is a collection, or keys that only Python takes for equal
        form = {freeze(key): value for key, value in zip(items[::2], items[1::2], strict=True)}
        if 2 * len(form) != len(items):
            raise Malformed("a map has the same key twice", line)
    return form


def _string(token: str, line: int) -> str | Literal:
    text = token[1:-1]
    if "\\" in text:
        text = _ESCAPE.sub(lambda match: _unescape(match.group(1), line), text)
        if not text.isascii():
            text = _whole_characters(text, line)
    return Literal(token) if text[:1] == ":" else text


def _whole_characters(text: str, line: int) -> str:
    """Two escapes may be the halves of one character."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as e:
        raise Malformed("a string has half a character", line) from e


def shortened(token: str) -> str:
    """A token in a sentence, cut where it is long."""
    return token if len(token) <= 40 else f"{token[:37]}..."


def _unescape(escape: str, line: int) -> str:
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    if escape[0] == "u" and len(escape) == 5:
        return chr(int(escape[1:], 16))
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    raise Malformed(f"unknown escape \\{escape} in a string", line)


def _atom(token: str, line: int, atoms: dict[str, Any]) -> Any:
    if token[0] == ":" and len(token) > 1:
        if len(atoms) < _KEPT_ATOMS:
            atoms[token] = token
        return token
    if token in _NAMED:
        return _NAMED[token]
    if match := _INT.fullmatch(token):
        sign, plain, hexadecimal, radix, digits = match.groups()
        try:
            number = int(plain) if plain else int(hexadecimal, 16) if hexadecimal else int(digits, int(radix))
        except ValueError as e:
            raise Malformed(f"{shortened(token)} is not a number", line) from e
        return -number if sign == "-" else number
    if _FLOAT.fullmatch(token):
        return float(token.rstrip("M"))
    if (token[0] == "\\" and len(token) > 1) or _RATIO.fullmatch(token) or _SYMBOL.fullmatch(token):
        return Literal(token)
    raise Malformed(f"{token[:40]!r} is not EDN", line)
