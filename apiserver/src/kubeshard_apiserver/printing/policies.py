"""Columns of RBAC and admission objects."""

from __future__ import annotations

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.printing.columns import (
    AGE,
    CREATED,
    NAME,
    Column,
    Printer,
    at,
    count,
    human_duration,
    labels,
    text,
)


def _subjects(name: str, kind: str) -> Column:
    def cell(obj: Object, _: float) -> str:
        subjects = [one for one in obj.get("subjects") or () if one.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{one.get('namespace', '')}/{one['name']}" for one in subjects)
        return ", ".join(one["name"] for one in subjects)

    return Column(name, cell, f"{name} that get the role", wide=True)


ROLE_BINDINGS = Printer(
    (
        NAME,
        Column(
            "Role",
            lambda obj, _: f"{at(obj, 'roleRef.kind', '')}/{at(obj, 'roleRef.name', '')}",
            "Role that is granted",
        ),
        AGE,
        _subjects("Users", "User"),
        _subjects("Groups", "Group"),
        _subjects("ServiceAccounts", "ServiceAccount"),
    )
)
WEBHOOK_CONFIGURATIONS = Printer((NAME, count("Webhooks", "webhooks", "Number of webhooks"), AGE))


def _param_kind(obj: Object, _: float) -> str:
    kind = at(obj, "spec.paramKind")
    return "<unset>" if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


_PARAM_KIND = Column("ParamKind", _param_kind, "Kind of its parameters")
VALIDATING_POLICIES = Printer(
    (NAME, count("Validations", "spec.validations", "Number of validations"), _PARAM_KIND, AGE)
)
MUTATING_POLICIES = Printer(
    (NAME, count("Mutations", "spec.mutations", "Number of mutations"), _PARAM_KIND, AGE)
)


def _param(obj: Object, _: float) -> str:
    reference = at(obj, "spec.paramRef", {})
    if name := reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{name}"
    selector = reference.get("selector")
    return "<unset>" if selector is None else _go_selector(selector)


def _go_selector(selector: dict[str, object]) -> str:
    """Format the selector the way Go prints the struct. It is hard to read, but it is what the server shows."""
    pairs = selector.get("matchLabels") or {}
    assert isinstance(pairs, dict)
    written = "".join(f"{key}: {pairs[key]}," for key in sorted(pairs))
    expressions = selector.get("matchExpressions") or []
    assert isinstance(expressions, list)
    rules = "".join(
        f"LabelSelectorRequirement{{Key:{one['key']},Operator:{one['operator']},"
        f"Values:[{' '.join(one.get('values') or ())}],}},"
        for one in expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{written}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{rules}}},}}"
    )


POLICY_BINDINGS = Printer(
    (
        NAME,
        text("PolicyName", "spec.policyName", "Policy that it binds"),
        Column("ParamRef", _param, "Parameters of the binding"),
        AGE,
    )
)


def _requested_duration(obj: Object, _: float) -> str:
    seconds = at(obj, "spec.expirationSeconds")
    return "<none>" if seconds is None else human_duration(seconds)


def _decision(obj: Object, _: float) -> str:
    said = {condition["type"] for condition in at(obj, "status.conditions", ())}
    words = ["Denied" if "Denied" in said else "Approved" if "Approved" in said else "Pending"]
    words += ["Failed"] if "Failed" in said else []
    return ",".join(words + (["Issued"] if at(obj, "status.certificate") else []))


SIGNING_REQUESTS = Printer(
    (
        NAME,
        AGE,
        text("SignerName", "spec.signerName", "Requested signer"),
        text("Requestor", "spec.username", "User who requested it"),
        Column("RequestedDuration", _requested_duration, "Requested lifetime of the certificate"),
        Column("Condition", _decision, "Approval, and whether a certificate was issued"),
    )
)


def _served_versions(obj: Object, _: float) -> str:
    served = (each for each in at(obj, "spec.versions", ()) if each.get("served"))
    return ",".join(sorted(each["name"] + "(storage)" * bool(each.get("storage")) for each in served))


def _is_established(obj: Object, _: float) -> bool:
    return any(
        condition["type"] == "Established" and condition["status"] == "True"
        for condition in at(obj, "status.conditions", ())
    )


DEFINITIONS = Printer(
    (
        NAME,
        text("Scope", "spec.scope", "Whether its objects are in namespaces"),
        Column("Versions", _served_versions, "Versions that are served"),
        CREATED,
        text("Group", "spec.group", "API group", wide=True),
        text("Kind", "spec.names.kind", "Kind of its objects", wide=True),
        Column(
            "ShortNames",
            lambda obj, _: ",".join(at(obj, "spec.names.shortNames", ())),
            "Short names of the resource",
            wide=True,
        ),
        Column("Established", _is_established, "Whether its objects are served", "boolean", wide=True),
    )
)


def _request_state(obj: Object, _: float) -> str:
    ends = [one["type"] for one in at(obj, "status.conditions", ()) if one["type"] in _ENDS]
    return ends[-1] if ends else "Pending"


_ENDS = ("Issued", "Denied", "Failed")
_SIGNER = "Name of the signer"
TRUST_BUNDLES = Printer((NAME, text("SignerName", "spec.signerName", _SIGNER, "<none>")))
CERTIFICATE_REQUESTS = Printer(
    (
        NAME,
        text("PodName", "spec.podName", "Pod for which it is"),
        text("ServiceAccountName", "spec.serviceAccountName", "Service account of the pod"),
        text("NodeName", "spec.nodeName", "Node of the pod"),
        text("SignerName", "spec.signerName", _SIGNER),
        Column("State", _request_state, "Pending, Issued, Denied or Failed"),
        Column(
            "UnverifiedUserAnnotations",
            lambda obj, _: labels(at(obj, "spec.unverifiedUserAnnotations")),
            "What the pod's author tells the signer",
        ),
    )
)
