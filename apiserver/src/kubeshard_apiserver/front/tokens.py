"""ServiceAccount tokens over HTTP: requests for short-lived ones, and the public keys for verifying them.

`POST .../serviceaccounts/{name}/token`, and the part of OpenID Connect Discovery 1.0 that the real server supports.
Source: k8s.io/kubernetes `pkg/registry/core/serviceaccount/storage/token.go`, `pkg/serviceaccount/openidmetadata.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.core.objects import Key
from kubeshard.core.times import second_time
from kubeshard_apiserver.front.gate import Identity
from kubeshard_apiserver.front.handler import HandlerContext
from kubeshard_apiserver.front.replies import JSON, Reply
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.identity.account_tokens import BINDABLE, ISSUER, AccountTokens
from kubeshard_apiserver.identity.authentication import AUDIENCES
from kubeshard_apiserver.model import Answer, Target
from kubeshard_apiserver.objects import Object, in_order
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.resources.strategy import Strategy
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.status import (
    bad_request,
    conflict,
    internal,
    invalid,
    invalid_value,
    method_not_allowed,
    not_acceptable,
    not_found,
)
from kubeshard_apiserver.steps import Steps

_KIND = Kind("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests")
_SHORTEST, _LONGEST = 600, 2**32
_DEFAULT_SECONDS = 3600


class TokenRequests(Typed):
    """The kind of the subresource's body, which is not itself a resource."""

    def __init__(self) -> None:
        Strategy.__init__(self, _KIND, {})

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        if spec.get("expirationSeconds") is None:
            spec["expirationSeconds"] = _DEFAULT_SECONDS


def token_request(context: HandlerContext) -> Steps[Answer]:
    target, server = context.target, context.server
    if context.request.method != "POST":
        raise method_not_allowed()
    options = context.write_options("CreateOptions")
    body = context.request.decode(_KIND.kind, _KIND.api_version)
    asked = Target(_resource(), target.namespace, "", target.subresource)
    obj, warnings = server.writes.received(asked, body, options)
    server.writes.check_accepts_new(target, target.name)
    meta, spec = obj["metadata"], obj["spec"]
    if meta.get("name", target.name) != target.name:
        problem = "must match the service account name if specified"
        raise invalid(_KIND.group_kind, target.name, [invalid_value("metadata.name", meta["name"], problem)])
    account = server.live(replace(target, subresource=""))
    uid = account["metadata"]["uid"]
    if meta.get("uid", uid) != uid:
        problem = f"the UID in the token request ({meta['uid']}) does not match the UID of the service account ({uid})"
        raise conflict(GroupResource(_KIND.group, _KIND.kind), target.name, problem)
    _check_seconds(spec["expirationSeconds"])
    bound = _bound(context, spec.get("boundObjectRef"))
    now = server.clock.wall()
    spec |= {"audiences": spec.get("audiences") or list(AUDIENCES)}
    spec.setdefault("boundObjectRef", None)
    named = {
        "name": target.name,
        "namespace": target.namespace,
        "uid": uid,
        "creationTimestamp": second_time(now),
    }
    try:
        token = _tokens(context).issued(account, spec["audiences"], spec["expirationSeconds"], bound)
    except ConfigurationError as error:
        raise internal(str(error)) from None
    status = {"token": token, "expirationTimestamp": second_time(int(now) + spec["expirationSeconds"])}
    yield from ()
    answer = {**obj, "metadata": {**named, **meta, **named}, "spec": spec, "status": status}
    return Answer(201, in_order(answer), warnings)


def _bound(context: HandlerContext, reference: Mapping[str, Any] | None) -> dict[str, Object]:
    """Returns the objects that the token is bound to, by kind."""
    if reference is None:
        return {}
    group, _, version = reference.get("apiVersion", "").rpartition("/")
    kind, name, uid = reference.get("kind", ""), reference.get("name", ""), reference.get("uid")
    if group or kind not in BINDABLE:
        raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    found = _find(context, kind, name)
    if found is None:
        raise not_found(BINDABLE[kind], name)
    bound = {kind: found}
    if kind == "Pod":
        account, node = context.target.name, found.get("spec", {}).get("nodeName")
        if found.get("spec", {}).get("serviceAccountName", "") != account:
            raise bad_request(
                f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            )
        if node:
            bound["Node"] = _find(context, "Node", node) or {"metadata": {"name": node}}
    if uid and uid != found["metadata"]["uid"]:
        problem = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. The object might have "
            "been deleted and then recreated"
        )
        raise conflict(GroupResource("", kind), name, problem)
    return bound


def _find(context: HandlerContext, kind: str, name: str) -> Object | None:
    place = "" if kind == "Node" else context.target.namespace
    return context.server.store.get(BINDABLE[kind], Key(place, name))


def _check_seconds(seconds: int) -> None:
    if _SHORTEST <= seconds <= _LONGEST:
        return
    problem = (
        "may not specify a duration less than 10 minutes"
        if seconds < _SHORTEST
        else "may not specify a duration larger than 2^32 seconds"
    )
    error = invalid_value("spec.expirationSeconds", seconds, problem)
    raise invalid(GroupKind(_KIND.group, _KIND.kind), "", [error])


def _tokens(context: HandlerContext) -> AccountTokens:
    """Returns the issuer of tokens. With a gate that accepts everything it is a new one, because any token will do."""
    gate = context.gate
    if isinstance(gate, Identity):
        return gate.authentication.account_tokens
    return AccountTokens(context.server.model)


@cache
def _resource() -> Resource:
    return Resource(TokenRequests(), "tokenrequest")


CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
_KEY_SET = "application/jwk-set+json"


def openid_reply(request: Request, path: str, gate: Identity) -> Reply:
    """Replies to a discovery request. Raises ApiError (405, 406), or ConfigurationError without the extra
    `certificates`.
    """
    if request.method != "GET":
        raise method_not_allowed()
    media_type = JSON if path == CONFIGURATION else _KEY_SET
    if not _takes(request.headers.get("accept", ""), media_type):
        raise not_acceptable((media_type,))
    key = gate.authentication.account_tokens.public_key
    document = {"keys": [key]} if path == KEYS else _configuration(request, key["alg"])
    headers = {"content-type": media_type, "cache-control": "public, max-age=3600"}
    return Reply(200, headers, msgspec.json.encode(document))


def _configuration(request: Request, algorithm: str) -> dict[str, object]:
    return {
        "issuer": ISSUER,
        "jwks_uri": f"https://{request.headers.get('host', 'kubernetes.default.svc')}{KEYS}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [algorithm],
    }


def _takes(accept: str, media_type: str) -> bool:
    taken = {one.partition(";")[0].strip() for one in accept.split(",")}
    return bool(taken & {"", "*/*", "application/*", media_type})
