"""Reviews of users and their rights: kinds whose objects are answered instead of stored.

Source: k8s.io/kubernetes `pkg/registry/authentication`, `pkg/registry/authorization`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubeshard.core.kinds import GroupKind, GroupResource
from kubeshard_apiserver.access import Attributes, User, user_info
from kubeshard_apiserver.front.gate import Identity
from kubeshard_apiserver.front.handler import Handler, HandlerContext
from kubeshard_apiserver.identity.authentication import AUDIENCES
from kubeshard_apiserver.model import Answer
from kubeshard_apiserver.objects import Object, in_order
from kubeshard_apiserver.status import (
    FieldError,
    bad_request,
    invalid,
    invalid_value,
    method_not_allowed,
    no_such_path,
)
from kubeshard_apiserver.steps import Steps

_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_ONE_OF_TWO = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


def _review(answered: Callable[[HandlerContext, Object], Object]) -> Handler:
    def special(context: HandlerContext) -> Steps[Answer]:
        target, request = context.target, context.request
        kind = target.resource.kind
        if target.name or (kind.namespaced and not target.namespace):
            raise no_such_path()
        if request.method != "POST":
            raise method_not_allowed()
        options = context.write_options("CreateOptions")
        obj, warnings = context.server.writes.received(
            target, request.decode(kind.kind, kind.api_version), options
        )
        yield from ()
        return Answer(201, in_order(answered(context, obj)), warnings)

    return special


def _token_review(context: HandlerContext, obj: Object) -> Object:
    spec = obj.get("spec") or {}
    if not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    if not isinstance(context.gate, Identity):
        return {**obj, "status": {"user": {}, "error": "invalid bearer token"}}
    verdict = context.gate.authentication.verdict(spec["token"], spec.get("audiences") or AUDIENCES)
    if verdict.user is None:
        return {**obj, "status": {"user": {}, "error": verdict.problem}}
    told = {"authenticated": True, "user": user_info(verdict.user), "audiences": list(verdict.audiences)}
    return {**obj, "status": told}


def _self_subject_review(context: HandlerContext, obj: Object) -> Object:
    head = {name: obj[name] for name in ("kind", "apiVersion")}
    meta = {"creationTimestamp": context.server.now()}
    return {**head, "metadata": meta, "status": {"userInfo": user_info(context.user)}}


def _self_access(context: HandlerContext, obj: Object) -> Object:
    spec = obj.get("spec") or {}
    _refuse(_access_errors(spec) + _metadata_errors(obj))
    return _decided(context, obj, context.user, spec)


def _access(context: HandlerContext, obj: Object) -> Object:
    spec = obj.get("spec") or {}
    _refuse(_access_errors(spec) + _subject_errors(spec) + _metadata_errors(obj))
    return _decided(context, obj, _subject(spec), spec)


def _local_access(context: HandlerContext, obj: Object) -> Object:
    spec, namespace = obj.get("spec") or {}, context.target.namespace
    errors = _access_errors(spec) + _subject_errors(spec) + _metadata_errors(obj, " except for namespace")
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and resource.get("namespace", "") != namespace:
        where = "spec.resourceAttributes.namespace"
        errors.append(invalid_value(where, resource.get("namespace", ""), "must match metadata.namespace"))
    if path is not None:
        problem = "disallowed on this kind of request"
        errors.append(invalid_value("spec.nonResourceAttributes", _in_go(path), problem))
    _refuse(errors)
    obj = {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
    return _decided(context, obj, _subject(spec), spec)


def _rules(context: HandlerContext, obj: Object) -> Object:
    namespace = (obj.get("spec") or {}).get("namespace")
    if not namespace:
        raise bad_request("no namespace on request")
    held = context.gate.rights.authorizer.held(context.user, namespace)
    status: dict[str, Any] = {
        "resourceRules": [
            _some(rule, "verbs", "apiGroups", "resources", "resourceNames")
            for rule in held.rules
            if rule.get("resources")
        ],
        "nonResourceRules": [
            _some(rule, "verbs", "nonResourceURLs") for rule in held.rules if rule.get("nonResourceURLs")
        ],
        "incomplete": False,
    }
    if held.problem:
        status["evaluationError"] = held.problem
    head = {name: obj[name] for name in ("kind", "apiVersion")}
    return {**head, "metadata": {}, "spec": {}, "status": status}


def _decided(context: HandlerContext, obj: Object, user: User, spec: Mapping[str, Any]) -> Object:
    decision = context.gate.rights.authorizer.decide(user, _attributes(spec))
    status: dict[str, Any] = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return {**obj, "status": status}


def _attributes(spec: Mapping[str, Any]) -> Attributes:
    if (path := spec.get("nonResourceAttributes")) is not None:
        return Attributes(path.get("verb", ""), path.get("path", ""))
    asked = spec["resourceAttributes"]
    fields = ("group", "version", "resource", "subresource", "namespace", "name")
    return Attributes(asked.get("verb", ""), **{field: asked.get(field, "") for field in fields})


def _subject(spec: Mapping[str, Any]) -> User:
    extra = {key: tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    return User(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()), extra)


def _access_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        return [invalid_value("spec", path and _in_go(path), _ONE_OF_TWO)]
    return _selector_errors(resource or {})


def _selector_errors(resource: Mapping[str, Any]) -> list[FieldError]:
    errors = []
    for name in ("fieldSelector", "labelSelector"):
        selector, where = resource.get(name), f"spec.resourceAttributes.{name}"
        if selector is None:
            continue
        if selector.get("rawSelector") and selector.get("requirements"):
            problem = "may not specified at the same time as requirements"
            errors.append(invalid_value(f"{where}.rawSelector", selector["rawSelector"], problem))
        if not selector.get("rawSelector") and not selector.get("requirements"):
            problem = f"Required value: when {where} is specified, requirements or rawSelector is required"
            errors.append(FieldError(f"{where}.requirements", "FieldValueRequired", problem))
    return errors


def _subject_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid_value("spec.user", "", "at least one of user or group must be specified")]


def _metadata_errors(obj: Object, exception: str = "") -> list[FieldError]:
    allowed = ("managedFields", "namespace") if exception else ("managedFields",)
    meta = obj["metadata"]
    given = any(value for name, value in meta.items() if name not in allowed)
    return [invalid_value("metadata", meta, f"must be empty{exception}")] if given else []


def _refuse(errors: list[FieldError]) -> None:
    if errors:
        raise invalid(GroupKind(_AUTHORIZATION, ""), "", errors)


def _in_go(path: Mapping[str, str]) -> dict[str, str]:
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


def _some(rule: Mapping[str, Any], *fields: str) -> dict[str, Any]:
    return {field: rule[field] for field in fields if rule.get(field)}


REVIEWS: Mapping[GroupResource, Handler] = {
    GroupResource(_AUTHENTICATION, "tokenreviews"): _review(_token_review),
    GroupResource(_AUTHENTICATION, "selfsubjectreviews"): _review(_self_subject_review),
    GroupResource(_AUTHORIZATION, "selfsubjectaccessreviews"): _review(_self_access),
    GroupResource(_AUTHORIZATION, "subjectaccessreviews"): _review(_access),
    GroupResource(_AUTHORIZATION, "localsubjectaccessreviews"): _review(_local_access),
    GroupResource(_AUTHORIZATION, "selfsubjectrulesreviews"): _review(_rules),
}
