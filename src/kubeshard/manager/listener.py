"""A page server at an address that a user wrote."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack

from kubeshard.core import ConfigurationError
from kubeshard.runtime.asgi import AsgiApp, AsgiServer, ListenError, MissingExtraError, parse_bind_address


class Listener:
    """`address` is `host:port` or `:port`; None or `"0"` is nowhere. Raises ConfigurationError for any other text."""

    def __init__(self, address: str | None, ssl_context: ssl.SSLContext | None = None) -> None:
        self._place: tuple[str, int] | None = None
        if address not in (None, "0"):
            try:
                self._place = parse_bind_address(address or "")
            except ValueError as error:
                raise ConfigurationError(str(error)) from error
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
            raise ConfigurationError(error.strerror) from error
        except MissingExtraError as error:
            raise ConfigurationError(str(error)) from error
        self.port = server.port
