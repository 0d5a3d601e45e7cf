"""All requests beyond plain storage, by kind and by the name of the subresource."""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.front.pods import attached, binding, eviction, log, proxied
from kubeshard_apiserver.front.reviews import REVIEWS
from kubeshard_apiserver.front.scaling import scale
from kubeshard_apiserver.front.special import Special
from kubeshard_apiserver.front.tokens import token_request
from kubeshard_apiserver.model import Target

_KINDS: Mapping[GroupResource, Special] = {**REVIEWS, GroupResource("", "bindings"): binding}
"""Kinds without storage: a create is answered, but nothing is stored."""

_SUBRESOURCES: Mapping[str, Special] = {
    "attach": attached,
    "binding": binding,
    "eviction": eviction,
    "exec": attached,
    "log": log,
    "portforward": attached,
    "proxy": proxied,
    "scale": scale,
    "token": token_request,
}
"""The subresources of every resource that declares them. `status` and `finalize` are plain storage."""


def special_of(target: Target) -> Special | None:
    if not target.subresource:
        return _KINDS.get(target.group_resource)
    if target.subresource not in target.resource.subresources:
        return None
    return _SUBRESOURCES.get(target.subresource)
