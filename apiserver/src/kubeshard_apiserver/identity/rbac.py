"""Role-based access control, as kube-apiserver evaluates it.

Guaranteed: a decision is based on the roles and bindings in the store at that moment. A user's rules in a namespace are
collected once and cached until a role or binding changes. Members of system:masters
may do everything. Source: k8s.io/kubernetes `plugin/pkg/auth/authorizer/rbac`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.access.authorizer import Attributes, Decision, Held, Rule
from kubeshard_apiserver.access.user import MASTERS, User, account_name
from kubeshard_apiserver.identity import rules
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.status import shown
from kubeshard_apiserver.store import Store

GROUP = "rbac.authorization.k8s.io"
ROLES = GroupResource(GROUP, "roles")
CLUSTER_ROLES = GroupResource(GROUP, "clusterroles")
ROLE_BINDINGS = GroupResource(GROUP, "rolebindings")
CLUSTER_ROLE_BINDINGS = GroupResource(GROUP, "clusterrolebindings")
KINDS = frozenset({ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS})
_MOST_KEPT = 10_000

Subject = tuple[str, str]
"""Kind (`User` or `Group`) and name. A ServiceAccount is represented by the user name of its tokens."""


class MissingRole(Exception):
    """Raised if the role of a binding does not exist. The message is that of the real server."""


class _Grant(NamedTuple):
    rule: Rule
    source: str


class _Grants(NamedTuple):
    rules: Sequence[_Grant]
    problem: str


class _Bound(NamedTuple):
    binding: Object
    position: int
    """The index of the matching subject in the binding."""


class Rbac:
    """Implements `Authorizer` over the roles and bindings of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._subjects: dict[str, dict[Subject, list[_Bound]]] | None = None
        self._grants: dict[tuple[str, tuple[str, ...], str], _Grants] = {}
        store.subscribe(self._written)

    def decide(self, user: User, attributes: Attributes) -> Decision:
        if MASTERS in user.groups:
            return Decision(True)
        grants = self._grants_of(user, attributes.namespace)
        for grant in grants.rules:
            if rules.allows(grant.rule, attributes):
                return Decision(True, f"RBAC: allowed by {grant.source}")
        return Decision(False, f"RBAC: {grants.problem}" if grants.problem else "")

    def held(self, user: User, namespace: str) -> Held:
        grants = self._grants_of(user, namespace)
        return Held([grant.rule for grant in grants.rules], grants.problem)

    def rules_of(self, role: Mapping[str, str], namespace: str) -> Sequence[Rule]:
        """Return the rules of the role that a `roleRef` in this namespace refers to. Raises MissingRole."""
        name = role["name"]
        if role["kind"] == "Role":
            found = self._store.get(ROLES, Key(namespace, name))
        elif role["kind"] == "ClusterRole":
            found = self._store.get(CLUSTER_ROLES, Key("", name))
        else:
            raise MissingRole(f"unsupported role reference kind: {shown(role['kind'])}")
        if found is None:
            raise MissingRole(f"{role['kind'].lower()}.{GROUP} {shown(name)} not found")
        return found.get("rules") or ()

    def _written(self, resource: GroupResource) -> None:
        if resource in KINDS:
            self._grants.clear()
            if resource in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
                self._subjects = None

    def _grants_of(self, user: User, namespace: str) -> _Grants:
        key = (user.name, user.groups, namespace)
        if (known := self._grants.get(key)) is not None:
            return known
        if len(self._grants) >= _MOST_KEPT:
            self._grants.clear()
        grants: list[_Grant] = []
        problems: dict[str, None] = {}
        for place in ("", namespace) if namespace else ("",):
            for bound in self._bound(user, place):
                try:
                    granted = self.rules_of(bound.binding["roleRef"], place)
                except MissingRole as problem:
                    problems[str(problem)] = None
                else:
                    source = _source(bound)
                    grants += [_Grant(rule, source) for rule in granted]
        told = list(problems)
        made = _Grants(grants, told[0] if len(told) == 1 else f"[{', '.join(told)}]" if told else "")
        self._grants[key] = made
        return made

    def _bound(self, user: User, place: str) -> Iterator[_Bound]:
        """Yield the bindings of a namespace or of the cluster that name the user, each with its first such subject."""
        if self._subjects is None:
            self._subjects = self._indexed()
        found = self._subjects.get(place)
        if not found:
            return
        first: dict[str, _Bound] = {}
        for subject in [("User", user.name), *(("Group", group) for group in user.groups)]:
            for bound in found.get(subject, ()):
                name = bound.binding["metadata"]["name"]
                if name not in first or bound.position < first[name].position:
                    first[name] = bound
        yield from first.values()

    def _indexed(self) -> dict[str, dict[Subject, list[_Bound]]]:
        index: dict[str, dict[Subject, list[_Bound]]] = {}
        for resource in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
            for key, binding in self._store.objects(resource).items():
                named = index.setdefault(key.namespace, {})
                for position, subject in enumerate(binding.get("subjects") or ()):
                    if who := _subject(subject, key.namespace):
                        named.setdefault(who, []).append(_Bound(binding, position))
        return index


def _subject(subject: Mapping[str, Any], namespace: str) -> Subject | None:
    kind, name = subject.get("kind", ""), subject.get("name", "")
    if kind in ("User", "Group"):
        return kind, name
    home = subject.get("namespace") or namespace
    return ("User", account_name(home, name)) if kind == "ServiceAccount" and home else None


def _source(bound: _Bound) -> str:
    binding, role = bound.binding, bound.binding["roleRef"]
    meta, subject = binding["metadata"], binding["subjects"][bound.position]
    home = meta.get("namespace", "")
    name, who = meta["name"], subject["name"]
    if home:
        name = f"{name}/{home}"
    if subject["kind"] == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or home}"
    kind = "RoleBinding" if home else "ClusterRoleBinding"
    return f"{kind} {shown(name)} of {role['kind']} {shown(role['name'])} to {subject['kind']} {shown(who)}"
