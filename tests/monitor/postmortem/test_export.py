"""`offsetwatch export`: what the probe log holds in Jepsen's form, and that both are judged alike."""

from __future__ import annotations

import gzip
import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from monitor.commands.check import Options, run
from monitor.errors import UserError
from monitor.history_files.export import SETTLE, FileContents, Range
from monitor.history_files.plain_edn import read as read_edn
from monitor.history_files.probe_log import judge, verdict
from monitor.history_files.writing import edn_line
from monitor.postmortem.export_command import export, form_of, sentences
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Irregular, RegisterOp, Run
from tests.monitor.commands import offsetwatch
from tests.monitor.history_files.test_probe_log import kept
from tests.monitor.postmortem.histories import OPERATIONS, READ, READER, STARTS, WRITER, S, row, write
from tests.monitor.rows import NOON
from tests.rules.model import FAULTS, World, turns
from tests.rules.model import SETTLE as SETTLED

EXPRESSIBLE = [
    None,
    "lost-write",
    "poll-skip",
    "int-poll-skip",
    "nonmonotonic-poll",
    "int-nonmonotonic-poll",
    "vanished-record",
    "late-record",
    "inconsistent-offsets behind the frontier",
    "rewritten-record",
    "G1a",
    "precommitted-read",
    "spurious-zero-offset acknowledged",
    "duplicate",
    "stuck-consumer",
    "unseen",
]
"""Faults of the model that a history in Jepsen's form can show, and those that are none."""


def exported(history: Path, output: Path, **wanted: Any) -> tuple[list[dict[str, Any]], FileContents]:
    told = export(history, Range(**wanted), output, "jsonl")
    return [json.loads(line) for line in output.read_bytes().splitlines()], told


def judged(path: Path, capsys: pytest.CaptureFixture[str], *, cycles: bool = False) -> dict[str, Any]:
    run([path], Options(json_output=True, cycles=cycles, allow=["unseen"]))
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["valid"] is not None, told
    return told


@pytest.mark.long
@pytest.mark.parametrize("fault", EXPRESSIBLE)
def test_the_file_has_the_verdict_of_the_log(
    fault: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = 5
    world = World(skew=0.0).run(turns(seed, 40))
    if fault is not None:
        FAULTS[fault](world, random.Random(seed))
    world.run(turns(seed + 1, 40)).settle(SETTLED)
    history = kept(tmp_path / "data", list(world.journal.rows)) / "tables" / "history"
    live = verdict(judge(history, Objectives(), cycles=False).findings)
    export(history, Range(), tmp_path / "history.jsonl", "jsonl")
    found = judged(tmp_path / "history.jsonl", capsys)["anomalies"]
    expected = set(live.anomalies) - {"eos-violation"}  # of a transform: Jepsen's form has none
    if "behind" in str(fault):
        assert expected <= set(found)
    else:
        assert set(found) == expected
    for name in ("duplicate", "lost-write", "G1a"):
        assert len(found.get(name, ())) == len(live.anomalies.get(name, ()))


def test_a_range_of_a_healthy_log_is_healthy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was sent before the range is not sent by nobody, and what is polled after it is not lost."""
    world = World(skew=0.0).run(turns(3, 120))
    world.settle(SETTLED)
    rows = list(world.journal.rows)
    history = kept(tmp_path / "data", rows) / "tables" / "history"
    times = sorted(one.completed for one in rows if one.f in ("send", "txn"))
    for low, high in ((0.3, 0.5), (0.5, 0.9), (0.0, 0.4)):
        since, until = times[int(low * len(times))], times[int(high * len(times))]
        events, told = exported(history, tmp_path / "range.jsonl", since=since, until=until)
        assert told.left_out["polled records that were not sent in the range"] > 0
        assert any(event["f"] == "txn" for event in events) and told.records > 50
        assert judged(tmp_path / "range.jsonl", capsys)["anomalies"] == {}


def test_events(tmp_path: Path) -> None:
    history = write(tmp_path, *STARTS, row("assign", READER, -1, assigned=True, mode="assign"), *OPERATIONS)
    events, told = exported(history, tmp_path / "x.jsonl")
    legend, *rest = events
    assert legend["process"] == "nemesis"
    assert legend["value"]["processes"] == {
        "0": "reader-1 50771",
        "1": "reader-2 65229",
        "2": "writer-1 71519",
        "3": "transactions-1 81515",
    }
    assert legend["value"]["writers"] == {"0": "71519", "1": "81515"}
    us = int(NOON.timestamp()) * 1_000_000_000
    sends = [["send", "t/3", [100 + i, i]] for i in range(10)]
    transactional = [["send", "t/3", [110 + i, 16 + i]] for i in range(3)]
    assert [one["index"] for one in events] == list(range(len(events)))
    assert [(one["type"], one["process"], one["f"], one["value"]) for one in rest[:6]] == [
        ("invoke", 0, "assign", ["t/3"]),
        ("ok", 0, "assign", ["t/3"]),
        ("invoke", 2, "send", [["send", "t/3", i] for i in range(10)]),
        ("ok", 2, "send", sends),
        ("invoke", 3, "txn", [["send", "t/3", 16 + i] for i in range(3)] + [["poll"]]),
        ("info", 3, "txn", [*transactional, ["poll", {}]]),
    ]
    assert rest[5]["error"] == "_TIMED_OUT"
    assert rest[7]["value"] == [
        ["poll", {"t/3": [[100 + i, i] for i in range(9)] + [[110 + i, 16 + i] for i in range(3)]}]
    ]
    assert (rest[2]["time"], rest[3]["time"]) == (us, us + 100_000_999)
    assert (told.operations, told.records) == (6, 10 + 3 + 12 + 4 + 1)


def test_a_range_begins_and_ends_with_what_was_sent_in_it(tmp_path: Path) -> None:
    """writer-1 sends 0 .. 9 before, 10 .. 14 in and 15 .. 19 after the range; a reader is given all of them."""
    sent = [Run(WRITER, 0, 100, 10), Run(WRITER, 10, 110, 5), Run(WRITER, 15, 115, 5)]
    rows = [row("send", WRITER, 5 * i, sent=[run]) for i, run in enumerate(sent)]
    rows += [row("poll", READER, 12, polled=[Run(WRITER, 0, 100, 20)], position_before=100, position_after=120, **READ)]
    rows += [row("poll", READER, 90, polled=[Run(WRITER, 10, 110, 5)], position_before=110, position_after=115, **READ)]
    history = write(tmp_path, *STARTS, *rows)
    events, told = exported(history, tmp_path / "x.jsonl", since=NOON + 2 * S, until=NOON + 8 * S)
    assert [(one["f"], one["value"]) for one in events[1:] if one["type"] == "ok"] == [
        ("send", [["send", "t/3", [110 + i, 10 + i]] for i in range(5)]),
        ("send", []),
        ("poll", [["poll", {"t/3": [[110 + i, 10 + i] for i in range(5)]}]]),
    ]
    assert timedelta(seconds=82) > SETTLE, "the second poll is too late to be told"
    assert {what: number for what, number in told.left_out.items() if number} == {
        "records that were sent after the range": 5,
        "polled records that were not sent in the range": 15,
    }


def test_what_is_broken_or_uncommitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = row(
        "poll",
        READER,
        2,
        polled=[Run(WRITER, 0, 100, 2), Run(WRITER, 3, 103, 1)],
        position_before=100,
        position_after=104,
        irregular=[Irregular(2, 102, "corrupted", 0xBEEF)],
        **READ,
    )
    dirty = row("poll", 4242, 3, polled=[Run(WRITER, 0, 100, 4)], isolation="read_uncommitted", mode="assign")
    history = write(tmp_path, *STARTS, OPERATIONS[0], broken, dirty)
    events, told = exported(history, tmp_path / "x.jsonl")
    assert events[-1]["value"] == [["poll", {"t/3": [[100, 0], [101, 1], [102, "corrupted 0000beef"], [103, 3]]}]]
    assert told.left_out["rows of polls at read_uncommitted"] == 1
    assert "phantom-read" in judged(tmp_path / "x.jsonl", capsys)["anomalies"]


@pytest.mark.parametrize("harm", ["a file cut short", "a folder for a file", "a log that is not JSON"])
def test_a_probe_log_that_cannot_be_read_is_one_line(tmp_path: Path, harm: str) -> None:
    history = write(tmp_path, *STARTS, *OPERATIONS)
    if harm == "a log that is not JSON":
        for entry in (history / "_delta_log").glob("*.json"):
            entry.write_text("garbage")
    for file in history.rglob("*.parquet") if harm != "a log that is not JSON" else ():
        file.write_bytes(file.read_bytes()[:100])
        if harm == "a folder for a file":
            file.unlink()
            file.mkdir()
    done = offsetwatch("export", "x.edn", "--data", str(tmp_path), cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"The probe log at {history} cannot be read: " in done.stderr
    assert "\x1b" not in done.stderr and "<unknown>" not in done.stderr
    assert not (tmp_path / "x.edn").exists()


def test_what_the_form_has_no_words_for_is_counted(tmp_path: Path) -> None:
    others = [
        row("commit", READER, 3, group="g", committed=105),
        row("commit", READER, 4, group="g", committed=106),
        row("offsets", 90001, 7, group="g", committed=106),
        row("position", READER, 8, position_before=1),
        row("register", READER, 9, registers=[RegisterOp(1, "write", 1)]),
        row("commit", READER, 100, group="g", committed=107),
    ]
    history = write(tmp_path, *STARTS, *OPERATIONS, *others)
    _, told = exported(history, tmp_path / "x.jsonl", until=NOON + 50 * S)
    assert {what: number for what, number in told.left_out.items() if number} == {
        "rows of what clients and hosts say of themselves (close, init, mark, start)": 6,
        "rows of commits": 2,
        "rows of offsets that were listed or read back": 3,
        "rows of positions": 1,
        "rows of operations on registers": 1,
    }
    assert "left out: 2 rows of commits" in list(sentences(told, Path("-")))


def test_a_topic_that_was_made_again_is_two_keys(tmp_path: Path) -> None:
    again = row("send", WRITER, 1, topic_id="t2-id", sent=[Run(WRITER, 0, 0, 1)])
    events, _ = exported(write(tmp_path, *STARTS, OPERATIONS[0], again), tmp_path / "x.jsonl")
    assert {micro[1] for one in events[1:] for micro in one["value"]} == {"t#t-id/3", "t#t2-id/3"}


def test_edn_is_read_as_it_was_written(tmp_path: Path) -> None:
    history = write(tmp_path, *STARTS, *OPERATIONS)
    export(history, Range(), tmp_path / "x.edn.gz", "edn")
    export(history, Range(), tmp_path / "x.jsonl", "jsonl")
    text = gzip.decompress((tmp_path / "x.edn.gz").read_bytes()).decode()
    assert text.splitlines()[1].startswith('{:type :invoke, :process 2, :f :send, :value [[:send "t/3" 0] [:send ')
    found = [form for _, form in read_edn([text])]
    plain = [json.loads(line) for line in (tmp_path / "x.jsonl").read_bytes().splitlines()]
    assert [one[":time"] for one in found[1:]] == [one["time"] for one in plain[1:]]
    assert found[4][":value"][3] == [":poll", {}] and plain[4]["value"][3] == ["poll", {}]
    assert edn_line({"type": "ok", "value": [None, True, 'a "b"', {"k-1": 2, "t/3": []}]}) == (
        b'{:type :ok, :value [nil true "a \\"b\\"" {:k-1 2, "t/3" []}]}\n'
    )


def test_the_command(tmp_path: Path) -> None:
    write(tmp_path, *STARTS, *OPERATIONS)
    where = ("--data", str(tmp_path))
    done = offsetwatch("export", "x.edn", *where, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "") and "5 operations with 30 records" in done.stderr, done.stderr
    assert offsetwatch("check", "x.edn", cwd=tmp_path).returncode == 1, "value 9 is lost"
    piped = offsetwatch("export", "-", "--form", "edn", *where, cwd=tmp_path)
    assert piped.stdout == (tmp_path / "x.edn").read_text()
    for bad in (
        ("y.edn", "--since", "2031-01-01"),
        ("y.edn", "--topic", "none"),
        ("none/y.edn",),
        ("y.edn", "--since", "1h", "--until", "2h"),
        ("y.edn", "--data", str(tmp_path / "none")),
    ):
        done = offsetwatch("export", *where, *bad, cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (bad, done.stderr)
    assert not (tmp_path / "y.edn").exists()


def test_forms() -> None:
    assert [form_of(Path(name), None) for name in ("a.edn", "a.edn.gz", "a.jsonl", "-")] == ["edn"] * 2 + ["jsonl"] * 2
    assert form_of(Path("a.edn"), "jsonl") == form_of(Path("a.csv"), "jsonl") == "jsonl"
    assert form_of(Path("a.json.gz"), None) == "jsonl"
    for name in ("a.csv", "a", "a.gz", "a.edn.zip", "a.edn.csv.gz"):
        with pytest.raises(UserError, match=f"^{name}: its name ends in none of .edn, .jsonl and .json"):
            form_of(Path(name), None)
    assert "2 hosts" in list(sentences(FileContents(hosts=2), Path("-")))[-1]


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.history_files.export.MOST", 3)
    with pytest.raises(UserError, match="the range has 5 rows of the probe log, more than 3"):
        export(write(tmp_path, *STARTS, *OPERATIONS), Range(), tmp_path / "x", "jsonl")
    assert not (tmp_path / "x").exists()
