"""The rights that `kubeshard rbac` prints are sufficient for the operator."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from kubeshard import (
    CacheSettings,
    Client,
    ConfigMap,
    Context,
    Controller,
    KubeObject,
    LeaderElection,
    Manager,
    ObjectMeta,
    Struct,
    ensure,
)
from kubeshard.cache import Scope
from kubeshard.core import NotFound
from kubeshard.core.errors import KubeshardError
from kubeshard.crd import definition
from kubeshard.manager.roles import roles
from kubeshard.webhook import Webhooks, validates


class NoteStatus(Struct):
    done: bool = False


class Note(KubeObject, group="roles.example.com", version="v1"):
    text: str = ""
    status: NoteStatus | None = None


async def reconcile(ctx: Context, note: Note) -> None:
    meta = ObjectMeta(name=note.metadata.name, namespace=note.metadata.namespace)
    await ensure(ctx, ConfigMap(metadata=meta, data={"text": note.text}), owner=note)
    ctx.event(note, "Normal", "Written", "written")
    done = Note(metadata=meta, status=NoteStatus(done=True))
    await ctx.client.apply(done, subresource="status", base=note, force=True)


@validates(Note)
def not_empty(note: Note) -> None: ...


def operator(client: Any, namespace: str) -> Manager:
    return Manager(
        [Controller(name="note", reconciler=reconcile, primary=Note, owns=[ConfigMap])],
        client=client,
        cache=CacheSettings(default_scope=Scope(frozenset({namespace}))),
        leader_election=LeaderElection(name="notes", namespace=namespace, watchdog=False),
        servers=[Webhooks(f"notes-{namespace}", [not_empty], namespace=namespace, host="127.0.0.1", port=0)],
        status_pages=None,
    )


async def written(client: Client, name: str, namespace: str, webhook: str) -> None:
    """Waits until the operator has performed all its actions."""
    async with asyncio.timeout(30):
        while True:
            with suppress(NotFound):
                config_map = await client.get(ConfigMap, name, namespace)
                note = await client.get(Note, name, namespace)
                path = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{webhook}"
                await client.raw("GET", path)
                events = await client.raw("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
                told = any(event["reason"] == "Written" for event in json.loads(events.body)["items"])
                if config_map.data and note.status and note.status.done and told:
                    return
            await asyncio.sleep(0.05)


async def test_an_operator_works_with_the_rights_that_are_derived_for_it(
    kube_client: Client, namespace: str, install_crd: Callable[[Mapping[str, Any]], None]
) -> None:
    install_crd(definition(Note))
    account = (namespace, "notes")
    manifests = list(roles(operator(None, namespace).grants(), f"notes-{namespace}", account=account))
    for manifest in manifests:
        await kube_client.apply_manifest(manifest)
    user = {"Impersonate-User": f"system:serviceaccount:{namespace}:notes"}
    limited = dataclasses.replace(kube_client.config, impersonate=user)
    await kube_client.create(Note(metadata=ObjectMeta(name="one", namespace=namespace), text="hello"))
    manager = operator(limited, namespace)
    task = asyncio.create_task(manager.run())
    try:
        await written(kube_client, "one", namespace, f"notes-{namespace}")
    finally:
        task.cancel()
        await asyncio.wait([task])
        for kind in ("validatingwebhookconfigurations", "clusterroles", "clusterrolebindings"):
            group = "admissionregistration.k8s.io" if "webhook" in kind else "rbac.authorization.k8s.io"
            with suppress(KubeshardError):
                await kube_client.raw("DELETE", f"/apis/{group}/v1/{kind}/notes-{namespace}")
