"""Prints what the project depends on, a line each, with the named extras: `python requirements.py chat`.

So that an image's layer of packages is made anew only where a version changed, and not with every line of our code."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
for wanted in [project["dependencies"], *(project["optional-dependencies"][extra] for extra in sys.argv[1:])]:
    print("\n".join(wanted))
