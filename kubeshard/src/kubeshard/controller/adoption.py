"""Before an object that nobody controls gets a controller, that is read anew.

The garbage collector lets go of the dependents of an owner that is deleted without them. Events of different kinds have
no order, so a controller may see that first, while its cache still shows the owner as it was: what would be adopted
then would be deleted with its owner. client-go rules that out in the same way (`RecheckDeletionTimestamp`). One request
for each adoption, which are rare: none for what is created, or is controlled already. So an owner that is being deleted
adopts nothing, whatever finalizers are left: the garbage collector's may have done its work before the others do
theirs. Not guaranteed: anything about an owner that is deleted after it was read.

RBAC: `get` on the owner's kind.
"""

from __future__ import annotations

from kubeshard.client.client import Client
from kubeshard.core.errors import Conflict, NotFound
from kubeshard.core.objects import KubeObject, metadata_only
from kubeshard.core.owners import controller_of


async def check_adoption(client: Client, live: KubeObject, owner: KubeObject | None) -> None:
    """Raises Conflict if the object would get this owner, which is being deleted or gone."""
    if owner is None or controller_of(live.metadata) is not None:
        return
    was = owner.metadata
    try:
        now = await client.get(metadata_only(owner.KIND), was.name, was.namespace)
    except NotFound:
        now = None
    if now is None or now.metadata.uid != was.uid or now.metadata.deleting:
        raise Conflict(
            f"{owner.KIND.kind} {owner.key} is being deleted or gone: {live.metadata.name!r}, which has no controller, "
            "would be deleted with it"
        )
