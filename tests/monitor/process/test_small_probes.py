"""What a process of probes imports: its clients, the probe log, and none of the checks or what only Spark needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = """
import sys

import {module}

heavy = ("pandas", "pyspark", "rules.step", "rules.engine", "rules.checks", "rules.across", "streaming_jobs.tables")
print(*sorted(name for name in heavy if name in sys.modules))
"""

COMMAND = """
import sys

from monitor import cli


def found(*_, **__):
    print(*sorted(name for name in ("pandas", "hypothesis") if name in sys.modules))
    raise SystemExit


cli.loaded_by = found
cli.probe_run(None, None, None, None, False)
"""


def printed(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.parametrize(
    "module",
    ["monitor.process.probing", "monitor.process.fleet_process", "probes.running.probe_process", "monitor.cli"],
)
def test_a_process_of_probes_imports_no_checks(module: str) -> None:
    """They are 7 MiB, and pandas, which pyarrow imports with the first array that they make, is 24 more."""
    assert printed(LOADED.format(module=module)) == ""


def test_what_nobody_asked_for_is_kept_out_before_the_command_imports_anything() -> None:
    assert printed(COMMAND) == ""
