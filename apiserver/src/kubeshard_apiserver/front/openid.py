"""The public keys for verifying ServiceAccount tokens: the part of OpenID Connect Discovery 1.0 that the real server
supports. Source: k8s.io/kubernetes `pkg/serviceaccount/openidmetadata.go`.
"""

from __future__ import annotations

import msgspec

from kubeshard_apiserver.front.identity import Identity
from kubeshard_apiserver.front.negotiation import JSON
from kubeshard_apiserver.front.replies import Reply
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.identity.account_tokens import ISSUER
from kubeshard_apiserver.status import method_not_allowed, not_acceptable

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
