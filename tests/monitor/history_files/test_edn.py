"""The EDN reader: every notation once, tricky neighbours, and whatever is printed is read back."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.history_files.edn import Literal, Tagged, freeze, read
from monitor.history_files.errors import Malformed


def forms(text: str) -> list[Any]:
    return [form for _, form in read(text.splitlines(keepends=True))]


def form(text: str) -> Any:
    [[only]] = forms(f"[[{text}]]")
    return only


SCALARS = [
    ("nil", None), ("true", True), ("false", False),
    ("0", 0), ("-0", 0), ("42", 42), ("+42", 42), ("-42", -42), ("42N", 42), ("0x2A", 42), ("-0x2a", -42),
    ("2r101010", 42), ("36rZ", 35), ("123456789012345678901234567890", 123456789012345678901234567890),
    ("1.5", 1.5), ("-1.5e3", -1500.0), ("1e3", 1000.0), ("2.", 2.0), ("1.25M", 1.25), ("0.1", 0.1),
    ("##Inf", math.inf), ("##-Inf", -math.inf),
    ('""', ""), ('"a b"', "a b"), (r'"\n\t\\\""', '\n\t\\"'),
    (r'"é\u00e9\101"', "ééA"), ('"; no [comment"', "; no [comment"),
    ('":x"', Literal('":x"')), (":x", ":x"), (":a/b", ":a/b"),
    (":seek-to-beginning?", ":seek-to-beginning?"), (":a:b", ":a:b"),
    (":5", ":5"), (":a#b", ":a#b"),
    ("x", Literal("x")), ("a.b/c", Literal("a.b/c")), ("-", Literal("-")), ("+x", Literal("+x")),
    ("nilly", Literal("nilly")),
    ("3/4", Literal("3/4")), (r"\a", Literal(r"\a")), (r"\newline", Literal(r"\newline")), (r"\[", Literal(r"\[")),
    (r"\"", Literal(r"\"")), (r"\;", Literal(r"\;")), (r"\,", Literal(r"\,")), (r"\u0041", Literal(r"\u0041")),
    ("[]", []), ("()", []), ("{}", {}), ("#{}", frozenset()), ("[1[2]3]", [1, [2], 3]), ("(1(2)3)", [1, [2], 3]),
    ("{1 2,3 4}", {1: 2, 3: 4}), ("{:a{:b[1]}}", {":a": {":b": [1]}}), ('{"a""b"}', {"a": "b"}),
    ("{[1 2] 3}", {("list", 1, 2): 3}),
    ("#{1 :a}", frozenset({1, ":a"})), ("#{[1] #{2}}", frozenset({("list", 1), ("set", frozenset({2}))})),
    ("{1 2 true 3 1.0 4}", {1: 2, ("bool", True): 3, ("float", 1.0): 4}),
    ("#jepsen.history.Op{:f :send}", {":f": ":send"}), ("#jepsen.history.Op {:f :send}", {":f": ":send"}),
    ('#inst "2024-08-20"', Tagged("#inst", "2024-08-20")), ("#a #b 1", Tagged("#a", Tagged("#b", 1))),
    ("#a [1 2]", Tagged("#a", ("list", 1, 2))),
    ("#_ 1 2", 2), ("#_1 2", 2), ("#_ #_ 1 2 3", 3), ("#_[1 {:a 2}] 3", 3), ("#_ #a 1 2", 2),
    ("#a #_ 1 2", Tagged("#a", 2)),
    ("1 #_2", 1), ("^:m 1", 1), ("^{:line 3} [1]", [1]), ("^:a ^:b [1]", [1]), ("#_ ^:a [1] 2", 2),
    ("[1 #_2]", [1]), ("{:a #_1 2}", {":a": 2}), ("{#_#_:a 1 :b 2}", {":b": 2}),
    ("[1 ; ] a comment\n 2]", [1, 2]), (",,,1,,,", 1), ('"two\nlines"', "two\nlines"), ("[1\r\n2]", [1, 2]),
]  # fmt: skip


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
    gap = draw(st.sampled_from([" ", ",", "\n", "  ", ' ; c ]}" \n', ' #_ [1 "x"] ', " #_:k ", "\t", "\r\n"]))
    if isinstance(value, list):
        opening, closing = draw(st.sampled_from(["[]", "()"]))
        return opening + gap.join(printed(item, draw) for item in value) + closing
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
