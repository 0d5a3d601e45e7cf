"""The client of a whole program: made when it begins, closed when it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kubeshard.client.client import Client
from kubeshard.client.limiter import TokenBucketLimiter
from kubeshard.client.loading import load_config
from kubeshard.core.errors import ApiError, Unauthorized
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.world import World

_log = get_logger("kubeshard.manager")


@asynccontextmanager
async def connected(
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    world: World,
    limiter: TokenBucketLimiter | None = None,
    patient: bool = True,
) -> AsyncIterator[Client]:
    """A client of the cluster that `load_config` finds.

    Raises ConfigurationError, and Unauthorized for credentials that the server refuses now: what is expired
    when a program begins is a mistake, later it may be a rotation. A server that does not answer yet is waited
    for by those who ask it; where nobody is `patient`, that is raised too.
    """
    config = await load_config(kubeconfig, context)
    async with Client(config, limiter=limiter, world=world) as client:
        try:
            await client.raw("GET", "/version")
        except ApiError as error:
            if not patient or isinstance(error, Unauthorized):
                raise
            _log.warning(
                "The cluster does not answer yet; waiting for it",
                error=error,
                advice="check its address, the network, and the certificate authority of the kubeconfig",
            )
        yield client
