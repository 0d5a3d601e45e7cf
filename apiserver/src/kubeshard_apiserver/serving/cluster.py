"""An API server together with the controllers of a cluster, as commands run them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager

from kubeshard.runtime.background import in_background
from kubeshard_apiserver.controllers.controllers import Controllers
from kubeshard_apiserver.serving.embedded import EmbeddedServer

READY_AFTER = 1.0
"""Seconds that a pretended pod takes to become ready."""


def controllers_of(
    served: EmbeddedServer, *, pods: bool = True, ready_after: float = READY_AFTER
) -> Controllers:
    """The controllers for a server that listens, with its authority, its calls of webhooks and its rights."""
    return Controllers(
        served.server,
        pods=pods,
        ready_after=ready_after,
        root_ca=served.credentials.ca,
        caller=served.caller,
        rights=served.front.gate.rights,
    )


def cluster_in_thread() -> AbstractContextManager[EmbeddedServer]:
    """Runs a new server with its controllers in a thread, for code without an event loop (`embedded_in_thread`)."""
    return in_background(_cluster, "kubeshard-apiserver")


@asynccontextmanager
async def _cluster() -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer() as served, controllers_of(served):
        yield served
