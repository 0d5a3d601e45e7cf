"""Role-based access control, as kube-apiserver evaluates it, and its protection against privilege escalation.

Guaranteed: a decision is based on the roles and bindings in the store at that moment. A user's rules in a namespace are
collected once and cached until a role or binding changes. Members of system:masters may do everything. Users cannot
grant rights that they do not have, even if they may write the object: to write a role, a user must hold every right in
it or be allowed to `escalate`; to write a binding, they must hold the rights of its role or be allowed to `bind` it; to
approve or sign a CertificateSigningRequest, they need rights on its signer. Source: k8s.io/kubernetes
`plugin/pkg/auth/authorizer/rbac`, `pkg/apis/rbac/v1`, `pkg/registry/rbac`, `plugin/pkg/admission/certificates`;
k8s.io/component-helpers `auth/rbac/validation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.access import (
    MASTERS,
    Attributes,
    Authorizer,
    Decision,
    HeldRules,
    Rule,
    User,
    account_name,
)
from kubeshard_apiserver.model import Target
from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.status import forbidden, internal, not_found, shown
from kubeshard_apiserver.store import Store

EVERYTHING: Sequence[Rule] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


def allows(rule: Rule, attributes: Attributes) -> bool:
    if not _has(rule, "verbs", attributes.verb):
        return False
    if not attributes.about_resource:
        return any(_url_covers(url, attributes.path) for url in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    return (
        _has(rule, "apiGroups", attributes.group)
        and _has_resource(rule, attributes.combined)
        and (not names or attributes.name in names)
    )


def missing(held: Iterable[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return the atoms of `wanted` (one verb each) that no single rule of `held` covers."""
    held = list(held)
    return [
        atom for rule in wanted for atom in _atoms(rule) if not any(_covers(other, atom) for other in held)
    ]


def described(rules: Iterable[Rule]) -> list[str]:
    """Format rules as error messages list them: sorted, and merged if they differ only in their verb."""
    merged: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    alone: list[Rule] = []
    for rule in rules:
        if rule.get("nonResourceURLs"):
            alone.append(rule)
        else:
            named = tuple(
                tuple(rule.get(field) or ()) for field in ("apiGroups", "resources", "resourceNames")
            )
            merged.setdefault(named, []).extend(rule["verbs"])
    for (groups, resources, names), verbs in merged.items():
        alone.append({"apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs})
    return sorted({_described(rule) for rule in alone})


def quoted(texts: Iterable[str]) -> str:
    """Format a list of strings as Go prints it."""
    return f"[{' '.join(map(shown, texts))}]"


_FIELDS = {
    "APIGroups": "apiGroups",
    "Resources": "resources",
    "NonResourceURLs": "nonResourceURLs",
    "ResourceNames": "resourceNames",
    "Verbs": "verbs",
}


def _described(rule: Rule) -> str:
    parts = [f"{title}:{quoted(rule[field])}" for title, field in _FIELDS.items() if rule.get(field)]
    return f"{{{', '.join(parts)}}}"


def _atoms(rule: Rule) -> Iterator[Rule]:
    names = [{"resourceNames": [name]} for name in rule.get("resourceNames") or ()] or [{}]
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                for name in names:
                    yield {"apiGroups": [group], "resources": [resource], "verbs": [verb], **name}
    for url in rule.get("nonResourceURLs") or ():
        for verb in verbs:
            yield {"nonResourceURLs": [url], "verbs": [verb]}


def _covers(rule: Rule, atom: Rule) -> bool:
    if not _has(rule, "verbs", atom["verbs"][0]):
        return False
    if urls := atom.get("nonResourceURLs"):
        return any(_url_covers(url, urls[0]) for url in rule.get("nonResourceURLs") or ())
    names, wanted = rule.get("resourceNames"), atom.get("resourceNames")
    return (
        _has(rule, "apiGroups", atom["apiGroups"][0])
        and _has_resource(rule, atom["resources"][0])
        and (not names or bool(wanted and wanted[0] in names))
    )


def _has(rule: Rule, field: str, value: str) -> bool:
    values = rule.get(field) or ()
    return value in values or "*" in values


def _has_resource(rule: Rule, resource: str) -> bool:
    """Report whether the rule names the resource; `*/scale` is that subresource of every resource."""
    if _has(rule, "resources", resource):
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in (rule.get("resources") or ())


def _url_covers(url: str, path: str) -> bool:
    return url == path or (url.endswith("*") and path.startswith(url.rstrip("*")))


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
            if allows(grant.rule, attributes):
                return Decision(True, f"RBAC: allowed by {grant.source}")
        return Decision(False, f"rbac: RBAC: {grants.problem}" if grants.problem else "")

    def held(self, user: User, namespace: str) -> HeldRules:
        grants = self._grants_of(user, namespace)
        return HeldRules([grant.rule for grant in grants.rules], grants.problem)

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


_PLURALS = {"Role": "roles", "ClusterRole": "clusterroles"}
_BY_ANYBODY = ("finalizers", "ownerReferences", "managedFields", "resourceVersion")
"""Metadata that may change without a check, so that garbage collection can proceed."""
_REQUESTS = GroupResource("certificates.k8s.io", "certificatesigningrequests")


def check_no_escalation(rbac: Rbac, user: User, target: Target, new: Object, old: Object | None) -> None:
    """Check that a write of a role or binding grants only rights that the user has. Raises Forbidden, or NotFound for
    a binding to a missing role.
    """
    if target.group_resource not in KINDS or MASTERS in user.groups:
        return
    if old is not None and _essence(new) == _essence(old):
        return
    if target.group_resource in (ROLES, CLUSTER_ROLES):
        _check_role(rbac, user, target, new, old)
    else:
        _check_binding(rbac, user, target, new)


def _check_role(rbac: Rbac, user: User, target: Target, new: Object, old: Object | None) -> None:
    plural = target.group_resource.resource
    escalate = Attributes(
        "escalate", group=GROUP, resource=plural, namespace=target.namespace, name=target.name
    )
    if rbac.decide(user, escalate).allowed:
        return
    _check_held(rbac, user, target, new, new.get("rules") or ())
    selects = any((role or {}).get("aggregationRule") for role in (new, old))
    if selects and missing(rbac.held(user, "").rules, EVERYTHING):
        problem = "must have cluster-admin privileges to use the aggregationRule"
        raise forbidden(target.group_resource, new["metadata"].get("name", ""), problem)


def _check_binding(rbac: Rbac, user: User, target: Target, new: Object) -> None:
    role = {"kind": "", "name": "", "apiGroup": "", **(new.get("roleRef") or {})}
    if plural := _PLURALS.get(role["kind"]):
        bind = Attributes(
            "bind", group=role["apiGroup"], resource=plural, namespace=target.namespace, name=role["name"]
        )
        if rbac.decide(user, bind).allowed:
            return
    try:
        rules = rbac.rules_of(role, target.namespace)
    except MissingRole as problem:
        if not plural:
            raise internal(str(problem)) from None
        raise not_found(target.group_resource, role["name"]) from None
    _check_held(rbac, user, target, new, rules)


def _check_held(rbac: Rbac, user: User, target: Target, new: Object, rules: Sequence[Rule]) -> None:
    held = rbac.held(user, target.namespace)
    lacking = missing(held.rules, rules)
    if not lacking:
        return
    who = f"user {shown(user.name)} (groups={quoted(user.groups)})"
    listed = "\n".join(described(lacking))
    problem = f"{who} is attempting to grant RBAC permissions not currently held:\n{listed}"
    if held.problem:
        problem += f"; resolution errors: [{held.problem}]"
    raise forbidden(target.group_resource, new["metadata"].get("name", ""), problem)


def _essence(obj: Object) -> Object:
    return with_metadata(obj, **dict.fromkeys(_BY_ANYBODY))


def check_signer(authorizer: Authorizer, user: User, target: Target, new: Object, old: Object | None) -> None:
    """Raises Forbidden for an approval or a changed status if the user lacks the right on the signer."""
    if target.group_resource != _REQUESTS or old is None or not target.subresource:
        return
    verb = "approve" if target.subresource == "approval" else "sign"
    if verb == "sign" and new["status"] == old["status"]:
        return
    signer = old["spec"]["signerName"]
    attributes = Attributes(verb, group=_REQUESTS.group, version="*", resource="signers")
    for name in (signer, f"{signer.partition('/')[0]}/*"):
        if authorizer.decide(user, replace(attributes, name=name)).allowed:
            return
    problem = f'user not permitted to {verb} requests with signerName "{signer}"'
    raise forbidden(_REQUESTS, target.name, problem)
