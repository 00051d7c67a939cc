"""What a session of drills came to: the two numbers that matter, the table, JSON, and a page that needs nothing else.

*Recall*: of the drills that have to find something, those whose must findings were all raised, in each of their runs.
*False alarms*: violations outside the may column, of all drills.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson
from rich import box
from rich.table import Table

from monitor.drill.definition.drill import ORDER, Drill
from monitor.drill.running.session import Result
from monitor.errors import UserError

COLUMNS: Final = ("drill", "must", "may", "found", "detected after", "verdict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """`recalled` of `drills` that have to find something; `alarms`: false ones; `failed`, `skipped`: titles of runs."""

    recalled: int
    drills: int
    alarms: int
    failed: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    def __str__(self) -> str:
        alarms = f"{self.alarms} false alarm{'s' * (self.alarms != 1)}"
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"recall {self.recalled} of {self.drills}, {alarms}{skipped}"


def numbers(results: Sequence[Result]) -> Numbers:
    """The two numbers, and what failed."""
    asking = list(dict.fromkeys(r.drill.name for r in results if r.drill.must and not r.verdict.skipped))
    missed = {r.drill.name for r in results if not r.verdict.recalled and not r.verdict.skipped}
    return Numbers(
        recalled=sum(name not in missed for name in asking),
        drills=len(asking),
        alarms=sum(len(r.verdict.alarms) for r in results),
        failed=tuple(r.drill.title for r in results if r.verdict.failed),
        skipped=tuple(r.drill.title for r in results if r.verdict.skipped),
    )


def _cells(result: Result) -> tuple[str, str, str, str, str, str]:
    drill, verdict = result.drill, result.verdict
    must = " and ".join(map(str, drill.must)) or "nothing"
    may = ", ".join(allowed(drill))
    found = ", ".join(f"{name} x{n}" if n > 1 else name for name, n in sorted(verdict.counts.items())) or "nothing"
    first = "" if verdict.first is None else f"{verdict.first:.1f} s"
    return drill.title, must, may, found, first, str(verdict)


def colour(result: Result) -> str:
    """How its verdict is shown on a terminal."""
    return "green" if result.verdict.passed else "bold red" if result.verdict.failed else "yellow"


def allowed(drill: Drill) -> list[str]:
    """The may column: the order findings by their common name."""
    order = ["order"] if drill.may >= ORDER else []
    return order + sorted(drill.may - ORDER if order else drill.may)


def table(results: Sequence[Result]) -> Table:
    """The closing table."""
    shown = Table(box=box.SIMPLE_HEAD, show_lines=False, pad_edge=False)
    for name in COLUMNS:
        shown.add_column(name, overflow="fold", justify="right" if name == "detected after" else "left")
    for result in results:
        style = colour(result)
        *rest, verdict = _cells(result)
        shown.add_row(*rest, f"[{style}]{verdict}[/]")
    return shown


def told(results: Sequence[Result], at: datetime) -> dict[str, Any]:
    """The report as JSON values."""
    both = numbers(results)
    return {
        "at": at.isoformat(),
        "recall": {"found": both.recalled, "of": both.drills},
        "false_alarms": both.alarms,
        "failed": list(both.failed),
        "skipped": list(both.skipped),
        "drills": [_told(result) for result in results],
    }


def _told(result: Result) -> dict[str, Any]:
    drill, verdict = result.drill, result.verdict
    return {
        "drill": drill.name,
        "case": drill.case,
        "kafka": result.kafka,
        "brokers": drill.cluster.brokers,
        "what_happens": drill.what,
        "seen_in": drill.seen_in,
        "must": [str(must) for must in drill.must],
        "may": allowed(drill),
        "found": dict(verdict.counts),
        "verdict": str(verdict),
        "passed": verdict.passed,
        "missing": list(verdict.missing),
        "false_alarms": [found.told() for found in verdict.alarms],
        "still_open": [found.told() for found in verdict.open],
        "first_s": verdict.first,
        "complete_s": verdict.complete,
        "seconds": round(result.seconds, 1),
        "acts": [{"at": at, "what": what} for at, what in result.acts[:100]],
        "findings": [found.told() for found in result.found[:200]],
        "history": str(result.history) if result.history else None,
    }


def write(results: Sequence[Result], folder: Path, at: datetime | None = None) -> tuple[Path, Path]:
    """Write `drills.json` and `drills.html` into the folder. Raises UserError where that cannot be done."""
    at = at or datetime.now(UTC)
    content, page = folder / "drills.json", folder / "drills.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content.write_bytes(orjson.dumps(told(results, at), option=orjson.OPT_INDENT_2, default=str))
        page.write_text(_page(results, at), encoding="utf-8")
    except OSError as error:
        raise UserError(f"the report cannot be written to {folder}: {error.strerror}") from error
    return content, page


_STYLE: Final = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:80rem;padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:.2rem}.sub{color:#777;margin-top:0}
.numbers{display:flex;flex-wrap:wrap;gap:1rem;margin:1.5rem 0}
.numbers div{border:1px solid #8886;border-radius:8px;padding:.6rem 1.2rem}
.numbers b{display:block;font-size:1.8rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.45rem .7rem;border-bottom:1px solid #8883}
th{font-weight:600;white-space:nowrap}td.n{text-align:right;white-space:nowrap}
.passed{color:#16803c}.failed{color:#c81e1e;font-weight:600}
small{color:#777;display:block}details{margin-top:.3rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}
code,pre{font:12px/1.45 ui-monospace,monospace}
"""


def _page(results: Sequence[Result], at: datetime) -> str:
    both = numbers(results)
    rows = "\n".join(_row(result) for result in results)
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    passed = sum(result.verdict.passed for result in results)
    seconds = sum(result.seconds for result in results)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Offsetwatch: drills</title><style>{_STYLE}</style></head><body>
<h1>Drills</h1>
<p class="sub">{at:%Y-%m-%d %H:%M} UTC, {len(results)} runs in {seconds / 60:.0f} min</p>
<div class="numbers">
<div>recall<b class="{_class(both.recalled == both.drills)}">{both.recalled} of {both.drills}</b>
drills whose must findings were all raised</div>
<div>false alarms<b class="{_class(not both.alarms)}">{both.alarms}</b>violations that had no reason</div>
<div>runs that passed<b class="{_class(not both.failed)}">{passed} of {len(results)}</b>
a run is one drill on one version of Kafka</div>
</div>
<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>
{rows}
</tbody></table></div>
</body></html>
"""


def _class(good: bool) -> str:
    return "passed" if good else "failed"


def _row(result: Result) -> str:
    title, must, may, found, first, verdict = map(html.escape, _cells(result))
    drill = result.drill
    where = f"Kafka {result.kafka}, {drill.cluster.brokers} broker{'s' * (drill.cluster.brokers > 1)}"
    said = html.escape(f"{drill.what} First seen: {drill.seen_in}.")
    lines = [f"{what}" for _, what in result.acts[:10]]
    lines += [f"{one.severity} {one.name} {one.finding.event}: {one.finding.message}" for one in result.found[:20]]
    kept = f"<small>history kept in <code>{html.escape(str(result.history))}</code></small>" if result.history else ""
    details = (
        f"<details><summary>what was done and found</summary><pre>{html.escape(chr(10).join(lines))}</pre></details>"
    )
    return (
        f"<tr><td><b>{title}</b><small>{said}</small><small>{html.escape(where)}</small>{details if lines else ''}</td>"
        f"<td>{must}</td><td>{may}</td><td>{found}</td><td class='n'>{first}</td>"
        f"<td class='{_class(not result.verdict.failed)}'>{verdict}{kept}</td></tr>"
    )
