"""The generated pages: up to date, complete, and the reference file is a configuration that loads."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from monitor.config import reference
from monitor.config.config import Config, load
from rules.vocabulary.catalogue import CATALOGUE

FILE = reference.DOCS / "offsetwatch.toml"


@pytest.mark.parametrize("page", sorted(reference.PAGES))
def test_the_page_is_what_the_code_says(page: str) -> None:
    written = (reference.DOCS / page).read_text(encoding="utf-8")
    assert written == reference.PAGES[page](), "run: python -m monitor.config.reference"


def test_the_reference_file_loads_and_is_the_default(tmp_path: Path) -> None:
    assert load(FILE, {}).model_dump() == Config().model_dump()


def keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key of the models with its default, found without the generator's code."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, (*path, name))
        else:
            yield (*path, name), field.default


def test_the_reference_file_names_every_key_with_its_default() -> None:
    text = FILE.read_text(encoding="utf-8")
    parsed = tomllib.loads(text)
    listed = dict(keys(Config))
    assert len(listed) > 60
    for path, default in listed.items():
        table: Any = parsed
        for name in path[:-1]:
            table = table[name]
        if default is None or path == ("job", "root"):
            heading = re.escape(f"[{'.'.join(path[:-1])}]")
            section = re.split(heading + "\n", text, maxsplit=1)[1].split("\n\n")[0]
            assert f"# {path[-1]} =" in section, path
        else:
            shown = table[path[-1]]
            assert shown == (
                list(default) if isinstance(default, tuple) else str(default) if isinstance(default, Path) else default
            )


def test_every_key_of_the_probes_and_alerts_is_explained() -> None:
    for path, _ in keys(Config):
        model: Any = Config
        for name in path[:-1]:
            model = model.model_fields[name].annotation
        described = model.model_fields[path[-1]].description
        documented = f"`{path[-1]}`" in (model.__doc__ or "")
        assert described or documented or path[0] == "job", path


def test_every_anomaly_has_its_entry() -> None:
    page = (reference.DOCS / "anomalies.md").read_text(encoding="utf-8")
    assert re.findall(r"^### `(.+)`$", page, re.MULTILINE) == sorted(
        CATALOGUE,
        key=lambda name: (
            [kind for kind, *_ in reference._KINDS].index(CATALOGUE[name].kind),
            list(CATALOGUE).index(name),
        ),
    )
