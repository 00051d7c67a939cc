"""Files that are no histories: each is refused in one sentence that names file and line; and what only looks so."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.history_files.errors import UnreadableHistory
from monitor.history_files.history_file import read

GOOD = '{"type": "ok", "process": 0, "f": "send", "value": [["send", 1, [0, 1]]]}\n'
OPEN = '{"type": "invoke", "process": 0, "f": "send", "value": [["send", 1, 1]]}\n'
TWICE = '{"type": "ok", "process": 1, "f": "poll", "value": [["poll", {"1": [[7, 1]], "1": [[0, 1]]}]]}\n'
BROKEN = [
    ("", None, "there is no send, poll or txn in it"),
    ("[]", None, "there is no send, poll or txn in it"),
    ('{"type": "ok", "process": 0, "f": "assign", "value": [1]}\n', None, "there is no send, poll or txn in it"),
    (GOOD + GOOD[:40] + "\n" + GOOD, 2, "this is not JSON"),
    (GOOD + "5\n", 2, "this is not an event of a Kafka workload: 5"),
    (GOOD + '{"process": 0, "f": "send"}', 2, "the event's type is nil: it must be"),
    (GOOD + GOOD.replace('"ok"', '"done"'), 2, "the event's type is done: it must be"),
    (GOOD + GOOD.replace('"ok"', "[1]"), 2, "this is not an event"),
    (GOOD + GOOD.replace('"process": 0', '"process": null'), 2, "the event has no process"),
    (GOOD + GOOD.replace('"process": 0', '"process": 1.5'), 2, "1.5 cannot name a key or a process"),
    (GOOD + GOOD.replace('"f"', '"time": 1.5, "f"'), 2, "the event's time is 1.5: it must be"),
    (GOOD + GOOD.replace('"send", 1,', '"sned", 1,'), 2, '["sned", 1, [0, 1]] is neither [send, key, value]'),
    (GOOD + GOOD.replace("[0, 1]", "[0, 1, 2]"), 2, "is neither"),
    (GOOD + GOOD.replace("[0, 1]", "[-7, 1]"), 2, "-7 is not an offset"),
    (GOOD + GOOD.replace("[0, 1]", "[true, null]"), 2, "true is not an offset"),
    (GOOD + GOOD.replace("[0, 1]", "[[true, null], 1]"), 2, "[true, null] is not an offset"),
    (GOOD + GOOD.replace("[0, 1]", "[1.0, 1]"), 2, "1.0 is not an offset"),
    (GOOD + GOOD.replace("[0, 1]", '["0", 1]'), 2, "0 is not an offset"),
    (GOOD + GOOD.replace('["send", 1, [0, 1]]', '["poll", [[0, 1]]]'), 2, "is neither"),
    (GOOD + GOOD.replace('["send", 1, [0, 1]]', '["poll", {"1": [0, 1]}]'), 2, "is neither"),
    (GOOD + GOOD.replace('[["send", 1, [0, 1]]]', '"x"'), 2, "is neither"),
    (GOOD + GOOD.replace('[["send", 1, [0, 1]]]', "7"), 2, "this is not an event"),
    (GOOD + '{"type": "ok", "process": 0, "f": "assign", "value": 3}', 2, "3 is not the list of keys"),
    (
        '{"type": "invoke", "process": 0, "f": "poll", "value": [["poll"]]}\n' + GOOD,
        2,
        "process 0 completes send, and had invoked poll in line 1",
    ),
    (
        '{"type": "invoke", "process": "p", "f": "poll"}\n' + 2 * '{"type": "invoke", "process": ":p", "f": "send"}\n',
        2,
        "process :p invokes send before its poll of line 1 has completed: a process has one operation open at a time",
    ),
    (
        '{"type": "invoke", "process": 0, "f": "poll", "value": [["pull"]]}\n\n' + GOOD.replace(": 0", ": 1"),
        1,
        "is neither",
    ),
    ("[" + GOOD + "," + GOOD.replace('"ok"', '"done"') + "]", 2, "the event's type is done"),
    ("[\n" + GOOD + GOOD + "]", 3, "one comma stands between"),
    ("[\n" + GOOD + ",\n]", 4, "this is not JSON"),
    ("[\n" + GOOD + ",\n" + GOOD, 5, "this is not JSON"),
    ("[\n" + GOOD + "]\n" + GOOD, 3, "follows the array"),
    (
        "{:type :ok\n :process 0 :f :send :value [[:send 1 1]]}\n{:type :ok,\n:f 1]",
        4,
        "unexpected ]: the { of line 3 is open",
    ),
    (
        "{:type :ok :process 0 :f :send :value [[:send 1 1]]}\n\n{:type :ok, :process 0 :f :poll,\n:value [[:poll 1]]}",
        3,
        "is neither",
    ),
    (
        '{"index": 3, "type": "invoke", "process": 0, "f": "poll"}\n' + GOOD.replace("{", '{"index": 3, '),
        2,
        "the event's index is 3 after 3: events stand in the order in which they happened",
    ),
    (
        '{"index": 3, "type": "invoke", "process": 0, "f": "poll"}\n' + GOOD.replace("{", '{"index": 1, '),
        2,
        "the event's index is 1 after 3: events",
    ),
    ("hello\nworld\n", 1, "this is not an event of a Kafka workload: hello"),
    (
        GOOD + GOOD.replace('"send", "value"', '"sned", "value"'),
        2,
        "the event's f is sned: it must be assign, crash, poll",
    ),
    (GOOD + GOOD.replace('"f": "send", ', ""), 2, "the event has no f"),
    (
        OPEN + GOOD + GOOD.replace('"ok"', '"fail"'),
        3,
        "process 0 completes send and has none open: an invocation has one completion",
    ),
    (
        '{"type": "invoke", "process": 0, "f": "poll", "value": [["poll"]]}\n'
        '{"type": "ok", "process": 0, "f": "poll", "value": null}\n',
        2,
        "the ok poll has no value: what it polled must stand there",
    ),
    (
        '{"type": "invoke", "process": 0, "f": "txn", "value": [["send", 1, 1], ["poll"]]}\n'
        '{"type": "ok", "process": 0, "f": "txn"}\n',
        2,
        "the ok txn has no value",
    ),
    (GOOD + TWICE, 2, "a map has the key 1 twice"),
    (GOOD + GOOD.replace('"f"', '"process": 1, "f"'), 2, "a map has the key process twice"),
    ("[\n" + GOOD + ",\n" + TWICE + "]", 4, "a map has the key 1 twice"),
]


@pytest.mark.parametrize(
    "text",
    [
        # Of a range of a longer history: what was invoked before it completes in it, once by each process and function.
        GOOD + OPEN + GOOD,
        '{"type": "ok", "process": 0, "f": "poll", "value": [["poll", {"1": [[0, 1]]}]]}\n' + OPEN + GOOD,
        # A process that has crashed, and one whose polls alone have no invocations.
        OPEN + GOOD + '{"type": "info", "process": 0, "f": "crash"}\n' + GOOD,
        OPEN + GOOD + 2 * '{"type": "ok", "process": 0, "f": "poll", "value": [["poll", {}]]}\n',
        # An ok send that tells no offset, and a transaction that only sends.
        OPEN + '{"type": "ok", "process": 0, "f": "send", "value": null}\n',
        OPEN.replace("send", "txn", 1) + '{"type": "ok", "process": 0, "f": "txn"}\n',
        # The same key in two maps, and in what looks like a name.
        GOOD + '{"type": "ok", "process": 1, "f": "txn", "value": [["poll", {"1": []}], ["poll", {"1": [[0, 1]]}]]}\n',
        GOOD + GOOD.replace('"f"', '"error": "\\"f\\": 1", "f"').replace('"ok"', '"info"'),
    ],
)
def test_what_only_looks_broken_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "h"
    path.write_text(text)
    assert read(path).operations >= 1


@pytest.mark.parametrize(("text", "line", "reason"), BROKEN)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, text: str, line: int | None, reason: str) -> None:
    path = tmp_path / "h"
    path.write_text(text)
    with pytest.raises(UnreadableHistory) as error:
        read(path)
    assert reason in error.value.reason
    assert error.value.line == line
    sentence = str(error.value)
    assert sentence.startswith(f"{path}: " if line is None else f"{path}, line {line}: ")
    assert "\n" not in sentence


@pytest.mark.parametrize("prefix", [b"", b"[", b"{:a 1}"])
def test_text_in_another_encoding(tmp_path: Path, prefix: bytes) -> None:
    path = tmp_path / "h"
    path.write_bytes(prefix + b'{"type": "ok",\n"f": "\xff"}\n')
    with pytest.raises(UnreadableHistory) as error:
        read(path)
    assert error.value.line == (1 if not prefix else 2)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableHistory, match="No such file"):
        read(tmp_path / "none")
    with pytest.raises(UnreadableHistory, match="Is a directory"):
        read(tmp_path)
