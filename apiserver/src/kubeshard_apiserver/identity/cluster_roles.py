"""The roles and bindings of a new cluster, and aggregated cluster roles.

The former are those of release 1.37, in `bootstrap.json`, taken from the real server. The latter are maintained as by
kube-controller-manager's clusterrole-aggregation-controller. Guaranteed: when a write of a cluster role returns, every
role with an `aggregationRule` has the rules of the roles that it selects. On a real cluster this takes a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.patches import ApplyPatch
from kubeshard.runtime.logs import get_logger
from kubeshard_apiserver.access import AUTHENTICATED, Rule, User, account_groups, account_name
from kubeshard_apiserver.identity.rbac import CLUSTER_ROLES, GROUP
from kubeshard_apiserver.model import Model, Target, WriteOptions
from kubeshard_apiserver.objects import Object, key_of, labels_of
from kubeshard_apiserver.resources.value_rules import selects
from kubeshard_apiserver.server import ApiServer

log = get_logger("kubeshard_apiserver")

_AGGREGATION = "clusterrole-aggregation-controller"
_USER = User(
    account_name("kube-system", _AGGREGATION), groups=(*account_groups("kube-system"), AUTHENTICATED)
)


def keep_aggregated(server: ApiServer, *, settled: bool = False) -> Callable[[], None]:
    """Keep roles aggregated from now on. `settled`: they already are. Returns a function that stops this."""
    aggregation = _Aggregation(server)
    if not settled:
        aggregation.settle()
    return server.store.subscribe(aggregation.written)


class _Aggregation:
    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._settling = False

    def written(self, resource: GroupResource) -> None:
        if resource == CLUSTER_ROLES and not self._settling:
            self.settle()

    def settle(self) -> None:
        """Repeat until nothing changes, since roles may aggregate aggregated roles; at most once per such role."""
        self._settling = True
        try:
            for _ in self._made():
                if not self._round():
                    return
        finally:
            self._settling = False

    def _made(self) -> list[Object]:
        roles = self._server.store.objects(CLUSTER_ROLES)
        return [role for role in roles.values() if role.get("aggregationRule")]

    def _round(self) -> bool:
        """Aggregate every role once. Report whether anything changed."""
        changed = False
        for role in self._made():
            rules = list(collected(role, self._server.store.objects(CLUSTER_ROLES).values()))
            if rules != (role.get("rules") or []):
                changed = self._write(role["metadata"]["name"], rules) or changed
        return changed

    def _write(self, name: str, rules: list[Rule]) -> bool:
        resource = self._server.registry.find(GROUP, "v1", "clusterroles")
        if resource is None:
            raise AssertionError("clusterroles are built in")
        body = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rules,
        }
        options = WriteOptions(manager=_AGGREGATION, force=True, user=_USER)
        try:
            self._server.patch(Target(resource, "", name), ApplyPatch(body), options)
        except ApiError as error:
            log.warning("Failed to aggregate a cluster role", name=name, problem=error.message)
            return False
        return True


def collected(role: Object, roles: Iterable[Object]) -> Iterator[Rule]:
    """Yield the rules of the selected `roles`, without duplicates."""
    seen: list[Rule] = []
    name = role["metadata"]["name"]
    by_name = sorted(roles, key=lambda other: str(other["metadata"]["name"]))
    for selector in role["aggregationRule"].get("clusterRoleSelectors") or ():
        for other in by_name:
            if other["metadata"]["name"] == name or not selects(selector, labels_of(other)):
                continue
            for rule in other.get("rules") or ():
                if rule not in seen:
                    seen.append(rule)
                    yield rule


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
            managers.insert(0, _manager(_AGGREGATION, "Apply", {"f:rules": {}}, now))
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
