"""What a ring needs besides its shards: the ControllerRing itself, and the sharder's right to assign its objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kubeshard.core.errors import ConfigurationError
from kubeshard.manager.config_file import unknown_fields
from kubeshard.manager.roles import roles
from kubeshard.manifests.fence import label_policy, shard_policies
from kubeshard.manifests.rights import ring_grants
from kubeshard.shard.identity import check_ring_name
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.classification import RingResources
from kubeshard.sharding.names import APP_LABEL, APP_NAME, SHARD_NAMESPACES_ANNOTATION

Manifest = dict[str, Any]


Account = tuple[str, str]
"""The namespace and name of a service account."""


def ring_objects(
    manifest: Mapping[str, Any],
    sharder: Account,
    *,
    shards: Sequence[Account] = (),
    labels_only: bool = False,
) -> Iterator[Manifest]:
    """The ControllerRing, and a ClusterRole that is bound to the sharder's account. If the shards' accounts are given,
    the ring says in which namespaces they are, and policies restrict each shard to its own objects; with `labels_only`,
    a policy restricts the sharder to its labels.

    Raises ConfigurationError if it is not a ControllerRing, if it shards nothing, if it shards what no ring may, or if
    it has fields that no ring has.
    """
    ring = _ring(manifest)
    resources = RingResources(ring.spec.resources)
    if problems := [problem.message for problem in resources.problems]:
        raise ConfigurationError(f"ControllerRing {ring.name}: {'; '.join(problems)}")
    if not resources.entries:
        raise ConfigurationError(f"ControllerRing {ring.name}: spec.resources is empty, so it shards nothing")
    yield _confined(manifest, shards) if shards else dict(manifest)
    for role in roles(ring_grants(ring), f"sharding:controllerring:{ring.name}", account=sharder):
        yield {**role, "metadata": {**role["metadata"], "labels": {APP_LABEL: APP_NAME}}}
    if shards:
        yield from shard_policies(ring, shards, sharder)
    if labels_only:
        yield from label_policy(ring, sharder)


def _confined(manifest: Mapping[str, Any], shards: Sequence[Account]) -> Manifest:
    """The ring with the namespaces of its shards, unless it names some itself."""
    meta = manifest["metadata"]
    namespaces = ",".join(sorted({namespace for namespace, _ in shards}))
    annotations = {SHARD_NAMESPACES_ANNOTATION: namespaces, **(meta.get("annotations") or {})}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def is_ring(manifest: Any) -> bool:
    kind = ControllerRing.KIND
    return isinstance(manifest, Mapping) and (manifest.get("apiVersion"), manifest.get("kind")) == (
        kind.api_version,
        kind.kind,
    )


def _ring(manifest: Mapping[str, Any]) -> ControllerRing:
    try:
        ring = msgspec.convert(manifest, ControllerRing)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"not a ControllerRing: {error}") from None
    if not is_ring(manifest) or not ring.name:
        raise ConfigurationError(f"not a ControllerRing of {ControllerRing.KIND.api_version} with a name")
    check_ring_name(ring.name)
    own = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")}
    if unknown := list(unknown_fields(own, ControllerRing, "")):
        raise ConfigurationError(f"ControllerRing {ring.name}: {'; '.join(unknown)}")
    return ring
