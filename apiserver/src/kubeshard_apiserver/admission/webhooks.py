"""Webhooks: which of them are called for a write, in what order, with what request, and with what effect.

They are ordered by the name of their configuration, then by their position in it. A mutating webhook sees the object as
changed by earlier webhooks; one with `reinvocationPolicy: IfNeeded` is called again if a later webhook changes the
object. All validating webhooks are called, and the first denial is returned. Requests and responses are
AdmissionReviews of v1. Source: k8s.io/apiserver `admission/plugin/webhook`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kubeshard.core.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from kubeshard.core.patches import JsonPatch
from kubeshard.core.selectors import Selector
from kubeshard_apiserver.admission.attributes import Attributes
from kubeshard_apiserver.admission.expressions import WEBHOOK_NAMES, conditions_hold
from kubeshard_apiserver.admission.matching import (
    GROUP,
    NamespaceOf,
    any_matches,
    namespace_selected,
    object_selected,
    selector_of,
)
from kubeshard_apiserver.cel import CelError
from kubeshard_apiserver.cel.authorization import deciding
from kubeshard_apiserver.model import in_version
from kubeshard_apiserver.objects import Object, private
from kubeshard_apiserver.patching import patched
from kubeshard_apiserver.resources.conversion_webhooks import converting
from kubeshard_apiserver.resources.registry import Registry, Resource
from kubeshard_apiserver.schema.validation import type_name
from kubeshard_apiserver.status import UNSAID, forbidden, internal_error
from kubeshard_apiserver.steps import Steps, WebhookCall

_KIND = ("admission.k8s.io/v1", "AdmissionReview")
_ERRORS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
}


class BadReview(Exception):
    """Raised for an invalid response; the message is the server's."""


class _Invalid(BadReview):
    def __init__(self, problem: str) -> None:
        super().__init__(f"received invalid webhook response: {problem}")


class _Unreadable(BadReview):
    def __init__(self, problem: str) -> None:
        super().__init__(f"failed to call webhook: {problem}")


class Verdict(NamedTuple):
    """A webhook's verdict on a write. `ops` are the operations of a JSON Patch; `status` is the Status of a denial."""

    allowed: bool
    ops: list[Any]
    warnings: tuple[str, ...]
    status: Mapping[str, Any]


def _review_of(attributes: Attributes, uid: str) -> dict[str, Any]:
    request = {"uid": uid, **attributes.request(), "object": attributes.object, "oldObject": attributes.old}
    return {"kind": _KIND[1], "apiVersion": _KIND[0], "request": request}


def _read_verdict(review: Any, uid: str, *, mutating: bool) -> Verdict:
    """Reads a webhook's response. Raises BadReview if it is invalid."""
    response = _response(review)
    if (answered := response.get("uid") or "") != uid:
        raise _Invalid(f'expected response.uid="{uid}", got "{answered}"')
    patch, patch_type = response.get("patch"), response.get("patchType")
    _check_patch(patch, patch_type, mutating)
    try:
        decoded = base64.b64decode(patch or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise _Unreadable("illegal base64 data at input byte 0") from None
    allowed = bool(response.get("allowed"))
    ops = _decoded(decoded, str(patch_type)) if allowed and decoded else []
    return Verdict(allowed, ops, tuple(response.get("warnings") or ()), response.get("status") or {})


def _response(review: Any) -> Mapping[str, Any]:
    if not isinstance(review, Mapping):
        given = type_name(review)
        raise _Unreadable(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {given} into Go value of type "
            'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        )
    version, kind = review.get("apiVersion") or "", review.get("kind") or ""
    if (version, kind) == ("admission.k8s.io/v1beta1", _KIND[1]):
        raise _Unreadable(f"converting (v1beta1.{kind}) to (v1.{kind}): unknown conversion")
    if (version or kind) and (version, kind) != _KIND:
        raise _Unreadable(f'no kind "{kind}" is registered for version "{version}"')
    response = review.get("response")
    if response is None:
        raise _Invalid("webhook response was absent")
    if not version:
        raise _Invalid(f"expected webhook response of {_KIND[0]}, Kind={_KIND[1]}, got /, Kind=")
    if not isinstance(response, Mapping):
        raise _Unreadable(
            f"json: cannot unmarshal {type_name(response)} into Go struct field AdmissionReview.response"
        )
    if not isinstance(allowed := response.get("allowed"), bool | None):
        field = "Go struct field AdmissionResponse.response.allowed of type bool"
        raise _Unreadable(f"json: cannot unmarshal {type_name(allowed)} into {field}")
    return response


def _denial(webhook: str, status: Mapping[str, Any]) -> ApiError:
    """Returns the webhook's own Status as a failure, with the webhook's name prepended to the message."""
    code = status.get("code") or 0
    code = code if code >= 400 else 400
    reason, told = status.get("reason") or "", status.get("message") or status.get("reason") or ""
    said = f": {told}" if told else " without explanation"
    message, details = f'admission webhook "{webhook}" denied the request{said}', status.get("details")
    error = _ERRORS.get(code, ApiError)(message, code=code, reason=reason, details=details)
    if details is None:
        error.details = UNSAID
    return error


def _failed_call(webhook: str, problem: str) -> ApiError:
    return internal_error(f'failed calling webhook "{webhook}": {problem}')


def _why_not(op: Mapping[str, Any]) -> str:
    """Returns the error of the server's JSON Patch library for an operation that cannot be applied."""
    name, path = op.get("op"), op.get("path") or ""
    last = path.rpartition("/")[2]
    match name:
        case "add":
            return f'add operation does not apply: doc is missing path: "{path}": missing value'
        case "remove":
            return (
                f"error in remove for path: '{path}': Unable to remove nonexistent key: {last}: missing value"
            )
        case "replace":
            return f"replace operation does not apply: doc is missing path: {path}: missing value"
        case "test":
            return f"testing value {path} failed: test failed"
        case "move" | "copy":
            return f"error in {name} for path: '{path}': missing value"
        case _:
            return f"Unexpected kind: {name}"


def _decoded(patch: bytes, patch_type: str) -> list[Any]:
    problem = "received undecodable patch in webhook response: "
    try:
        ops = json.loads(patch)
    except ValueError as error:
        raise BadReview(problem + str(error)) from None
    if not isinstance(ops, list):
        raise BadReview(
            f"{problem}json: cannot unmarshal {type_name(ops)} into Go value of type jsonpatch.Patch"
        )
    if any(not isinstance(op, Mapping) for op in ops):
        raise BadReview(f"{problem}json: cannot unmarshal into Go value of type jsonpatch.Operation")
    if ops and patch_type != "JSONPatch":
        raise BadReview(f'unsupported patch type "{patch_type}"')
    return ops


def _check_patch(patch: Any, patch_type: Any, mutating: bool) -> None:
    if not mutating:
        if patch:
            raise _Invalid("validating webhook may not return response.patch")
        if patch_type is not None:
            raise _Invalid("validating webhook may not return response.patchType")
    elif patch and patch_type is None:
        raise _Invalid("webhook returned response.patch but not response.patchType")
    elif not patch and patch_type is not None:
        raise _Invalid("webhook returned response.patchType but not response.patch")
    elif patch and patch_type == "":
        raise _Invalid('webhook returned invalid response.patchType of ""')


@dataclass(frozen=True)
class Webhook:
    """One webhook of one configuration."""

    uid: tuple[str, str]
    name: str
    spec: Mapping[str, Any]
    namespaces: Selector
    objects: Selector


def webhooks_of(configurations: Iterable[Object]) -> tuple[Webhook, ...]:
    ordered = sorted(configurations, key=lambda configuration: configuration["metadata"]["name"])
    return tuple(
        Webhook(
            (configuration["metadata"]["name"], spec["name"]),
            spec["name"],
            spec,
            selector_of(spec.get("namespaceSelector")),
            selector_of(spec.get("objectSelector")),
        )
        for configuration in ordered
        for spec in configuration.get("webhooks") or ()
    )


class Webhooks:
    """The webhooks of one server. `token` generates the uids of reviews."""

    def __init__(
        self,
        registry: Registry,
        namespace_of: NamespaceOf,
        token: Callable[[], str],
    ) -> None:
        self._registry = registry
        self._namespace_of = namespace_of
        self._token = token

    def mutate(self, hooks: tuple[Webhook, ...], attributes: Attributes) -> Steps[Object | None]:
        """Returns the object as changed by the webhooks."""
        if attributes.resource.group == GROUP:
            return attributes.object
        again: set[tuple[str, str]] = set()
        called: set[tuple[str, str]] = set()
        for is_first in (True, False):
            for hook in hooks:
                if not is_first and hook.uid not in again:
                    continue
                asked = yield from self._matched(hook, attributes)
                if asked is None:
                    continue
                obj = yield from self._mutated(hook, asked)
                changed = obj is not None and obj != asked.object
                if changed and obj is not None:
                    obj = yield from self._returned(attributes, obj)
                    attributes = _taken(attributes, obj)
                    again |= called
                    called = set()
                if hook.spec.get("reinvocationPolicy") == "IfNeeded":
                    called.add(hook.uid)
            if not again:
                break
        return attributes.object

    def validate(self, hooks: tuple[Webhook, ...], attributes: Attributes) -> Steps[None]:
        if attributes.resource.group == GROUP:
            return
        refusals = []
        for hook in hooks:
            try:
                if (asked := (yield from self._matched(hook, attributes))) is not None:
                    yield from self._verdict(hook, asked, mutating=False)
            except ApiError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    def _matched(self, hook: Webhook, attributes: Attributes) -> Steps[Attributes | None]:
        return converting(self._token, lambda: self._asked(hook, attributes))

    def _returned(self, attributes: Attributes, obj: Object) -> Steps[Object]:
        """Returns the changed object in the version of the request."""
        if attributes.sent is not None or not attributes.requested.strategy.needs_webhook:
            return obj
        return (yield from converting(self._token, lambda: in_version(attributes.requested, obj)))

    def _asked(self, hook: Webhook, attributes: Attributes) -> Attributes | None:
        """Returns the write in the version that this webhook matches, or None if it does not match."""
        # Labels are the same in all versions that no webhook converts, and most writes are of objects that have been
        # admitted before, which a selector leaves out.
        if not (attributes.requested.strategy.needs_webhook or object_selected(hook.objects, attributes)):
            return None
        rules = hook.spec.get("rules") or ()
        for resource in self._versions(hook, attributes):
            asked = attributes.as_version(resource)
            if any_matches(rules, asked):
                asked = asked.converted()
                break
        else:
            return None
        if not namespace_selected(hook.namespaces, asked, self._namespace_of):
            return None
        return asked if object_selected(hook.objects, asked) and self._conditions_hold(hook, asked) else None

    def _versions(self, hook: Webhook, attributes: Attributes) -> Iterator[Resource]:
        """Yields the version of the request and then, for `Equivalent`, the other versions of the same objects."""
        yield attributes.requested
        if hook.spec.get("matchPolicy") != "Exact":
            group, plural = attributes.resource.group, attributes.resource.resource
            for version in self._registry.versions(group):
                resource = self._registry.find(group, version, plural)
                if resource is not None and resource is not attributes.requested:
                    yield resource

    def _conditions_hold(self, hook: Webhook, asked: Attributes) -> bool:
        conditions = hook.spec.get("matchConditions")
        if not conditions:
            return True
        variables = {
            "object": asked.object,
            "oldObject": asked.old,
            "request": asked.request(),
            "authorizer": asked.authorizer(),
            "namespaceObject": None,
        }
        try:
            with deciding(asked.decide):
                return conditions_hold(conditions, WEBHOOK_NAMES, variables)
        except CelError as error:
            if hook.spec.get("failurePolicy") == "Ignore":
                return False
            raise forbidden(asked.resource, asked.name, str(error)) from None

    def _verdict(self, hook: Webhook, asked: Attributes, *, mutating: bool) -> Steps[Verdict | None]:
        """Calls the webhook. Returns None if the call failed and failures are ignored. Raises ApiError for a denial
        and for a failure that is not ignored.
        """
        uid = self._token()
        timeout = float(hook.spec.get("timeoutSeconds") or 10)
        call = WebhookCall(hook.name, hook.spec["clientConfig"], _review_of(asked, uid), timeout)
        reply = yield call
        problem = f"failed to call webhook: {reply.problem}"
        if not reply.problem:
            try:
                verdict = _read_verdict(reply.review, uid, mutating=mutating)
            except BadReview as error:
                problem = str(error)
            else:
                for text in verdict.warnings:
                    asked.warn(text)
                if not verdict.allowed:
                    raise _denial(hook.name, verdict.status)
                return verdict
        if hook.spec.get("failurePolicy") == "Ignore":
            return None
        raise _failed_call(hook.name, problem)

    def _mutated(self, hook: Webhook, asked: Attributes) -> Steps[Object | None]:
        verdict = yield from self._verdict(hook, asked, mutating=True)
        if verdict is None or not verdict.ops:
            return None
        if asked.object is None:
            problem = "attempted to modify the object, which is not supported for this operation"
            raise internal_error(f'admission webhook "{hook.name}" {problem}')
        obj = asked.object
        for op in verdict.ops:
            try:
                obj = patched(obj, JsonPatch([op]))
            except ApiError:
                raise internal_error(_why_not(op)) from None
        return obj


def _taken(attributes: Attributes, obj: Object) -> Attributes:
    """Returns the write with the patched object, which is decoded in the version of the request as if a client had
    sent it.
    """
    strategy = attributes.strategy
    obj = private({**obj, "apiVersion": strategy.kind.api_version})
    try:
        strategy.decode(obj)
    except ApiError as error:
        raise internal_error(error.message.partition(f"as a {obj['kind']}: ")[2] or error.message) from None
    return attributes.with_object(obj)
