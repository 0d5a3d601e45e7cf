"""ServiceAccounts. Source: k8s.io/kubernetes `pkg/registry/core/serviceaccount`."""

from __future__ import annotations

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.typed import Typed


class ServiceAccounts(Typed):
    """Of references to secrets only the name is kept."""

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        _keep_names(obj)

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        _keep_names(new)


def _keep_names(account: Object) -> None:
    if secrets := account.get("secrets"):
        account["secrets"] = [{"name": secret["name"]} if secret.get("name") else {} for secret in secrets]
