"""What can go wrong with the proxy itself. What a lie does to a client is no error."""

from __future__ import annotations

from monitor.errors import UserError


class ProxyFailed(UserError):
    """The proxy cannot be opened, or a lie raised an error: the drill has shown nothing."""
