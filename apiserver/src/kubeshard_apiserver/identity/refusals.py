"""The words of 401 and 403. Source: k8s.io/apiserver `endpoints/handlers/responsewriters`."""

from __future__ import annotations

from kubeshard.core.errors import Forbidden, Unauthorized
from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.access.attributes import Attributes
from kubeshard_apiserver.access.user import User
from kubeshard_apiserver.status import forbidden, shown

_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def unauthorized() -> Unauthorized:
    return Unauthorized("Unauthorized", code=401, reason="Unauthorized")


def not_allowed(user: User, attributes: Attributes, reason: str = "") -> Forbidden:
    """`reason` is what the authorizer adds."""
    who = f"User {shown(user.name)} cannot {attributes.verb}"
    cause = f": {reason}" if reason else ""
    if not attributes.about_resource:
        what = f"{who} path {shown(attributes.path)}".translate(_HTML)
        return Forbidden(f"forbidden: {what}{cause}", code=403, reason="Forbidden")
    scope = (
        f"in the namespace {shown(attributes.namespace)}" if attributes.namespace else "at the cluster scope"
    )
    what = f"{who} resource {shown(attributes.combined)} in API group {shown(attributes.group)} {scope}"
    resource = GroupResource(attributes.group, attributes.resource)
    return forbidden(resource, attributes.name, what.translate(_HTML) + cause)
