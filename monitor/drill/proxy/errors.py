"""What can go wrong with the proxy itself. What a lie does to a client is no error."""

from __future__ import annotations

from monitor.errors import UserError


class ProxyFailed(UserError):
    """The proxy cannot be opened, or a lie raised an error: the drill has shown nothing."""


class Undecodable(Exception):
    """A frame, or a batch of records, that is not what this proxy understands. The message names it."""


class Refused(Exception):
    """A broker answered a request of the proxy's own with an error."""

    def __init__(self, what: str, error: str) -> None:
        super().__init__(f"the broker refused {what}: {error}")
        self.error = error
