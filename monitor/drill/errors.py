"""What ends a drill before its verdict."""

from __future__ import annotations

from monitor.errors import UserError


class DrillFailed(UserError):
    """What was to happen did not: nothing is proven. The message says what."""


class DrillSkipped(DrillFailed):
    """This machine lacks what the drill needs: nothing is proven, and nothing has failed. The message says what."""


class DrillStopped(Exception):
    """A stop was asked for in mid-drill."""
