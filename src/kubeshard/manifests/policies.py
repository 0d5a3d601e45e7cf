"""Admission policies: what RBAC cannot say about the sharder's account.

RBAC does not know labels, so the sharder may write every Lease. Nor does it restrict the names of new objects, so the
sharder may register any webhook. These policies add the missing restrictions:

| policy | the sharder's account may write |
|---|---|
| `sharding-sharder-leases` | Leases with a ring's label, and the one of its leader election |
| `sharding-sharder-webhooks` | webhook configurations `controllerring-*` that point to its own Service |

They are evaluated only for requests from that account. They need Kubernetes 1.30 or newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import GroupResource
from kubeshard.manifests.template import Chosen
from kubeshard.sharder.webhook_config import MutatingWebhookConfiguration
from kubeshard.sharding.names import APP_LABEL, APP_NAME, RING_LABEL, webhook_config_name

Manifest = dict[str, Any]

_API = "admissionregistration.k8s.io/v1"


def lease_policy(account: Chosen, namespace: Chosen) -> Iterator[Manifest]:
    """Policy and binding."""
    labelled = f"?metadata.?labels[?'{RING_LABEL}'].hasValue()"
    own = "request.namespace == '{}' && (object == null ? oldObject : object).metadata.name == 'sharder'"
    ring = f"(object == null || object.{labelled}) && (oldObject == null || oldObject.{labelled})"
    yield from policy(
        "sharding-sharder-leases",
        [(Lease.KIND.group_resource, ("CREATE", "UPDATE", "DELETE"))],
        _by(account),
        [rule(Chosen(namespace.path, f"({own}) || ({ring})"), "the sharder writes Leases of shards only")],
    )


def webhook_policy(account: Chosen, namespace: Chosen) -> Iterator[Manifest]:
    """Policy and binding."""
    prefix = webhook_config_name("")
    service = (
        "object.webhooks.all(w, has(w.clientConfig.service) && w.clientConfig.service.name == 'sharder'"
        " && w.clientConfig.service.namespace == '{}')"
    )
    yield from policy(
        "sharding-sharder-webhooks",
        [(MutatingWebhookConfiguration.KIND.group_resource, ("CREATE", "UPDATE"))],
        _by(account),
        [
            rule(f"object.metadata.name.startsWith('{prefix}')", f"the sharder registers {prefix}* only"),
            rule(
                Chosen(namespace.path, f"!has(object.webhooks) || {service}"),
                "the sharder registers webhooks of its own Service only",
            ),
        ],
    )


def rule(expression: Any, message: str) -> Manifest:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def policy(
    name: str,
    resources: Iterable[tuple[GroupResource, Sequence[str]]],
    condition: Any,
    validations: Sequence[Manifest],
    variables: Mapping[str, str] | None = None,
) -> Iterator[Manifest]:
    """A policy and its binding for requests that concern these resources and operations and meet the condition.
    Requests for which the evaluation fails are rejected.
    """
    meta = {"name": name, "labels": {APP_LABEL: APP_NAME}}
    rules = [
        {
            "apiGroups": [resource.group],
            "apiVersions": ["*"],
            "operations": list(operations),
            "resources": [resource.resource],
        }
        for resource, operations in resources
    ]
    declared = [{"name": each, "expression": text} for each, text in (variables or {}).items()]
    yield {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": meta,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{"name": "concerned", "expression": condition}],
            **({"variables": declared} if declared else {}),
            "validations": list(validations),
        },
    }
    yield {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": meta,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }


def _by(account: Chosen) -> Chosen:
    return Chosen(account.path, f"request.userInfo.username == '{account.within}'")
