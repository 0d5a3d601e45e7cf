"""The roles and bindings of a new cluster, as of release 1.36.

They are in `bootstrap.json`, taken from the real server.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.identity.aggregation import MANAGER as AGGREGATION
from kubeshard_apiserver.identity.aggregation import collected
from kubeshard_apiserver.identity.rbac import CLUSTER_ROLES, GROUP
from kubeshard_apiserver.model import Model
from kubeshard_apiserver.objects import Object, key_of

_ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_KINDS = {
    "clusterroles": "ClusterRole",
    "clusterrolebindings": "ClusterRoleBinding",
    "roles": "Role",
    "rolebindings": "RoleBinding",
}


class _Template(NamedTuple):
    """An object to install. `owned` are the fields that its first manager owns."""

    resource: GroupResource
    object: Object
    owned: dict[str, Any]


def install(model: Model) -> bool:
    """Add missing roles and bindings to the store; existing ones are kept. Return whether the cluster was new."""
    new, now = not model.store.objects(CLUSTER_ROLES), model.now()
    for resource, template, fields in _templates():
        key = key_of(template)
        if model.store.get(resource, key) is not None:
            continue
        managers = [_manager("kube-apiserver", "Update", fields, now)]
        if "aggregationRule" in template:
            managers.insert(0, _manager(AGGREGATION, "Apply", {"f:rules": {}}, now))
        own = {"uid": model.rng.token(), "creationTimestamp": now, "managedFields": managers}
        model.store.put(resource, key, {**template, "metadata": {**template["metadata"], **own}})
    return new


def _manager(name: str, operation: str, fields: dict[str, Any], now: str) -> dict[str, Any]:
    return {
        "manager": name,
        "operation": operation,
        "apiVersion": f"{GROUP}/v1",
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


@cache
def _templates() -> tuple[_Template, ...]:
    """Return the objects with the aggregated rules filled in, so that a starting server need not aggregate them."""
    templates = tuple(_read())
    roles = [template.object for template in templates if template.resource == CLUSTER_ROLES]
    made = [role for role in roles if "aggregationRule" in role]
    for _ in made:
        for role in made:
            role["rules"] = list(collected(role, roles))
    return templates


def _read() -> Iterator[_Template]:
    document = msgspec.json.decode((files(__package__) / "bootstrap.json").read_bytes())
    for plural, objects in document.items():
        for given in objects:
            place = {"namespace": given["namespace"]} if "namespace" in given else {}
            labels = {**_LABELS, **given.get("labels", {})}
            meta = {"name": given["name"], **place, "labels": labels, "annotations": _ANNOTATIONS}
            content = {
                name: given[name]
                for name in ("rules", "aggregationRule", "subjects", "roleRef")
                if name in given
            }
            if plural in ("clusterroles", "roles"):
                content.setdefault("rules", None)
            fields: dict[str, Any] = {f"f:{name}": {} for name, value in content.items() if value is not None}
            if "aggregationRule" in content:
                fields["f:aggregationRule"] = {".": {}, "f:clusterRoleSelectors": {}}
            fields["f:metadata"] = {"f:annotations": _owned(_ANNOTATIONS), "f:labels": _owned(labels)}
            head = {"kind": _KINDS[plural], "apiVersion": f"{GROUP}/v1", "metadata": meta}
            yield _Template(GroupResource(GROUP, plural), {**head, **content}, fields)


def _owned(names: dict[str, str]) -> dict[str, Any]:
    return {".": {}, **{f"f:{name}": {} for name in names}}
