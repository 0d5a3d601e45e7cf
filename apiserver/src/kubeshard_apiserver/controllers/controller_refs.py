"""Which objects a controller manages: it adopts objects that match its selector and have no controller, and releases
those that no longer match. Source: pkg/controller/controller_ref_manager.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, ClusterView
from kubeshard_apiserver.controllers.ownership import Node, controller_of, references_of
from kubeshard_apiserver.controllers.pods import controller_reference
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import (
    Object,
    is_deleting,
    key_of,
    labels_of,
    with_metadata,
    without_finalizer,
)
from kubeshard_apiserver.resources.value_rules import selects
from kubeshard_apiserver.steps import Steps


def claim_dependents(
    cluster: ClusterView,
    account: Account,
    owner: Object,
    resource: GroupResource,
    *,
    suits: Callable[[Object], bool] = lambda obj: True,
    finalizer: str = "",
) -> Steps[None]:
    """Adopt and release dependents. `suits` is an additional condition for adoption; `finalizer` is added to every
    adopted object.

    Does nothing for an owner that is being deleted. Raises ApiError.
    """
    if is_deleting(owner):
        return

    def is_wanted(obj: Object) -> bool:
        return selects(owner["spec"].get("selector"), labels_of(obj)) and suits(obj)

    for obj in cluster.controlled(owner, resource):
        if not selects(owner["spec"].get("selector"), labels_of(obj)):
            yield from account.update(
                Node(resource, key_of(obj)), lambda live: _released(live, owner, finalizer)
            )
    for obj in cluster.orphans(resource, owner["metadata"]["namespace"]):
        if is_wanted(obj) and not is_deleting(obj):
            yield from account.update(
                Node(resource, key_of(obj)), lambda live: _adopted(live, owner, finalizer)
            )


def claimants(cluster: ClusterView, resources: GroupResource, event: Event) -> Iterable[Key]:
    """Return the keys of the owners of this kind that may adopt the changed object."""
    new, old = event.new, event.old
    if new is None or controller_of(new) is not None or is_deleting(new):
        return
    if old is not None and controller_of(old) is None and labels_of(old) == labels_of(new):
        return
    for owner in cluster.in_namespace(resources, event.key.namespace):
        if selects(owner["spec"].get("selector"), labels_of(new)):
            yield key_of(owner)


def _adopted(live: Object, owner: Object, finalizer: str) -> Object:
    if controller_of(live) is not None:
        return live
    references: Sequence[object] = [*references_of(live), controller_reference(owner)]
    changed = with_metadata(live, ownerReferences=references)
    held = live["metadata"].get("finalizers") or []
    if finalizer and finalizer not in held:
        changed = with_metadata(changed, finalizers=[*held, finalizer])
    return changed


def _released(live: Object, owner: Object, finalizer: str) -> Object:
    left = [each for each in references_of(live) if each["uid"] != owner["metadata"]["uid"]]
    return without_finalizer(with_metadata(live, ownerReferences=left or None), finalizer)
