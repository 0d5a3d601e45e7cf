"""An operator with a bug: a Visitor is to get one ticket, and sometimes gets two.

`kubeshard simulate` finds out when, and draws it: docs/how-to/simulate.md.
"""

from kubeshard import (
    ConfigMap,
    Context,
    Controller,
    KubeObject,
    LeaderElection,
    Manager,
    ObjectMeta,
    Struct,
    field,
)
from kubeshard.core import controller_of, controller_reference
from kubeshard.crd import CustomResource


class VisitorSpec(Struct):
    name: str = ""


@CustomResource()
class Visitor(KubeObject, group="examples.kubeshard.dev", version="v1"):
    spec: VisitorSpec = field(default_factory=VisitorSpec)


async def reconcile(ctx: Context, visitor: Visitor) -> None:
    me, namespace = controller_reference(visitor), visitor.metadata.namespace
    tickets = ctx.cache.list(ConfigMap, namespace)
    if not any(controller_of(ticket.metadata) == me for ticket in tickets):
        metadata = ObjectMeta(generate_name="ticket-", namespace=namespace, owner_references=(me,))
        await ctx.client.create(ConfigMap(metadata=metadata, data={"for": visitor.spec.name}))


visitors = Controller(name="visitor", reconciler=reconcile, primary=Visitor, owns=[ConfigMap])

manager = Manager([visitors], leader_election=LeaderElection(name="tickets", namespace="default"))
