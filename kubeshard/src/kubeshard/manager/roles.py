"""The RBAC rules that a manager needs, from what its parts declare.

| declared | verbs |
|---|---|
| any watch, and an entry of `reads` | get, list, watch |
| the primary kind, if its class has a `status` | patch of `status`, and update if the class is complete |
| the primary kind, with finalizers or `applies` | patch |
| the primary kind, with `expires` | delete |
| the primary kind, if the controller owns others | update of `finalizers`, which owner references need |
| an entry of `owns` | create, patch |
| an entry of `applies` | create, patch, delete |
| an entry of `grants` | what it says |
| a controller | create and patch of events, in the namespaces of its objects |
| leader election, sharding, webhooks | see their docstrings |
| `metrics_auth` | create of tokenreviews and subjectaccessreviews |

Controllers of several clusters need the same in each of them. A watch in some namespaces only needs roles in these.
Guaranteed: the rules allow what kubeshard itself does for these declarations. Anything else that the author's code does
must be declared in `grants`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from kubeshard.cache.scope import Scope
from kubeshard.controller.controller import Controller
from kubeshard.controller.watch import Watch, as_watch, narrowed
from kubeshard.core.grants import READ, WRITE, Grant
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.namespaces import ALL, AllNamespaces

Manifest = dict[str, Any]
ScopeOf = Callable[[Kind], Scope | None]
"""Returns the scope in which the manager caches a kind; a watch's own narrows it."""

Needed = Mapping[tuple[GroupResource, str], set[str]]
"""Verbs by resource and name."""

EVENTS = GroupResource("events.k8s.io", "events")

_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_RBAC = "rbac.authorization.k8s.io"


@runtime_checkable
class Grantee(Protocol):
    """A part of a manager that needs its own permissions. `scope_of`: what the manager caches."""

    def grants(self, controllers: Iterable[Controller[Any]], scope_of: ScopeOf) -> Iterable[Grant]: ...


def manager_grants(
    controllers: Sequence[Controller[Any]],
    parts: Iterable[object],
    scope_of: ScopeOf,
    *,
    metrics_auth: bool,
) -> Iterator[Grant]:
    for controller in controllers:
        yield from controller_grants(controller, scope_of)
    for part in parts:
        if isinstance(part, Grantee):
            yield from part.grants(controllers, scope_of)
    if metrics_auth:
        yield from metrics_grants()


def controller_grants(controller: Controller[Any], scope_of: ScopeOf) -> Iterator[Grant]:
    primary = controller.primary_watch
    for watch in (*controller.all_watches, *controller.crossing_watches):
        yield from _in(watch, scope_of, Grant.on(watch.target, *READ))
    cls, applied = primary.form.type, controller.applied_watches
    if "status" in cls.__struct_fields__:
        verbs = ("patch", "update") if cls.COMPLETE else ("patch",)
        yield from _in(primary, scope_of, Grant.on(primary.target, *verbs, subresource="status"))
    if controller.finalizers or applied:
        yield from _in(primary, scope_of, Grant.on(primary.target, "patch"))
    if controller.expires is not None:
        yield from _in(primary, scope_of, Grant.on(primary.target, "delete"))
    owned = [as_watch(watch) for watch in controller.owns]
    if owned or applied:
        yield from _in(primary, scope_of, Grant.on(primary.target, "update", subresource="finalizers"))
    for watch in owned:
        yield from _in(watch, scope_of, Grant.on(watch.target, "create", "patch"))
    for watch in applied:
        yield from _in(watch, scope_of, Grant.on(watch.target, *WRITE))
    yield from controller.grants
    yield from _in(primary, scope_of, Grant.on(EVENTS, "create", "patch"))


def metrics_grants() -> Iterator[Grant]:
    """The grants that `metrics_auth` needs."""
    yield Grant.on(GroupResource("authentication.k8s.io", "tokenreviews"), "create")
    yield Grant.on(GroupResource("authorization.k8s.io", "subjectaccessreviews"), "create")


def _in(watch: Watch[Any], scope_of: ScopeOf, grant: Grant) -> Iterator[Grant]:
    for namespace in places(watch, scope_of):
        yield Grant(grant.resource, grant.verbs, namespace, grant.name)


def places(watch: Watch[Any], scope_of: ScopeOf) -> Sequence[str | AllNamespaces]:
    """Where a manager reads the objects of a watch."""
    scope = narrowed(scope_of(watch.form.kind) or Scope(), watch.scope or Scope())
    if isinstance(scope.namespaces, AllNamespaces) or not watch.form.kind.namespaced:
        return (ALL,)
    return sorted(scope.namespaces)


def roles(
    grants: Iterable[Grant],
    name: str,
    *,
    namespace: str | None = None,
    account: tuple[str, str] | None = None,
) -> Iterator[Manifest]:
    """A ClusterRole and a Role for each namespace, all with that name; with a service `account` (namespace, name)
    also their bindings. `namespace` is the program's own; without it, its Role has no namespace, so that `kubectl -n`
    decides.
    """
    by_place: dict[str | AllNamespaces | None, defaultdict[tuple[GroupResource, str], set[str]]]
    by_place = defaultdict(lambda: defaultdict(set))
    for grant in grants:
        place = namespace if grant.namespace is None else grant.namespace
        by_place[place][grant.resource, grant.name] |= grant.verbs
    everywhere: Needed = by_place.pop(ALL, defaultdict(set))
    if everywhere:
        yield _role(name, ALL, everywhere)
        if account:
            yield _binding(name, ALL, account)
    for place in sorted(
        (place for place in by_place if not isinstance(place, AllNamespaces)), key=lambda place: place or ""
    ):
        here = _beyond(by_place[place], everywhere)
        if any(here.values()):
            yield _role(name, place, here)
            if account:
                yield _binding(name, place, account)


def _beyond(needed: Needed, everywhere: Needed) -> Needed:
    return {place: verbs - everywhere.get((place[0], ""), set()) for place, verbs in needed.items()}


def _role(name: str, place: str | AllNamespaces | None, needed: Needed) -> Manifest:
    alike: dict[tuple[str, tuple[str, ...], str], list[str]] = defaultdict(list)
    for (resource, only), verbs in sorted(needed.items()):
        beyond = verbs - needed.get((resource, ""), set()) if only else verbs
        if beyond:
            alike[resource.group, tuple(sorted(beyond, key=_order)), only].append(resource.resource)
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole" if place is ALL else "Role",
        "metadata": _metadata(name, place),
        "rules": [
            {
                "apiGroups": [group],
                "resources": resources,
                **({"resourceNames": [only]} if only else {}),
                "verbs": list(verbs),
            }
            for (group, verbs, only), resources in alike.items()
        ],
    }


def _order(verb: str) -> tuple[int, str]:
    return (_VERBS.index(verb) if verb in _VERBS else len(_VERBS), verb)


def _binding(name: str, place: str | AllNamespaces | None, account: tuple[str, str]) -> Manifest:
    kind = "ClusterRole" if place is ALL else "Role"
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": _metadata(name, place),
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}],
    }


def _metadata(name: str, place: str | AllNamespaces | None) -> Manifest:
    return {"name": name, **({"namespace": place} if isinstance(place, str) else {})}
