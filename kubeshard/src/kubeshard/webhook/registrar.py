"""Writes the registration of webhooks to a cluster: for good, or only while a program under development runs.

Guaranteed: a configuration then has the given webhooks and no others, and they lead to the given address and no other,
whoever wrote it before; a `caBundle` that somebody else injects is kept. What nobody has changed since is only read
again, conversions included. What somebody has is put right whenever it is asked for, which whoever asks has to limit,
and it is logged.

A temporary registration never blocks a cluster when its program cannot be called: all its webhooks have the failure
policy `Ignore`, unless it is `strict`, for a cluster of tests. `restore` puts back what was there before. That is noted
first, in an annotation of each object (`BEFORE`): after a crash, the next temporary registration that ends well puts it
back, and a registration for good replaces it and removes the note. Not guaranteed: that a conversion works meanwhile,
which has no failure policy.

RBAC: that of `kubeshard.webhook.webhooks`; `restore` also needs `delete` on a configuration that was not there before,
and empties it without.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeshardError,
    NotFound,
    Unprepared,
)
from kubeshard.core.managed_fields import ManagedMeta
from kubeshard.core.objects import KubeObject
from kubeshard.core.partial_kinds import (
    CustomResourceDefinition,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    WebhookConfiguration,
)
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import apart
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.repairs import Repairs
from kubeshard.webhook.registration import Manifest

BEFORE = "kubeshard.dev/before-development"
"""The annotation of an object whose webhooks lead to a program under development, with what they were before."""

_RESTORED_WITHIN = 10.0
_NOWHERE: Mapping[str, Any] = {"url": None, "service": None}

T = TypeVar("T", bound=KubeObject)
Registered = WebhookConfiguration | CustomResourceDefinition
R = TypeVar("R", WebhookConfiguration, CustomResourceDefinition)

_LOG = get_logger("kubeshard.webhook")


CLASSES: Mapping[str, type[WebhookConfiguration]] = {
    cls.KIND.kind: cls for cls in (ValidatingWebhookConfiguration, MutatingWebhookConfiguration)
}


class Registrar:
    """`annotations` are those by which somebody else injects the authority; a temporary registration suspends them."""

    def __init__(
        self,
        client: Client,
        *,
        annotations: Mapping[str, str] | None = None,
        temporary: bool = False,
        strict: bool = False,
    ) -> None:
        self._client = client
        self._annotations = dict(annotations or {})
        self._temporary, self._strict = temporary, strict
        self._before: dict[tuple[type[KubeObject], str], str] = {}
        self._written: dict[tuple[type[KubeObject], str], tuple[str, Manifest]] = {}
        """The version of each object after the last write, and what was written."""
        self._repairs, self._notices = Repairs(client.world.clock), Notices()

    async def configure(self, manifest: Manifest) -> None:
        """Writes a webhook configuration; without webhooks, empties the one that is there."""
        cls, name = CLASSES[manifest["kind"]], manifest["metadata"]["name"]
        webhooks = manifest.get("webhooks") or []

        async def write(found: WebhookConfiguration | None) -> WebhookConfiguration | None:
            if found is None and not webhooks:
                return None
            before = None if found is None else {"webhooks": found.webhooks}
            annotations = self._noted(cls, name, found, before)
            wanted = [self._webhook(each, found) for each in webhooks]
            if found is not None:
                return await self._patch(cls, name, annotations, {"webhooks": wanted}, _version(found))
            meta = ManagedMeta(name=name, annotations={k: v for k, v in annotations.items() if v})
            return await self._client.create(cls(metadata=meta, webhooks=tuple(wanted)))

        await self._keep(cls, name, manifest, write)

    async def convert(self, name: str, conversion: Manifest) -> None:
        """Writes the conversion of the CustomResourceDefinition of that name. Raises Unprepared if there is none."""
        cls = CustomResourceDefinition

        async def write(found: CustomResourceDefinition | None) -> CustomResourceDefinition:
            if found is None:
                raise Unprepared(
                    f"the CustomResourceDefinition {name} is not installed, so its conversion cannot be registered: "
                    "apply the definition (`kubeshard crd show` prints it)"
                )
            before = {"conversion": found.spec.get("conversion") or {"strategy": "None"}}
            annotations = self._noted(cls, name, found, before)
            wanted = {"spec": {"conversion": self._exactly(conversion)}}
            return await self._patch(cls, name, annotations, wanted, _version(found))

        await self._keep(cls, name, conversion, write)

    async def _keep(
        self,
        cls: type[R],
        name: str,
        wanted: Manifest,
        write: Callable[[R | None], Awaitable[R | None]],
    ) -> None:
        """Has what is wanted written, with what is there now, unless that is what was written for it last."""
        while True:
            try:
                found: R | None = await self._read(cls, name)
            except NotFound:
                found = None
            version, written = _version(found), self._written.get((cls, name))
            if written == (version, wanted):
                return
            try:
                stored = await write(found)
            except (AlreadyExists, Conflict):
                continue  # another replica, or who injects the authority, was faster
            if stored is None:
                return
            self._written[cls, name] = _version(stored), wanted
            if written is not None and written[1] == wanted and _version(stored) != version:
                self._was_changed(cls.KIND.kind, name, found)
            return

    def _was_changed(self, kind: str, name: str, found: Registered | None) -> None:
        """Somebody else has changed, or deleted, what is written now as it was."""
        place = f"{kind} {name}"
        self._repairs.repaired(place)
        if not self._repairs.contested(place):
            self._notices.resolved(place)
            _LOG.info("Webhooks that somebody else had changed are registered again", kind=kind, name=name)
        elif self._notices.due(place):
            others = found.metadata.writers() if found is not None else ()
            _LOG.warning(
                "Somebody else keeps changing the registration of webhooks; putting it right once a minute",
                kind=kind,
                name=name,
                written_by=[f"{each.manager}, {each.time}" for each in others[:3]],
            )

    @property
    def registered(self) -> list[str]:
        """What a temporary registration has written, and `restore` puts back: the kind and name of each object."""
        return [f"{cls.KIND.kind} {name}" for cls, name in self._before]

    async def restore(self) -> None:
        """What was there before a temporary registration; logs what cannot be. Also while being cancelled."""
        await apart(self._restore)

    async def _restore(self) -> None:
        restored: list[str] = []
        for (cls, name), note in self._before.items():
            try:
                async with asyncio.timeout(_RESTORED_WITHIN):
                    await self._restored(cls, name, json.loads(note))
                restored.append(f"{cls.KIND.kind} {name}")
            except (KubeshardError, TimeoutError) as error:
                kind = cls.KIND.kind
                _LOG.warning("Webhooks still lead to this program", kind=kind, name=name, error=error)
        self._before.clear()
        if restored:
            _LOG.info("Webhooks are registered as before", restored=restored)

    async def _restored(self, cls: type[KubeObject], name: str, before: Any) -> None:
        try:
            found = await self._read(cls, name)
        except NotFound:
            return
        if not found.metadata.annotation(BEFORE):
            return  # somebody has registered others meanwhile
        if before is None:
            try:
                await self._client.delete(cls, name, uid=found.metadata.uid)
            except Forbidden:
                before = {"webhooks": []}
            else:
                return
        annotations = {BEFORE: None, **before.pop("annotations", {})}
        if "conversion" in before:
            before = {"spec": {"conversion": _whole(before["conversion"])}}
        await self._patch(cls, name, annotations, before)

    def _noted(
        self, cls: type[KubeObject], name: str, found: KubeObject | None, before: dict[str, Any] | None
    ) -> dict[str, str | None]:
        """The annotations to write; remembers what is to be restored."""
        note = found.metadata.annotation(BEFORE) if found is not None else ""
        if not self._temporary:
            return {**self._annotations, **({BEFORE: None} if note else {})}
        if found is not None and before is not None and self._annotations:
            before["annotations"] = {key: found.metadata.annotation(key) for key in self._annotations}
        note = self._before.setdefault((cls, name), note or msgspec.json.encode(before).decode())
        suspended = dict.fromkeys(self._annotations) if found is not None else {}
        return {**suspended, BEFORE: note}

    def _webhook(self, webhook: Mapping[str, Any], found: WebhookConfiguration | None) -> Mapping[str, Any]:
        if self._temporary:
            return webhook if self._strict else {**webhook, "failurePolicy": "Ignore"}
        config = webhook["clientConfig"]
        injected = _bundle_of(webhook["name"], found.webhooks if found is not None else ())
        if "caBundle" in config or not injected:
            return webhook
        return {**webhook, "clientConfig": {**config, "caBundle": injected}}

    def _exactly(self, conversion: Manifest) -> Manifest:
        """The patch to a conversion that leads to this address and no other."""
        webhook = conversion["webhook"]
        own = {"caBundle": None} if self._temporary else {}
        config = {**_NOWHERE, **own, **webhook["clientConfig"]}
        return {**conversion, "webhook": {**webhook, "clientConfig": config}}

    async def _read(self, cls: type[T], name: str) -> T:
        """The object, also for who may only patch it, as operators were allowed that have been installed before."""
        try:
            return await self._client.get(cls, name)
        except Forbidden:
            return await self._client.patch(cls, name, None, MergePatch({}))

    async def _patch(
        self,
        cls: type[T],
        name: str,
        annotations: Mapping[str, str | None],
        rest: Mapping[str, Any],
        version: str = "",
    ) -> T:
        metadata = {
            **({"annotations": annotations} if annotations else {}),
            **({"resourceVersion": version} if version else {}),
        }
        body = {**({"metadata": metadata} if metadata else {}), **rest}
        return await self._client.patch(cls, name, None, MergePatch(body))


def _version(found: KubeObject | None) -> str:
    return found.metadata.resource_version if found is not None else ""


def _whole(conversion: Manifest) -> Manifest:
    """The patch that makes any conversion this one."""
    if "webhook" not in conversion:
        return {**conversion, "webhook": None}
    webhook = conversion["webhook"]
    config = {**_NOWHERE, "caBundle": None, **(webhook.get("clientConfig") or {})}
    return {**conversion, "webhook": {**webhook, "clientConfig": config}}


def _bundle_of(name: str, webhooks: Sequence[Mapping[str, Any]]) -> str:
    return next((each["clientConfig"].get("caBundle", "") for each in webhooks if each["name"] == name), "")
