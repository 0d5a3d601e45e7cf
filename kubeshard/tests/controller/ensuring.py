"""`ensure` without a manager: a context that reads from the server directly and counts writes."""

from __future__ import annotations

from typing import Any, cast

from kubeshard.client import Client
from kubeshard.controller import Context
from kubeshard.controller.contested import Contests
from kubeshard.controller.dependents import EnsureResult, ensure
from kubeshard.controller.merging import Rewrites
from kubeshard.controller.run import from_cache
from kubeshard.core import Key, KubeObject, NotFound


class Ensuring:
    """One process of a controller. It knows nothing of what another instance has learned."""

    fresh = staticmethod(from_cache)
    key = Key("default", "owner")

    def __init__(self, client: Client) -> None:
        self.client = client
        self._run = self  # the state of its only run
        self.rewrites = Rewrites()
        self.contests = Contests(client.world.clock)

    async def get(self, target: Any, name: str, namespace: str | None = None) -> Any:
        try:
            return await self.client.get(target, name, namespace or "")
        except NotFound:
            return None

    def just_read(self, *_: object) -> None:
        """It has no reads to remember."""

    def may_be_first(self, *_: object) -> bool:
        return False

    async def __call__(self, desired: KubeObject, owner: KubeObject | None = None) -> EnsureResult:
        _, outcome = await ensure(cast(Context, self), desired, owner=owner)
        return outcome
