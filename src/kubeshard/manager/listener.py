"""A page server at an address that a user wrote."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.asgi import AsgiApp, AsgiServer, ListenError, parse_bind_address


def check_bind_address(field: str, address: str | None) -> tuple[str, int] | None:
    """Host and port; None for nowhere, which is None or `"0"`. Raises ConfigurationError, which begins with `field`,
    for what is neither that nor `host:port` or `:port`.
    """
    if address in (None, "0"):
        return None
    try:
        return parse_bind_address(address or "")
    except ValueError as error:
        raise ConfigurationError(f"{field}: {error}") from error


class Listener:
    """What listens at `address`, which the user knows as `field`. Raises as `check_bind_address`."""

    def __init__(self, field: str, address: str | None, ssl_context: ssl.SSLContext | None = None) -> None:
        self._page = f"{field.removesuffix('_address')} page"
        self._place = check_bind_address(field, address)
        self._ssl = ssl_context
        self.port = 0
        """The real one, once it is open."""

    async def open(self, stack: AsyncExitStack, app: AsgiApp) -> None:
        """Serves `app` until the stack is left. Raises ConfigurationError when it cannot."""
        if self._place is None:
            return
        host, port = self._place
        try:
            server = await stack.enter_async_context(AsgiServer(app, host, port, self._ssl))
        except ListenError as error:
            raise ConfigurationError(f"{self._page}: {error.strerror}; choose another address") from error
        self.port = server.port
