"""`python -m tests.rules.world --worlds N --seed S --jobs J`: runs random worlds, one line each, and a summary.
`--cases [PART OF A NAME]` runs the situations of `cases.py` instead."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.rules.world.cases import CASES, judge_case
from tests.rules.world.judge import Verdict, judge
from tests.rules.world.kernel import SECOND
from tests.rules.world.random_worlds import random_plan
from tests.rules.world.world import World

Told = tuple[str, list[str]]
"""What a world is, and the differences found in it."""


def run_seed(seed: int, every: int = 2) -> Told:
    plan = random_plan(seed)
    return _safely(
        f"{seed} {plan.describe()}",
        lambda: judge(World(plan).run(), every=every * SECOND, patience=plan.patience),
    )


def run_case(name: str, twin: str) -> Told:
    case = next(c for c in CASES if c.name == name)
    return _safely(f"{name} [{twin}]", lambda: judge_case(case, twin))


def _safely(what: str, run: Callable[[], Verdict]) -> Told:
    try:
        began = time.process_time()
        verdict = run()
        took = time.process_time() - began
        return f"{what} ({verdict.required} required, {took:.1f} s)", verdict.differences
    except Exception:
        return what, ["raised " + traceback.format_exc()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rules.world")
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the others follow it")
    parser.add_argument("--every", type=int, default=2, help="seconds of a live step: fewer steps, more worlds")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cases", nargs="?", const="", help="the situations whose name holds this")
    parser.add_argument("--all", action="store_true", help="every difference, not only the first")
    args = parser.parse_args()
    worlds: list[Callable[[], Told]] = [partial(run_seed, args.seed + i, args.every) for i in range(args.worlds)]
    if args.cases is not None:
        worlds = [partial(run_case, c.name, twin) for c in CASES if args.cases in c.name for twin in c.twins()]
    began = time.monotonic()
    kinds: Counter[str] = Counter()
    for what, differences in _results(worlds, args.jobs):
        kinds[kind_of(differences)] += 1
        print(what, "FAILED" if differences else "ok", flush=True)
        for d in differences if args.all else differences[:1]:
            print("   ", d, flush=True)
    took = time.monotonic() - began
    failed = len(worlds) - kinds["ok"]
    told = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    print(f"{len(worlds)} worlds, {failed} failed ({told}), {60 * len(worlds) / took:.0f} a minute")
    return 1 if failed else 0


def kind_of(differences: list[str]) -> str:
    """The worst of a world's differences."""
    kinds = ("raised", "invented", "missed", "late", "not open", "other findings", "other order findings")
    return next((kind for kind in kinds if any(kind in d for d in differences)), "ok")


def _results(worlds: list[Callable[[], Told]], jobs: int) -> Iterable[Told]:
    if jobs == 1:
        yield from (run() for run in worlds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from (future.result() for future in [pool.submit(run) for run in worlds])


if __name__ == "__main__":
    sys.exit(main())
