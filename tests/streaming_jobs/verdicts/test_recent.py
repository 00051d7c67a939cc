"""Chunks that are kept with the hot value: whatever is done with them, they are what a plain store would hold."""

from __future__ import annotations

import random

import pytest

from streaming_jobs.verdicts.kept import Kept, dump, load
from streaming_jobs.verdicts.recent import IDLE, LARGE, ROOM, RecentChunks


class Store:
    """Chunks in memory, that count how often they are asked."""

    def __init__(self) -> None:
        self.chunks: dict[str, bytes] = {}
        self.asked = 0

    def get(self, name: str) -> bytes | None:
        self.asked += 1
        return self.chunks.get(name)

    def put(self, name: str, chunk: bytes) -> None:
        self.asked += 1
        self.chunks[name] = chunk

    def remove(self, name: str) -> None:
        self.asked += 1
        self.chunks.pop(name, None)


@pytest.mark.parametrize("seed", range(20))
def test_it_holds_what_a_plain_store_would(seed: int) -> None:
    dice = random.Random(seed)
    plain, store, value = Store(), Store(), dump({0: Kept()})
    for _ in range(200):
        kept = load(value)
        chunks = RecentChunks(kept[0].recent, store)
        for _ in range(dice.choice((0, 1, 5, 60))):
            name = str(dice.randrange(dice.choice((3, 100))))
            assert chunks.get(name) == plain.get(name)
            done = dice.random()
            if done < 0.4:
                chunk = dice.randbytes(dice.choice((0, 1, 300, LARGE, LARGE + 1)))
                chunks.put(name, chunk)
                plain.put(name, chunk)
            elif done < 0.5:
                chunks.remove(name)
                plain.remove(name)
        chunks.settle()
        value = dump(kept)
        assert len(value) <= ROOM + 100
    for name in map(str, range(100)):
        assert RecentChunks(load(value)[0].recent, store).get(name) == plain.get(name)


def test_what_each_batch_asks_for_is_asked_of_the_store_once() -> None:
    store, kept = Store(), Kept()
    store.put("there", b"0")
    store.asked = 0
    for number in range(50):
        chunks = RecentChunks(kept.recent, store)
        assert (chunks.get("there") or b"").isdigit()
        assert chunks.get("absent") is None
        chunks.put("there", str(number).encode())
        chunks.settle()
    assert store.asked == 2


def test_what_nobody_asks_for_any_more_is_in_the_store_alone() -> None:
    store, kept = Store(), Kept()
    store.put("gone", b"0")
    chunks = RecentChunks(kept.recent, store)
    chunks.put("new", b"1")
    chunks.remove("gone")
    assert chunks.get("read") is None
    store.asked = 0
    for _ in range(IDLE):
        chunks.settle()
        assert set(kept.recent) == {"new", "gone", "read"}
    chunks.settle()
    assert kept.recent == {}
    assert (store.chunks, store.asked) == ({"new": b"1"}, 2)


def test_a_large_chunk_is_never_kept_with_the_hot_value() -> None:
    store, kept = Store(), Kept()
    chunks = RecentChunks(kept.recent, store)
    chunks.put("a", b"small")
    chunks.put("a", bytes(LARGE + 1))
    assert kept.recent == {}
    assert store.chunks == {"a": bytes(LARGE + 1)}
    assert chunks.get("a") == bytes(LARGE + 1)
    assert kept.recent == {}
    chunks.put("a", b"small")
    assert chunks.get("a") == b"small"
