"""ValidatingAdmissionPolicies: expressions that a write must satisfy, enforced through bindings.

A policy is evaluated once for every matching binding and every parameter object that the binding refers to; the first
denial is returned. Source: k8s.io/apiserver `admission/plugin/policy/validating`, `.../policy/generic`, KEP-3488.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeshard.core.errors import ApiError, Conflict, Forbidden, Invalid
from kubeshard.core.objects import Key
from kubeshard.core.selectors import Selector
from kubeshard_apiserver.admission.attributes import Attributes
from kubeshard_apiserver.admission.expressions import NAMES, Activation, conditions_hold, evaluated
from kubeshard_apiserver.admission.matching import (
    BEYOND_POLICIES,
    NamespaceOf,
    any_matches,
    namespace_selected,
    object_selected,
    selector_of,
)
from kubeshard_apiserver.cel import CelError
from kubeshard_apiserver.model import in_version
from kubeshard_apiserver.objects import Object, labels_of
from kubeshard_apiserver.resources.registry import Registry, Resource
from kubeshard_apiserver.status import forbidden
from kubeshard_apiserver.store import Store


class BadParams(Exception):
    """Raised if the parameters of a binding cannot be found; the message is the server's."""


class Params:
    def __init__(self, registry: Registry, store: Store) -> None:
        self._registry = registry
        self._store = store

    def of(
        self, kind: Mapping[str, Any] | None, ref: Mapping[str, Any] | None, namespace: str
    ) -> Sequence[Object | None]:
        """Returns the parameter objects, or a single None if the policy or the binding names none. Raises BadParams."""
        if not kind or not ref:
            return [None]
        resource = self._resource(kind["apiVersion"], kind["kind"])
        if resource is None:
            raise BadParams(
                f"failed to find resource referenced by paramKind: '{_shown(kind['apiVersion'], kind['kind'])}'"
            )
        namespace = self._place(resource, ref, namespace)
        objects = self._store.objects(resource.group_resource)
        if name := ref.get("name"):
            found = [obj for obj in (objects.get(Key(namespace, name)),) if obj is not None]
        else:
            selector = selector_of(ref.get("selector"))
            found = [
                obj
                for key, obj in objects.items()
                if key.namespace == namespace and selector.matches(labels_of(obj))
            ]
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise BadParams("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [in_version(resource, obj) for obj in found]

    def _place(self, resource: Resource, ref: Mapping[str, Any], namespace: str) -> str:
        given: str = ref.get("namespace") or ""
        if not resource.kind.namespaced:
            if given:
                raise BadParams("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
            return ""
        if not given and not namespace:
            raise BadParams(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
        return given or namespace

    def _resource(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        of_version = self._registry.of(group, version)
        return next((resource for resource in of_version if resource.kind.kind == kind), None)


def _shown(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{group}/{version}, Kind={kind}"


_CODES: Mapping[str, tuple[int, type[ApiError]]] = {
    "Unauthorized": (401, ApiError),
    "Forbidden": (403, Forbidden),
    "RequestEntityTooLarge": (413, ApiError),
    "Conflict": (409, Conflict),
}
"""The status code and error class for each reason of a validation; any other reason results in a 422."""


@dataclass(frozen=True)
class Match:
    """The matchConstraints of a policy, or the matchResources of a binding."""

    rules: tuple[Mapping[str, Any], ...]
    excluded: tuple[Mapping[str, Any], ...]
    namespaces: Selector
    objects: Selector
    exact: bool


@dataclass(frozen=True)
class Binding:
    name: str
    spec: Mapping[str, Any]
    match: Match | None


@dataclass(frozen=True)
class Policy:
    """A policy with its bindings."""

    name: str
    spec: Mapping[str, Any]
    match: Match
    bindings: tuple[Binding, ...]


def policies_of(policies: Iterable[Object], bindings: Iterable[Object]) -> tuple[Policy, ...]:
    bound: dict[str, list[Binding]] = {}
    for binding in sorted(bindings, key=_name):
        spec = binding["spec"]
        match = _match(spec["matchResources"]) if spec.get("matchResources") else None
        bound.setdefault(spec["policyName"], []).append(Binding(_name(binding), spec, match))
    return tuple(
        Policy(
            _name(policy),
            policy["spec"],
            _match(policy["spec"].get("matchConstraints") or {}),
            tuple(bound[_name(policy)]),
        )
        for policy in sorted(policies, key=_name)
        if _name(policy) in bound
    )


class Policies:
    """The policies of one server."""

    def __init__(self, registry: Registry, store: Store, namespace_of: NamespaceOf) -> None:
        self._registry = registry
        self._namespace_of = namespace_of
        self._params = Params(registry, store)

    def judge(self, policies: tuple[Policy, ...], attributes: Attributes) -> None:
        """Evaluates the policies. Raises ApiError for the first denial by a binding with the action `Deny`."""
        if attributes.resource in BEYOND_POLICIES:
            return
        refusals = []
        for policy in policies:
            asked = self._matched(policy.match, attributes)
            if asked is None:
                continue
            for binding in policy.bindings:
                if binding.match is not None and self._matched(binding.match, attributes) is None:
                    continue
                actions = binding.spec.get("validationActions") or ()
                for action, message, reason in self._decisions(policy, binding, asked):
                    whose = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
                    if action == "configuration" or "Deny" in actions:
                        refusals.append(_refusal(attributes, f"{whose} denied request: {message}", reason))
                    if action != "configuration" and "Warn" in actions:
                        attributes.warn(f"Validation failed for {whose}: {message}")
        if refusals:
            raise refusals[0]

    def _matched(self, match: Match, attributes: Attributes) -> Attributes | None:
        """Returns the write in the version that a rule matches."""
        if not namespace_selected(match.namespaces, attributes, self._namespace_of):
            return None
        if not object_selected(match.objects, attributes):
            return None
        if any(any_matches(match.excluded, version) for version in self._versions(match, attributes)):
            return None
        if not match.rules:
            return attributes
        versions = self._versions(match, attributes)
        found = next((version for version in versions if any_matches(match.rules, version)), None)
        return found and found.converted()

    def _versions(self, match: Match, attributes: Attributes) -> Iterator[Attributes]:
        yield attributes
        if not match.exact:
            for version in self._registry.versions(attributes.resource.group):
                resource = self._registry.find(
                    attributes.resource.group, version, attributes.resource.resource
                )
                if resource is not None and resource is not attributes.requested:
                    yield attributes.as_version(resource)

    def _decisions(
        self, policy: Policy, binding: Binding, asked: Attributes
    ) -> Iterator[tuple[str, str, str]]:
        """Yields (what failed, message, reason) for every failure."""
        strict = policy.spec.get("failurePolicy") != "Ignore"
        try:
            found = self._params.of(
                policy.spec.get("paramKind"), binding.spec.get("paramRef"), asked.namespace
            )
        except BadParams as error:
            if strict:
                yield "configuration", f"failed to configure binding: {error}", ""
            return
        namespace = self._namespace_of(asked.namespace) if asked.namespace else None
        for params in found:
            activation = Activation(asked, params, namespace, policy.spec.get("variables") or ())
            try:
                if not conditions_hold(
                    policy.spec.get("matchConditions") or (), NAMES, activation.values("")
                ):
                    continue
            except CelError as error:
                if strict:
                    yield "evaluation", str(error), ""
                continue
            for validation in policy.spec.get("validations") or ():
                yield from _decision(validation, activation, strict)


def _decision(
    validation: Mapping[str, Any], activation: Activation, strict: bool
) -> Iterator[tuple[str, str, str]]:
    expression = validation["expression"]
    try:
        holds = evaluated(expression, NAMES, activation.values(expression))
    except CelError as error:
        if strict:
            yield "evaluation", activation.blamed(str(error)), ""
        return
    if holds is not True:
        yield "validation", _message(validation, activation), validation.get("reason") or ""


def _message(validation: Mapping[str, Any], activation: Activation) -> str:
    """Returns the result of messageExpression if it is a line of text, else the fixed message, else the expression."""
    if expression := validation.get("messageExpression"):
        try:
            made = evaluated(expression, NAMES, activation.values(expression))
        except CelError:
            made = None
        if isinstance(made, str) and (line := made.strip()) and "\n" not in line:
            return line
    said: str = (validation.get("message") or "").strip()
    return said or f"failed expression: {validation['expression'].strip()}"


def _refusal(attributes: Attributes, message: str, reason: str) -> ApiError:
    base = forbidden(attributes.resource, attributes.shown_name, message, [{"message": message}])
    code, error = _CODES.get(reason, (422, Invalid))
    return error(base.message, code=code, reason=reason or "Invalid", details=base.details)


def _match(given: Mapping[str, Any]) -> Match:
    return Match(
        tuple(given.get("resourceRules") or ()),
        tuple(given.get("excludeResourceRules") or ()),
        selector_of(given.get("namespaceSelector")),
        selector_of(given.get("objectSelector")),
        given.get("matchPolicy") == "Exact",
    )


def _name(obj: Object) -> str:
    name: str = obj["metadata"]["name"]
    return name
