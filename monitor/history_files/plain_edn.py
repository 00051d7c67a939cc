"""Plain EDN, read by a parser of JSON: maps of keywords, strings, numbers, `nil`, truths, vectors, lists and maps.

Nearly all of a history is written in these. Such text becomes JSON byte by byte, a whole chunk at a time: commas go
between the forms and quotes around keywords. The maps at the top, whose keys are keywords or strings, become objects.
A map inside one becomes an object of one key that holds its keys and values in turn, `{"": [k, v, k, v]}`, as its keys
may be anything. Whatever is not certainly the same in both notations is refused here and left to
`monitor.history_files.edn`: escapes, comments, tags, sets, symbols, long numbers and those that JSON writes otherwise,
and anything malformed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from monitor.history_files import edn
from monitor.history_files.errors import Malformed

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Depths = NDArray[np.int16]

_REFUSED, _BLANK, _OPEN, _CLOSE, _ATOM, _STRING = range(6)
_LONGEST_NUMBER: Final = 18
_DEEPEST: Final = 1_000
_SMALLEST_PIECE: Final = 2**13
"""A chunk that is refused is tried again in halves, down to so many bytes: a comment must not make a megabyte slow."""


def _kinds() -> Bytes:
    kinds = np.full(256, _REFUSED, np.uint8)
    kinds[33:127] = _ATOM
    refused = b"#^;\\@`~"
    for kind, of in ((_BLANK, b" \t\r\n,"), (_OPEN, b"[({"), (_CLOSE, b"])}"), (_STRING, b'"'), (_REFUSED, refused)):
        kinds[list(of)] = kind
    return kinds


_KIND: Final = _kinds()
_FIRST: Final = np.isin(np.arange(256), list(b":-0123456789ntf"))
"""What an atom may begin with: a keyword, a number, nil, true, false."""
_CLOSED_BY: Final = np.zeros(256, np.uint8)
_CLOSED_BY[list(b"[({")] = list(b"])}")
_AS_JSON: Final = np.arange(256, dtype=np.uint8)
_AS_JSON[list(b" \t\r\n,()")] = list(b"     []")


def read(chunks: Iterable[str]) -> Iterator[tuple[int, Any]]:
    """(line, form) of every form at the top level of an EDN text, or, where such a form is a vector or list, of every
    form in it. `chunks` are pieces of the text that end at the end of a line. Raises `Malformed` with the line."""
    rest = iter(chunks)
    line = 1
    for chunk in rest:
        pieces = [chunk]
        while pieces:
            piece = pieces.pop()
            found = forms(piece.encode())
            if found is not None:
                yield from ((line + before, form) for before, form in found)
                line += piece.count("\n")
            elif middle := _middle(piece):
                pieces += [piece[middle:], piece[:middle]]
            else:
                line = yield from edn.read_to_the_top(chain([piece], _drained(pieces), rest), line)


def _drained(pieces: list[str]) -> Iterator[str]:
    while pieces:
        yield pieces.pop()


def _middle(piece: str) -> int:
    """Where a piece is cut in two, at the end of a line; 0 where it is small, or one line."""
    if len(piece) < _SMALLEST_PIECE:
        return 0
    end = piece.find("\n", len(piece) // 2) + 1
    return end if 0 < end < len(piece) else piece.rfind("\n", 0, len(piece) // 2) + 1


def forms(chunk: bytes) -> list[tuple[int, Any]] | None:
    """(lines before it, form) of each map at the top level; None where the chunk holds anything else, or does not end
    where such a map does."""
    if b"\\" in chunk:
        return None
    text = np.frombuffer(chunk, np.uint8)
    kind = _KIND[text]
    quotes = np.flatnonzero(kind == _STRING)
    if len(quotes):
        if len(quotes) % 2 or (text[quotes[::2] + 1] == ord(":")).any():
            return None
        turns = np.zeros(len(text), np.int8)
        turns[quotes[::2]] = 1
        turns[quotes[1::2]] = -1
        kind[np.cumsum(turns, dtype=np.int8) == 1] = _STRING
    if (kind == _REFUSED).any() or (depth := _depth(text, kind)) is None:
        return None
    translated = _json(text, kind, depth, quotes[::2])
    if translated is None:
        return None
    json, count = translated
    maps = np.flatnonzero((text == ord("{")) & (kind == _OPEN))
    top = maps[depth[maps] == 1]
    deepest = int(depth[maps].max(initial=1))
    try:
        made: list[dict[str, Any]] = orjson.loads(json)
        if 2 * sum(map(len, made)) != count:
            return None  # the same key twice
        for one in made if deepest > 1 else ():
            for key, value in one.items():
                if type(value) is list:
                    _thaw(value, deepest - 2)
                elif type(value) is dict:
                    _thaw(entries := value[""], deepest - 2)
                    one[key] = _map(entries)
    except (orjson.JSONDecodeError, Malformed):
        return None
    before = np.searchsorted(np.flatnonzero(text == ord("\n")), top)
    return list(zip(before.tolist(), made, strict=True))


def _depth(text: Bytes, kind: Bytes) -> Depths | None:
    """Of each byte, how many brackets are open, its own among them; None where one is not closed by its own."""
    turns = (kind == _OPEN).astype(np.int8)
    turns[kind == _CLOSE] = -1
    depth = np.cumsum(turns, dtype=np.int16)
    if len(text) and (depth[-1] != 0 or depth.min() < 0 or depth.max() > _DEEPEST):
        return None
    at = np.flatnonzero(turns)
    pairs = text[at[np.argsort(depth[at] + (turns[at] < 0), kind="stable")]]
    return depth if (_CLOSED_BY[pairs[::2]] == pairs[1::2]).all() else None


def _json(text: Bytes, kind: Bytes, depth: Depths, strings: Ints) -> tuple[bytes, int] | None:
    """The maps of the chunk as an array in JSON, and how many keys and values they have; or None. `strings`: where they
    begin."""
    turns = np.flatnonzero(np.diff(kind == _ATOM, prepend=False, append=False))
    begins, ends = turns[::2], turns[1::2]
    first, length = text[begins], ends - begins
    keyword, number, nil = first == ord(":"), first <= ord("9"), first == ord("n")
    negative = begins[(first == ord("-")) & (length > 1)]
    if (
        not _FIRST[first].all()
        or (length[keyword] < 2).any()
        or (length[number] > _LONGEST_NUMBER).any()
        or (text[negative + 1] == ord("0")).any()
        or (length[nil] != 3).any()
        or (text[begins[nil] + 1] != ord("i")).any()
        or (text[begins[nil] + 2] != ord("l")).any()
    ):
        return None
    starts = kind == _OPEN
    starts[begins] = True
    starts[strings] = True
    at = np.flatnonzero(starts)
    follows = kind[at - 1] != _OPEN  # another form comes before, at its level; a blank there makes no JSON
    follows[:1] = False
    parent = depth[at] - (kind[at] == _OPEN)
    entries = np.flatnonzero(parent == 1)  # keys and values of the maps at the top, in turn: JSON takes nothing else
    if (text[at[parent == 0]] != ord("{")).any():
        return None
    separator = np.where(follows, ord(","), 0).astype(np.uint8)
    separator[entries[1::2]] = ord(":")
    inner = depth != 1
    maps = np.flatnonzero((text == ord("{")) & (kind == _OPEN) & inner)
    map_ends = np.flatnonzero((text == ord("}")) & (kind == _CLOSE) & (depth != 0))
    keywords, keyword_ends = begins[keyword], ends[keyword] - 1
    nils = begins[nil]

    before, after = np.zeros((2, len(text)), np.int8)  # how many bytes are put before a byte, and after it
    separated, separator = at[follows], separator[follows]
    before[separated] = 1
    before[keywords] += 1
    before[map_ends] = 1
    after[keyword_ends] = 1
    after[nils + 2] = 1
    after[maps] = 4
    past = np.cumsum(before + after + np.int8(1), dtype=np.int32)
    own = past - after  # in the array, whose bracket comes first
    made = np.full(own[-1] + 2 if len(own) else 2, ord("["), np.uint8)
    made[own] = np.where(kind == _STRING, text, _AS_JSON[text]) if len(strings) else _AS_JSON[text]
    made[own[separated] - before[separated]] = separator
    made[own[keywords] - 1] = ord('"')
    made[own[keyword_ends] + 1] = ord('"')
    made[own[map_ends] - 1] = ord("]")
    for n, byte in enumerate(b'"":[', 1):
        made[own[maps] + n] = byte
    for n, byte in enumerate(b"ull", 0):
        made[own[nils] + n + 1] = byte
    made[-1] = ord("]")
    return made.tobytes(), len(entries)


def _thaw(items: list[Any], levels: int) -> None:
    """Make the maps among these forms what they were; they are at most so many levels deep. Raises `Malformed` where
    one is none."""
    for n, item in enumerate(items):
        if type(item) is dict:
            entries = item[""]
            if levels > 1:
                _thaw(entries, levels - 1)
            items[n] = _map(entries)
        elif levels > 1 and type(item) is list:
            _thaw(item, levels - 1)


def _map(entries: list[Any]) -> Any:
    turns = iter(entries)
    try:
        form = dict(zip(turns, turns, strict=True))
    except (TypeError, ValueError):
        return edn.map_or_set(entries, "{", 0)
    return form if 2 * len(form) == len(entries) else edn.map_or_set(entries, "{", 0)
