"""The pages of a process: health and debug on one port, metrics on another."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from kubeshard.client.client import Client
from kubeshard.manager.debug import DebugSnapshot
from kubeshard.manager.debug_page import DebugAccess, debug_page
from kubeshard.manager.health import Check, Checks, ping
from kubeshard.manager.http import HEALTH_ADDRESS, METRICS_ADDRESS, Listener, pages_app
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.metrics_access import MetricsAuth
from kubeshard.runtime.asgi import Receive, Scope, Send
from kubeshard.runtime.http_server import AsgiServer
from kubeshard.runtime.supervised import Supervised


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPages:
    """The pages of a manager, `/metrics` on one port, `/healthz`, `/readyz` and `/debug` on another.

    `metrics_address` and `health_address` are `host:port`, or `:port` for all interfaces; None or `"0"` for none.
    Outside of a pod, a default address whose port is taken is replaced by a free port, and the log says so.
    `metrics_ssl` serves the metrics over HTTPS. `metrics_auth`: the API server decides who may read them; needs RBAC
    `create` on `tokenreviews` and `subjectaccessreviews`. `liveness` and `readiness`: checks by name in addition to the
    manager's own; one returns what is wrong, or None. `debug`: who may read `/debug` (`kubeshard.manager.debug_page`).
    """

    metrics_address: str | None = METRICS_ADDRESS
    metrics_ssl: ssl.SSLContext | None = None
    metrics_auth: bool = False
    health_address: str | None = HEALTH_ADDRESS
    liveness: Mapping[str, Check] = field(default_factory=dict)
    readiness: Mapping[str, Check] = field(default_factory=dict)
    debug: DebugAccess = "loopback"


STATUS_PAGES = StatusPages()
NO_PAGES = StatusPages(metrics_address=None, health_address=None)


class StatusPagesServer:
    """Serves the pages, with the manager's own checks. `notes` returns lines about problems that do not count against
    readiness.

    Raises ConfigurationError for an invalid address, ValueError for an invalid `debug`.
    """

    def __init__(
        self,
        pages: StatusPages,
        *,
        liveness: Mapping[str, Check],
        readiness: Mapping[str, Check],
        notes: Callable[[], Iterable[str]],
        snapshot: Callable[[], DebugSnapshot],
        metrics: Metrics,
    ) -> None:
        self.health = Listener(
            "health_address",
            pages.health_address,
            movable=pages.health_address == HEALTH_ADDRESS,
        )
        self.metrics = Listener(
            "metrics_address",
            pages.metrics_address,
            pages.metrics_ssl,
            movable=pages.metrics_address == METRICS_ADDRESS,
        )
        self._healthz = Checks("/healthz", {"ping": ping, **liveness, **pages.liveness})
        self._readyz = Checks("/readyz", {**readiness, **pages.readiness}, notes)
        self._debug = debug_page(snapshot, pages.debug)
        self._metrics = metrics
        self._metrics_ssl = pages.metrics_ssl
        self.metrics_auth = pages.metrics_auth
        self._supervised: Supervised | None = None

    def supervise(self, process: Supervised) -> None:
        """Serves all pages where the supervisor of this process asks for them, instead of at the addresses, where it
        shows them; before `open`.
        """
        self._supervised = process

    def move(self, *, metrics_address: str | None, health_address: str | None) -> None:
        """Replaces the addresses that are given, before `open`. Raises ConfigurationError."""
        if metrics_address is not None:
            self.metrics = Listener("metrics_address", metrics_address, self._metrics_ssl)
        if health_address is not None:
            self.health = Listener("health_address", health_address)

    async def open(self, stack: AsyncExitStack, client: Client) -> None:
        """Serves until the stack is closed. Raises ConfigurationError if it cannot."""
        in_pod = client.world.host.pod_namespace() is not None  # where probes and scrapers know the port
        health = pages_app(self._healthz.page, self._readyz.page, self._debug)
        metrics = pages_app(self._metrics.page)
        if self.metrics_auth:
            metrics = MetricsAuth(client).guard(metrics)
        if self._supervised is None:
            await self.health.open(stack, health, in_pod=in_pod)
            await self.metrics.open(stack, metrics, in_pod=in_pod)
            return

        async def both(scope: Scope, receive: Receive, send: Send) -> None:
            await (metrics if scope["path"] == "/metrics" else health)(scope, receive, send)

        await stack.enter_async_context(AsgiServer(both, listener=self._supervised.listener))
