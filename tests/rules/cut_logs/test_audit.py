"""A log that changes behind its readers: block digests find where, and the rows tell how."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest

from rules.audit.digests import BUCKET, Bucket
from rules.audit.explain import concerns, explain
from rules.audit.readings import Readings
from rules.audit.sums import BLOCK, run_digests
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Irregular, Place
from tests.rules.histories import History, Store, found, number

W, V = number("w"), number("v")
PLACE = Place("c", "t", 0)
Log = dict[int, tuple[str, int]]
"""offset -> (writer, seq)"""


def logged(records: int, *, markers: int = 0) -> Log:
    """A log of one writer; every `markers` records an offset is left out, as a transaction's marker would be."""
    log: Log = {}
    offset = 0
    for seq in range(records):
        if markers and seq and seq % markers == 0:
            offset += 1
        log[offset] = ("w", seq)
        offset += 1
    return log


def runs(log: Log, start: int, end: int) -> list[tuple[str, int, int, int]]:
    """What a poll of these offsets returns: (writer, seq, length, offset)."""
    made: list[tuple[str, int, int, int]] = []
    for offset in range(start, end):
        if offset not in log:
            continue
        writer, seq = log[offset]
        last = made[-1] if made else None
        if last and last[0] == writer and last[1] + last[2] == seq and last[3] + last[2] == offset:
            made[-1] = (writer, last[1], last[2] + 1, last[3])
        else:
            made.append((writer, seq, 1, offset))
    return made


def write(h: History, log: Log) -> None:
    for writer, seq, length, offset in runs(log, 0, max(log) + 1):
        h.send(writer, seq, length, at=offset)


def read(h: History, name: str, log: Log, *, size: int = 500, start: int = 0, boot: str | None = None) -> None:
    """A reader in assign mode reads the log to its end, `size` offsets a poll."""
    h.assign(name)
    end = max(log) + 1
    position = start
    while position < end:
        stop = min(end, position + size)
        polled = runs(log, position, stop)
        if polled:
            after = polled[-1][3] + polled[-1][2]
            h.poll(name, polled, position_before=position, position_after=after, boot=boot)
            position = after
        else:
            position = stop


def settle(h: History, end: int, *, start: int = 0, seconds: int = 20) -> None:
    for _ in range(seconds):
        h.observe(start=start, end=end)
        h.mark(1.0)


def audited(log: Log, later: Log, *, size: int = 333) -> History:
    """The log is written and read; when all of it is settled, an audit reads `later`."""
    h = History()
    write(h, log)
    read(h, "r", log)
    settle(h, max(log) + 1)
    read(h, "audit", later, size=size)
    settle(h, max(log) + 1)
    return h


def explained(h: History, store: Store) -> list[Finding]:
    table = h.table()
    told: dict[str, Finding] = {}
    for place, (start, end) in store.rechecks:
        assert place == PLACE
        for finding in (
            explain(Readings(table.filter(concerns(table, [(start, end)]))), place, start, end, finished=False) or ()
        ):
            told.setdefault(finding.id, finding)
    return list(told.values())


def check(h: History, *, parts: int = 1, seed: int = 0) -> Store:
    rng = random.Random(seed)
    cuts = sorted(rng.randrange(len(h.rows) + 1) for _ in range(parts - 1))
    store = Store()
    for a, b in zip([0, *cuts], [*cuts, len(h.rows)], strict=True):
        if a < b:
            store.feed(h.rows[a:b])
    return store


def subjects(findings: Sequence[Finding]) -> set[tuple[str, tuple[int | str, ...]]]:
    return {(f.anomaly, f.subject) for f in findings}


@pytest.mark.long
@pytest.mark.parametrize("parts", [1, 7, 60])
@pytest.mark.parametrize("markers", [0, 3, 100])
def test_a_log_that_stays_is_found_to_stay(markers: int, parts: int) -> None:
    log = logged(5 * BLOCK + 700, markers=markers)
    for size in (50, 333, 5000):
        store = check(audited(log, log, size=size), parts=parts, seed=size)
        assert store.rechecks == []
        assert found(store.findings) == set()


@pytest.mark.parametrize("parts", [1, 9])
def test_a_record_that_vanished(parts: int) -> None:
    log = logged(5 * BLOCK)
    h = audited(log, {o: v for o, v in log.items() if o != 1500})
    store = check(h, parts=parts)
    assert [(r.start, r.end) for _, r in store.rechecks] == [(BLOCK, 2 * BLOCK)]
    assert subjects(explained(h, store)) == {("vanished-record", (1500, W, 1500))}


@pytest.mark.parametrize("parts", [1, 9, 60])
@pytest.mark.parametrize("more", [70, 900], ids=["a part", "a block"])
@pytest.mark.parametrize("read_to", [5 * BLOCK + 128, 5 * BLOCK + 300])
def test_a_record_that_vanished_from_a_block_that_is_not_full(read_to: int, more: int, parts: int) -> None:
    """The audit comes to its end, and that is not the end of the log any more."""
    log, gone = logged(5 * BLOCK + 300), 5 * BLOCK + 64
    h = History()
    write(h, log)
    read(h, "r", log)
    settle(h, max(log) + 1)
    longer = logged(max(log) + more)
    for offset in range(max(log) + 1, max(longer) + 1):
        h.send("w", offset, 1, at=offset)
    read(h, "r", longer, start=max(log) + 1)
    read(h, "audit", {o: v for o, v in log.items() if o != gone and o < read_to}, size=333)
    settle(h, max(longer) + 1)
    store = check(h, parts=parts)
    assert [(r.start, r.end) for _, r in store.rechecks] == [(5 * BLOCK, 5 * BLOCK + 128)]
    assert subjects(explained(h, store)) == {("vanished-record", (gone, W, gone))}


@pytest.mark.parametrize("more", [100, 2 * BLOCK], ids=["less than a part was read", "too long ago"])
def test_of_a_block_that_is_not_full_only_whole_parts_of_the_newest_are_compared(more: int) -> None:
    """What is not is compared when it is read again, and the block is full."""
    log = logged(5 * BLOCK + 63 if more == 100 else 5 * BLOCK + 300)
    h = History()
    longer = logged(max(log) + more)
    write(h, longer)
    read(h, "r", longer)
    settle(h, max(longer) + 1)
    read(h, "audit", {o: v for o, v in log.items() if o != 5 * BLOCK + 10}, size=333)
    settle(h, max(longer) + 1)
    assert check(h, parts=7).rechecks == []
    read(h, "second", {o: v for o, v in longer.items() if o != 5 * BLOCK + 10}, size=333)
    settle(h, max(longer) + 1)
    asked = [(r.start, r.end) for _, r in check(h, parts=7).rechecks]
    assert asked == [(5 * BLOCK, 5 * BLOCK + 64 if more == 100 else 6 * BLOCK)]


@pytest.mark.parametrize("parts", [1, 9])
def test_a_record_that_came_late(parts: int) -> None:
    log = logged(5 * BLOCK, markers=100)
    hole = min(set(range(2000)) - set(log), key=lambda o: abs(o - 1500))
    h = audited(log, log | {hole: ("v", 3)})
    store = check(h, parts=parts)
    assert subjects(explained(h, store)) == {("late-record", (hole, V, 3))}


@pytest.mark.parametrize("parts", [1, 9])
def test_a_record_that_was_replaced(parts: int) -> None:
    log = logged(5 * BLOCK)
    h = audited(log, log | {1500: ("v", 3)})
    (finding,) = explained(h, check(h, parts=parts))
    assert (finding.anomaly, finding.subject) == ("inconsistent-offsets", (1500,))
    both = sorted([(W, 1500), (V, 3)])
    assert finding.evidence["values"] == [{"writer": w, "seq": s} for w, s in both]
    assert finding.message == f"offset 1500 holds 2 values: {' and '.join(f'{w}/{s}' for w, s in both)}"


def test_any_single_change_is_seen() -> None:
    """Whatever one record becomes, in whatever block: the digests differ."""
    rng = random.Random(7)
    log = logged(4 * BLOCK, markers=17)
    for _ in range(200):
        offset = rng.choice(sorted(log))
        changed = dict(log)
        match rng.choice(("gone", "other writer", "other seq", "swapped")):
            case "gone":
                del changed[offset]
            case "other writer":
                changed[offset] = ("v", log[offset][1])
            case "other seq":
                changed[offset] = ("w", log[offset][1] + rng.choice((1, -1, 1000, 2**40)))
            case _:
                other = rng.choice([o for o in log if o // BLOCK == offset // BLOCK and o != offset])
                changed[offset], changed[other] = log[other], log[offset]
        assert _digest(log, offset // BLOCK) != _digest(changed, offset // BLOCK)


def _digest(log: Log, block: int) -> int:
    parts = runs(log, block * BLOCK, (block + 1) * BLOCK)
    offset, seq, length = (np.array([p[i] for p in parts], np.int64) for i in (3, 1, 2))
    writer = np.array([number(p[0]) for p in parts], np.int64)
    _, _, digests = run_digests(offset, writer, seq, length)
    with np.errstate(over="ignore"):
        return int(np.add.reduce(digests)) & 0xFFFFFFFFFFFFFFFF


def test_digests_do_not_depend_on_how_runs_are_cut() -> None:
    rng = random.Random(3)
    for _ in range(50):
        length, offset = rng.randint(1, 4000), rng.randint(0, 10**9)
        cuts = sorted({0, length, *(rng.randint(0, length) for _ in range(5))})
        whole = _sums([(offset, 77, length)])
        pieces = _sums([(offset + a, 77 + a, b - a) for a, b in itertools.pairwise(cuts)])
        assert whole == pieces


def _sums(parts: list[tuple[int, int, int]]) -> dict[int, int]:
    offset, seq, length = (np.array(column, np.int64) for column in zip(*parts, strict=True))
    _, block, digest = run_digests(offset, np.full(len(offset), 5, np.int64), seq, length)
    sums: dict[int, int] = {}
    for b, d in zip(block.tolist(), digest.tolist(), strict=True):
        sums[b] = (sums.get(b, 0) + d) & 0xFFFFFFFFFFFFFFFF
    return sums


def test_a_reader_that_goes_back_is_not_counted_twice() -> None:
    """It gives the partition up in the middle of a block, and begins again further back."""
    log = logged(4 * BLOCK)
    h = History()
    write(h, log)
    read(h, "r", log)
    h.assign("s")
    for start, end in ((0, 700), (700, 1500)):
        h.poll("s", runs(log, start, end), position_before=start, position_after=end)
    h.assign("s", assigned=False)
    h.assign("s")
    for start, end in ((300, 1100), (1100, 4 * BLOCK)):
        h.poll("s", runs(log, start, end), position_before=start, position_after=end)
    settle(h, 4 * BLOCK)
    assert check(h, parts=5).rechecks == []


def test_what_was_exposed_has_not_vanished() -> None:
    """A value of an aborted transaction was shown once: that is G1a, and its absence is right."""
    log = logged(3 * BLOCK, markers=100)
    hole = min(set(range(2000)) - set(log), key=lambda o: abs(o - 1500))
    h = History()
    h.txn("t", sends=[("v", 0, 1, None)], type="fail", txn=1)
    write(h, log)
    read(h, "r", log | {hole: ("v", 0)})
    settle(h, max(log) + 1)
    read(h, "audit", log)
    settle(h, max(log) + 1)
    store = check(h)
    assert explained(h, store) == []
    assert found(store.findings) == {("G1a", (V, 0))}


@pytest.mark.parametrize("listed", [1, 20])
def test_nothing_has_vanished_for_a_reader_that_does_not_know_its_run(listed: int) -> None:
    """It lists some of those values as a stranger's, and not all; of a reader that lists none of them, they have."""
    log = logged(3 * BLOCK)
    mine = {offset: value for offset, value in log.items() if not BLOCK <= offset < 2 * BLOCK}
    h = History()
    write(h, log)
    read(h, "r", log)
    settle(h, 3 * BLOCK)
    read(h, "audit", mine)
    settle(h, 3 * BLOCK)
    assert found(explained(h, check(h)))
    over = next(row for row in h.rows if row.process == number("audit") and (row.position_after or 0) > 2 * BLOCK)
    strange = [
        Irregular(i, offset, "foreign", i, number(log[offset][0]), log[offset][1], "topic", 0, "another")
        for i, offset in enumerate(range(BLOCK, BLOCK + listed))
    ]
    over.irregular = strange
    assert found(explained(h, check(h))) == set()


def test_retention_makes_nothing_vanish() -> None:
    """The audit begins when the log starts further on, or is thrown forward while it reads."""
    log = logged(5 * BLOCK)
    h = History()
    write(h, log)
    read(h, "r", log)
    settle(h, 5 * BLOCK)
    h.assign("audit")
    h.poll("audit", runs(log, 0, 1500), position_before=0, position_after=1500)
    h.poll("audit", runs(log, 3000, 5 * BLOCK), position_before=1500, position_after=5 * BLOCK)
    settle(h, 5 * BLOCK, start=3000)
    store = check(h, parts=3)
    assert explained(h, store) == []
    assert found(store.findings) == set()


def test_no_verdict_before_the_log_start_was_observed_again() -> None:
    log = logged(3 * BLOCK)
    h = audited(log, {o: v for o, v in log.items() if o != 1500})
    last = max(i for i, row in enumerate(h.rows) if row.f == "poll")
    early = h.rows[: last + 1]
    h.rows = early
    assert explain(Readings(h.table()), PLACE, BLOCK, 2 * BLOCK, finished=False) is None
    assert explain(Readings(h.table()), PLACE, BLOCK, 2 * BLOCK, finished=True)


def test_nothing_is_concluded_between_clocks_that_may_differ() -> None:
    """The audit ran on another boot, seconds later by its own clock: which came first is not known."""
    log = logged(3 * BLOCK)
    h = History()
    write(h, log)
    read(h, "r", log, boot="one")
    read(h, "audit", {o: v for o, v in log.items() if o != 1500}, boot="two")
    settle(h, 3 * BLOCK)
    assert explained(h, check(h)) == []
    h.time += 600
    read(h, "later", {o: v for o, v in log.items() if o != 1500}, boot="two")
    settle(h, 3 * BLOCK)
    assert subjects(explain(Readings(h.table()), PLACE, BLOCK, 2 * BLOCK) or []) == {
        ("vanished-record", (1500, W, 1500))
    }


def test_what_lies_below_the_log_start_is_forgotten() -> None:
    """Digests and bitmaps are dropped with the log."""
    h = History()
    store = Store()
    h.assign("r")
    per = BUCKET // 8
    for i in range(48):
        h.send("w", i * per, per, at=i * per)
        h.poll("r", [("w", i * per, per, i * per)], position_before=i * per, position_after=(i + 1) * per)
        h.observe(start=max(0, (i - 12) * per), end=(i + 1) * per)
        h.mark(1.0)
        store.feed(h.rows)
        h.rows = []
    chunks = store.stored[PLACE].chunks
    assert len([name for name in chunks if name.startswith("blocks.")]) <= 4
    assert len([name for name in chunks if "." in name and not name.startswith(("blocks", "writer"))]) <= 4 * 8 + 2
    assert found(store.findings) == set()


def test_a_bucket_survives_its_bytes() -> None:
    bucket = Bucket()
    bucket.digests[[0, 7, 63]] = (0, 2**32 - 1, 12345)
    bucket.roster = {(2**62, 0), (2**62, 1), (5, 2**33)}
    again = Bucket.load(bucket.dump())
    assert again.digests.tolist() == bucket.digests.tolist()
    assert again.roster == bucket.roster
