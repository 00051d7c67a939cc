"""Every run of every drill, as `listing.jsonl` has it: a change of what a drill is, needs or must find is seen there.

After a change that is meant: `python -m tests.monitor.drill.test_listing > tests/monitor/drill/listing.jsonl`.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from monitor.drill.definition.drill import Drill
from monitor.drill.registry import EVERY


def described(drill: Drill) -> dict[str, Any]:
    """All that is said of one run, as JSON values; without what is empty."""
    told = {
        "name": drill.name,
        "case": drill.case,
        "what": drill.what,
        "seen_in": drill.seen_in,
        "must": [str(must) for must in drill.must],
        "may": sorted(drill.may),
        "never": sorted(drill.never),
        "closes": drill.closes,
        "cluster": asdict(drill.cluster),
        "changes_cluster": drill.changes_cluster,
        "spoils_cluster": drill.spoils_cluster,
        "probes": drill.probes,
        "limit": drill.limit,
        "lies": [type(lie).__name__ for lie in drill.play().lies()],
    }
    return dict(orjson.loads(orjson.dumps({name: value for name, value in told.items() if value})))


def test_the_listing_is_what_it_was() -> None:
    known = (Path(__file__).parent / "listing.jsonl").read_bytes().splitlines()
    assert [described(drill) for drill in EVERY] == [orjson.loads(line) for line in known]


if __name__ == "__main__":
    for drill in EVERY:
        print(orjson.dumps(described(drill)).decode())
