"""`python -m tests.mutation`: see the package."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tests.mutation.mutants import Mutant, function_source, mutants

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = ROOT / "tests" / "rules"
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
SLOW: Final = ("test_model.py", "test_reference.py", "test_cycles_random.py")
"""Random histories: they notice much, late. What only they notice, a case should."""
APART: Final = ("kept", "triage", "world")
"""Rooms whose tests are about the state's form, about what is told together, and about whole worlds, not one check."""
WAYS: Final = re.compile(r"\b(row.by.row|at.once|shuffled(_otherwise)?|in.(random.)?pieces|interleaved|finished)\b")
"""The words in the names of tests that tell how a history is fed, and not which."""
PYTEST: Final = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:randomly",
)


class Task(NamedTuple):
    """A mutant to try. `key`: what a verdict is kept by; `name`: what it is called among the module's, once; `tests`:
    those to try now, `<hash of the file>:<pytest's id>`; `passed`: how many others did not notice it before."""

    key: str
    name: str
    file: str
    mutant: Mutant
    tests: list[str]
    seconds: float
    passed: int


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = _arguments()
    folder: Path = chosen.results
    folder.mkdir(parents=True, exist_ok=True)
    files = _files(chosen.check)
    reach = _learned(folder, chosen.jobs, chosen.tests)
    equivalent = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    verdicts, passed = ({}, {}) if chosen.again else (_verdicts(folder), _passed(folder))
    tasks = {file: list(_tasks(file, reach, chosen.budget, passed)) for file in files}
    if chosen.list:
        for file, mine in tasks.items():
            print(*(f"{file}:{task.mutant.line}: {task.mutant.change}" for task in mine), sep="\n")
        return 0
    open_ = [
        task
        for file in files
        for task in tasks[file]
        if not verdicts.get(task.key) and task.name not in equivalent.get(file, {})
    ]
    if not chosen.told:
        verdicts |= _tried(folder, open_, chosen.jobs)
    totals: Counter[str] = Counter()
    for file in files:
        totals += _told(file, tasks[file], verdicts, equivalent.get(file, {}))
    print(_sum("all", totals))
    return 1 if totals["survived"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--check", action="append", default=[], help="a module, as zero_offsets or across/lookups")
    parser.add_argument("--tests", action="append", default=[], help="only these test modules, as test_log_ends")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of tests that a mutant may take")
    parser.add_argument("--results", type=Path, default=ROOT / ".offsetwatch" / "mutation")
    parser.add_argument("--again", action="store_true", help="try what was killed before, too")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    parser.add_argument("--told", action="store_true", help="try nothing, tell what is known")
    return parser.parse_args()


def _files(names: list[str]) -> list[str]:
    """The modules that are made wrong: all that report, or that decide what is reported."""
    rules = ROOT / "rules"
    paths = [*(rules / "checks").rglob("*.py"), *(rules / "across").glob("*.py")]
    paths += [rules / "audit" / "explain.py", rules / "registers" / "check.py"]
    every = sorted(str(path.relative_to(ROOT)) for path in paths if path.name != "__init__.py")
    wanted = [file for file in every if not names or any(file.endswith(f"/{name}.py") for name in names)]
    if missing := [name for name in names if not any(file.endswith(f"/{name}.py") for file in every)]:
        sys.exit(f"there is no check {', '.join(missing)}")
    return wanted


# What tests reach


def _learned(folder: Path, jobs: int, names: list[str]) -> dict[str, dict[str, Any]]:
    """By test, its lines and seconds; learned anew for a test file that changed."""
    reach: dict[str, dict[str, Any]] = {}
    unknown: list[tuple[Path, Path]] = []
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.parent.name in APART:
            continue
        if path.stem in names or (not names and path.name not in SLOW):
            stored = folder / f"reach-{path.stem}-{_hash(path)}.jsonl"
            if not stored.is_file():
                unknown.append((path, stored))
            else:
                reach |= _lines(stored)
    with ThreadPoolExecutor(jobs) as pool:
        for learned in pool.map(_learn, unknown):
            reach |= learned
    return reach


def _learn(unknown: tuple[Path, Path]) -> dict[str, dict[str, Any]]:
    path, stored = unknown
    part = stored.with_suffix(f".{os.getpid()}")
    sources = {str(file.relative_to(ROOT)): _hash(file) for file in (ROOT / "rules").rglob("*.py")}
    part.write_bytes(orjson.dumps({"sources": sources}) + b"\n")
    command = [*PYTEST, "-p", "tests.mutation.reach", "--timeout=120", "-k", "not hundred_thousand", str(path)]
    ended = _run(command, OFFSETWATCH_REACH=str(part)).wait()
    if ended not in (0, 1):  # a test that fails is not among those that notice mutants
        part.unlink()
        sys.exit(f"the tests of {path.name} cannot be run: pytest ended with {ended}")
    part.rename(stored)
    print(f"learned what {path.name} reaches", file=sys.stderr)
    return _lines(stored)


def _lines(stored: Path) -> dict[str, dict[str, Any]]:
    head, *told = map(orjson.loads, stored.read_bytes().splitlines())
    same = {
        file for file, source in head["sources"].items() if (ROOT / file).is_file() and _hash(ROOT / file) == source
    }
    written = stored.stem.rsplit("-", 1)[1]
    return {
        one["test"]: {
            **one,
            "as": f"{written}:{one['test']}",
            "lines": {file: set(lines) for file, lines in one["lines"].items() if file in same},
        }
        for one in told
    }


def _reaches(one: dict[str, Any], file: str, mutant: Mutant) -> bool:
    if not mutant.function:  # a constant of the module
        return file in one["functions"]
    if file in one["lines"]:
        first, last = mutant.lines
        return any(first <= line <= last for line in one["lines"][file])
    return mutant.function in one["functions"].get(file, ())


def _likeliest_first(reach: dict[str, dict[str, Any]], file: str) -> list[dict[str, Any]]:
    """The tests that reach the module: of each case the quickest way in which it is fed first, then the others; of
    these, first those that reach much of it in little time."""
    kinds: Counter[str] = Counter()
    scored = []
    for one in sorted(reach.values(), key=lambda one: one["seconds"]):
        reached = len(one["lines"].get(file, one["functions"].get(file, ())))
        if not reached:
            continue
        kind = WAYS.sub("", one["test"])
        kinds[kind] += 1
        scored.append((kinds[kind], -reached / (one["seconds"] + 0.02), one))
    return [one for *_, one in sorted(scored, key=lambda score: score[:2])]


def _hash(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=6).hexdigest()


# Mutants


def _tasks(file: str, reach: dict[str, dict[str, Any]], budget: float, passed: dict[str, set[str]]) -> Iterable[Task]:
    source = (ROOT / file).read_text(encoding="utf-8")
    functions: dict[str, str] = {}
    likeliest = _likeliest_first(reach, file)
    repeated: Counter[tuple[str, str]] = Counter()
    for mutant in mutants(source):
        if mutant.function not in functions:
            functions[mutant.function] = function_source(source, mutant.function)
        name = mutant.function, mutant.change
        repeated[name] += 1
        told = f"{file}|{functions[mutant.function]}|{mutant.change}|{repeated[name]}"
        key = hashlib.blake2b(told.encode(), digest_size=10).hexdigest()
        tests, seconds, known = list[str](), 0.0, passed.get(key, set[str]())
        for one in likeliest:
            if not _reaches(one, file, mutant) or (tests and seconds + one["seconds"] > budget):
                continue
            if one["as"] in known:
                continue
            seconds += one["seconds"]
            tests.append(one["as"])
        number = f" ({repeated[name]})" if repeated[name] > 1 else ""
        yield Task(key, f"{mutant.function}: {mutant.change}{number}", file, mutant, tests, seconds, len(known))


def _verdicts(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.glob("verdicts-*.jsonl")):
        for line in path.read_bytes().splitlines():
            told = orjson.loads(line)
            found[told["key"]] = told["verdict"] or found.get(told["key"], "")
    return found


def _passed(folder: Path) -> dict[str, set[str]]:
    """By key, the tests, as they are written now, that did not notice: only others are tried again."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.glob("verdicts-*.jsonl")):
        for line in path.read_bytes().splitlines():
            told = orjson.loads(line)
            found.setdefault(told["key"], set()).update(told.get("passed", ()))
    return found


def _tried(folder: Path, tasks: list[Task], jobs: int) -> dict[str, str]:
    """Try these now; by key, who killed it, "" for nobody."""
    running = []
    for job in range(jobs):
        mine = [task for task in tasks[job::jobs] if task.tests]
        if not mine:
            continue
        plan, verdicts = folder / f"plan-{job}.json", folder / f"verdicts-{job}.jsonl"
        told = [
            {
                "key": t.key,
                "file": t.file,
                "number": t.mutant.number,
                "tests": t.tests,
                "seconds": t.seconds,
            }
            for t in mine
        ]
        plan.write_bytes(orjson.dumps({"tasks": told, "verdicts": str(verdicts)}))
        files = sorted({test.split(":")[1] for task in mine for test in task.tests})
        command = [*PYTEST, "-p", "tests.mutation.trial", f"--basetemp={folder / f'tmp-{job}'}", *files]
        running.append(_run(command, OFFSETWATCH_TRIAL=str(plan)))
    try:
        for process in running:
            process.wait()
    finally:  # broken off: what was found is kept
        for process in running:
            process.terminate()
    kept = _verdicts(folder)
    return {task.key: kept.get(task.key, "") if task.tests else "" for task in tasks}


def _run(command: list[str], **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


# What is said


def _told(file: str, tasks: list[Task], verdicts: dict[str, str], reasons: dict[str, str]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for task in tasks:
        mutant, killer = task.mutant, verdicts.get(task.key, "")
        if task.name in reasons and not killer:
            counted["equivalent"] += 1
            said = f"equivalent: {reasons[task.name]}"
        elif killer:
            counted["killed"] += 1
            said = f"killed by {killer}"
        else:
            counted["survived"] += 1
            tried = task.passed + len(task.tests)
            said = f"SURVIVED {tried} tests" if tried else "SURVIVED: no test reaches it"
        print(f"{file}:{mutant.line}: {task.name}: {said}")
    open_ = {task.name for task in tasks if not verdicts.get(task.key)}
    for change in sorted(reasons.keys() - open_):
        counted["survived"] += 1
        print(f"{file}: equivalent.toml has a change that is no mutant any more, or is killed: {change}")
    print(_sum(file, counted), flush=True)
    return counted


def _sum(name: str, counted: Counter[str]) -> str:
    return f"{name}: " + ", ".join(f"{counted[what]} {what}" for what in ("killed", "survived", "equivalent"))


if __name__ == "__main__":
    sys.exit(main())
