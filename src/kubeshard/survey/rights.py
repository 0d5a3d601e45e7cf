"""The RBAC permissions for inspecting rings; `kubeshard.manager.roles` renders roles from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubeshard.core.builtin import Lease, Namespace
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import GroupResource
from kubeshard.sharder.webhook_config import MutatingWebhookConfiguration
from kubeshard.sharding.api import ControllerRing
from kubeshard.survey.cluster import ELECTION


def reader_grants(resources: Iterable[GroupResource]) -> Iterator[Grant]:
    """The rights of read-only users. `resources` are the main and controlled resources of the rings that they may
    inspect.
    """
    yield Grant.on(ControllerRing, "list", "watch")
    yield Grant.on(Lease, "list", "watch")
    yield Grant.on(Lease, "get", namespace=ELECTION.namespace, name=ELECTION.name)
    yield Grant.on(Namespace, "list", "watch")
    yield Grant.on(MutatingWebhookConfiguration, "get")
    for resource in resources:
        yield Grant.on(resource, "list", "watch")
