"""A manager as seen from outside: what its Deployment and Services need to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kubeshard.controller.controller import Controller
from kubeshard.manager.pages import StatusPagesServer
from kubeshard.manager.servers import BehindService, Converting


class DeploymentNeeds(NamedTuple):
    controllers: Sequence[Controller[Any]]
    takes_turns: bool
    """Whether it may have several replicas: they share the work, or one of them does it."""
    health: int
    """A port; 0 for none."""
    metrics: int
    metrics_secure: bool
    """Whether metrics are served over HTTPS."""
    services: Sequence[tuple[str, int, str | None]]
    """The required Services, each with the process's port behind its port 443, and its namespace if that is decided."""
    conversions: Mapping[str, Converting]
    """The servers that convert between the versions of a kind, by the name of its definition."""


def deployment_needs(
    controllers: Sequence[Controller[Any]],
    pages: StatusPagesServer,
    servers: Iterable[object],
    *,
    takes_turns: bool,
) -> DeploymentNeeds:
    return DeploymentNeeds(
        controllers=controllers,
        takes_turns=takes_turns,
        health=pages.health.wanted,
        metrics=pages.metrics.wanted,
        metrics_secure=pages.metrics.secure,
        services=[server.behind for server in servers if isinstance(server, BehindService) and server.behind],
        conversions={
            name: server for server in servers if isinstance(server, Converting) for name in server.converted
        },
    )
