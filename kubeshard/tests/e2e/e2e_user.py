"""A user who constantly works with the cluster, and none of whose requests may fail."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kubeshard.client import Client
from kubeshard.core import ApiError, KubeObject
from kubeshard.core.patches import MergePatch


class User:
    """Creates an object, patches an earlier one, deletes a still earlier one, and so on. `make` returns the object for
    a number.
    """

    def __init__(self, client: Client, make: Callable[[int], KubeObject], pause: float = 0.1) -> None:
        self._client = client.with_user_agent("user").with_field_manager("user")
        self._make = make
        self._pause = pause
        self.created: list[KubeObject] = []
        """Objects as in the API server's responses, without those that were deleted."""
        self.requests = 0
        self.failures: list[str] = []

    @asynccontextmanager
    async def working(self) -> AsyncIterator[User]:
        """Works while the block runs. Raises AssertionError at its end if a request failed or there were hardly any."""
        task = asyncio.create_task(self._work())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])
        assert task.cancelled(), task.exception()
        assert not self.failures, self.failures[:5]
        assert self.requests, "nothing was asked for"

    async def _work(self) -> None:
        for number in itertools.count():
            await self._request("create", self._create(number))
            if number % 2 and self.created:
                await self._request(
                    "patch", self._patch(self.created[number // 2 % len(self.created)], number)
                )
            if number % 5 == 4:
                await self._request("delete", self._delete(self.created.pop(0)))
            await asyncio.sleep(self._pause)

    async def _request(self, verb: str, request: Any) -> None:
        self.requests += 1
        try:
            await request
        except ApiError as error:
            self.failures.append(f"request {self.requests}, {verb}: {error!r}")

    async def _create(self, number: int) -> None:
        self.created.append(await self._client.create(self._make(number)))

    async def _patch(self, obj: KubeObject, number: int) -> None:
        body = MergePatch({"metadata": {"annotations": {"e2e.kubeshard.test/patched": str(number)}}})
        await self._client.patch(type(obj), obj.metadata.name, obj.metadata.namespace, body)

    async def _delete(self, obj: KubeObject) -> None:
        await self._client.delete(type(obj), obj.metadata.name, obj.metadata.namespace)
