"""What to do about an anomaly, from the runbook: its section, as paragraphs, where the file is installed.

The runbook is Markdown of a plain kind, prose with `code` and links; that is all that is read of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RUNBOOK: Final = Path(__file__).resolve().parent / "runbook.md"
"""In the repository a link to docs/runbook.md; where the program is installed, a copy of it."""
_PART: Final = re.compile(r"`(?P<code>[^`]+)`|\[(?P<link>[^\]]+)\]\((?P<to>[^)\s]*)\)")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a sentence: prose, `code`, or the name of another section (`see`)."""

    kind: str
    text: str


Paragraph = list[Part]


def sections(path: Path = RUNBOOK) -> dict[str, list[Paragraph]]:
    """The runbook's sections by the anomaly that they are about; none where there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return {}
    found = {}
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        body = re.split(r"^#", body, maxsplit=1, flags=re.MULTILINE)[0]
        found[title.strip()] = [_parts(" ".join(one.split())) for one in re.split(r"\n\s*\n", body) if one.strip()]
    return found


def _parts(paragraph: str) -> Paragraph:
    parts, at = [], 0
    for match in _PART.finditer(paragraph):
        if match.start() > at:
            parts.append(Part("prose", paragraph[at : match.start()]))
        if match["code"] is not None:
            parts.append(Part("code", match["code"]))
        else:
            parts.append(Part("see" if match["to"].startswith("#") else "prose", match["link"].strip("`")))
        at = match.end()
    if at < len(paragraph):
        parts.append(Part("prose", paragraph[at:]))
    return parts
