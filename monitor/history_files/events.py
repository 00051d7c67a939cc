"""The maps of a history file, one by one, whatever its form: JSON or EDN, one a line or all in one array or vector.

The form is found by looking at the text, not at the file's name: `{"type": ...` is JSON, `{:type ...` is EDN. No form
needs the whole file in memory.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import orjson

from monitor.history_files import plain_edn
from monitor.history_files.errors import Malformed
from monitor.history_files.names import shown
from monitor.history_files.source import beginning, opened

CHUNK: Final = 2**20
_HEAD: Final = 2**16
_JSON: Final = re.compile(rb'\s*(\[?)\s*\{\s*(?:"(?:[^"\\]|\\.)*"\s*:|\}\s*(?:[,\]\r\n]|\Z))')
_BETWEEN: Final = frozenset(" \t\r\n,")


def events(path: Path) -> Iterator[tuple[int, Any]]:
    """(line, event) of everything that a history lists; the line is 1-based, and tells where the event begins.

    What is yielded need not be a map: the caller refuses what is not an event. Raises `Malformed` with the line where
    the text is neither JSON nor EDN, and what `source.opened` says where it cannot be read."""
    with opened(path) as stream:
        head, stream = beginning(stream, _HEAD)
        json_start = _JSON.match(head.removeprefix(b"\xef\xbb\xbf"))
        if json_start and not json_start.group(1):
            yield from _json_lines(stream)
            return
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n")
        try:
            yield from _json_array(text) if json_start else plain_edn.read(_whole_lines(text))
        except UnicodeDecodeError as e:
            raise Malformed("this is not text in UTF-8", stream.line_of(e)) from e


def _json_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, Any]]:
    loads = orjson.loads
    for number, line in enumerate(lines, 1):
        try:
            event = loads(line)
            if line.count(b'":') != _names(event):
                _refuse_doubled(line, number)
            yield number, event
        except orjson.JSONDecodeError as e:
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if line.strip():
                try:
                    yield number, loads(line)
                except orjson.JSONDecodeError:
                    raise Malformed(f"this is not JSON: {_without_place(e)}", number) from e


def _names(event: Any) -> int:
    """How many names the maps have that are looked at: the event's own, and the keys of what it polled."""
    if type(event) is not dict:
        return 0
    count = len(event)
    value = event.get("value")
    if type(value) is list:
        for micro in value:
            if type(micro) is list and len(micro) == 2 and type(micro[1]) is dict:
                count += len(micro[1])
    return count


def _refuse_doubled(line: bytes, number: int) -> None:
    """Raise `Malformed` where a map of the line has a name twice, of which a parser keeps the last and says nothing.
    Slow, and for lines alone in which more names stand than were found."""
    try:
        json.loads(line, object_pairs_hook=_once)
    except Malformed as e:
        e.line = number
        raise
    except ValueError:
        return  # Python does not read all that orjson does


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(name for name, _ in pairs)
        raise Malformed(f"a map has the key {shown(next(name for name in counted if counted[name] > 1))} twice")
    return found


def _json_array(text: TextIO) -> Iterator[tuple[int, Any]]:
    """The items of one array, read through a window that grows until the item at its start is complete."""
    decode = json.JSONDecoder(object_pairs_hook=_once).raw_decode
    window = text.read(CHUNK)
    at = window.index("[") + 1
    line = 1 + window.count("\n", 0, at)
    expected_commas = 0
    while True:
        start = at
        while window[start : start + 1] in _BETWEEN:
            start += 1
        commas = window.count(",", at, start)
        if window[start : start + 1] == "]" and not commas:
            break
        try:
            item, after = decode(window, start)
        except Malformed as e:
            e.line = line + window.count("\n", at, start)
            raise
        except json.JSONDecodeError as e:
            if more := text.read(max(CHUNK, len(window) - at)):
                window, at = window[at:] + more, 0
                continue
            raise Malformed(f"this is not JSON: {e.msg}", line + window.count("\n", at, e.pos)) from e
        except ValueError as e:  # Python reads no integer that has thousands of them
            raise Malformed("a number has too many digits", line + window.count("\n", at, start)) from e
        line += window.count("\n", at, start)
        if commas != expected_commas:
            raise Malformed("this is not JSON: one comma stands between two items of an array", line)
        yield line, item
        line += window.count("\n", start, after)
        at, expected_commas = after, 1
    line += window.count("\n", at, start)
    if rest := (window[start + 1 :] + text.read(CHUNK)).strip():
        raise Malformed(f"this is not JSON: {rest[:20]!r} follows the array", line)


def _whole_lines(text: TextIO) -> Iterator[str]:
    while chunk := text.read(CHUNK):
        yield chunk + text.readline()


def _without_place(error: orjson.JSONDecodeError) -> str:
    return error.msg.partition(": line ")[0]
