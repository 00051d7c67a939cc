"""Events as text: JSON lines, or EDN as Clojure prints it. The inverse of `events` and `edn`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

_KEYWORD: Final = re.compile(r"[A-Za-z][\w\-?!]*")
_NAMES: Final = ("type", "f", "process")
"""Keys of an event whose values are names, and keywords in EDN."""


def json_line(event: Mapping[str, Any]) -> bytes:
    """The event as one line of JSON."""
    return orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)


def edn_line(event: Mapping[str, Any]) -> bytes:
    """The event as one line of EDN."""
    parts = []
    for name, value in event.items():
        told = f":{value}" if name in _NAMES and isinstance(value, str) else edn(value)
        parts.append(f":{name} {told}")
    return ("{" + ", ".join(parts) + "}\n").encode()


def edn(form: Any) -> str:
    """A value: `send` and `poll` at the head of a list, and a map's keys that look like it, are keywords; all other
    text is text."""
    if isinstance(form, list | tuple):
        head = [f":{form[0]}"] if form and form[0] in ("send", "poll") else []
        return f"[{' '.join([*head, *map(edn, form[len(head) :])])}]"
    if isinstance(form, Mapping):
        return "{" + ", ".join(f"{_key(name)} {edn(value)}" for name, value in form.items()) + "}"
    if form is None:
        return "nil"
    if isinstance(form, bool):
        return "true" if form else "false"
    return str(form) if isinstance(form, int | float) else json.dumps(form, ensure_ascii=False)


def _key(name: Any) -> str:
    return f":{name}" if isinstance(name, str) and _KEYWORD.fullmatch(name) else edn(name)
