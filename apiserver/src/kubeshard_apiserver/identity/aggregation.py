"""Aggregated cluster roles, as maintained by kube-controller-manager's clusterrole-aggregation-controller.

Guaranteed: when a write of a cluster role returns, every role with an `aggregationRule` has the rules of the roles that
it selects. On a real cluster this takes a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.patches import ApplyPatch
from kubeshard.runtime.logs import get_logger
from kubeshard_apiserver.access.authorizer import Rule
from kubeshard_apiserver.access.user import AUTHENTICATED, User, account_groups, account_name
from kubeshard_apiserver.identity.rbac import CLUSTER_ROLES, GROUP
from kubeshard_apiserver.model import Target, WriteOptions
from kubeshard_apiserver.objects import Object, labels_of
from kubeshard_apiserver.resources.value_rules import selects
from kubeshard_apiserver.server import ApiServer

log = get_logger("kubeshard_apiserver")

MANAGER = "clusterrole-aggregation-controller"
_USER = User(account_name("kube-system", MANAGER), groups=(*account_groups("kube-system"), AUTHENTICATED))


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
        options = WriteOptions(manager=MANAGER, force=True, user=_USER)
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
