"""The RBAC permissions that a program needs, as plain values; `kubeshard.manager.roles` renders roles from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Form, KubeObject, form_of

READ = ("get", "list", "watch")
WRITE = ("create", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Grant:
    """Verbs on a resource, or on a subresource of it (`websites/status`): in `ALL` namespaces, in one, or in the
    program's own (None). With a `name`, on the object of that name only.
    """

    resource: GroupResource
    verbs: frozenset[str]
    namespace: str | AllNamespaces | None = ALL
    name: str = ""

    @classmethod
    def on(
        cls,
        target: type[KubeObject] | Form[Any] | GroupResource,
        *verbs: str,
        subresource: str = "",
        namespace: str | AllNamespaces | None = ALL,
        name: str = "",
    ) -> Grant:
        """`Grant.on(Website, "patch", subresource="status")`. Raises TypeError if it is not a kind."""
        group, resource = target if isinstance(target, GroupResource) else form_of(target).kind.group_resource
        if subresource:
            resource = f"{resource}/{subresource}"
        return cls(GroupResource(group, resource), frozenset(verbs), namespace, name)
