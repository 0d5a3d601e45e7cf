"""A ring as the tests use it: created, waited for, and compared with its hash ring."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
from e2e_recorder import Labels

from kubeshard.client import Client
from kubeshard.core import ApiError, Conflict, KubeObject, NotFound, ObjectMeta
from kubeshard.core.conditions import get_condition
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.selectors import LabelSelector
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingResource
from kubeshard.sharding.hash_ring import HashRing, main_key
from kubeshard.sharding.names import shard_label, webhook_config_name


class Ring:
    """A ring. `probe` is an object that its webhook must assign."""

    def __init__(self, client: Client, name: str, probe: KubeObject) -> None:
        self._client = client
        self.name = name
        self.label = shard_label(name)
        self._probe = probe

    async def create(self, resources: Sequence[RingResource], namespaces: Mapping[str, str]) -> None:
        """Creates the ring. `namespaces` are the labels of the namespaces that it selects."""
        spec = ControllerRingSpec(
            resources=tuple(resources), namespace_selector=LabelSelector(match_labels=namespaces)
        )
        await self._client.create(ControllerRing(metadata=ObjectMeta(name=self.name), spec=spec))

    async def edit(self, **spec: object) -> None:
        while True:
            ring = await self.get()
            changed = msgspec.structs.replace(ring.spec, **spec)
            try:
                await self._client.replace(msgspec.structs.replace(ring, spec=changed))
            except Conflict:  # a sharder has written the status meanwhile
                continue
            return

    async def get(self) -> ControllerRing:
        return await self._client.get(ControllerRing, self.name)

    async def delete(self) -> None:
        with contextlib.suppress(NotFound):
            await self._client.delete(ControllerRing, self.name)

    async def available(self, shards: int, within: float = 20.0) -> None:
        """Waits until the ring is ready with this many available shards, and its webhook assigns objects."""
        await self.ready(shards, within)
        await eventually(self.webhook_assigns, within)

    async def ready(self, shards: int, within: float = 20.0) -> None:
        """Waits until the ring's status is Ready with this many available shards."""
        await eventually(lambda: self._is_ready(shards), within)

    async def webhook_assigns(self, namespace: str = "") -> bool:
        """Whether an object created now (in the namespace) would be assigned by the same request. Creates nothing."""
        meta = self._probe.metadata
        meta = msgspec.structs.replace(meta, namespace=namespace or meta.namespace)
        try:
            probe = await self._client.create(
                msgspec.structs.replace(self._probe, metadata=meta), dry_run=True
            )
        except ApiError as error:
            raise AssertionError(f"a user's request failed: {error!r}") from error
        return bool(probe.metadata.label(self.label))

    async def webhook(self) -> MutatingWebhookConfiguration | None:
        try:
            return await self._client.get(MutatingWebhookConfiguration, webhook_config_name(self.name))
        except NotFound:
            return None

    async def _is_ready(self, shards: int) -> bool:
        status = (await self.get()).status
        if status is None or status.available_shards != shards:
            return False
        ready = get_condition(status.conditions, "Ready")
        return ready is not None and ready.status == "True"


def owners(objects: Iterable[KubeObject], *shards: str) -> dict[str, Labels]:
    """Returns the shards to which the hash ring assigns these main objects, by name."""
    ring = HashRing(sorted(shards))
    return {
        obj.metadata.name: Labels(ring.owner(main_key(obj.KIND.api_version, obj.KIND.kind, obj.metadata)))
        for obj in objects
    }


async def eventually(
    condition: Callable[[], Awaitable[object]], within: float = 10.0, *, holds: bool = True
) -> float:
    """Checks until the condition holds, or no longer holds; returns how long that took. Raises AssertionError
    otherwise.
    """
    began = time.monotonic()
    while bool(await condition()) is not holds:
        assert time.monotonic() - began < within, f"it did not happen within {within:.0f} s"
        await asyncio.sleep(0.05)
    return time.monotonic() - began
