"""A cycle as a picture: its operations as boxes from top to bottom, an arrow for each step, and one back to the top.

The SVG stands for itself: no style sheet, script or font is loaded; it has a title and the whole explanation in words
for those who cannot see it; colours tell the kinds apart, and so do the lines' patterns and their labels. It is drawn
from a finding's evidence, so that whoever has the finding can draw it; `worded` puts its sentences into other terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from xml.sax.saxutils import escape

_WIDTH: Final = 760
_LEFT: Final = 32
_RIGHT: Final = 640
_TOP: Final = 92
_BOX: Final = 62
_GAP: Final = 84
_LINE: Final = 84
_COLOURS: Final = {"ww": "#a04000", "wr": "#0b5394", "process": "#444444", "realtime": "#6a1b9a"}
_DASHES: Final = {"ww": "", "wr": "", "process": "8 4", "realtime": "2 5"}
_MEANINGS: Final = {
    "ww": "wrote the value before",
    "wr": "wrote what the next one polled",
    "process": "earlier in the same process",
    "realtime": "completed before the next was invoked",
}


def picture(anomaly: str, evidence: Mapping[str, Any], worded: Callable[[str], str] = str) -> str:
    """The SVG of a cycle: `evidence` is that of a finding of `rules.cycles.words`."""
    operations, steps = list(evidence["operations"]), list(evidence["steps"])
    why = [worded(sentence) for sentence in evidence["why"]]
    left_out = evidence.get("left_out", 0)
    total = len(operations) + left_out
    y = [_TOP + i * (_BOX + _GAP) for i in range(len(operations))]
    back_lines = _wrapped(why[-1], _LINE)
    height = y[-1] + _BOX + 40 + 17 * len(back_lines) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="title desc" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<title id="title">{escape(anomaly)}: a cycle of {total} operations</title>',
        f'<desc id="desc">{escape(". ".join(why))}.</desc>',
        f"<defs>{''.join(map(_head, _COLOURS))}</defs>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="34" font-size="20" font-weight="600" fill="#111111">{escape(anomaly)}: '
        f"{total} operations in a cycle</text>",
        f'<text x="{_LEFT}" y="58" fill="#333333">An arrow leads from what came before to what came after; '
        "the last one leads back to the top.</text>",
    ]
    for i, operation in enumerate(operations):
        parts += _box(operation, y[i], worded)
        if i + 1 < len(operations):
            cut = left_out and i + 1 == len(operations) // 2
            said = f"{why[i]}; then {left_out} operations that are not drawn" if cut else why[i]
            parts += _down(steps[i]["kind"], said, y[i] + _BOX)
    parts += _return(steps[-1]["kind"], back_lines, y[-1] + _BOX, y[0] + _BOX // 2)
    parts += _legend(sorted({step["kind"] for step in steps}), height - 18)
    parts.append("</svg>\n")
    return "\n".join(parts)


def _head(kind: str) -> str:
    return (
        f'<marker id="to-{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" orient="auto">'
        f'<path d="M0 0 L10 5 L0 10 z" fill="{_COLOURS[kind]}"/></marker>'
    )


def _box(operation: Mapping[str, Any], y: int, worded: Callable[[str], str]) -> list[str]:
    named = worded(f"operation {operation['op']} of process {operation['process']}")
    fill = {"ok": "#eef5ee", "fail": "#fbeaea", "info": "#fff6e0"}.get(operation["type"], "#f2f2f2")
    when = f"invoked {_clock(operation['invoked'])}, completed {_clock(operation['completed'])}"
    return [
        f'<rect x="{_LEFT}" y="{y}" width="{_RIGHT - _LEFT}" height="{_BOX}" rx="6" fill="{fill}" stroke="#333333"/>',
        f'<text x="{_LEFT + 14}" y="{y + 25}" font-size="15" font-weight="600" fill="#111111">{escape(named)}: '
        f"{escape(operation['f'])}, {escape(operation['type'])}</text>",
        f'<text x="{_LEFT + 14}" y="{y + 47}" fill="#333333">{escape(when)}</text>',
    ]


def _clock(time: str) -> str:
    """The time of day of an ISO time, without its zone: the picture's times are UTC."""
    return time.partition("T")[2].partition("+")[0] or time


def _stroke(kind: str) -> str:
    dash = f' stroke-dasharray="{_DASHES[kind]}"' if _DASHES[kind] else ""
    return f'fill="none" stroke="{_COLOURS[kind]}" stroke-width="2"{dash} marker-end="url(#to-{kind})"'


def _down(kind: str, said: str, y: int) -> list[str]:
    x = _LEFT + 28
    parts = [f'<path d="M{x} {y} V{y + _GAP - 2}" {_stroke(kind)}/>']
    for i, line in enumerate(_wrapped(said, _LINE - 4)[:3]):
        parts.append(
            f'<text x="{x + 16}" y="{y + 28 + 17 * i}" fill="{_COLOURS[kind]}">'
            f"{f'{kind}: ' if i == 0 else ''}{escape(line)}</text>"
        )
    return parts


def _return(kind: str, lines: list[str], bottom: int, top: int) -> list[str]:
    x, low = _WIDTH - 44, bottom + 24
    parts = [f'<path d="M{_LEFT + 28} {bottom} V{low} H{x} V{top} H{_RIGHT + 4}" {_stroke(kind)}/>']
    for i, line in enumerate(lines):
        parts.append(
            f'<text x="{_LEFT + 44}" y="{low + 20 + 17 * i}" fill="{_COLOURS[kind]}">'
            f"{f'{kind}: ' if i == 0 else ''}{escape(line)}</text>"
        )
    return parts


def _legend(kinds: list[str], y: int) -> list[str]:
    said = "; ".join(f"{kind}: {_MEANINGS[kind]}" for kind in kinds)
    return [f'<text x="{_LEFT}" y="{y}" font-size="12" fill="#333333">{escape(said)}. Times are UTC.</text>']


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
