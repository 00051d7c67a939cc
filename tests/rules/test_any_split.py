"""Each fault of the model, its log cut into steps of any size: the violations are the same, whole, and at the same
times."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.slices import to_table
from tests.rules.histories import Store
from tests.rules.model import FAULTS, SETTLE, World, turns

FEW: Final = 25
SIZES: Final = (400, 10**9)
READ_AGAIN: Final = frozenset({"inconsistent-offsets"})
"""Below the settled frontier the log is not kept: live, what stands there twice is found by reading it again."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_same_violations_in_steps_of_any_size(name: str) -> None:
    world = World().run(turns(3, 40))
    FAULTS[name](world, Random(3))
    world.settle(SETTLE)
    table = to_table(world.journal.rows)
    expected = violations(table, FEW)
    for size in SIZES:
        assert violations(table, size) == expected


def violations(table: pa.Table, rows: int) -> dict[Any, Any]:
    store = Store()
    for first in range(0, table.num_rows, rows):
        store.feed(table.slice(first, rows))
    return {
        (f.anomaly, f.topic_id, f.partition, f.subject): (f.at, f.decidable, f.evidence, f.context, f.implied_by)
        for f in store.findings
        if CATALOGUE[f.anomaly].kind == "violation" and f.anomaly not in READ_AGAIN
    }
