"""A manager as seen from outside: what its Deployment and Services need to know."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from kubeshard.controller.controller import Controller
from kubeshard.manager.pages import StatusPages


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


@runtime_checkable
class BehindService(Protocol):
    """A server that is called through a Service."""

    @property
    def behind(self) -> tuple[str, int, str | None] | None:
        """The Service's name, the port of the process, and the Service's namespace unless it is the pod's; None if it
        is not called through a Service.
        """
        ...


@runtime_checkable
class Converting(Protocol):
    """A server that converts objects between the versions of their kinds."""

    @property
    def converted(self) -> Collection[str]:
        """The names of the kinds' definitions."""
        ...

    def converting(self, definition: str, namespace: str) -> Mapping[str, Any]:
        """What the definition needs: `spec.conversion`, and annotations if something else brings the certificate's
        authority. `namespace` is that of the server's Service, if the server does not say it itself.
        """
        ...


def deployment_needs(
    controllers: Sequence[Controller[Any]],
    pages: StatusPages,
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
