"""Conditions that were told before a rebuild, and that the rebuilt state cannot judge yet: it goes on with them.

A log that is read again is judged as it stands at its end. Whose rows are missing there holds up what needs them, also
what was judged before that process was heard of: then the rebuilt state has never come to the time at which a condition
was told. That it does not hold is nothing that anybody has found out. So such a condition is open in the state from
then on, and ends when it is judged not to hold. What the state has judged as of that time, or later, it holds or not.

Late evidence holds up what readers are judged by: `unseen` and `suspected`, where the state still knows a value that
nobody has polled, and `stuck-consumer`, reader by reader. All other conditions are judged as of the last tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rules.checks.conditions import stuck_consumers
from rules.checks.records import losses, unseen
from rules.engine import order
from rules.kept.state import State
from rules.settling.gate import Gate
from rules.vocabulary.objectives import Objectives


class Told(NamedTuple):
    """When a condition was told as open, in log time, and whether as explained by another one."""

    at: int
    explained: bool = False


def carry(state: State, told: Mapping[str, Told], objectives: Objectives) -> set[str]:
    """Go on with those that cannot be judged yet; returns their keys. `told`: by the name and the subject, joined by
    colons, as `State.open_conditions` has them, those that the state does not hold."""
    gate = Gate(state)
    carried = {key for key, one in told.items() if not _is_judged(state, gate, key, one.at, objectives)}
    for key in sorted(carried):
        state.open_conditions[key] = told[key].at
        if told[key].explained:
            state.explained.append(key)
    return carried


def _is_judged(state: State, gate: Gate, key: str, at: int, objectives: Objectives) -> bool:
    """Has the state judged this condition as of that time?"""
    name, _, subject = key.partition(":")
    if name in (unseen.UNSEEN, unseen.SUSPECTED):
        out = order.own(state, losses.CHECK).outstanding
        return not unseen.is_undecided(out, state, gate, unseen.Claim(name, at, objectives.delivery))
    if name == stuck_consumers.NAME and subject.isdecimal():
        through = stuck_consumers.judged_through(order.own(state, stuck_consumers.CHECK), int(subject))
        return through is None or through >= at
    return True
