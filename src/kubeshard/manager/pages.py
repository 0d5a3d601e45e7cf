"""The pages of a process: health and debug on one port, metrics on another."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack

from kubeshard.client.client import Client
from kubeshard.manager.debug import Picture
from kubeshard.manager.debug_page import DebugAccess, debug_page
from kubeshard.manager.health import Check, Checks, ping
from kubeshard.manager.http import Listener, pages_app
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.metrics_auth import MetricsAuth


class StatusPages:
    """See `Manager`. `notes` returns lines about problems that do not count against readiness.

    Raises ConfigurationError for an invalid address, ValueError for an invalid `debug`.
    """

    def __init__(
        self,
        *,
        health_address: str | None,
        metrics_address: str | None,
        metrics_ssl: ssl.SSLContext | None,
        metrics_auth: bool,
        debug: DebugAccess,
        liveness: Mapping[str, Check],
        readiness: Mapping[str, Check],
        notes: Callable[[], Iterable[str]],
        picture: Callable[[], Picture],
        metrics: Metrics,
    ) -> None:
        self.health = Listener("health_address", health_address)
        self.metrics = Listener("metrics_address", metrics_address, metrics_ssl)
        self._healthz = Checks("/healthz", {"ping": ping, **liveness})
        self._readyz = Checks("/readyz", readiness, notes)
        self._debug = debug_page(picture, debug)
        self._metrics = metrics
        self._metrics_ssl = metrics_ssl
        self.metrics_auth = metrics_auth

    def move(self, *, metrics_address: str | None, health_address: str | None) -> None:
        """Replaces the addresses that are given, before `open`. Raises ConfigurationError."""
        if metrics_address is not None:
            self.metrics = Listener("metrics_address", metrics_address, self._metrics_ssl)
        if health_address is not None:
            self.health = Listener("health_address", health_address)

    async def open(self, stack: AsyncExitStack, client: Client) -> None:
        """Serves until the stack is closed. Raises ConfigurationError if it cannot."""
        await self.health.open(stack, pages_app(self._healthz.page, self._readyz.page, self._debug))
        app = pages_app(self._metrics.page)
        await self.metrics.open(stack, MetricsAuth(client).guard(app) if self.metrics_auth else app)
