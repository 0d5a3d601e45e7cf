"""The client of a whole program: created at its start, closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from kubeshard.client.client import Client
from kubeshard.client.kubeconfig import load_config
from kubeshard.client.limiter import TokenBucketLimiter
from kubeshard.core.errors import ApiError, Unauthorized
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.world import World

_log = get_logger("kubeshard.client")


@asynccontextmanager
async def connected(
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    world: World,
    limiter: TokenBucketLimiter | None = None,
    patient: bool = True,
    impersonate: Mapping[str, str | Sequence[str]] | None = None,
) -> AsyncIterator[Client]:
    """A client of the cluster that `load_config` finds. `impersonate`: headers in place of the kubeconfig's.

    Raises ConfigurationError, and Unauthorized if the server rejects the credentials now: at the start of a program,
    that is a mistake; later it may be a rotation. If the server does not respond yet, users of the client wait for it
    or, unless `patient`, the error is raised as well.
    """
    config = await load_config(kubeconfig, context)
    if impersonate:
        config = replace(config, impersonate=impersonate)
    async with Client(config, limiter=limiter, world=world) as client:
        try:
            await client.raw("GET", "/version")
        except ApiError as error:
            if not patient or isinstance(error, Unauthorized):
                raise
            _log.warning(
                "The cluster does not respond yet; waiting for it",
                error=error,
                advice="check its address, the network, and the certificate authority of the kubeconfig",
            )
        yield client
