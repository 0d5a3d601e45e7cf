"""The attributes of a write, as admission sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kubeshard.core.kinds import GroupResource, Kind
from kubeshard_apiserver.access import Attributes as AccessAttributes
from kubeshard_apiserver.access import User, account_groups, account_name, user_info
from kubeshard_apiserver.cel.authorization import authorizer
from kubeshard_apiserver.model import Rights, Target, in_version
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.namespaces import NAMESPACES
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.resources.strategy import Strategy


class AdmissionOptions(Protocol):
    """The write options that admission uses. See `WriteOptions`."""

    @property
    def user(self) -> User: ...
    @property
    def rights(self) -> Rights: ...
    @property
    def dry_run(self) -> bool: ...
    @property
    def sent(self) -> Mapping[str, Any]: ...
    @property
    def warnings(self) -> list[str] | None: ...
    @property
    def asks(self) -> bool: ...


OPTIONS_KIND = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


@dataclass(frozen=True)
class Attributes:
    """`operation` is CREATE, UPDATE or DELETE. `sent` is the kind of the body of a subresource, if it differs from the
    resource's. `first` is the kind in the version of the request, if `target` has another version.
    """

    operation: str
    target: Target
    object: Object | None
    old: Object | None
    options: AdmissionOptions
    sent: Strategy | None = None
    first: Resource | None = None

    @property
    def requested(self) -> Resource:
        """The resource in the version of the request; `target` has the version that a webhook or policy matches."""
        return self.first or self.target.resource

    @property
    def strategy(self) -> Strategy:
        """The strategy for the object, in the version of the request."""
        return self.sent or self.requested.strategy

    def decide(self, attributes: Mapping[str, Any]) -> tuple[bool, str]:
        """The authorizer's decision on a check made by an expression."""
        user = self.options.user
        if account := attributes.get("account"):
            namespace, name = account
            user = User(account_name(namespace, name), groups=account_groups(namespace))
        fields = ("path", "group", "resource", "subresource", "namespace", "name")
        wanted = AccessAttributes(
            attributes["verb"], **{field: attributes.get(field, "") for field in fields}
        )
        decision = self.options.rights.authorizer.decide(user, wanted)
        return decision.allowed, decision.reason

    def warn(self, text: str) -> None:
        """Adds a warning for the client, unless it has been added already."""
        warnings = self.options.warnings
        if warnings is not None and text not in warnings:
            warnings.append(text)

    @property
    def resource(self) -> GroupResource:
        return self.target.group_resource

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def namespace(self) -> str:
        """The namespace of the object; for a Namespace, its own name."""
        if self.resource == NAMESPACES:
            return self.name or self._named
        return self.target.namespace

    @property
    def shown_name(self) -> str:
        """The name of the object in denial messages."""
        return self._named or self.name or "Unknown"

    @property
    def _named(self) -> str:
        meta = (self.object or {}).get("metadata") or {}
        return meta.get("name") or meta.get("generateName") or ""

    def authorizer(self) -> dict[str, Any]:
        """The value of the variable `authorizer` in expressions, with the resource of the request."""
        kind = self.target.resource.kind
        return authorizer(
            group=kind.group,
            resource=kind.plural,
            subresource=self.target.subresource,
            namespace=self.namespace,
            name=self.name,
        )

    def with_object(self, obj: Object | None) -> Attributes:
        return Attributes(self.operation, self.target, obj, self.old, self.options, self.sent, self.first)

    def as_version(self, resource: Resource) -> Attributes:
        """The same write as one to another version of the kind; its objects stay as they are (see `converted`)."""
        if resource is self.target.resource:
            return self
        return replace(self, first=self.requested, target=replace(self.target, resource=resource))

    def converted(self) -> Attributes:
        """The write with its objects in the version of its target. Raises Unconverted."""
        resource = self.target.resource
        if resource is self.requested or self.sent is not None:
            return self
        return replace(
            self,
            object=self.object and in_version(resource, self.object),
            old=self.old and in_version(resource, self.old),
        )

    def request(self) -> dict[str, Any]:
        """The `request` of an AdmissionReview, without its uid and objects."""
        kind, asked = self.target.resource.kind, self.requested.kind
        sent = self.sent and self.sent.kind
        request: dict[str, Any] = {
            "kind": _told(sent or kind),
            "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
            "subResource": self.target.subresource,
            "requestKind": _told(sent or asked),
            "requestResource": {"group": asked.group, "version": asked.version, "resource": asked.plural},
            "requestSubResource": self.target.subresource,
            "name": self.name,
            "namespace": self.namespace,
            "operation": self.operation,
            "userInfo": user_info(self.options.user),
            "dryRun": self.options.dry_run,
            "options": {
                "kind": OPTIONS_KIND[self.operation],
                "apiVersion": "meta.k8s.io/v1",
                **self.options.sent,
            },
        }
        return {name: value for name, value in request.items() if value != ""}


def _told(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}
