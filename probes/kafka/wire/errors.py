"""What can go wrong with a connection of our own."""

from __future__ import annotations

from probes.kafka.errors import ProbeError


class CannotConnect(ProbeError):
    """A setting of the client's cannot be followed by a connection of our own."""


class Undecodable(Exception):
    """A frame, or a batch of records, that is not understood here. The message names it."""


class Refused(Exception):
    """A broker answered a request of our own with an error."""

    def __init__(self, what: str, error: str) -> None:
        super().__init__(f"the broker refused {what}: {error}")
        self.error = error
