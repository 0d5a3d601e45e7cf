"""The MutatingWebhookConfiguration of a ring. Pure.

Guaranteed: the body of the server-side apply is the reference's, field by field, except for the timeout, plus one match
condition: the webhook is not called for an object with a shard label, because it is assigned already.
An object selector cannot express that: the webhook is also called if only the *old* object lacks the label, as in
all assignments by the sharder itself. Without the condition (`match_condition=False`: API servers before
1.28) everything works the same, and the API server calls the webhook for each of those. It is called
in either case when a user creates an object, and for an update that removes the label. With match conditions there is
another webhook, for updates that change the label's value, which only sharders do, and for their accounts it is not
called; and for those that change the owners of an object that has a shard.

It is not called for system namespaces, even if the ring shards them: their objects are assigned by the watch, and no
webhook stands between the control plane and its own objects.

A ring without resources gets `rules: []`, which matches nothing; entries that no ring may shard
(`classification`) get no rule.

Others may narrow the selectors: admission control of a platform adds an expression to those of every webhook, say. That
is no drift, and is kept (`with_narrowing`): an object for which the webhook is not called any more is assigned by the
watch. A selector is narrower if each of our requirements follows from one of its own. Match conditions that others add
only narrow as well. All else that others add or change (rules, operations, values of `In`) is drift.

Two annotations say whose configuration this is, and which selector it applied (`names`). The reference's sharder
applies its own body with the same field manager, so it removes the annotations and the condition when it leads, and a
kubeshard sharder restores them when it leads: once per change of leader, since only leaders write.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kubeshard.core.kinds import GroupResource
from kubeshard.core.namespaces import NAMESPACE_NAME_LABEL
from kubeshard.core.objects import Key
from kubeshard.core.owners import controller_reference
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.selectors import (
    InvalidSelector,
    LabelSelector,
    LabelSelectorRequirement,
    Requirement,
    Selector,
)
from kubeshard.sharder.config import WebhookClientConfig, WebhookConfig
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import (
    APP_LABEL,
    APP_NAME,
    RING_LABEL,
    SELECTOR_ANNOTATION,
    SHARDER_ANNOTATION,
    SYSTEM_NAMESPACE,
    WEBHOOK_NAME,
    shard_label,
    webhook_config_name,
    webhook_path,
)
from kubeshard.sharding.ring_resources import RingResources
from kubeshard.webhook.shared_certificate import service_names

MATCH_CONDITION = "not-assigned"

RELABELLED = "relabelled.sharding.timebertt.dev"
"""The name of the other webhook."""

TIMEOUT_SECONDS = 2
"""How long a webhook that does not respond delays a request, for each ring of its resource. An answer takes
milliseconds; an object whose request was not waited for is assigned by the watch on unassigned objects. The reference
has 5.
"""

SECRET_NAME = "sharder-webhook-cert"  # noqa: S105 - a name
"""The Secret of the sharder's own certificate. Not `webhook-server`, which is cert-manager's."""


def webhook_configuration(
    ring: ControllerRing,
    config: WebhookConfig,
    ca_bundle: str = "",
    *,
    sharders: Collection[str] = (),
    match_condition: bool = True,
    without: tuple[str, ...] = (),
    keeper: Key | None = None,
) -> dict[str, Any]:
    """The fields that the sharder applies for the ring. `ca_bundle` is used if the configuration has
    none. `sharders` are user names; without any there is no second webhook. `without`: namespaces for which the
    webhook is not called. `keeper`: the election of this sharder; without it there are no annotations of ours.
    """
    ring_name, label = ring.name, shard_label(ring.name)
    metadata: dict[str, Any] = {
        "name": webhook_config_name(ring_name),
        "labels": {APP_LABEL: APP_NAME, RING_LABEL: ring_name},
        "ownerReferences": [_plain(controller_reference(ring))],
    }
    selector = ring.spec.namespace_selector
    selected = _plain(_outside(without, config.namespace_selector if selector is None else selector))
    annotations = dict(config.annotations)
    if keeper is not None:
        annotations[SHARDER_ANNOTATION] = str(keeper)
        annotations[SELECTOR_ANNOTATION] = json.dumps(selected, separators=(",", ":"))
    if annotations:
        metadata["annotations"] = annotations
    called = _client_config(config.client_config, webhook_path(ring_name), ca_bundle)
    resources = _resources(ring)

    def webhook(name: str, operator: str, operations: list[str], *conditions: Mapping[str, str]) -> Any:
        return {
            "name": name,
            "clientConfig": called,
            "namespaceSelector": selected,
            "objectSelector": {"matchExpressions": [{"key": label, "operator": operator}]},
            "rules": [_rule(resource, operations) for resource in resources],
            "failurePolicy": "Ignore",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **({"matchConditions": list(conditions)} if match_condition else {}),
        }

    webhooks = [webhook(WEBHOOK_NAME, "DoesNotExist", ["CREATE", "UPDATE"], _not_assigned(label))]
    if match_condition and sharders:
        conditions = _not_by_sharder(sharders), _relabelled(label)
        # First, so that it is not shown what the other one has assigned.
        webhooks.insert(0, webhook(RELABELLED, "Exists", ["UPDATE"], *conditions))
    return {
        "apiVersion": MutatingWebhookConfiguration.KIND.api_version,
        "kind": MutatingWebhookConfiguration.KIND.kind,
        "metadata": metadata,
        "webhooks": webhooks,
    }


def serving_names(config: WebhookClientConfig) -> tuple[str, ...]:
    """The host names that API servers call, the verified one first: the URL's host, or the Service's
    names."""
    if config.url is not None:
        return (urlsplit(config.url).hostname or "localhost",)
    name = (config.service and config.service.name) or "sharder"
    return service_names(name, (config.service and config.service.namespace) or SYSTEM_NAMESPACE)


def in_sync(actual: MutatingWebhookConfiguration | None, desired: Mapping[str, Any]) -> bool:
    """Whether everything that the sharder applies is present. Fields that it does not apply are ignored (the
    CA bundle from an injector, defaults), and so is what narrows a selector.
    """
    if actual is None:
        return False
    return contains(_plain(actual), _without_type(with_narrowing(desired, actual)))


SELECTORS = ("namespaceSelector", "objectSelector")


def with_narrowing(desired: Mapping[str, Any], actual: MutatingWebhookConfiguration | None) -> dict[str, Any]:
    """What to apply: the desired configuration, and what others have added to its selectors. If the desired selector
    is new, what they had added to the former one is added to it.
    """
    found = {each.get("name"): each for each in (actual.webhooks if actual is not None else ())}
    former = applied_selector(actual)

    def kept(webhook: Mapping[str, Any]) -> Mapping[str, Any]:
        there = found.get(webhook["name"])
        if there is None:
            return webhook
        ours = {name: webhook[name] for name in SELECTORS}
        before = {**ours, **({"namespaceSelector": former} if former is not None else {})}
        return {
            **webhook,
            **{name: _narrowed(ours[name], there.get(name), before[name]) for name in SELECTORS},
        }

    return {**desired, "webhooks": [kept(each) for each in desired["webhooks"]]}


def narrows(selector: Any, ours: Any) -> bool:
    """Whether everything that the selector selects is selected by ours, as far as each of our requirements follows from
    one of its own.
    """
    try:
        narrower, wider = (_compiled(each).requirements for each in (selector, ours))
    except (InvalidSelector, msgspec.ValidationError):
        return False
    return all(any(_implies(each, required) for each in narrower) for required in wider)


def applied_selector(actual: MutatingWebhookConfiguration | None) -> Any:
    """The namespaceSelector that a sharder applied; None if that is not known."""
    try:
        return json.loads(actual.metadata.annotation(SELECTOR_ANNOTATION)) if actual is not None else None
    except (ValueError, RecursionError):
        return None


def keeper_of(actual: MutatingWebhookConfiguration) -> Key | None:
    """The election of the sharder that keeps the configuration; None if it does not say so."""
    namespace, slash, name = actual.metadata.annotation(SHARDER_ANNOTATION).partition("/")
    return Key(namespace, name) if namespace and slash and name else None


def _narrowed(ours: Any, found: Any, former: Any) -> Any:
    """Our selector with what others have added to the one that is there, where our `former` one was."""
    if narrows(found, ours) and narrows(ours, former):
        return found
    if not narrows(found, former):
        return ours  # they have not added, but changed it
    found = found or {}
    try:
        known = {*_compiled(former).requirements, *_compiled(ours).requirements}
    except InvalidSelector:
        return ours  # the API server refuses it, and says why

    def added(terms: Iterable[tuple[Any, LabelSelector]]) -> list[Any]:
        return [term for term, alone in terms if not set(_compiled(alone).requirements) <= known]

    labels = added(
        ((key, value), LabelSelector(match_labels={key: value}))
        for key, value in (found.get("matchLabels") or {}).items()
    )
    expressions = added(
        (each, msgspec.convert({"matchExpressions": [each]}, LabelSelector))
        for each in found.get("matchExpressions") or ()
    )
    merged = dict(ours)
    if labels:
        merged["matchLabels"] = {**dict(labels), **(ours.get("matchLabels") or {})}
    if expressions:
        merged["matchExpressions"] = [*(ours.get("matchExpressions") or ()), *expressions]
    return merged


def _compiled(selector: Any) -> Selector:
    """Raises InvalidSelector and msgspec.ValidationError."""
    if not isinstance(selector, LabelSelector):
        selector = msgspec.convert(selector or {}, LabelSelector)
    return Selector.from_label_selector(selector)


def _implies(one: Requirement, other: Requirement) -> bool:
    """Whether all labels that meet the one requirement meet the other, too."""
    if one.key != other.key:
        return False
    values = set(one.values)
    match one.operator, other.operator:
        case "in", "in":
            return values <= set(other.values)
        case "in", "notin":
            return not values & set(other.values)
        case "notin", "notin":
            return values >= set(other.values)
        case ("in", "exists") | ("exists", "exists") | ("absent", "absent") | ("absent", "notin"):
            return True
        case _:
            return False


def knows_match_conditions(answer: MutatingWebhookConfiguration) -> bool:
    """Whether the API server kept the applied condition; one that does not know the field drops it."""
    return any(webhook.get("matchConditions") for webhook in answer.webhooks)


def _not_assigned(label: str) -> dict[str, str]:
    """The names of rings are DNS names, so the label needs no escaping. An expression that fails would keep the
    webhook from being called.
    """
    labels = "object.metadata.labels"
    return {
        "name": MATCH_CONDITION,
        "expression": f"object == null || !has({labels}) || !('{label}' in {labels}) || {labels}['{label}'] == ''",
    }


def _outside(names: tuple[str, ...], selector: LabelSelector) -> LabelSelector:
    """The selector, without these namespaces if it selects one of them."""
    try:
        selected = Selector.from_label_selector(selector)
    except InvalidSelector:
        return selector
    if not any(selected.matches({NAMESPACE_NAME_LABEL: name}) for name in names):
        return selector
    others = LabelSelectorRequirement(key=NAMESPACE_NAME_LABEL, operator="NotIn", values=names)
    return msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, others))


def _not_by_sharder(users: Collection[str]) -> dict[str, str]:
    return {"name": "not-by-sharder", "expression": f"!(request.userInfo.username in {json.dumps([*users])})"}


def _relabelled(label: str) -> dict[str, str]:
    """The shard's name in the label is another one, or the object may have another owner, whose shard it follows."""

    def labelled(which: str) -> str:
        return f"has({which}.metadata.labels) && '{label}' in {which}.metadata.labels"

    old, new = (f"{which}.metadata.labels['{label}']" for which in ("oldObject", "object"))
    before, after = (f"{which}.metadata.ownerReferences" for which in ("oldObject", "object"))
    owned_otherwise = f"has({before}) != has({after}) || has({after}) && {before} != {after}"
    both = f"{labelled('oldObject')} && {labelled('object')}"
    expression = f"{both} && {old} != '' && ({old} != {new} || {owned_otherwise})"
    return {"name": "relabelled", "expression": expression}


def _client_config(config: WebhookClientConfig, path: str, ca_bundle: str) -> dict[str, Any]:
    ca_bundle = config.ca_bundle or ca_bundle
    body: dict[str, Any] = {"caBundle": ca_bundle} if ca_bundle else {}
    if config.url is not None:
        return {**body, "url": config.url.removesuffix("/") + path}
    service: dict[str, Any] = {
        "namespace": (config.service and config.service.namespace) or SYSTEM_NAMESPACE,
        "name": (config.service and config.service.name) or "sharder",
        "path": path,
    }
    if config.service is not None and config.service.port is not None:
        service["port"] = config.service.port
    return {**body, "service": service}


def _resources(ring: ControllerRing) -> list[GroupResource]:
    """Those for which the webhook is called, as often as they are listed."""
    accepted = RingResources(ring.spec.resources)
    listed = [
        resource.group_resource
        for main in ring.spec.resources
        for resource in (main, *main.controlled_resources)
    ]
    return [resource for resource in listed if resource in accepted]


def _rule(resource: GroupResource, operations: list[str]) -> dict[str, Any]:
    return {
        "operations": operations,
        "apiGroups": [resource.group],
        "apiVersions": ["*"],
        "resources": [resource.resource],
        "scope": "*",
    }


def _plain(value: Any) -> Any:
    """The value as plain JSON: `to_builtins` would leave tuples, which never equal lists."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _without_type(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in ("apiVersion", "kind")}


def contains(actual: Any, desired: Any) -> bool:
    """Whether all of the desired fields are there, with these values. Lists of named items may have others."""
    if isinstance(desired, Mapping):
        return isinstance(actual, Mapping) and all(
            key in actual and contains(actual[key], value) for key, value in desired.items()
        )
    if isinstance(desired, list):
        if not isinstance(actual, list):
            return False
        if desired and all(isinstance(item, Mapping) and "name" in item for item in desired):
            # Others may add webhooks, conditions and owners to ours; applying again would not remove them.
            by_name = {item.get("name"): item for item in actual if isinstance(item, Mapping)}
            return all(contains(by_name.get(item["name"]), item) for item in desired)
        return len(actual) == len(desired) and all(map(contains, actual, desired))
    return bool(actual == desired)
