"""Admission policies: what RBAC cannot say about the sharder's account.

RBAC does not know labels or fields: the sharder may write every Lease, all of a ring, and anything into the webhook
configuration of a ring. These policies add the missing restrictions:

| policy | the sharder's account may write |
|---|---|
| `sharding-sharder-leases` | Leases with a ring's label, and the one of its leader election |
| `sharding-sharder-webhooks` | webhook configurations that look like those of a ring |
| `sharding-sharder-webhook-resources` | in that of a ring, webhooks for its resources and namespaces only |
| `sharding-sharder-rings` | of a ring, that its clean-up is over, and its status |

A webhook of a ring is called at the sharder's own Service, is named after a ControllerRing that owns it, never fails or
delays a request, and matches neither system namespaces nor pods: a stolen credential cannot stop the cluster with it.
Nor does it see or change anything that the ring does not shard: the ring is the parameter of the second policy. There
is no webhook of a ring that does not exist, as RBAC lets the sharder write those that it names only (`rights`).

They are evaluated only for requests from that account: one that has its name and may write the status of rings.
They do not mention its namespace, so tools that rename namespaces cannot switch them off. They need Kubernetes 1.30 or
newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import GroupResource
from kubeshard.core.namespaces import NAMESPACE_NAME_LABEL
from kubeshard.core.objects import KubeObject
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.manifests.template import Chosen, When
from kubeshard.sharding.api import GROUP, ControllerRing
from kubeshard.sharding.names import (
    APP_LABEL,
    APP_NAME,
    CLEAN_UP_FINALIZER,
    RING_LABEL,
    SHARD_LABEL_PREFIX,
    webhook_config_name,
)

Manifest = dict[str, Any]

_API = "admissionregistration.k8s.io/v1"

MAX_TIMEOUT = 5
"""Seconds for which a webhook may delay a request: as long as that of the Go sharder, which may share the account."""

_BY_SHARDER = (
    f"request.userInfo.username.matches('^system:serviceaccount:[^:]+:{Chosen('serviceAccount.name', 'sharder')}$')"
    f" && authorizer.group('{GROUP}').resource('{ControllerRing.KIND.plural}').subresource('status')"
    ".check('update').allowed()"
)
_SPACE = {"space": "request.userInfo.username.split(':')[2]"}


def lease_policy() -> Iterator[Manifest]:
    """Policy and binding."""
    labelled = f"?metadata.?labels[?'{RING_LABEL}'].hasValue()"
    own = (
        "request.namespace == variables.space"
        " && (object == null ? oldObject : object).metadata.name == 'sharder'"
    )
    ring = f"(object == null || object.{labelled}) && (oldObject == null || oldObject.{labelled})"
    yield from policy(
        "sharding-sharder-leases",
        [(Lease.KIND.group_resource, ("CREATE", "UPDATE", "DELETE"))],
        _BY_SHARDER,
        [rule(f"({own}) || ({ring})", "the sharder writes Leases of shards only")],
        _SPACE,
    )


def webhook_policy(pods: str) -> Iterator[Manifest]:
    """Policy and binding. `pods`: the path of the value that allows webhooks for pods."""
    prefix = webhook_config_name("")
    variables = {
        **_SPACE,
        "ring": f"object.metadata.name.replace('{prefix}', '', 1)",
        "webhooks": "object.?webhooks.orValue([])",
    }
    owner = (
        "object.metadata.?ownerReferences.orValue([]).exists(o,"
        f" o.apiVersion.startsWith('{GROUP}/') && o.kind == '{ControllerRing.KIND.kind}'"
        " && o.name == variables.ring)"
    )
    validations = [
        rule(f"object.metadata.name.startsWith('{prefix}')", f"the sharder registers {prefix}* only"),
        rule(owner, "a webhook configuration of the sharder is owned by the ControllerRing that it is named after"),
        rule(
            _each("has(w.clientConfig.service) && w.clientConfig.service.name == 'sharder'"
                  " && w.clientConfig.service.namespace == variables.space"),
            "the sharder registers webhooks of its own Service only",
        ),
        rule(
            _each(f"w.failurePolicy == 'Ignore' && w.timeoutSeconds <= {MAX_TIMEOUT}"),
            "a webhook of the sharder never fails a request (failurePolicy Ignore), nor delays it for more than"
            f" {MAX_TIMEOUT} s",
        ),
        rule(
            _each(
                "w.objectSelector.?matchExpressions.orValue([]).exists(e,"
                f" e.key == '{SHARD_LABEL_PREFIX}' + variables.ring && e.operator in ['Exists', 'DoesNotExist'])"
            ),
            "the objectSelector of the sharder's webhooks is about the shard label of the ring",
        ),
        rule(
            _each_rule(
                "r.operations.all(o, o in ['CREATE', 'UPDATE']) && !r.apiGroups.exists(g, g.contains('*'))"
                " && !r.resources.exists(x, x.contains('*') || x.contains('/'))"
            ),
            "the sharder's webhooks are for creations and updates of resources that are named, without wildcard"
            " or subresource",
        ),
        rule(
            f"!['kube-system', variables.space].exists(n, variables.webhooks.exists(w, {_SELECTS_NAMESPACE}))",
            "the sharder's webhooks are not called for system namespaces",
        ),
        When(
            pods,
            rule(
                _each_rule("!('' in r.apiGroups && 'pods' in r.resources)"),
                f"the sharder's webhooks are not called for pods, unless the sharder is installed with {pods}=true",
            ),
            False,
        ),
    ]  # fmt: skip
    yield from policy(
        "sharding-sharder-webhooks",
        [(MutatingWebhookConfiguration.KIND.group_resource, ("CREATE", "UPDATE"))],
        _BY_SHARDER,
        validations,
        variables,
    )


def webhook_resources_policy() -> Iterator[Manifest]:
    """Policy and binding. It is evaluated for each ring, and concerns the configuration that is named after it."""
    variables = {
        "mine": f"object.metadata.name == '{webhook_config_name('')}' + params.metadata.name",
        "webhooks": "object.?webhooks.orValue([])",
        "labels": "params.spec.?namespaceSelector.?matchLabels.orValue({})",
        "expressions": "params.spec.?namespaceSelector.?matchExpressions.orValue([])",
    }
    listed = (
        "params.spec.?resources.orValue([]).exists(m, m.group == g && m.resource == x"
        " || m.?controlledResources.orValue([]).exists(c, c.group == g && c.resource == x))"
    )
    labels = (
        "variables.labels.all(k, w.?namespaceSelector.?matchLabels[?k].orValue('') == variables.labels[k])"
    )
    expressions = (
        "variables.expressions.all(e,"
        " w.?namespaceSelector.?matchExpressions.orValue([]).exists(f, f.key == e.key && f.operator == e.operator"
        " && f.?values.orValue([]) == e.?values.orValue([])))"
    )
    validations = [
        rule(
            f"!variables.mine || {_each_rule(f'r.apiGroups.all(g, r.resources.all(x, {listed}))')}",
            "the sharder's webhooks are for the resources of their ring",
        ),
        rule(
            f"!variables.mine || {_each(f'{labels} && {expressions}')}",
            "the sharder's webhooks are for the namespaces of their ring",
        ),
        rule(
            "!variables.mine || object.metadata.?ownerReferences.orValue([]).exists(o, o.uid == params.metadata.uid)",
            "a webhook configuration of the sharder is owned by its ring",
        ),
    ]
    yield from policy(
        "sharding-sharder-webhook-resources",
        [(MutatingWebhookConfiguration.KIND.group_resource, ("CREATE", "UPDATE"))],
        _BY_SHARDER,
        validations,
        variables,
        of_each=ControllerRing,
    )


def ring_policy() -> Iterator[Manifest]:
    """Policy and binding: the sharder removes its finalizer. Status is another resource."""
    kept = "['finalizers', 'managedFields', 'resourceVersion', 'generation']"
    variables = {
        "before": "oldObject.metadata.?finalizers.orValue([])",
        "after": "object.metadata.?finalizers.orValue([])",
    }
    validations = [
        rule(
            same("object", "oldObject", "['metadata']")
            + " && "
            + same("object.metadata", "oldObject.metadata", kept)
            + " && variables.after.all(f, f in variables.before)"
            + f" && variables.before.all(f, f in variables.after || f == '{CLEAN_UP_FINALIZER}')",
            "the sharder changes nothing of a ring but its own finalizer, which it removes",
        ),
    ]
    yield from policy(
        "sharding-sharder-rings",
        [(ControllerRing.KIND.group_resource, ("UPDATE",))],
        _BY_SHARDER,
        validations,
        variables,
    )


def same(one: str, other: str, but: str) -> str:
    """A CEL expression: whether two maps have the same entries, except for these keys."""
    return (
        f"{one}.all(k, k in {but} || (k in {other} && {one}[k] == {other}[k]))"
        f" && {other}.all(k, k in {but} || k in {one})"
    )


def sharder_policies(pods: str) -> Iterator[Manifest]:
    """For the sharder's account. `pods`: the path of the value that allows webhooks for pods."""
    yield from lease_policy()
    yield from webhook_policy(pods)
    yield from webhook_resources_policy()
    yield from ring_policy()


_SELECTS_NAMESPACE = (
    "w.namespaceSelector.?matchLabels.orValue({}).all(k,"
    f" k == '{NAMESPACE_NAME_LABEL}' && w.namespaceSelector.matchLabels[k] == n)"
    " && w.namespaceSelector.?matchExpressions.orValue([]).all(e,"
    f" e.operator == 'In' ? e.key == '{NAMESPACE_NAME_LABEL}' && n in e.values"
    f" : e.operator == 'NotIn' ? !(e.key == '{NAMESPACE_NAME_LABEL}' && n in e.values)"
    f" : e.operator == 'Exists' ? e.key == '{NAMESPACE_NAME_LABEL}' : e.key != '{NAMESPACE_NAME_LABEL}')"
)
"""Whether the selector of webhook `w` selects a namespace `n` that has no labels but its name."""


def _each(condition: str) -> str:
    return f"variables.webhooks.all(w, {condition})"


def _each_rule(condition: str) -> str:
    return f"variables.webhooks.all(w, w.?rules.orValue([]).all(r, {condition}))"


def rule(expression: Any, message: str) -> Manifest:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def policy(
    name: str,
    resources: Iterable[tuple[GroupResource, Sequence[str]]],
    condition: Any,
    validations: Sequence[Any],
    variables: Mapping[str, str] | None = None,
    *,
    of_each: type[KubeObject] | None = None,
    selected: Mapping[str, Any] | None = None,
) -> Iterator[Manifest]:
    """Policy and binding, which also reject what cannot be evaluated. `of_each`: the kind of their parameters, those
    that are `selected`. Each of them has to admit a request. Where there is none, everything is admitted: API servers
    look for parameters before they look at the condition, so `Deny` would concern everybody.
    """
    parameters = {"selector": {}, **(selected or {}), "parameterNotFoundAction": "Allow"}
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
            **(
                {"paramKind": {"apiVersion": of_each.KIND.api_version, "kind": of_each.KIND.kind}}
                if of_each
                else {}
            ),
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
        "spec": {
            "policyName": name,
            **({"paramRef": parameters} if of_each else {}),
            "validationActions": ["Deny"],
        },
    }
