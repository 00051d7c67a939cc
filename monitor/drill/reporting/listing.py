"""`offsetwatch drill list`."""

from __future__ import annotations

from itertools import groupby

import orjson
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from monitor.drill.definition.drill import Drill
from monitor.drill.registry import EVERY


def show(*, json_output: bool) -> None:
    """Print every run of every drill, in the table's order."""
    if json_output:
        for drill in EVERY:
            told = {
                "drill": drill.name,
                "case": drill.case,
                "what_happens": drill.what,
                "seen_in": drill.seen_in,
                "must": [str(must) for must in drill.must],
                "may": sorted(drill.may),
                "kafka": drill.cluster.version,
                "brokers": drill.cluster.brokers,
                "changes_cluster": drill.changes_cluster,
            }
            print(orjson.dumps(told).decode())
        return
    console = Console()
    for name, runs in groupby(EVERY, key=lambda drill: drill.name):
        first, *others = runs
        console.print(Text.assemble((name, "bold"), (f"  first seen: {first.seen_in}", "dim")))
        for drill in (first, *others):
            console.print(Padding(_described(drill), (0, 0, 0, 4), expand=False))


def _described(drill: Drill) -> Text:
    """What one run does, and what it has to find."""
    must = " and ".join(map(str, drill.must)) or "nothing"
    case = (f"{drill.case}: ", "bold") if drill.case else ""
    return Text.assemble(case, drill.what, " Must be found: ", (must, "cyan"), ".")
