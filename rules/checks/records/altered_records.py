"""`altered-record`: a polled record whose key, headers or timestamp are not those that were sent.

The probe that polled it knows what was sent, since all of it is made of the record's tag, and lists neighbours that
differ in the same respects together (`Altered`); each of these is one finding. Its value is judged elsewhere
(`irregular_records`).

A topic with LogAppendTime is asked to put the broker's time in the place of the sender's, and its records say so.
That type of timestamp is judged once the topic's settings were asked for after the poll, by whichever clock: it is what
was asked for where they ever said LogAppendTime, and altered where they never did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from rules.arrays.columns import OFFSETS, alterations
from rules.kept.check import Check, News
from rules.kept.report import Report
from rules.kept.state import State
from rules.settling.clocks import ahead
from rules.vocabulary.settings import ASKED, natural

KEPT: Final = 256
BY_BROKER: Final = "timestamp-type"


@dataclass(slots=True)
class Alterations:
    """`append_time`: the settings said LogAppendTime at some time; `settings_at`: when those that were told last were
    asked for, else -1, by the clock of `settings_boot`.

    `waiting`: what came with the broker's time and is not judged yet, the newest `KEPT` of them. `told`: what was
    reported, by its subject, the newest `KEPT`."""

    append_time: bool = False
    settings_at: int = -1
    settings_boot: int = -1
    waiting: list[dict[str, Any]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)


def arrive(own: Alterations, new: News) -> None:
    """Judge what the new rows list, and what their settings decide."""
    columns = new.columns
    if columns.tells("settings"):
        _hear(own, new)
    listed = [(row, one) for row, one in alterations(columns) if new.fresh[row]]
    for row, one in listed:
        by = {name: int(getattr(columns, name)[row]) for name in ("process", "op", "boot")}
        seen = {**one, **by, "at": int(columns.completed[row])}
        if BY_BROKER not in one["what"].split(","):
            _report(own, seen, new.report)
        else:
            own.waiting.append(seen)
    if own.waiting:
        _judge_waiting(own, new.state, new.report)


def _hear(own: Alterations, new: News) -> None:
    told = new.columns.table["settings"].is_valid().to_numpy()
    for row in new.where(OFFSETS).tolist():
        if told[row]:
            settings, at = dict(new.columns.table["settings"][row].as_py()), int(new.columns.completed[row])
            kind, asked = settings.get("timestamp_type"), natural(settings.get(ASKED))
            own.append_time |= kind == "LogAppendTime"
            at = at if asked < 0 else min(at, asked)
            if kind is not None and at > own.settings_at:
                own.settings_at, own.settings_boot = at, int(new.columns.boot[row])


def _judge_waiting(own: Alterations, state: State, report: Report) -> None:
    left = []
    for seen in own.waiting:
        if own.append_time:
            if seen["what"] != BY_BROKER:
                _report(own, _without_type(seen), report)
        elif own.settings_at - ahead(state, own.settings_boot, seen["boot"]) >= seen["at"]:
            _report(own, seen, report)
        else:
            left.append(seen)
    left.sort(key=lambda seen: int(seen["at"]))
    own.waiting = report.newest(left, KEPT, "altered records")


def _without_type(seen: dict[str, Any]) -> dict[str, Any]:
    """The same, but for what the topic's settings ask for."""
    return {**seen, "what": ",".join(name for name in seen["what"].split(",") if name != BY_BROKER)}


def _report(own: Alterations, seen: dict[str, Any], report: Report) -> None:
    subject = (seen["writer"], seen["seq"], seen["what"])
    key = "/".join(map(str, subject))
    if key in own.told:
        return
    own.told = [*own.told, key][-KEPT:]
    count, what = seen["length"], " and ".join(seen["what"].split(","))
    who = "record at offset" if count == 1 else f"{count} records from offset"
    evidence = {name: seen[name] for name in ("writer", "seq", "offset", "what", "sent", "told", "process", "op")}
    if seen["leader_epoch"] is not None:
        evidence["leader_epoch"] = seen["leader_epoch"]
    report.add(
        "altered-record",
        subject,
        f"the {who} {seen['offset']}{' on' if count > 1 else ''} came with altered {what}: {seen['told']} instead of"
        f" {seen['sent']}",
        at=seen["at"],
        evidence={**evidence, "records": count},
    )


CHECK: Final = Check("altered-record", Alterations, arrive=arrive, rows=frozenset({"settings", "altered"}))
"""What waits, waits for settings."""
