"""`python -m tests.rules.world --worlds N --seed S --jobs J`: runs random worlds, one line each, and a summary."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor

from tests.rules.world.judge import judge
from tests.rules.world.random_worlds import random_plan
from tests.rules.world.world import World


def one(seed: int) -> tuple[int, str, list[str]]:
    """(seed, what the world is, the differences)."""
    plan = random_plan(seed)
    try:
        return seed, plan.describe(), judge(World(plan).run()).differences
    except Exception:
        return seed, plan.describe(), ["raised " + traceback.format_exc()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rules.world")
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the others follow it")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="every difference, not only the first")
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.worlds)
    began, failed = time.monotonic(), 0
    with ProcessPoolExecutor(args.jobs) as pool:
        for seed, what, differences in pool.map(one, seeds) if args.jobs > 1 else map(one, seeds):
            failed += bool(differences)
            print(seed, what, "ok" if not differences else "FAILED", flush=True)
            for d in differences if args.all else differences[:1]:
                print("   ", d, flush=True)
    took = time.monotonic() - began
    print(f"{args.worlds} worlds, {failed} failed, {60 * args.worlds / took:.0f} a minute")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
