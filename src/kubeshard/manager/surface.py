"""How a manager appears from outside, as its author told it: what a Deployment and Services of it have to say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from kubeshard.controller.controller import Controller
from kubeshard.manager.pages import StatusPages


class Surface(NamedTuple):
    controllers: Sequence[Controller[Any]]
    takes_turns: bool
    """Whether several processes of it share the work, or one of them does it."""
    health: int
    """Port; 0 for none."""
    metrics: int
    metrics_secure: bool
    """Whether metrics are to be had over HTTPS."""
    services: Sequence[tuple[str, int]]
    """Services that have to exist, and to which port of the process each one's port 443 leads."""


@runtime_checkable
class BehindService(Protocol):
    """A server that is called through a Service."""

    @property
    def behind(self) -> tuple[str, int] | None:
        """The Service's name and the port here; None where it is called otherwise."""
        ...


def surface(
    controllers: Sequence[Controller[Any]],
    pages: StatusPages,
    servers: Iterable[object],
    *,
    takes_turns: bool,
) -> Surface:
    return Surface(
        controllers=controllers,
        takes_turns=takes_turns,
        health=pages.health.wanted,
        metrics=pages.metrics.wanted,
        metrics_secure=pages.metrics.secure,
        services=[server.behind for server in servers if isinstance(server, BehindService) and server.behind],
    )
