"""Which object a user means: `secret/foo`, `Website foo`, `deploy/foo`, `websites.webhosting.timebertt.dev/foo`.

Like kubectl, it accepts a resource, a kind, a singular or a short name, with or without its group. RBAC: none beyond
discovery.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, ConfigurationError
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import PartialObject, metadata_only
from kubeshard.core.selectors import FieldSelector
from kubeshard.survey.errors import Unanswerable, needing
from kubeshard.survey.ring import SeenRing


class Wanted(NamedTuple):
    """An object as the user named it."""

    word: str
    name: str


def wanted(words: Sequence[str]) -> Wanted:
    """Parses `KIND/NAME` or `KIND NAME`. Raises ConfigurationError."""
    parts = words[0].split("/", 1) if len(words) == 1 else list(words)
    if len(parts) != 2 or not all(parts):
        raise ConfigurationError(f"{' '.join(words)}: write KIND/NAME or KIND NAME, as in secret/foo")
    return Wanted(*parts)


async def rings_of(client: Client, rings: Iterable[SeenRing], word: str) -> list[tuple[SeenRing, Kind]]:
    """The rings that shard the resource of this name. Raises Unanswerable if none does."""
    rings = list(rings)
    found = [(ring, kind) for ring in rings for kind in ring.kinds.values() if word.lower() in _called(kind)]
    if not found:
        for ring in rings:
            for kind in ring.kinds.values():
                if word.lower() in await _short_names(client, kind):
                    found.append((ring, kind))  # noqa: PERF401 - it waits for answers
    if not found:
        served = {str(resource) for ring in rings for resource in ring.kinds}
        unserved = {f"{resource} (not served)" for ring in rings for resource in ring.unresolved}
        sharded = ", ".join(sorted(served | unserved))
        if not rings:
            shown = "there is no ControllerRing"
        else:
            shown = f"the rings shard {sharded}" if sharded else "the rings list no resources"
        raise Unanswerable(f"no ring shards {word}; {shown}")
    resources = {kind.group_resource for _, kind in found}
    if len(resources) > 1:
        raise ConfigurationError(
            f"{word} may be {' or '.join(sorted(map(str, resources)))}: name one of them"
        )
    return found


async def find(client: Client, kind: Kind, name: str, namespace: str) -> PartialObject | None:
    """The object, or None if it does not exist. Raises MissingRight, ApiError."""
    selector = FieldSelector.equals("metadata.name", name)
    place = namespace if kind.namespaced else ALL
    with needing("list", kind.group_resource):
        async for obj in client.list(metadata_only(kind), place, field_selector=selector):
            return obj
    return None


def _called(kind: Kind) -> set[str]:
    names = {kind.plural, kind.kind.lower()}
    return names | {f"{name}.{kind.group}" for name in names} | {f"{kind.plural}.{kind.version}.{kind.group}"}


async def _short_names(client: Client, kind: Kind) -> set[str]:
    path = kind.path().rsplit("/", 1)[0]
    with suppress(ApiError, ValueError):
        answer: Mapping[str, Any] = json.loads((await client.raw("GET", path)).body)
        for resource in answer.get("resources") or ():
            if resource.get("name") == kind.plural:
                return {*(resource.get("shortNames") or ()), resource.get("singularName") or ""}
    return set()
