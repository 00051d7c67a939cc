"""`stale-log-end`: the end of the log that its leader lists stays below what is known to be there.

For the liveness objective every listing (read_uncommitted) ended at or below an offset that had been acknowledged or
polled before it was invoked (`known_ends`), by one boot's clock. Whoever measures a lag by it, or begins at the end, is
misled: listings come late from a cache, or from a leader that has been deposed and does not know it. Once a truncation
is told (`log-truncation`), what that took away is known no more: the end is told as it is, and only one that stays
below what was acknowledged since falls short.

It opens with the listing by which it has lasted so long, and closes with the first one of that boot that is right.
Where a boot has not listed for the objective, nothing is known of the time between, and it begins anew; it is over by
then where another boot went on listing.

State: of each boot since when its listings fall short.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rules.checks.ends.known_ends import Listing
from rules.kept.check import Check, Passage
from rules.vocabulary.objectives import SECOND

NAME: Final = "stale-log-end"


@dataclass(slots=True)
class StaleEnds:
    """`short`: by boot [since, last, end, known] of those whose last listing fell short: since when all have, when the
    last one was, and what it told. `newest`: the time of the newest listing. In log time."""

    short: dict[str, list[int]] = field(default_factory=dict)
    newest: int = -1


def fold(own: StaleEnds, passage: Passage) -> None:
    """Open and close it, listing by listing."""
    for listing in passage.due:
        _compare(own, listing, passage)
    liveness = passage.report.objectives.liveness
    for boot, (_, last, _, _) in list(own.short.items()):
        if own.newest - last > liveness:
            _tell(own, boot, last + liveness, passage)
            del own.short[boot]


def _compare(own: StaleEnds, listing: Listing, passage: Passage) -> None:
    boot, at = str(listing.domain), listing.at
    since, last, _, _ = own.short.get(boot, (at, at, 0, 0))
    own.newest = max(own.newest, at)
    right = listing.end > listing.known
    if right and boot not in own.short:
        return
    lasts = at - last <= passage.report.objectives.liveness
    own.short[boot] = [since if lasts else at, at, listing.end, listing.known]
    _tell(own, boot, at, passage, right=right)
    if right:
        del own.short[boot]


def _tell(own: StaleEnds, boot: str, at: int, passage: Passage, *, right: bool = False) -> None:
    """Open it where this boot has seen it for long enough, close it where it is over and no other boot has."""
    liveness = passage.report.objectives.liveness
    since, last, end, known = own.short[boot]
    over = right or at > last
    open_elsewhere = any(one[1] - one[0] >= liveness for other, one in own.short.items() if other != boot)
    seconds = round((last - since) / SECOND, 3)
    message = (
        f"the log is listed to end at {end}, where offset {known} was known before, and has been listed too short for"
        f" {seconds:.1f} s"
    )
    passage.report.condition(
        NAME,
        message if open_elsewhere or (not over and last - since >= liveness) else None,
        at=at,
        since=since,
        evidence={"log_end": end, "known": known, "short_for_s": seconds},
    )


CHECK: Final = Check(NAME, StaleEnds, fold=fold, live_only=True)
