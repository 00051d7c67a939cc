"""The EDN readers: every notation once, tricky neighbours, and whatever is printed is read back. All of it is asked of
the reader of every notation and of the one that is quick with plain text: they must never differ."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.history_files import edn, plain_edn
from monitor.history_files.edn import Literal, Tagged, freeze
from monitor.history_files.errors import Malformed


def told(reader: Callable[[Iterable[str]], Iterator[tuple[int, Any]]], chunks: list[str]) -> list[Any]:
    """What it yields, and where it ends if it does."""
    told: list[Any] = []
    try:
        told += reader(chunks)
    except Malformed as error:
        told.append((error.line, error.reason))
    return told


def by_the_other(chunks: Iterable[str]) -> Iterator[tuple[int, Any]]:
    """All of it by the reader of every notation."""
    rest, line = iter(chunks), 1
    for chunk in rest:
        line = yield from edn.read_to_the_top(chain([chunk], rest), line)


def read(chunks: list[str]) -> list[tuple[int, Any]]:
    by_either = [told(one, chunks) for one in (by_the_other, plain_edn.read)]
    assert repr(by_either[0]) == repr(by_either[1])
    return list(by_the_other(chunks))


def forms(text: str) -> list[Any]:
    return [form for _, form in read(text.splitlines(keepends=True))]


def form(text: str) -> Any:
    [[only]] = forms(f"[[{text}]]")
    return only


SCALARS = [
    ("nil", None),
    ("true", True),
    ("false", False),
    ("0", 0),
    ("-0", 0),
    ("42", 42),
    ("+42", 42),
    ("-42", -42),
    ("42N", 42),
    ("0x2A", 42),
    ("-0x2a", -42),
    ("2r101010", 42),
    ("36rZ", 35),
    ("123456789012345678901234567890", 123456789012345678901234567890),
    ("1.5", 1.5),
    ("-1.5e3", -1500.0),
    ("1e3", 1000.0),
    ("2.", 2.0),
    ("1.25M", 1.25),
    ("0.1", 0.1),
    ("##Inf", math.inf),
    ("##-Inf", -math.inf),
    ('""', ""),
    ('"a b"', "a b"),
    (r'"\n\t\\\""', '\n\t\\"'),
    (r'"é\u00e9\101"', "ééA"),
    ('"; no [comment"', "; no [comment"),
    ('":x"', Literal('":x"')),
    (":x", ":x"),
    (":a/b", ":a/b"),
    (":seek-to-beginning?", ":seek-to-beginning?"),
    (":a:b", ":a:b"),
    (":5", ":5"),
    (":a#b", ":a#b"),
    ("x", Literal("x")),
    ("a.b/c", Literal("a.b/c")),
    ("-", Literal("-")),
    ("+x", Literal("+x")),
    ("nilly", Literal("nilly")),
    ("3/4", Literal("3/4")),
    (r"\a", Literal(r"\a")),
    (r"\newline", Literal(r"\newline")),
    (r"\[", Literal(r"\[")),
    (r"\"", Literal(r"\"")),
    (r"\;", Literal(r"\;")),
    (r"\,", Literal(r"\,")),
    (r"\u0041", Literal(r"\u0041")),
    ("[]", []),
    ("()", []),
    ("{}", {}),
    ("#{}", frozenset()),
    ("[1[2]3]", [1, [2], 3]),
    ("(1(2)3)", [1, [2], 3]),
    ("{1 2,3 4}", {1: 2, 3: 4}),
    ("{:a{:b[1]}}", {":a": {":b": [1]}}),
    ('{"a""b"}', {"a": "b"}),
    ("{[1 2] 3}", {("list", 1, 2): 3}),
    ("#{1 :a}", frozenset({1, ":a"})),
    ("#{[1] #{2}}", frozenset({("list", 1), ("set", frozenset({2}))})),
    ("{1 2 true 3 1.0 4}", {1: 2, ("bool", True): 3, ("float", 1.0): 4}),
    ("#jepsen.history.Op{:f :send}", {":f": ":send"}),
    ("#jepsen.history.Op {:f :send}", {":f": ":send"}),
    ('#inst "2024-08-20"', Tagged("#inst", "2024-08-20")),
    ("#a #b 1", Tagged("#a", Tagged("#b", 1))),
    ("#a [1 2]", Tagged("#a", ("list", 1, 2))),
    ("#_ 1 2", 2),
    ("#_1 2", 2),
    ("#_ #_ 1 2 3", 3),
    ("#_[1 {:a 2}] 3", 3),
    ("#_ #a 1 2", 2),
    ("#a #_ 1 2", Tagged("#a", 2)),
    ("1 #_2", 1),
    ("^:m 1", 1),
    ("^{:line 3} [1]", [1]),
    ("^:a ^:b [1]", [1]),
    ("#_ ^:a [1] 2", 2),
    ("[1 #_2]", [1]),
    ("{:a #_1 2}", {":a": 2}),
    ("{#_#_:a 1 :b 2}", {":b": 2}),
    ("[1 ; ] a comment\n 2]", [1, 2]),
    (",,,1,,,", 1),
    ('"two\nlines"', "two\nlines"),
    ("[1\r\n2]", [1, 2]),
]


@pytest.mark.parametrize(("text", "value"), SCALARS, ids=[repr(text) for text, _ in SCALARS])
def test_reads_every_notation(text: str, value: Any) -> None:
    got = form(text)
    assert got == value
    assert type(got) is type(value)


def test_not_a_number_is_one_value() -> None:
    assert math.isnan(form("##NaN"))
    assert freeze(form("##NaN")) == freeze(form("##NaN"))


def test_strings_keywords_numbers_and_truths_stay_apart_as_values() -> None:
    texts = ["1", "1.0", "true", '"1"', ":1", '":1"', "[1]", "#{1}", "{1 1}", "nil", r"\1", "1/1", '"nil"', "#a 1"]
    assert len({freeze(form(text)) for text in texts}) == len(texts)


TOP_LEVEL = [
    ("{:a 1}\n\n{:b 2}", [(1, {":a": 1}), (3, {":b": 2})]),
    ("[{:a 1}\n {:b 2}]", [(1, {":a": 1}), (2, {":b": 2})]),
    ("({:a 1}\n{:b 2})\n", [(1, {":a": 1}), (2, {":b": 2})]),
    ("; a history\n[\n{:a\n1} {:b 2}\n]\n; the end", [(3, {":a": 1}), (4, {":b": 2})]),
    ("#_ {:a 1}\n{:b 2}", [(2, {":b": 2})]),
    ("#jepsen.history.Op{:a 1}\n#jepsen.history.Op\n{:b 2}", [(1, {":a": 1}), (3, {":b": 2})]),
    ('{:a "x\ny"}\n{:b 2}', [(1, {":a": "x\ny"}), (3, {":b": 2})]),
    ("5 :x\n{:a 1}", [(1, 5), (1, ":x"), (2, {":a": 1})]),
    ("[]", []),
    ("", []),
]


@pytest.mark.parametrize(("text", "expected"), TOP_LEVEL)
@pytest.mark.parametrize("whole", [True, False])
def test_yields_what_stands_at_the_top_with_its_line(text: str, expected: list[tuple[int, Any]], whole: bool) -> None:
    chunks = [text] if whole else text.splitlines(keepends=True)
    assert list(read(chunks)) == expected


BROKEN = [
    ("{:a 1}\n{:b [1 2}", 2, "unexpected }: the [ of line 2 is open"),
    ("{:a 1}\n{:b\n[1 2", 3, "the [ is never closed"),
    ("{:a 1}}", 1, "unexpected }: nothing is open"),
    ("{:a 1\n:b}", 1, "a map has a key without a value"),
    ("{:a 1 :a 2}", 1, "a map has the same key twice"),
    ('{:a 1}\n{:b "x}\n{:c 1}', 2, "the string that begins here is never closed"),
    ('{:a "x\\"', 1, "the string that begins here is never closed"),
    ('{:a "\\q"}', 1, "unknown escape \\q"),
    ("{:a\n1\n 12ab}", 3, "'12ab' is not EDN"),
    ("{:a 007}", 1, "'007' is not EDN"),
    ("{:a 99r1}", 1, "99r1 is not a number"),
    ("{:a @x}", 1, "'@x' is not EDN"),
    ("{:a : }", 1, "':' is not EDN"),
    ('{"type": "ok"}', 1, "':' is not EDN"),
    ("{:a #_}", 1, "a prefix has nothing after it"),
    ("{:a 1}\n#_", 3, "a prefix has nothing after it"),
]


@pytest.mark.parametrize(("text", "line", "reason"), BROKEN)
def test_says_what_is_wrong_and_where(text: str, line: int, reason: str) -> None:
    with pytest.raises(Malformed, match=re.escape(reason)) as error:
        forms(text)
    assert error.value.line == line


def printed(value: Any, draw: Any) -> str:
    """EDN text of a value, with any separators, comments and discards between the tokens."""
    gap: str = draw(st.sampled_from([" ", ",", "\n", "  ", ' ; c ]}" \n', ' #_ [1 "x"] ', " #_:k ", "\t", "\r\n"]))
    if isinstance(value, list):
        brackets: str = draw(st.sampled_from(["[]", "()"]))
        return brackets[0] + gap.join(printed(item, draw) for item in value) + brackets[1]
    if isinstance(value, dict):
        return "{" + gap.join(printed(k, draw) + gap + printed(v, draw) for k, v in value.items()) + "}"
    if isinstance(value, Literal):
        return value.text
    if isinstance(value, str) and not value.startswith(":"):
        escapes = {'"': '\\"', "\\": "\\\\"} | ({"\n": "\\n", "\t": "\\t"} if draw(st.booleans()) else {})
        return '"' + "".join(escapes.get(c, c) for c in value) + '"'
    return (
        {None: "nil", True: "true", False: "false"}[value]
        if value is None or value is True or value is False
        else str(value)
    )


NAMES = st.from_regex(r"[a-z*!?][a-z0-9.*!?/#'-]{0,6}", fullmatch=True)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES.map(":{}".format)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(
        lambda s: not s.startswith(":") and "\r" not in s
    )
    | st.sampled_from([Literal(t) for t in (r"\a", r"\"", r"\{", r"\space", "1/3", "sym", '":x"')]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.integers(min_value=2) | NAMES.map(":{}".format) | st.text("ab ", max_size=3), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@pytest.mark.long
@settings(max_examples=120, deadline=None)
@given(st.lists(st.dictionaries(NAMES.map(":{}".format), VALUES, max_size=3), max_size=4), st.booleans(), st.data())
def test_reads_back_what_is_printed_however_it_is_cut(values: list[Any], vector: bool, data: st.DataObject) -> None:
    text = "\n".join(printed(value, data.draw) for value in values)
    if vector:
        text = f"[{text}]"
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    cut = data.draw(st.integers(0, len(lines)))
    assert [form for _, form in read(["".join(lines[:cut]), "".join(lines[cut:])])] == values
    assert [form for _, form in read(lines)] == values


PLAIN = """{:index 0, :time 20000, :type :invoke, :process 0, :f :assign, :value [0 20 40]}
{:index 1, :type :ok, :process 0, :f :txn, :value [[:send 94 [48 7]] [:poll {5 [[0 1] [2 -3]], 6 []}] [:poll {}]]}

{:index 2, :type :info, :process :nemesis, :f :kill, :value {"n1" :killed, "n2, [x]" nil}, :took 1.5, :ok true}
{:index 3 :type :info :error [:timed-out "a string, with {brackets] and ; more"] :value ([:send 5 (1 2)])} {:a {}}
{}
"""


def test_what_a_history_is_written_in_is_read_by_the_quick_one() -> None:
    found = plain_edn.forms(PLAIN.encode())
    assert found is not None
    assert [before + 1 for before, _ in found] == [1, 2, 4, 5, 5, 6]
    assert read([PLAIN]) == [(before + 1, form) for before, form in found]
    assert plain_edn.forms(b"") == []


@pytest.mark.parametrize(
    "text", ["\\", ";", "#", "^", "é", "a", "+1", "1N", "-0", "007", "1.", "9" * 19, ":", "nix", "@"]
)
def test_what_may_mean_something_else_is_left_to_the_other(text: str) -> None:
    assert plain_edn.forms(f"{{:a {text} :b 2}}".encode()) is None


def test_one_strange_line_among_many_makes_no_other_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{{:index {n}, :value [[:poll {{5 [[0 {n}]]}}]]}}\n" for n in range(20_000)]
    lines[7_000] = '{:index 7000, :error "it said \\"no\\"", :value ; nothing\n nil}\n'
    whole = edn.read_to_the_top
    slowly: list[int] = []

    def watched(chunks: Iterable[str], line: int) -> Any:
        return whole((slowly.append(len(chunk)) or chunk for chunk in chunks), line)  # type: ignore[func-returns-value]

    expected = list(by_the_other(["".join(lines)]))
    monkeypatch.setattr(edn, "read_to_the_top", watched)
    assert list(plain_edn.read(["".join(lines)])) == expected
    assert sum(slowly) < 10_000


TOKENS = [
    *"[](){}[]{}",
    "{",
    "}",
    *" ,\n ",
    " ",
    ":a",
    ":b",
    ":a/b",
    "1",
    "-2",
    "1.5",
    "1e3",
    "nil",
    "true",
    "false",
    '"x"',
    '""',
    '"a :b"',
    '":x"',
    '"',
    "#",
    "#{",
    ";",
    "\\",
    "^:m",
    "x",
    "é",
    '"é"',
    "12345678901234567890",
    "0x1",
    "+3",
    "-0",
    "null",
    "-",
]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_broken_in_plain_text_neither_reads_otherwise(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        text = PLAIN
        for _ in range(chance.choice([1, 1, 2, 5])):
            at = chance.randrange(len(text))
            after = at + chance.choice([0, 0, 1, 1, 3])
            text = text[:at] + chance.choice([*TOKENS, ""]) + text[after:]
        lines = text.splitlines(keepends=True)
        cut = chance.randrange(len(lines) + 1)
        chunks = [part for part in ("".join(lines[:cut]), "".join(lines[cut:])) if part]
        by_either = [told(one, chunks) for one in (by_the_other, plain_edn.read)]
        assert repr(by_either[0]) == repr(by_either[1]), text


@pytest.mark.parametrize("seed", range(20))
def test_neither_reads_a_heap_of_tokens_otherwise(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        inner = " ".join(chance.choices(TOKENS, k=chance.randrange(12)))
        chunks = [f"{{:f {inner}}}\n" if chance.random() < 0.7 else inner]
        by_either = [told(one, chunks) for one in (by_the_other, plain_edn.read)]
        assert repr(by_either[0]) == repr(by_either[1]), chunks
