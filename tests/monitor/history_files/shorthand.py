"""Histories in one-line notation, for tests.

    0 ok send >x 1@40 2          process 0 sent 1 to x, which got offset 40, and 2, whose offset is not known
    1 ok poll <x 1@40 2@41 y 7@3 one poll that returned two records of x and one of y
    1 info txn >x 3 <x 1@40 <    a send and two polls, the second empty, with unknown outcome
    2 ok assign x y              also subscribe; `rewind` after the keys seeks to the beginning
    2 info crash
    0 ok poll <x 1@40 rebalance x   with a rebalance of x; without names: of what it does not say

`events` gives each line an invocation right before it, except where the line begins with `only`; `invoke` lines stand
for themselves. Times are the indices of the events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def scalar(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def pair(text: str) -> list[Any]:
    value, _, offset = text.partition("@")
    return [int(offset) if offset else None, scalar(value)]


def micro_operations(words: list[str]) -> list[list[Any]]:
    value: list[list[Any]] = []
    key: int | str = 0
    for word in words:
        if word[0] == ">":
            key = scalar(word[1:])
            value.append(["sends"])
        elif word[0] == "<":
            value.append(["poll", {}])
            key = scalar(word[1:])
        elif value[-1][0] == "poll":
            if "@" not in word:
                key = scalar(word)
            else:
                value[-1][1].setdefault(key, []).append(pair(word))
        else:
            offset, sent = pair(word)
            value.insert(-1, ["send", key, sent if offset is None else [offset, sent]])
    return [micro for micro in value if micro != ["sends"]]


def invoked(value: Any) -> Any:
    """The value as it was asked for."""
    return [
        ["poll"] if micro[0] == "poll" else ["send", micro[1], micro[2][1] if isinstance(micro[2], list) else micro[2]]
        for micro in value
    ]


def events(lines: str | Iterable[str]) -> list[Event]:
    """The events that the lines stand for."""
    found: list[Event] = []
    for line in lines.strip().splitlines() if isinstance(lines, str) else lines:
        words = line.split("#")[0].split()
        if not words:
            continue
        alone = words[0] == "only"
        process, kind, f, *rest = words[1:] if alone else words
        extra: Event = {}
        if "rebalance" in rest:
            at = rest.index("rebalance")
            named = [scalar(word) for word in rest[at + 1 :]]
            extra["rebalance-log"] = [{"keys": named}] if named else [{"type": "revoked"}]
            rest = rest[:at]
        if "rewind" in rest:
            rest.remove("rewind")
            extra["seek-to-beginning?"] = True
        reading = f in ("send", "poll", "txn")
        value: Any = micro_operations(rest) if reading else [scalar(word) for word in rest] or None
        own = {"process": scalar(process), "f": f}
        if kind == "invoke":
            value = invoked(value) if reading else value
        elif not alone:
            asked = invoked(value) if reading else value
            found.append({"type": "invoke", **own, "value": asked})
        found.append({"type": kind, **own, "value": value, **extra})
    for index, event in enumerate(found):
        event["index"] = event["time"] = index
    return found


def edn(form: Any) -> str:
    """The form as Clojure prints it: strings of one word become keywords."""
    if isinstance(form, dict):
        return "{" + ", ".join(f"{edn(k)} {edn(v)}" for k, v in form.items()) + "}"
    if isinstance(form, list | tuple):
        return "[" + " ".join(map(edn, form)) + "]"
    if isinstance(form, str):
        return f":{form}"
    return {None: "nil", True: "true", False: "false"}[form] if form is None or isinstance(form, bool) else str(form)
