"""Plain requests to the API server of a control plane."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from kubeshard.client.config import BearerToken
from kubeshard.client.kubeconfig import load_config
from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.transport import HttpRequest, Transport
from kubeshard_apiserver.testing.control_plane import ControlPlane

_WITHIN = 30.0


class Said(NamedTuple):
    status: int
    body: Any


class Asker:
    def __init__(self, transport: Transport, token: str) -> None:
        self._transport = transport
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "Content-Type": "application/json",
        }

    async def get(self, path: str) -> Any:
        """The document at this path."""
        return (await self.ask("GET", path)).body

    async def ask(self, method: str, path: str, body: Any = None) -> Said:
        data = None if body is None else json.dumps(body).encode()
        answer = await self._transport.request(HttpRequest(method, path, self._headers, data, _WITHIN))
        return Said(answer.status, json.loads(answer.body))


@asynccontextmanager
async def asking(kube: ControlPlane) -> AsyncIterator[Asker]:
    config = await load_config(kubeconfig=str(kube.kubeconfig))
    transport = HttpTransport(config.server, config.tls)
    try:
        yield Asker(transport, config.auth.token if isinstance(config.auth, BearerToken) else "")
    finally:
        await transport.close()
