"""How long drains have been pending. The label has no time, so it is read from `metadata.managedFields`.

Guaranteed: a drain is at least as old as reported, because the time is that of the last write by the label's field
manager. Not guaranteed: that the age is known; `metadata.managedFields` may have been cleared.

RBAC: list on the resource.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kubeshard.client.client import Client
from kubeshard.client.requests import accept_list, collection_path, query
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import metadata_only
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.core.times import parse_time

LOOKED_AT = 500
"""The number of drains per resource whose age is looked up."""


async def oldest_drain(client: Client, kind: Kind, drain_label: str) -> float | None:
    """When the oldest of the pending drains that are read was requested, since the epoch. None if unknown."""
    items = await _read(client, kind, ALL, labels=Selector.exists(drain_label))
    return min(
        (since for item in items if (since := drained_since(item, drain_label)) is not None), default=None
    )


async def drain_of(client: Client, kind: Kind, name: str, namespace: str, drain_label: str) -> float | None:
    """When the drain of one object was requested."""
    selector = FieldSelector.equals("metadata.name", name)
    items = await _read(client, kind, namespace or ALL, fields=selector)
    return drained_since(items[0], drain_label) if items else None


def drained_since(item: Mapping[str, Any], drain_label: str) -> float | None:
    """The time of the last write by the label's field manager."""
    times = [
        parse_time(str(entry.get("time")))
        for entry in (item.get("metadata") or {}).get("managedFields") or ()
        if f"f:{drain_label}"
        in (((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {})
    ]
    return min((time for time in times if time is not None), default=None)


async def _read(
    client: Client,
    kind: Kind,
    namespace: str | AllNamespaces,
    *,
    labels: Selector | None = None,
    fields: FieldSelector | None = None,
) -> list[Mapping[str, Any]]:
    target = collection_path(kind, namespace) + query(
        {"labelSelector": str(labels or ""), "fieldSelector": str(fields or ""), "limit": LOOKED_AT}
    )
    try:
        answer = await client.raw("GET", target, accept=accept_list(metadata_only(kind)))
        return list(json.loads(answer.body).get("items") or ())
    except (ApiError, ValueError):
        return []
