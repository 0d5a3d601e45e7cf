"""The objects that every namespace gets: a default ServiceAccount, and the API server's certificate authority."""

from __future__ import annotations

from collections.abc import Iterable

from kubeshard.core.errors import AlreadyExists
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, Cluster, service_account
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import is_deleting
from kubeshard_apiserver.resources.namespaces import NAMESPACES
from kubeshard_apiserver.steps import Steps

_ACCOUNTS = GroupResource("", "serviceaccounts")
_MAPS = GroupResource("", "configmaps")
_ACCOUNT, _ROOT_CA = "default", "kube-root-ca.crt"
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of "
    "Kubernetes clusters."
)


class Furnishing(Controller[str]):
    """Creates these objects, recreates them after deletion, and restores the content of the ConfigMap."""

    def __init__(self, cluster: Cluster, root_ca: str) -> None:
        super().__init__(cluster)
        self._data = {"ca.crt": root_ca}
        self._accounts = Account(cluster, service_account("service-account-controller"))
        self._publisher = Account(cluster, service_account("root-ca-cert-publisher"))

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[str]:
        if resource == NAMESPACES and event.old is None:
            return (event.key.name,)
        removed = event.new is None
        if resource == _ACCOUNTS and event.key.name == _ACCOUNT and removed:
            return (event.key.namespace,)
        if resource == _MAPS and event.key.name == _ROOT_CA and event.old is not None:
            return (event.key.namespace,)
        return ()

    def reconcile(self, key: str) -> Steps[float | None]:
        namespace = self.cluster.get(Node(NAMESPACES, Key("", key)))
        if namespace is None or is_deleting(namespace):
            return None
        if self.cluster.get(Node(_ACCOUNTS, Key(key, _ACCOUNT))) is None:
            yield from _created(self._accounts, _ACCOUNTS, {"metadata": {"name": _ACCOUNT, "namespace": key}})
        node = Node(_MAPS, Key(key, _ROOT_CA))
        found = self.cluster.get(node)
        if found is None:
            meta = {
                "name": _ROOT_CA,
                "namespace": key,
                "annotations": {"kubernetes.io/description": _DESCRIPTION},
            }
            yield from _created(self._publisher, _MAPS, {"metadata": meta, "data": self._data})
        elif found.get("data") != self._data:
            yield from self._publisher.change(node, lambda live: {**live, "data": self._data})
        return None


def _created(account: Account, resource: GroupResource, body: dict[str, object]) -> Steps[None]:
    try:
        yield from account.create(resource, body)
    except AlreadyExists:
        return
