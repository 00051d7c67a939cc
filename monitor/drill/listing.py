"""`offsetwatch drill list`."""

from __future__ import annotations

import orjson
from rich import box
from rich.console import Console
from rich.table import Table

from monitor.drill.registry import every, meaning


def show(*, json_output: bool) -> None:
    """Print every run of every drill, in the table's order."""
    if json_output:
        for drill in every():
            told = {
                "drill": drill.name, "case": drill.case, "what_happens": meaning(drill), "seen_in": drill.seen_in,
                "must": [str(must) for must in drill.must], "may": sorted(drill.may),
                "kafka": drill.cluster.version, "brokers": drill.cluster.brokers,
                "changes_cluster": drill.changes_cluster,
            }  # fmt: skip
            print(orjson.dumps(told).decode())
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("drill", "what really happens", "must be found", "first seen in"):
        table.add_column(name, overflow="fold", no_wrap=name == "drill")
    for drill in every():
        must = " and ".join(map(str, drill.must)) or "nothing"
        table.add_row(drill.title, meaning(drill), must, drill.seen_in)
    Console().print(table)
