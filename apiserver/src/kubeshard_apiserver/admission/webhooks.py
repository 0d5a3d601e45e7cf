"""Webhooks: which of them are called for a write, in what order, and with what effect.

They are ordered by the name of their configuration, then by their position in it. A mutating webhook sees the object
as changed by earlier webhooks; one with `reinvocationPolicy: IfNeeded` is called again if a later webhook changes the
object. All validating webhooks are called, and the first denial is returned. Source: k8s.io/apiserver
`admission/plugin/webhook`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubeshard.core.errors import ApiError
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
from kubeshard_apiserver.admission.review import (
    BadReview,
    Verdict,
    denial,
    failed_call,
    internal_error,
    read_verdict,
    review_of,
    why_not,
)
from kubeshard_apiserver.cel import CelError
from kubeshard_apiserver.cel.authorization import deciding
from kubeshard_apiserver.model import in_version
from kubeshard_apiserver.objects import Object, private
from kubeshard_apiserver.patching import patched
from kubeshard_apiserver.resources.conversion_webhooks import converting
from kubeshard_apiserver.resources.registry import Registry, Resource
from kubeshard_apiserver.status import forbidden
from kubeshard_apiserver.steps import Steps, WebhookCall


@dataclass(frozen=True)
class Hook:
    """One webhook of one configuration."""

    uid: tuple[str, str]
    name: str
    spec: Mapping[str, Any]
    namespaces: Selector
    objects: Selector


def hooks_of(configurations: Iterable[Object]) -> tuple[Hook, ...]:
    ordered = sorted(configurations, key=lambda configuration: configuration["metadata"]["name"])
    return tuple(
        Hook(
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

    def mutate(self, hooks: tuple[Hook, ...], attributes: Attributes) -> Steps[Object | None]:
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

    def validate(self, hooks: tuple[Hook, ...], attributes: Attributes) -> Steps[None]:
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

    def _matched(self, hook: Hook, attributes: Attributes) -> Steps[Attributes | None]:
        return converting(self._token, lambda: self._asked(hook, attributes))

    def _returned(self, attributes: Attributes, obj: Object) -> Steps[Object]:
        """Returns the changed object in the version of the request."""
        if not attributes.requested.strategy.needs_webhook:
            return obj
        return (yield from converting(self._token, lambda: in_version(attributes.requested, obj)))

    def _asked(self, hook: Hook, attributes: Attributes) -> Attributes | None:
        """Returns the write in the version that this webhook matches, or None if it does not match."""
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

    def _versions(self, hook: Hook, attributes: Attributes) -> Iterator[Resource]:
        """Yields the version of the request and then, for `Equivalent`, the other versions of the same objects."""
        yield attributes.requested
        if hook.spec.get("matchPolicy") != "Exact":
            group, plural = attributes.resource.group, attributes.resource.resource
            for version in self._registry.versions(group):
                resource = self._registry.find(group, version, plural)
                if resource is not None and resource is not attributes.requested:
                    yield resource

    def _conditions_hold(self, hook: Hook, asked: Attributes) -> bool:
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

    def _verdict(self, hook: Hook, asked: Attributes, *, mutating: bool) -> Steps[Verdict | None]:
        """Calls the webhook. Returns None if the call failed and failures are ignored. Raises ApiError for a denial
        and for a failure that is not ignored.
        """
        uid = self._token()
        timeout = float(hook.spec.get("timeoutSeconds") or 10)
        call = WebhookCall(hook.name, hook.spec["clientConfig"], review_of(asked, uid), timeout)
        reply = yield call
        problem = f"failed to call webhook: {reply.problem}"
        if not reply.problem:
            try:
                verdict = read_verdict(reply.review, uid, mutating=mutating)
            except BadReview as error:
                problem = str(error)
            else:
                for text in verdict.warnings:
                    asked.warn(text)
                if not verdict.allowed:
                    raise denial(hook.name, verdict.status)
                return verdict
        if hook.spec.get("failurePolicy") == "Ignore":
            return None
        raise failed_call(hook.name, problem)

    def _mutated(self, hook: Hook, asked: Attributes) -> Steps[Object | None]:
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
                raise internal_error(why_not(op)) from None
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
