"""`offsetwatch check FILE...`: judge finished histories with the same rules as the live monitor, without Spark.

Each file is a history of its own. The exit code is 0 where every file is valid, 1 where one has a violation, 2 where
one could not be read or checked: then its verdict is unknown, whatever the others say.

Nothing heavy is imported before it is needed: a small file is judged in well under a second.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from monitor.errors import USAGE_OR_ENVIRONMENT, VIOLATION

if TYPE_CHECKING:
    from monitor.history_files.history import History
    from monitor.history_files.verdict import Evidence, Verdict
    from rules.vocabulary.finding import Finding

SHOWN: Final = 5
"""How many findings of an anomaly the readable report shows one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`json_output` prints one JSON object a line and file. `strict` allows nothing. `cycles`: whether dependency
    cycles are searched for, and `ww` whether write-write edges count in that; `pictures` is a folder for their
    pictures, if any are wanted."""

    json_output: bool = False
    strict: bool = False
    ww: bool = False
    cycles: bool = True
    pictures: Path | None = None


def run(files: Sequence[Path], options: Options | None = None) -> int:
    """Check each file, print its verdict, and return the exit code of the command."""
    options = options or Options()
    if options.ww and not options.cycles:
        print("offsetwatch: --ww is for the search of cycles, which --no-cycles leaves out", file=sys.stderr)
        return USAGE_OR_ENVIRONMENT
    if options.pictures is not None:
        try:
            options.pictures.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            print(f"offsetwatch: --pictures {options.pictures}: {error.strerror}", file=sys.stderr)
            return USAGE_OR_ENVIRONMENT
    codes = [_check(Path(path), options) for path in files]
    sys.stdout.flush()
    return max(codes, default=0)


def _check(path: Path, options: Options) -> int:
    json_output = options.json_output
    from monitor.history_files.errors import UnreadableHistory

    try:
        judged, operations = _judge(path, options)
    except UnreadableHistory as e:
        _failed(path, str(e), {"error": e.reason, "line": e.line}, json_output)
        return USAGE_OR_ENVIRONMENT
    except Exception as e:  # a check that crashed means unknown, not passed, and is no reason to skip the other files
        traceback.print_exc()
        reason = f"the check itself failed: {type(e).__name__}: {e}"
        _failed(path, f"{path}: {reason}; its verdict is unknown", {"error": reason, "line": None}, json_output)
        return USAGE_OR_ENVIRONMENT
    if json_output:
        _print_json(
            {
                "file": str(path),
                "valid": judged.valid,
                "anomalies": judged.anomalies,
                "allowed": judged.allowed,
                "conditions": judged.conditions,
            }
        )
    else:
        _print_report(path, judged, operations)
    return 0 if judged.valid else VIOLATION


def _judge(path: Path, options: Options) -> tuple[Verdict, int]:
    """(verdict, number of operations) of one file."""
    from monitor.history_files.history import read
    from monitor.history_files.verdict import verdict
    from rules.across.resolution import resolve
    from rules.checks.unsent_values import unsent
    from rules.engine.finished import telling
    from rules.step import step
    from rules.vocabulary.objectives import Objectives

    history = read(path)
    stepped = step({}, history.slices, Objectives(), finished=True)
    # A file holds all that was sent, so that more is known of its phantoms than a partition's log alone tells.
    findings = [f for one in stepped.values() for f in one.findings if f.anomaly != "phantom-read"]
    findings += unsent(history.slices, Objectives())
    facts = telling([one.facts for one in stepped.values()])
    del stepped
    findings += resolve(None, facts, Objectives(), finished=True).findings
    if options.cycles:
        findings += _cycles(history, options)
    return verdict(findings, history.names, strict=options.strict), history.operations


def _cycles(history: History, options: Options) -> list[Finding]:
    """The dependency cycles of the whole history; their pictures go into the folder for them, if there is one."""
    from rules.cycles.search import search

    found = search(history.slices, ww=options.ww).findings
    if options.pictures is not None:
        from monitor.history_files.verdict import worded
        from rules.cycles.picture import picture

        for one in found:
            drawn = picture(one.anomaly, one.evidence, lambda sentence: worded(sentence, history.names))
            (options.pictures / f"{history.path.stem}-{one.anomaly}-{one.id}.svg").write_text(drawn, encoding="utf-8")
    return found


def _failed(path: Path, sentence: str, error: dict[str, Any], json_output: bool) -> None:
    if json_output:
        _print_json({"file": str(path), "valid": None, **error})
    print(f"offsetwatch: {sentence}", file=sys.stderr)


def _print_json(verdict: dict[str, Any]) -> None:
    import orjson

    # What EDN can hold and JSON cannot (integers beyond 64 bits, for one) is given as text.
    line = orjson.dumps(verdict, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    sys.stdout.write(line.decode() + "\n")


def _print_report(path: Path, judged: Verdict, operations: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    word = "[bold green]valid[/]" if judged.valid else "[bold red]not valid[/]"
    console.print(f"[bold]{escape(str(path))}[/]: {word} [dim]({operations:,} operations)[/]")
    groups = (("anomalies", judged.anomalies, "red"), ("allowed", judged.allowed, "cyan"),
              ("conditions", judged.conditions, "yellow"))  # fmt: skip
    for title, group, color in groups:
        for name, found in group.items():
            _print_anomaly(console, name, title, found, color)


def _print_anomaly(console: Any, name: str, title: str, found: list[Evidence], color: str) -> None:
    from rich.markup import escape

    from rules.vocabulary.catalogue import CATALOGUE

    total = len(found) + sum(evidence.get("more_of_the_same", 0) for evidence in found)
    note = {"anomalies": "", "allowed": ", allowed by the policy", "conditions": ", not judged"}[title]
    console.print(f"\n  [bold {color}]{name}[/]: {total:,} found{note}")
    if name in CATALOGUE:
        console.print(f"  [dim]{escape(CATALOGUE[name].meaning)}[/]")
    for evidence in found[:SHOWN]:
        details = {k: v for k, v in evidence.items() if k not in ("key", "message", "more_of_the_same", "mode")}
        where = f"key {evidence['key']}" if evidence["key"] is not None else "several keys"
        if "why" in evidence:
            _print_cycle(console, where, evidence)
            continue
        console.print(f"    {escape(where)}: {escape(evidence['message'])}")
        if details:
            console.print(f"      [dim]{escape(', '.join(f'{k} {v}' for k, v in details.items()))}[/]")
    if total > SHOWN:
        console.print(f"    [dim]and {total - min(SHOWN, len(found)):,} more (--json lists them)[/]")


def _print_cycle(console: Any, where: str, evidence: Evidence) -> None:
    from rich.markup import escape

    console.print(f"    {escape(where)}: {evidence['length']} operations, each before the next:")
    for i, sentence in enumerate(evidence["why"]):
        console.print(f"      {escape(sentence)}")
        if evidence["left_out"] and i + 1 == len(evidence["why"]) // 2:
            console.print(f"      [dim]{evidence['left_out']:,} operations more[/]")
