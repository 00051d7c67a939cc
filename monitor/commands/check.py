"""`offsetwatch check FILE...`: judge finished histories with the same rules as the live monitor, without Spark.

Each file is a history of its own; `-` is standard input. A folder or a URL is a probe log: Delta's table `history`, or
a folder of data that has one, as a drill that failed keeps it; it is judged as the live monitor would have judged it.

The exit code is 0 where every one is valid, 1 where one has a violation or acknowledged values that nobody polled, 2
where one could not be read or checked: then its verdict is unknown, whatever the others say.

With `--json` each history is one object a line. `valid` is true, false, or null where the verdict is unknown: then
`error` says why, and `line` where. Otherwise `anomalies`, `allowed` and `conditions` list evidence by name. Of one name
and key, at most a thousand findings are listed one by one (`Objectives.findings_per_step`; of vanished and late records
a hundred for each reader that went over them): `left_out` counts the others by name. `unsearched` names the kinds of
cycles of which the search found as many as it reports, so that there may be more. Evidence lists the first ten values
of a long list, beside their number, and both ends of a cycle of more than 24 operations, beside how many it leaves out.

Nothing heavy is imported before it is needed: a small file is judged in well under a second.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitor.errors import USAGE_OR_ENVIRONMENT, VIOLATION

if TYPE_CHECKING:
    from monitor.history_files.history_file import HistoryFile
    from monitor.history_files.verdict import Verdict
    from monitor.history_files.verdict_text import VerdictText
    from rules.cycles.search import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`json_output` prints one JSON object a line and file. `strict` allows nothing that the policy would; `allow` are
    names that are allowed whatever it says. `cycles`: whether dependency cycles are searched for, and `ww` whether
    write-write edges count in that; `pictures` is a folder for their pictures, if any are wanted."""

    json_output: bool = False
    strict: bool = False
    allow: Sequence[str] = ()
    ww: bool = False
    cycles: bool = True
    pictures: Path | None = None


def run(files: Sequence[str | Path], options: Options | None = None) -> int:
    """Check each file, print its verdict, and return the exit code of the command."""
    options = options or Options()
    if (complaint := _misuse(files, options)) is not None:
        print(f"offsetwatch: {complaint}", file=sys.stderr)
        return USAGE_OR_ENVIRONMENT
    text = None
    if not options.json_output:
        from monitor.history_files.verdict_text import VerdictText

        text = VerdictText()
    codes = [_check(path, options, text) for path in files]
    if text is not None and len(codes) > 1:
        text.count(*(codes.count(code) for code in (0, VIOLATION, USAGE_OR_ENVIRONMENT)))
    sys.stdout.flush()
    return max(codes, default=0)


def _misuse(files: Sequence[str | Path], options: Options) -> str | None:
    """What is wrong with the command line, in one sentence. Makes the folder for pictures."""
    from monitor.history_files.source import STANDARD_INPUT
    from rules.vocabulary.catalogue import CATALOGUE

    for name in options.allow:
        if name not in CATALOGUE:
            near = get_close_matches(name, CATALOGUE, 1)
            known = f"did you mean {near[0]}?" if near else f"known are {', '.join(CATALOGUE)}"
            return f"--allow: there is no anomaly {name}; {known}"
    if options.ww and not options.cycles:
        return "--ww is for the search of cycles, which --no-cycles leaves out"
    if [Path(path) for path in files].count(STANDARD_INPUT) > 1:
        return "- stands for standard input, which can be read only once"
    if options.pictures is not None:
        try:
            options.pictures.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return f"--pictures {options.pictures}: {error.strerror}"
    return None


def _check(given: str | Path, options: Options, text: VerdictText | None) -> int:
    from monitor.errors import UserError
    from monitor.history_files.errors import UnreadableHistory
    from monitor.history_files.source import called

    path = Path(given)
    name = str(given) if _is_url(given) else called(path)
    json_output = options.json_output
    of = "operations"
    try:
        if _is_url(given) or path.is_dir():
            judged, operations = _judge_log(given, options)
            of = "rows"
        else:
            judged, operations = _judge(path, options)
    except UnreadableHistory as e:
        _failed(given, str(e), {"error": e.reason, "line": e.line}, json_output)
        return USAGE_OR_ENVIRONMENT
    except UserError as e:
        _failed(given, str(e), {"error": str(e), "line": None}, json_output)
        return USAGE_OR_ENVIRONMENT
    except Exception as e:  # a check that crashed means unknown, not passed, and is no reason to skip the other files
        traceback.print_exc()
        reason = f"the check itself failed: {type(e).__name__}: {e}"
        told = f"{name}: {reason}; its verdict is unknown"
        _failed(given, told, {"error": reason, "line": None}, json_output)
        return USAGE_OR_ENVIRONMENT
    if text is not None:
        text.show(name, judged, operations, of)
    else:
        _print_json({"file": str(given), "valid": judged.valid, **asdict(judged)})
    return 0 if judged.valid else VIOLATION


def _judge(path: Path, options: Options) -> tuple[Verdict, int]:
    """(verdict, number of operations) of one file."""
    from monitor.history_files.history_file import read
    from monitor.history_files.verdict import judge
    from rules.across.resolution import resolve
    from rules.checks.records.unsent_values import unsent
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
    findings += resolve({}, facts, Objectives(), finished=True).findings
    unsearched: tuple[str, ...] = ()
    if options.cycles:
        found = _cycles(history, options)
        findings, unsearched = findings + found.findings, found.truncated
    judged = judge(findings, history.names, strict=options.strict, allow=options.allow)
    judged.unsearched.extend(unsearched)
    return judged, history.operations


def _is_url(given: str | Path) -> bool:
    return isinstance(given, str) and "://" in given


def _judge_log(given: str | Path, options: Options) -> tuple[Verdict, int]:
    """(verdict, number of rows) of a probe log."""
    from monitor.history_files.errors import UnreadableHistory
    from monitor.history_files.probe_log import judge, located, verdict
    from rules.vocabulary.objectives import Objectives
    from streaming_jobs.errors import JobError

    history = located(given)
    if history is None:
        what = "URL" if _is_url(given) else "folder"
        raise UnreadableHistory(given, f"is a {what} without a probe log: no Delta table, nor one in tables/history")
    try:
        judged = judge(
            history, Objectives(), cycles=options.cycles, ww=options.ww, pictures=options.pictures, say=_note
        )
    except JobError as error:
        raise UnreadableHistory(given, str(error).rstrip(".")) from error
    if judged.rejected:
        _note(f"{given}: {judged.rejected} rows could not be understood")
    return verdict(judged.findings, strict=options.strict, allow=options.allow), judged.rows


def _note(line: str) -> None:
    from monitor.screen import one_line

    print(f"offsetwatch: {one_line(line)}", file=sys.stderr)


def _cycles(history: HistoryFile, options: Options) -> Found:
    """The dependency cycles of the whole history; their pictures go into the folder for them, if there is one."""
    from monitor.history_files.source import STANDARD_INPUT
    from rules.cycles.search import search

    found = search(history.slices, ww=options.ww)
    if options.pictures is not None:
        from monitor.history_files.verdict import worded
        from rules.cycles.picture import picture

        stem = "stdin" if history.path == STANDARD_INPUT else history.path.stem
        for one in found.findings:
            drawn = picture(one.anomaly, one.evidence, lambda sentence: worded(sentence, history.names))
            (options.pictures / f"{stem}-{one.anomaly}-{one.id}.svg").write_text(drawn, encoding="utf-8")
    return found


def _failed(given: str | Path, sentence: str, error: dict[str, Any], json_output: bool) -> None:
    if json_output:
        _print_json({"file": str(given), "valid": None, **error})
    _note(sentence)


def _print_json(verdict: dict[str, Any]) -> None:
    import orjson

    # What EDN can hold and JSON cannot (integers beyond 64 bits, for one) is given as text.
    try:
        option = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
        line = orjson.dumps(verdict, default=str, option=option).decode()
    except orjson.JSONEncodeError:  # half a character, as a value or in a file's name, or a value of many levels
        line = json.dumps(verdict, default=lambda one: one.item() if hasattr(one, "item") else str(one))
    sys.stdout.write(line + "\n")
