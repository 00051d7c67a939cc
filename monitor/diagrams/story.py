"""A short history and what was found in it, drawn to be understood at a glance: for the pages about the anomalies.

    rows of the probe log, a finding -> story(rows, names, finding) -> Story -> svg

Above stands the log, as far as the rows tell: each offset with the values that were acknowledged or given there, broken
outlines where nobody was given any. Below, each process has a lane, and each operation a box with what it did, in the
order in which they completed; what the finding is about is marked by weight, colour and outline. The last lines are the
finding's own words. The SVG stands for itself, in light and dark, and is readable at `WIDTH` pixels.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Run, Slice

WIDTH: Final = 700
MOST: Final = 6
"""Operations that are drawn side by side; those that the finding is about come before others."""
_LEFT: Final = 112
_GAP: Final = 8
_LINE: Final = 15
_PAD: Final = 6
_CHAR: Final = 7.0
_BOLD: Final = 7.4
_CAPITALS: Final = 0.72
"""Pixels that a character takes at most, on average; of capitals fewer have room."""
_SLOT: Final = 44
_SLOTS: Final = (WIDTH - _LEFT) // (_SLOT + 4) - 1
_SPELLED: Final = 4
"""Values of a run that are named one by one; of a longer one its ends are."""
_SKIPPED: Final = frozenset({"mark", "start", "close", "assign", "subscribe", "revoke"})

STYLE: Final = """
svg { --paper: #fbfbf9; --lane: #f1f1ee; --ink: #1d2129; --soft: #5b6472; --line: #b9bdc4; --box: #ffffff;
  --send: #8a4b08; --poll: #0b5a8f; --bad: #b3261e; --bad-fill: #fbe9e7; font: 12px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --paper: #14181e; --lane: #1c222a; --ink: #e8eaed; --soft: #a3adba;
  --line: #566070; --box: #262d37; --send: #f0b667; --poll: #7cc0ee; --bad: #ff8f86; --bad-fill: #45211f; } }
.paper { fill: var(--paper); } .lane { fill: var(--lane); } text { fill: var(--ink); }
.soft { fill: var(--soft); } .name { font-weight: 600; }
.box { fill: var(--box); stroke: var(--line); } .sent { stroke: var(--send); } .polled { stroke: var(--poll); }
.not-ok, .unseen { stroke-dasharray: 4 3; } .guilty { fill: var(--bad-fill); stroke: var(--bad); stroke-width: 2; }
.bad { fill: var(--bad); font-weight: 700; }
"""

Value = tuple[int, int]
Word = tuple[str, bool]
"""Some text, and whether the finding is about it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One offset of the log: the values that stand there, `seen` by a reader or only acknowledged."""

    offset: int
    values: Sequence[str]
    seen: bool
    bad: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of the process in lane `lane`: what it did, each thing in words of its own."""

    lane: int
    clauses: Sequence[Sequence[Word]]
    sends: bool
    ok: bool
    bad: bool


@dataclass(frozen=True, slots=True)
class Story:
    """`logs`: by partition its slots. `lanes`: what the processes are called."""

    logs: Mapping[str, Sequence[Slot]]
    lanes: Sequence[str]
    steps: Sequence[Step]
    said: str


@dataclass(frozen=True, slots=True)
class _About:
    """What a finding names."""

    values: set[Value] = field(default_factory=set)
    operations: set[tuple[int, int]] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)
    log_end: int | None = None


def story(rows: Sequence[Slice], names: Mapping[int, str], finding: Finding) -> Story:
    """The story of these rows. `names`: what processes and writers are called."""
    about = _about(finding.evidence)
    ordered = sorted((row for row in rows if row.f not in _SKIPPED), key=lambda row: (row.completed, row.invoked))
    if len({row.process for row in ordered if row.f == "init"}) < 2:  # one life alone, and nobody takes it over
        ordered = [row for row in ordered if row.f != "init"]
    groups: dict[tuple[int, int], list[Slice]] = {}
    for row in ordered:
        groups.setdefault((row.process, row.op), []).append(row)
    several = len({(row.topic, row.partition) for row in ordered if row.sent or row.polled}) > 1
    of_group = any(row.group is not None for row in ordered if row.f == "offsets")
    told = []
    for key, group in groups.items():
        clauses = _clauses(group, names, about, place=several)
        if clauses and not (of_group and all(row.f == "offsets" and row.group is None for row in group)):
            told.append(_Told(key, clauses, group))
    told = _chosen(told, about)
    last_of = [one for one in told if one.key[0] in about.processes][-1:]
    guilty = [one for one in told if _guilty(one, about)] or last_of or told[-1:]
    lanes = list(dict.fromkeys(one.key[0] for one in told))
    steps = [
        Step(
            lanes.index(one.key[0]),
            one.clauses,
            any(row.sent for row in one.rows),
            all(row.type == "ok" for row in one.rows),
            one in guilty,
        )
        for one in told
    ]
    return Story(
        _logs(ordered, names, about, several),
        [_called(one, ordered, names) for one in lanes],
        steps,
        _named(finding.message, names),
    )


def _about(evidence: Mapping[str, Any]) -> _About:
    found = _About(log_end=evidence.get("log_end"))
    places = [evidence, *(one for one in evidence.values() if isinstance(one, Mapping))]
    for listed in evidence.values():
        places += [one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, Mapping)]
    for place in places:
        if isinstance(place.get("writer"), int) and isinstance(place.get("seq"), int):
            found.values.add((place["writer"], place["seq"]))
        for prefix in ("", "passed_", "failed_"):
            process, op = place.get(f"{prefix}process"), place.get(f"{prefix}op")
            if isinstance(process, int) and isinstance(op, int):
                found.operations.add((process, op))
            elif isinstance(process, int):
                found.processes.add(process)
    return found


class _Told(NamedTuple):
    """One operation: process and number, what it did, its rows."""

    key: tuple[int, int]
    clauses: list[list[Word]]
    rows: list[Slice]


def _chosen(told: Sequence[_Told], about: _About) -> list[_Told]:
    """At most `MOST`, none that repeats what its process's last one said."""
    once: list[_Told] = []
    last: dict[int, list[list[Word]]] = {}
    for one in told:
        if last.get(one.key[0]) != one.clauses:
            once.append(one)
        last[one.key[0]] = one.clauses
    ranked = sorted(range(len(once)), key=lambda n: (not _guilty(once[n], about), n))
    return [once[n] for n in sorted(ranked[:MOST])]


def _guilty(one: _Told, about: _About) -> bool:
    if about.operations:
        return one.key in about.operations
    return any(bad for clause in one.clauses for _, bad in clause)


# In words


def _clauses(rows: Sequence[Slice], names: Mapping[int, str], about: _About, *, place: bool) -> list[list[Word]]:
    """What the operation of these rows did, a clause for each thing."""
    first = rows[0]
    found: list[list[Word]] = []
    if first.f == "txn" and first.txn_intent:
        found.append([(f"transaction to {first.txn_intent}", False)])
    for row in rows:
        where = [(f"{row.topic}/{row.partition}:", False)] if place and (row.sent or row.polled) else []
        did = [*_records(row, names, about), *([one] for one in _others(row, about))]
        found += [[*where, *clause] for clause in did]
    if first.error is not None and not found:
        return [[("is told", False)], [(first.error, True)]]
    if first.type != "ok" and found:
        aborted = first.f == "txn" and first.type == "fail"
        failed = "aborted" if aborted else "failed" if first.type == "fail" else "no answer"
        found.append([(f"({first.error or failed})", False)])
    return found


def _records(row: Slice, names: Mapping[int, str], about: _About) -> Iterator[list[Word]]:
    for run in row.sent:
        told = [(f"→ {_range(run.offset, run.length)}", False)] if run.offset is not None and row.type != "fail" else []
        yield [("sends", False), *_values(run, names, about), *told]
    for run in row.polled:
        yield [("is given", False), *_values(run, names, about), (f"at {_range(run.offset or 0, run.length)}", False)]
    for one in row.irregular:
        value = f" {_value((one.writer, one.seq), names)}" if one.writer is not None and one.seq is not None else ""
        meant = f", meant for {one.topic}/{one.partition}" if one.status == "relocated" else ""
        run_ = f" of run {one.run}" if one.run is not None else ""
        kind = "a broken record" if one.status == "corrupted" else f"{one.status} record"
        yield [("is given", False), (f"{kind}{value}{run_}", True), (f"at {one.offset}{meant}", False)]
    for change in row.altered:
        yield [(f"the {change.what} of {_value((change.writer, change.seq), names)} altered", True)]


def _others(row: Slice, about: _About) -> Iterator[Word]:
    """What is neither a record that is sent nor one that is given."""
    if row.f == "poll" and not (row.polled or row.irregular):
        yield "is given nothing", False
    if row.f in ("commit", "txn") and row.committed is not None:
        yield f"commits {row.committed}", False
    if row.f == "offsets":
        if row.group is not None:
            yield f"is told {'none' if row.committed is None else row.committed} for {row.group}", False
        elif row.log_end is not None:
            stable = f", stable {row.last_stable}" if row.last_stable not in (None, row.log_end) else ""
            yield f"is told the log ends at {row.log_end}{stable}", row.log_end == about.log_end
    for one in row.registers:
        if one.action == "write":
            yield f"writes {one.id}", False
        elif one.action == "read":
            yield f"reads {one.observed if one.observed is not None else '?'}", False
        else:
            yield f"writes {one.id} if it is {one.expected}", False
    if row.f == "init":
        yield f"begins as {row.transactional_id}", False
    if row.f == "position" and row.position_after is not None:
        yield f"stands at {row.position_after}", False


def _values(run: Run, names: Mapping[int, str], about: _About) -> list[Word]:
    seqs = range(run.seq, run.seq + run.length)
    if run.length <= _SPELLED:
        return [(_value((run.writer, seq), names), (run.writer, seq) in about.values) for seq in seqs]
    ends = f"{_value((run.writer, seqs[0]), names)} … {_value((run.writer, seqs[-1]), names)}"
    return [(ends, False)] + [
        (f"({_value(one, names)})", True) for one in sorted(about.values) if one[0] == run.writer and one[1] in seqs
    ]


def _value(value: Value, names: Mapping[int, str]) -> str:
    return f"{names.get(value[0], value[0])}{value[1]}"


def _range(offset: int, length: int) -> str:
    return f"{offset}" if length == 1 else f"{offset}–{offset + length - 1}"


def _called(process: int, rows: Sequence[Slice], names: Mapping[int, str]) -> str:
    own = [row for row in rows if row.process == process]
    name = names.get(process, f"{process}")
    if any(row.f == "register" for row in own):
        role = "client"
    elif any(row.f in ("txn", "init") for row in own):
        role = "transactional"
    elif any(row.sent for row in own):
        role = "writer"
    else:
        role = "reader" if any(row.f in ("poll", "commit", "position") for row in own) else "observer"
    return role if name == role else f"{role} {name}"


def _named(message: str, names: Mapping[int, str]) -> str:
    """The finding's message with names instead of numbers."""
    for number, name in sorted(names.items(), key=lambda one: -len(str(one[0]))):
        message = re.sub(rf"\b{number}/(?=\d)", name, message)
        message = re.sub(rf"\bprocess {number}\b", f"process {name}", message)
    return message[:1].upper() + message[1:] + "."


def _logs(rows: Sequence[Slice], names: Mapping[int, str], about: _About, several: bool) -> dict[str, Sequence[Slot]]:
    """The log of each partition: what was acknowledged or given at each offset."""
    held: dict[str, dict[int, dict[Value, bool]]] = {}
    for row in rows:
        given = [(run, True) for run in row.polled]
        given += [(run, False) for run in row.sent if run.offset is not None and row.type == "ok"]
        for run, seen in given:
            log = held.setdefault(f"{row.topic}/{row.partition}" if several else "the log", {})
            for n in range(run.length):
                slot, value = log.setdefault((run.offset or 0) + n, {}), (run.writer, run.seq + n)
                slot[value] = slot.get(value, False) or seen
    return {
        name: [
            Slot(
                offset,
                [_value(one, names) for one in values],
                any(values.values()),
                bool(about.values & values.keys()) or len(values) > 1,
            )
            for offset, values in sorted(log.items())
        ]
        for name, log in sorted(held.items())
    }


# The drawing


def svg(drawn: Story, title: str) -> str:
    """The SVG, which stands for itself."""
    parts: list[str] = []
    y = 10
    for name, slots in drawn.logs.items():
        parts += _strip(name, _shown(slots), y)
        y += 62
    column = (WIDTH - _LEFT - _PAD) / max(len(drawn.steps), 1)
    room = int((column - 2 * _PAD - 6) / _CHAR)
    lines = [[line for clause in step.clauses for line in _wrapped(clause, room)] for step in drawn.steps]
    for number, lane in enumerate(drawn.lanes):
        own = [n for n, step in enumerate(drawn.steps) if step.lane == number]
        height = max(len(lines[n]) for n in own) * _LINE + 2 * _PAD + 10
        parts.append(f'<rect class="lane" x="0" y="{y}" width="{WIDTH}" height="{height}" rx="4"/>')
        parts += _text([(lane.partition(" ")[0], False)], 10, y + height / 2 - (2 if " " in lane else -4), "name")
        if " " in lane:
            parts += _text([(lane.partition(" ")[2], False)], 10, y + height / 2 + 13, "soft")
        for n in own:
            parts += _box(drawn.steps[n], lines[n], _LEFT + n * column, y + 5, column - 6)
        y += height + _GAP
    y += 8
    for line in textwrap.wrap(drawn.said, int((WIDTH - 20) / _BOLD)):
        y += 16
        parts.append(f'<text class="bad" x="10" y="{y}">{escape(line)}</text>')
    y += 14
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" '
            'role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="desc">{escape(_described(drawn))}</desc>',
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{y}" rx="6"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _described(drawn: Story) -> str:
    did = [", ".join(" ".join(word for word, _ in clause) for clause in step.clauses) for step in drawn.steps]
    said = [f"{drawn.lanes[step.lane]}: {words}" for step, words in zip(drawn.steps, did, strict=True)]
    return f"{'; '.join(said)}. {drawn.said}"


def _shown(slots: Sequence[Slot]) -> Sequence[Slot]:
    """As many as there is room for: the guilty ones and those beside them first."""
    if len(slots) <= _SLOTS:
        return slots
    bad = [n for n, slot in enumerate(slots) if slot.bad] or [0]
    ranked = sorted(range(len(slots)), key=lambda n: (min(abs(n - one) for one in bad), n))
    return [slots[n] for n in sorted(ranked[:_SLOTS])]


def _strip(name: str, slots: Sequence[Slot], y: int) -> Iterator[str]:
    yield from _text([(name, False)], 10, y + 34, "name")
    yield from _text([("offset", False)], 10, y + 10, "soft")
    x, before = float(_LEFT), None
    for slot in slots:
        if before is not None and slot.offset != before + 1:
            yield from _text([("…", False)], x + 2, y + 34, "soft")
            x += 18
        names = ["box"] + ["unseen"] * (not slot.seen) + ["guilty"] * slot.bad
        width = max(_SLOT, int(_CHAR * len(" ".join(slot.values))) + 14)
        yield f'<text class="soft" x="{x + width / 2:.0f}" y="{y + 10}" text-anchor="middle">{slot.offset}</text>'
        yield f'<rect class="{" ".join(names)}" x="{x:.0f}" y="{y + 16}" width="{width}" height="28" rx="3"/>'
        yield (
            f'<text class="{"bad" if slot.bad else ""}" x="{x + width / 2:.0f}" y="{y + 34}" text-anchor="middle">'
            f"{escape(' '.join(slot.values))}</text>"
        )
        x += width + 4
        before = slot.offset
    note = "broken outline: nobody was given it"
    if any(not slot.seen for slot in slots) and x + _CHAR * len(note) < WIDTH:
        yield from _text([(note, False)], x + 8, y + 34, "soft")


def _box(step: Step, lines: Sequence[Sequence[Word]], x: float, y: float, width: float) -> Iterator[str]:
    names = ["box", "sent" if step.sends else "polled"] + ["not-ok"] * (not step.ok) + ["guilty"] * step.bad
    height = len(lines) * _LINE + 2 * _PAD
    yield f'<rect class="{" ".join(names)}" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{height}" rx="4"/>'
    for n, line in enumerate(lines):
        yield from _text(line, x + _PAD + 1, y + _PAD + 11 + n * _LINE)


def _text(words: Sequence[Word], x: float, y: float, name: str = "") -> Iterator[str]:
    said = " ".join(f'<tspan class="bad">{escape(word)}</tspan>' if bad else escape(word) for word, bad in words)
    style = f' class="{name}"' if name else ""
    yield f'<text{style} x="{x:.0f}" y="{y:.0f}">{said}</text>'


def _wrapped(words: Sequence[Word], room: int) -> list[list[Word]]:
    """The words in lines of at most `room` characters; a name that is longer is broken behind an underscore."""
    lines: list[list[Word]] = [[]]
    for said, bad in words:
        for word in said.split(" "):
            for n, part in enumerate(_parts(word, room)):
                if lines[-1] and (n or sum(_length(one) + 1 for one, _ in lines[-1]) + _length(part) > room):
                    lines.append([])
                lines[-1].append((part, bad))
    return lines


def _parts(word: str, room: int) -> list[str]:
    if _length(word) <= room:
        return [word]
    spaced = textwrap.wrap(word.replace("_", "_ "), max(int(room * _CAPITALS), 1))
    return [part.replace("_ ", "_") for part in spaced]


def _length(word: str) -> float:
    """In characters of average width."""
    return len(word) / _CAPITALS if word.isupper() else len(word)
