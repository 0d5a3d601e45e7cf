"""The roles and bindings that a cluster has from the beginning, as release 1.36 has them.

What they are stands in `bootstrap.json`, taken from the real server.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from kubeshard.apiserver.identity.rbac import GROUP
from kubeshard.apiserver.model import Model
from kubeshard.apiserver.objects import Object, key_of
from kubeshard.core.kinds import GroupResource

_ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_KINDS = {
    "clusterroles": "ClusterRole",
    "clusterrolebindings": "ClusterRoleBinding",
    "roles": "Role",
    "rolebindings": "RoleBinding",
}


def install(server: Model) -> None:
    """Puts what is missing into the store: what is there stays as somebody has made it."""
    now = server.now()
    for resource, template, fields in _templates():
        key = key_of(template)
        if server.store.get(resource, key) is not None:
            continue
        manager = {
            "manager": "kube-apiserver",
            "operation": "Update",
            "apiVersion": f"{GROUP}/v1",
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        own = {"uid": server.rng.token(), "creationTimestamp": now, "managedFields": [manager]}
        server.store.put(resource, key, {**template, "metadata": {**template["metadata"], **own}})


@cache
def _templates() -> tuple[tuple[GroupResource, Object, dict[str, Any]], ...]:
    """Each with what its first manager owns."""
    return tuple(_read())


def _read() -> Iterator[tuple[GroupResource, Object, dict[str, Any]]]:
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
            yield GroupResource(GROUP, plural), {**head, **content}, fields


def _owned(names: dict[str, str]) -> dict[str, Any]:
    return {".": {}, **{f"f:{name}": {} for name in names}}
