"""Privilege escalation: users cannot grant rights that they do not have, even if they may write the object.

To write a role, a user must hold every right in it or be allowed to `escalate`. To write a binding, they must hold the
rights of its role or be allowed to `bind` it. To approve or sign a CertificateSigningRequest, they need rights on its
signer. Source: k8s.io/kubernetes `pkg/registry/rbac`, `plugin/pkg/admission/certificates`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.access.authorizer import Attributes, Authorizer, Rule
from kubeshard_apiserver.access.user import MASTERS, User
from kubeshard_apiserver.identity.rbac import (
    CLUSTER_ROLES,
    GROUP,
    KINDS,
    ROLES,
    MissingRole,
    Rbac,
)
from kubeshard_apiserver.identity.rules import EVERYTHING, described, missing, quoted
from kubeshard_apiserver.model import Target
from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.status import forbidden, internal, not_found, shown

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
