"""Corrupted, relocated and foreign records: a few are told one by one, a flood in a few words, and all are counted."""

from __future__ import annotations

import random
from typing import Any

import pytest
from crc32c import crc32c

from probes.records.tag import Encoder, irregular
from rules.checks.records import irregular_records
from rules.checks.records.irregular_records import (
    CHECK,
    RUNS,
    SINGLY,
    STRETCH,
    STRETCHES,
    TOGETHER,
    Known,
    Stretch,
    chunk_name,
)
from rules.engine import order
from rules.kept.state import load
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import UNTOLD_HASH, Irregular, Place
from rules.vocabulary.times import micros
from tests.rules.histories import History, Store, found, number, singly

W, V = number("w"), number("v")
PLACE = Place("c", "t", 0)
EVERY = 7


def record(status: Any, offset: int, *, index: int = 0, run: str | None = "another") -> Irregular:
    if status == "corrupted":
        return Irregular(index, offset, status, 1000 + offset)
    where = 3 if status == "relocated" else 0
    return Irregular(index, offset, status, 1000 + offset, V, offset, "topic", where, run)


def sent_elsewhere(seq: int, *, partition: int = 0, run: str) -> dict[str, Any]:
    """V's value, as evidence names it."""
    return {"writer": V, "seq": seq, "topic": "topic", "partition": partition, "run": run}


def flood(h: History, status: Any, offsets: range, *, reader: str = "r", size: int = 30) -> None:
    """A reader polls irregular records at these offsets, `size` in a poll."""
    listed = list(offsets)
    for first in range(0, len(listed), size):
        part = listed[first : first + size]
        h.irregular(reader, *(record(status, offset, index=i) for i, offset in enumerate(part)))


def settle(h: History, *, start: int = 0, end: int, seconds: int = 20) -> None:
    for _ in range(seconds):
        h.observe(start=start, end=end)
        h.mark(1.0)


def checked(h: History, *, parts: int = 1, seed: int = 0, objectives: Objectives | None = None) -> Store:
    rng = random.Random(seed)
    cuts = sorted(rng.randrange(len(h.rows) + 1) for _ in range(parts - 1))
    store = Store(objectives)
    for a, b in zip([0, *cuts], [*cuts, len(h.rows)], strict=True):
        if a < b:
            store.feed(h.rows[a:b])
    return store


def of(store: Store, *names: str) -> list[Finding]:
    return [f for f in store.findings if f.anomaly in names]


def counted(store: Store) -> int:
    return int(store.last[PLACE].summary["irregular"])


def known(store: Store) -> Known:
    hot = store.stored[PLACE].hot
    assert hot is not None
    return order.own(load(hot, order.KINDS), CHECK)  # type: ignore[no-any-return]


@pytest.mark.parametrize("parts", [1, 9])
@pytest.mark.parametrize(
    ("status", "name", "words"),
    [
        ("corrupted", "corrupted-record", "have no intact tag"),
        ("relocated", "relocated-write", "were meant for other places"),
    ],
)
def test_a_flood_is_told_one_by_one_at_first_and_then_together(status: Any, name: str, words: str, parts: int) -> None:
    h = History()
    h.assign("r")
    flood(h, status, range(0, EVERY * 1_200, EVERY))
    polls = {row.op: micros(row.completed) for row in h.rows if row.irregular}
    settle(h, end=EVERY * 1_200)
    store = checked(h, parts=parts)
    told = of(store, name)
    assert len(told) == SINGLY + 3
    assert [f.evidence["offset"] for f in told[:SINGLY]] == list(range(0, EVERY * SINGLY, EVERY))
    for finding, reached in zip(told[SINGLY:], TOGETHER, strict=False):
        last, op = EVERY * (reached - 1), 1 + (reached - 1) // 30
        assert finding.subject == ("many", 0, reached)
        assert finding.message == f"at least {reached} records between offsets 0 and {last} {words}"
        assert finding.evidence == {
            "records": reached,
            "first_offset": 0,
            "last_offset": last,
            "examples": list(range(0, EVERY * 10, EVERY)),
            "process": number("r"),
            "op": op,
        }
        assert finding.at == finding.decidable == polls[op]
    assert counted(store) == 1_200
    assert {f.anomaly for f in store.findings} == {name}


def test_as_many_as_are_told_one_by_one_are_not_told_together() -> None:
    h = History()
    h.assign("r")
    flood(h, "corrupted", range(SINGLY))
    flood(h, "corrupted", range(STRETCH, STRETCH + SINGLY))
    store = checked(h)
    listed = {(offset, 1000 + offset) for base in (0, STRETCH) for offset in range(base, base + SINGLY)}
    assert {f.subject for f in store.findings} == listed


@pytest.mark.parametrize("parts", [1, 4, 40])
def test_what_many_readers_see_counts_once(parts: int) -> None:
    """Four readers, one of which reads it all again when it is long settled."""
    h = History()
    for reader in ("r", "s", "q"):
        h.assign(reader)
        flood(h, "corrupted", range(500), reader=reader, size=50)
        flood(h, "relocated", range(500, 600), reader=reader, size=40)
    settle(h, end=600)
    h.assign("audit")
    flood(h, "corrupted", range(500), reader="audit", size=70)
    flood(h, "relocated", range(500, 600), reader="audit", size=70)
    settle(h, end=600)
    store = checked(h, parts=parts, seed=parts)
    ids = [f.id for f in of(store, "corrupted-record", "relocated-write")]
    assert len(ids) == len(set(ids)) == SINGLY + 2 + 2
    assert counted(store) == 600


def test_other_bytes_at_a_known_offset_are_another_record() -> None:
    h = History()
    h.irregular("r", Irregular(0, 7, "corrupted", 1))
    h.irregular("s", Irregular(0, 7, "corrupted", 2))
    store = checked(h, parts=3)
    assert [f.subject for f in store.findings] == [(7, 1), (7, 2)]


@pytest.mark.parametrize("parts", [1, 9])
def test_a_second_canary_is_told_once_for_each_of_its_runs(parts: int) -> None:
    h = History()
    h.assign("r")
    for run, base in (("one", 0), ("two", 5_000)):
        for first in range(base, base + 1_000, 50):
            h.irregular("r", *(record("foreign", first + i, index=i, run=run) for i in range(50)))
    settle(h, end=6_000)
    store = checked(h, parts=parts)
    assert [(f.anomaly, f.subject, f.message) for f in store.findings] == [
        ("foreign-record", ("one",), "the record at offset 0 belongs to run one, which this log does not know"),
        ("foreign-record", ("two",), "the record at offset 5000 belongs to run two, which this log does not know"),
    ]
    second = h.rows[21]
    assert store.findings[1].evidence == {
        "offset": 5_000,
        "hash": 6_000,
        "process": number("r"),
        "op": second.op,
        "run": "two",
    }
    assert store.findings[1].at == micros(second.completed)
    assert counted(store) == 2_000


@pytest.mark.parametrize("parts", [1, 9])
def test_more_runs_than_are_remembered_are_told_once_a_stretch(parts: int) -> None:
    h = History()
    h.assign("r")
    for base in (0, STRETCH):
        for i in range(RUNS + 40):
            h.irregular("r", record("foreign", base + i, run=f"run-{base + i}"))
    store = checked(h, parts=parts)
    told = [f.subject for f in store.findings]
    assert told == [*((f"run-{i}",) for i in range(RUNS)), ("others", 0), ("others", STRETCH)]
    other, row = store.findings[RUNS], h.rows[RUNS + 1]
    assert other.message == (
        f"the record at offset {RUNS} belongs to run run-{RUNS}, one of more than {RUNS} that this log does not know"
    )
    assert other.evidence == {
        "offset": RUNS,
        "hash": 1000 + RUNS,
        "process": number("r"),
        "op": row.op,
        "run": f"run-{RUNS}",
    }
    assert other.at == other.decidable == micros(row.completed)
    assert len(known(store).runs) == RUNS


def test_a_record_of_another_version_of_the_tag_names_no_run() -> None:
    h = History()
    h.irregular("r", Irregular(0, 3, "foreign", 99))
    (finding,) = checked(h).findings
    assert finding.subject == ("",)
    assert finding.message == (
        "the record at offset 3 belongs to another version of the tag, which this log does not know"
    )


def test_a_flood_pushes_nothing_out_of_memory() -> None:
    """What was told of other records is remembered beside a flood: a reader sees the same phantom again after it."""
    h = History()
    h.start("w", writer=str(W))
    h.assign("r")
    h.send("w", 0, 1, at=0)
    h.poll("r", [("w", 9, 1, 9)])
    settle(h, end=10)
    flood(h, "corrupted", range(1_000, 2_000))
    flood(h, "foreign", range(3_000, 4_000))
    h.poll("s", [("w", 9, 1, 9)])
    settle(h, end=5_000)
    assert len(of(checked(h, parts=30), "phantom-read")) == 1


def test_what_lies_below_the_log_start_is_forgotten() -> None:
    h = History()
    h.assign("r")
    flood(h, "corrupted", range(100))
    flood(h, "foreign", range(100, 200))
    flood(h, "corrupted", range(3 * STRETCH, 3 * STRETCH + 100))
    settle(h, end=4 * STRETCH)
    store = checked(h)
    assert {chunk_name(0), chunk_name(3)} <= set(store.stored[PLACE].chunks)
    assert known(store).stretches == [[0, 1], [3, 4]]
    h.rows = []
    settle(h, start=STRETCH, end=4 * STRETCH, seconds=3)
    for row in singly(h.rows):
        store.feed(row)
    assert chunk_name(0) not in store.stored[PLACE].chunks
    assert chunk_name(3) in store.stored[PLACE].chunks
    assert known(store).stretches == [[3, 4]]
    assert known(store).runs == []


def test_stretches_far_apart_are_remembered_in_bounded_space() -> None:
    h = History()
    h.assign("r")
    for i in range(3 * STRETCHES):
        h.irregular("r", record("corrupted", 2 * i * STRETCH))
    store = checked(h, parts=50)
    assert len(known(store).stretches) == STRETCHES
    h.rows = []
    end = 6 * STRETCHES * STRETCH
    settle(h, start=end, end=end + 1)
    for row in singly(h.rows):
        store.feed(row)
    assert [name for name in store.stored[PLACE].chunks if name.startswith("irregular")] == []


@pytest.mark.parametrize("acknowledged", ["before", "at once", "after"])
@pytest.mark.parametrize("over_own", [True, False])
@pytest.mark.parametrize("kept", [400, 100], ids=["room", "too many"])
def test_a_flood_over_our_own_records(
    kept: int, over_own: bool, acknowledged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relocated records stand where ours were acknowledged, or right beside them. What is acknowledged after the flood
    is compared with its newest part, and that this is not all of it is told."""
    monkeypatch.setattr(irregular_records, "KEPT", kept)
    h, most = History(), 50
    h.assign("r")
    h.send("w", 0, 400, at=0)
    flood(h, "relocated", range(400) if over_own else range(400, 800))
    ours, theirs = h.rows[:2], h.rows[2:]
    store = Store(Objectives(findings_per_step=most))
    for rows in {"before": [ours, theirs], "at once": [h.rows], "after": [theirs, ours]}[acknowledged]:
        store.feed(rows)
    h.rows.clear()
    settle(h, end=800, seconds=2)
    store.feed(h.rows)
    dropped = [f.evidence["dropped"] for f in of(store, "window-overflow") if f.event == "opened"]
    unknown = not over_own or acknowledged == "after"
    assert dropped == ([400 - kept] if kept < 400 and unknown else [])
    told = of(store, "inconsistent-offsets")
    if not over_own:
        assert told == []
        return
    begins = 400 - kept if acknowledged == "after" else 0
    assert [f.subject for f in told] == [(offset,) for offset in range(begins, begins + most)]
    values = sorted(
        [
            (f"{W}/{begins}", {"writer": W, "seq": begins}),
            (f"{V}/{begins} of topic/3 of run another", sent_elsewhere(begins, partition=3, run="another")),
        ],
        key=lambda told: told[0],
    )
    assert told[0].evidence == {"offset": begins, "values": [value for _, value in values]}
    assert told[0].message == f"offset {begins} holds 2 values: {' and '.join(words for words, _ in values)}"
    assert told[-1].evidence["more_of_the_same"] == 400 - begins - most


@pytest.mark.parametrize("status", ["relocated", "corrupted"])
def test_whoever_read_it_first_is_named_in_whatever_order_the_rows_come(status: Any) -> None:
    """In the order of their processes, as the rows of a file may be, the audit came before the reader."""
    h = History()
    h.irregular("r", record(status, 5))
    h.time += 24
    h.irregular("audit", record(status, 5))
    for rows in (h.rows, h.rows[::-1]):
        store = Store()
        store.feed(rows)
        (told,) = of(store, "relocated-write", "corrupted-record")
        assert (told.evidence["process"], told.at) == (number("r"), micros(h.rows[0].completed))


def test_two_records_at_one_offset_are_told_when_the_second_is_seen() -> None:
    h = History()
    h.irregular("r", Irregular(0, 5, "foreign", 1, V, 0, "topic", 0, "one"))
    h.irregular("s", Irregular(0, 5, "foreign", 2, V, 1, "topic", 0, "one"))
    h.irregular("q", Irregular(0, 5, "foreign", 2, V, 1, "topic", 0, "one"))
    for parts in (1, 3):
        (finding,) = of(checked(h, parts=parts), "inconsistent-offsets")
        assert finding.evidence == {"offset": 5, "values": [sent_elsewhere(i, run="one") for i in (0, 1)]}
        words = [f"{V}/{i} of topic/0 of run one" for i in (0, 1)]
        assert finding.message == f"offset 5 holds 2 values: {' and '.join(words)}"
        assert finding.at == micros(h.rows[1].completed)


def test_two_records_of_another_version_of_the_tag_at_one_offset() -> None:
    h = History()
    h.irregular("r", Irregular(0, 5, "foreign", 1))
    h.irregular("s", Irregular(0, 5, "foreign", 2))
    (finding,) = of(checked(h, parts=2), "inconsistent-offsets")
    assert finding.evidence == {"offset": 5, "values": [{"hash": 1}, {"hash": 2}]}
    words = [f"a record of another version of the tag ({i})" for i in (1, 2)]
    assert finding.message == f"offset 5 holds 2 values: {' and '.join(words)}"


def test_the_same_record_told_by_an_older_probe_and_by_a_newer_one_is_one() -> None:
    """An older probe told one hash of every intact record, which names none; the record need not be another one."""
    h = History()
    h.irregular("r", Irregular(0, 5, "foreign", UNTOLD_HASH))
    h.irregular("s", Irregular(0, 5, "foreign", 2))
    for parts in (1, 2):
        assert of(checked(h, parts=parts), "inconsistent-offsets") == []
    h.irregular("q", Irregular(0, 5, "foreign", 3))
    for parts in (1, 3):
        (finding,) = of(checked(h, parts=parts), "inconsistent-offsets")
        assert finding.evidence == {"offset": 5, "values": [{"hash": 2}, {"hash": 3}]}


def test_a_record_that_an_older_probe_told_of_where_another_value_stands_is_another() -> None:
    h = History()
    h.irregular("r", Irregular(0, 5, "foreign", UNTOLD_HASH))
    h.irregular("s", record("foreign", 5))
    (finding,) = of(checked(h, parts=2), "inconsistent-offsets")
    assert {"hash": UNTOLD_HASH} in finding.evidence["values"]


def test_two_intact_records_that_are_read_at_one_offset() -> None:
    """From the bytes on: two readers are given two records of another canary at the same offset."""
    made = Encoder(run="another", writer=V, topic="topic", partition=0, size=128).encode(range(1, 3), sent=1)
    h = History()
    for reader, value in zip("rs", made, strict=True):
        h.irregular(reader, irregular(0, 5, value, {"ours"}))
    (finding,) = of(checked(h, parts=2), "inconsistent-offsets")
    assert [one["seq"] for one in finding.evidence["values"]] == [1, 2]


def test_readers_go_over_irregular_records_in_their_order() -> None:
    """A poll that begins or ends with irregular records begins and ends there; their values conclude nothing."""
    h = History()
    h.assign("r")
    h.poll("r", [("w", 0, 3, 2)], irregular=[record("foreign", i, index=i) for i in (0, 1)])
    h.poll("r", [("w", 3, 2, 5)], irregular=[record("foreign", 7 + i, index=2 + i) for i in range(3)])
    h.poll("r", [("w", 5, 1, 10)])
    settle(h, end=11)
    store = checked(h, parts=3)
    assert found(store.findings) == set()
    assert store.last[PLACE].summary["frontier"] == 11


def test_a_stretch_survives_its_bytes() -> None:
    stretch = Stretch()
    stretch.known.update([0, 5, STRETCH - 1])
    stretch.counts[1] = (3, 0, STRETCH - 1)
    stretch.listed = [(0, 5, 2**32 - 1), (2, STRETCH - 1, -1)]
    stretch.others = True
    assert Stretch.load(stretch.dump()) == stretch


@pytest.mark.parametrize("parts", [1, 6])
def test_records_that_stand_beside_others_are_told_once(parts: int) -> None:
    """Two readers see the same ones, in steps of their own; one has no run, and others stand elsewhere."""
    h = History()
    h.send("w", 0, 10, at=0)
    seen = [
        Irregular(0, 3, "relocated", 1, V, 0, "topic", 3),
        Irregular(1, 30, "corrupted", 3),
        Irregular(2, 31, "corrupted", 3),
    ]
    h.irregular("r", *seen)
    h.irregular("q", Irregular(0, 5, "relocated", 2, V, 1, "topic", 3, "another"))
    h.irregular("s", *seen)
    h.irregular("s", Irregular(0, 20, "foreign", 4, V, 9, "topic", 0, "another"))
    store = Store()
    for rows in [h.rows] if parts == 1 else [[row] for row in h.rows]:
        store.feed(rows)
    assert [f.subject for f in of(store, "corrupted-record")] == [(30, 3), (31, 3)]
    assert [f.subject[3:] for f in of(store, "relocated-write")] == [(0, 3), (1, 5)]
    three, five = of(store, "inconsistent-offsets")
    assert (three.subject, three.at, five.subject, five.at) == (
        (3,),
        micros(h.rows[1].completed),
        (5,),
        micros(h.rows[2].completed),
    )
    values = sorted(
        [
            (f"{V}/0 of topic/3", {"writer": V, "seq": 0, "topic": "topic", "partition": 3}),
            (f"{W}/3", {"writer": W, "seq": 3}),
        ],
        key=lambda told: told[0],
    )
    assert three.evidence == {"offset": 3, "values": [value for _, value in values]}
    assert three.message == f"offset 3 holds 2 values: {' and '.join(words for words, _ in values)}"


STRANGERS = {
    "the_same": Irregular(0, 3, "foreign", 4, W, 3, "topic", 0, "another"),
    "another_number": Irregular(0, 3, "foreign", 4, W, 4, "topic", 0, "another"),
    "another_writer": Irregular(0, 3, "foreign", 4, V, 3, "topic", 0, "another"),
    "of_another_partition": Irregular(0, 3, "relocated", 4, W, 3, "topic", 3, "another"),
}


@pytest.mark.parametrize("name", STRANGERS)
@pytest.mark.parametrize("first", [True, False])
def test_a_value_of_a_run_that_one_reader_does_not_know_is_one_value(first: bool, name: str) -> None:
    """A host has joined the log, and is not named in the others' known_runs; or another's record stands there."""
    h = History()
    if first:
        h.irregular("s", STRANGERS[name])
    h.send("w", 0, 10, at=0)
    if not first:
        h.irregular("s", STRANGERS[name])
    for parts in (1, 4):
        told = of(checked(h, parts=parts), "inconsistent-offsets")
        assert [f.subject for f in told] == ([] if name == "the_same" else [(3,)])


@pytest.mark.parametrize("offset", [3, 15])
def test_what_stands_before_or_after_a_run_is_none_of_its_values(offset: int) -> None:
    """The run is of values 5 to 9, at these offsets; another reader is given another record there."""
    h = History()
    h.send("w", 5, 5, at=5)
    h.irregular("s", Irregular(0, offset, "foreign", 4, W, offset, "topic", 0, "another"))
    h.irregular("q", Irregular(0, offset, "foreign", 5, V, 1, "topic", 0, "another"))
    for parts in (1, 3):
        assert [f.subject for f in of(checked(h, parts=parts), "inconsistent-offsets")] == [(offset,)]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("corrupted", "the record at offset 5 has no intact tag: it is damaged, or somebody else's"),
        ("relocated", f"value {V}/5 of topic/3 was polled here, at offset 5"),
    ],
)
def test_a_record_is_told_in_words(status: str, message: str) -> None:
    h = History()
    h.irregular("r", record(status, 5))
    assert [f.message for f in of(checked(h), "corrupted-record", "relocated-write")] == [message]


def test_of_a_record_without_a_value_that_is_said() -> None:
    h = History()
    h.irregular("r", record("corrupted", 5)._replace(hash=crc32c(b"")))
    (told,) = of(checked(h), "corrupted-record")
    assert told.message == "the record at offset 5 has no value: it is damaged, or somebody else's"


def test_a_flood_of_them_counts_nothing() -> None:
    h = History()
    h.send("w", 0, 3_000, at=0)
    h.irregular("s", *(Irregular(i, i, "foreign", i, W, i, "topic", 0, "another") for i in range(3_000)))
    store = checked(h)
    assert {f.anomaly for f in store.findings} == {"foreign-record"}


def test_examples_are_of_their_own_status() -> None:
    h = History()
    h.assign("r")
    for i in range(SINGLY + 1):
        h.irregular("r", record("corrupted", 2 * i), record("relocated", 2 * i + 1, index=1))
    (told,) = (f for f in of(checked(h), "corrupted-record") if f.subject[0] == "many")
    assert told.evidence["examples"] == list(range(0, 20, 2))


@pytest.mark.parametrize(("writer", "seq"), [(5, None), (None, 5)])
def test_a_record_that_names_its_writer_and_no_number(writer: int | None, seq: int | None) -> None:
    """Or a number and no writer. Whatever a foreign tag says is told, and nothing fails on it."""
    h, store = History(), Store()
    h.assign("r")
    h.send("w", 0, 1, at=0)
    h.irregular("r", Irregular(0, 0, "foreign", 1, writer, seq, None, None, "x"))
    store.feed(h.rows)
    (finding,) = of(store, "inconsistent-offsets")
    assert (finding.subject, finding.evidence["values"]) == ((0,), [{"writer": W, "seq": 0}, {"hash": 1}])


@pytest.mark.parametrize("kept", [3, 2], ids=["room", "too_many"])
def test_how_many_of_those_that_were_meant_for_elsewhere_are_forgotten_is_told(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(irregular_records, "KEPT", kept)
    h = History()
    h.irregular("r", *(record("relocated", offset, index=offset) for offset in range(3)))
    settle(h, end=3, seconds=3)
    told = [(f.subject, f.evidence["dropped"]) for f in of(checked(h), "window-overflow")]
    assert told == ([(("records that were meant for elsewhere",), 1)] if kept == 2 else [])
