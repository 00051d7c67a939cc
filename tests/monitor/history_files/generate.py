"""A large healthy history as JSON lines or EDN: to measure how fast it is read and checked, not what is found.

    python -m tests.monitor.history_files.generate --transactions 1000000 history.jsonl
    python -m tests.monitor.history_files.generate --transactions 100000 --edn history.edn

Every transaction has two sends and two polls; keys are read each by one process, so that every value is polled once.
Markers take one offset per transaction and key. Transactions of one round overlap in time.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def history(transactions: int, *, processes: int = 20, keys: int = 100, seed: int = 0) -> Iterator[Event]:
    """The events, in order. `value` holds tuples and dicts with integer keys; times are nanoseconds."""
    chance = random.Random(seed)
    ends = [0] * keys
    values = [0] * keys
    unread: list[list[tuple[int, int]]] = [[] for _ in range(keys)]
    index = 0

    def event(process: int, kind: str, f: str, value: Any) -> Event:
        nonlocal index
        index += 1
        return {
            "index": index - 1,
            "time": index * 20_000,
            "type": kind,
            "process": process,
            "f": f,
            "value": value,
        }

    own = [[k for k in range(keys) if k % processes == p] for p in range(processes)]
    for p in range(processes):
        yield event(p, "invoke", "assign", own[p])
        yield event(p, "ok", "assign", own[p])
    turns = [0] * processes
    done = 0
    while done < transactions:
        batch = min(processes, transactions - done)
        asked = []
        for p in range(batch):
            sends = []
            for _ in range(2):
                key = chance.randrange(keys)
                sends.append((key, values[key]))
                values[key] += 1
            asked.append(sends)
            yield event(p, "invoke", "txn", [("send", *sends[0]), ("poll",), ("send", *sends[1]), ("poll",)])
        committed: list[tuple[int, int, int]] = []
        for p in range(batch):
            acknowledged = []
            for key, value in asked[p]:
                acknowledged.append(("send", key, (ends[key], value)))
                committed.append((key, ends[key], value))
                ends[key] += 1
            for key in {key for key, _ in asked[p]}:
                ends[key] += 1  # the marker
            polls = []
            for _ in range(2):
                found: dict[int, list[tuple[int, int]]] = {}
                for _ in own[p]:
                    key = own[p][turns[p] % len(own[p])]
                    turns[p] += 1
                    if unread[key]:
                        found[key], unread[key] = unread[key], []
                        break
                polls.append(("poll", found))
            yield event(p, "ok", "txn", [acknowledged[0], polls[0], acknowledged[1], polls[1]])
        for key, offset, value in committed:
            unread[key].append((offset, value))
        done += batch
    for p in range(processes):
        yield event(p, "invoke", "poll", [("poll",)])
        yield event(p, "ok", "poll", [("poll", {key: unread[key] for key in own[p] if unread[key]})])


def edn(form: Any) -> str:
    """The form as Clojure prints it; the names of maps and functions become keywords."""
    if isinstance(form, dict):
        return "{" + ", ".join(f"{edn(k)} {edn(v)}" for k, v in form.items()) + "}"
    if isinstance(form, list | tuple):
        return "[" + " ".join(map(edn, form)) + "]"
    return f":{form}" if isinstance(form, str) else str(form)


def main() -> None:
    """Write a history to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transactions", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--edn", action="store_true")
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    with given.file.open("w") as out:
        for one in history(given.transactions, processes=given.processes, keys=given.keys):
            out.write((edn(one) if given.edn else json.dumps(one)) + "\n")


if __name__ == "__main__":
    main()
