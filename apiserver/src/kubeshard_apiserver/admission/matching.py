"""Matches writes against rules and selectors. Source: k8s.io/apiserver `admission/plugin/webhook/predicates`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.selectors import LabelSelector, LabelSelectorRequirement, Selector
from kubeshard_apiserver.admission.attributes import Attributes
from kubeshard_apiserver.objects import Object, labels_of
from kubeshard_apiserver.resources.namespaces import NAMESPACES

GROUP = "admissionregistration.k8s.io"
MUTATING = GroupResource(GROUP, "mutatingwebhookconfigurations")
VALIDATING = GroupResource(GROUP, "validatingwebhookconfigurations")
POLICIES = GroupResource(GROUP, "validatingadmissionpolicies")
BINDINGS = GroupResource(GROUP, "validatingadmissionpolicybindings")
BEYOND_POLICIES = frozenset(
    {POLICIES, BINDINGS}
    | {GroupResource(GROUP, f"mutatingadmission{each}") for each in ("policies", "policybindings")}
)
"""Policies never apply to these resources, because a policy could then lock everybody out of them."""

Rule = Mapping[str, Any]
NamespaceOf = Callable[[str], Object | None]


def selector_of(given: Mapping[str, Any] | None) -> Selector:
    """Parses a selector; None selects everything. Raises InvalidSelector."""
    given = given or {}
    expressions = tuple(
        LabelSelectorRequirement(
            key=expression.get("key") or "",
            operator=expression.get("operator") or "",
            values=tuple(expression.get("values") or ()),
        )
        for expression in given.get("matchExpressions") or ()
    )
    labels = given.get("matchLabels") or {}
    return Selector.from_label_selector(LabelSelector(match_labels=labels, match_expressions=expressions))


def rule_matches(rule: Rule, attributes: Attributes) -> bool:
    kind = attributes.target.resource.kind
    return (
        _in_scope(rule.get("scope"), attributes)
        and _listed(rule.get("operations"), attributes.operation)
        and _listed(rule.get("apiGroups"), kind.group)
        and _listed(rule.get("apiVersions"), kind.version)
        and any(_is_resource(wanted, attributes) for wanted in rule.get("resources") or ())
        and (not rule.get("resourceNames") or attributes.name in rule["resourceNames"])
    )


def any_matches(rules: Sequence[Rule], attributes: Attributes) -> bool:
    return any(rule_matches(rule, attributes) for rule in rules)


def namespace_selected(selector: Selector, attributes: Attributes, namespace_of: NamespaceOf) -> bool:
    """Whether the namespace of the object is selected. Cluster-scoped objects are always selected. A write to a
    Namespace is selected by its new labels.
    """
    if not selector or not attributes.namespace:
        return True
    if (
        attributes.resource == NAMESPACES
        and attributes.operation != "DELETE"
        and not attributes.target.subresource
    ):
        return selector.matches(labels_of(attributes.object or {"metadata": {}}))
    namespace = namespace_of(attributes.namespace)
    return namespace is not None and selector.matches(labels_of(namespace))


def object_selected(selector: Selector, attributes: Attributes) -> bool:
    """Whether the old or the new object is selected."""
    if not selector:
        return True
    return any(
        selector.matches(labels_of(obj)) for obj in (attributes.object, attributes.old) if obj is not None
    )


def _in_scope(scope: str | None, attributes: Attributes) -> bool:
    if scope in (None, "*"):
        return True
    in_namespace = bool(attributes.namespace) and attributes.resource != NAMESPACES
    return in_namespace is (scope == "Namespaced")


def _listed(values: Sequence[str] | None, value: str) -> bool:
    return values is not None and ("*" in values or value in values)


def _is_resource(wanted: str, attributes: Attributes) -> bool:
    resource, _, subresource = wanted.partition("/")
    return resource in ("*", attributes.resource.resource) and subresource in (
        "*",
        attributes.target.subresource,
    )
