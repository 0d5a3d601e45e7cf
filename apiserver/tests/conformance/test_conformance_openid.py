"""OpenID Connect discovery: others can verify the tokens of ServiceAccounts."""

import base64
import json

import pytest
from conformance_access import account, token_of
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
KEY_SET = "application/jwk-set+json"


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def number(text):
    return int.from_bytes(decoded(text))


def verify(token, key):
    """Raises InvalidSignature."""
    signed, _, signature = token.rpartition(".")
    signature, text = decoded(signature), signed.encode()
    if key["kty"] == "RSA":
        public = rsa.RSAPublicNumbers(number(key["e"]), number(key["n"])).public_key()
        public.verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
    else:
        public = ec.EllipticCurvePublicNumbers(
            number(key["x"]), number(key["y"]), ec.SECP256R1()
        ).public_key()
        r, s = (int.from_bytes(half) for half in (signature[:32], signature[32:]))
        public.verify(encode_dss_signature(r, s), text, ec.ECDSA(hashes.SHA256()))


async def test_a_token_can_be_verified_with_the_published_keys(api, ns):
    token = await token_of(api, await account(api, ns))
    keys = json.loads((await api.call("GET", KEYS, accept=KEY_SET)).text)["keys"]
    header = json.loads(decoded(token.split(".")[0]))
    (key,) = [key for key in keys if key["kid"] == header["kid"]]
    assert (key["use"], key["alg"]) == ("sig", header["alg"])
    verify(token, key)


async def test_the_configuration_says_who_issues_and_where_the_keys_are(api):
    answer = await api.get(CONFIGURATION)
    assert answer.headers["cache-control"] == "public, max-age=3600"
    assert answer["issuer"] == "https://kubernetes.default.svc"
    assert answer["jwks_uri"].startswith("https://")
    assert answer["jwks_uri"].endswith(KEYS)
    keys = json.loads((await api.call("GET", KEYS, accept="*/*")).text)["keys"]
    assert answer["id_token_signing_alg_values_supported"] == [keys[0]["alg"]]
    told = (answer["response_types_supported"], answer["subject_types_supported"])
    assert told == (["id_token"], ["public"])


async def test_keys_are_of_one_media_type(api):
    answer = await api.call("GET", KEYS, accept="*/*")
    assert (answer.status, answer.headers["content-type"]) == (200, KEY_SET)
    refused = await api.get(KEYS)
    assert refused.refusal == (406, "NotAcceptable")
    assert refused.message == f"406: Not Acceptable\n\nAvailable representations: {KEY_SET}"


@pytest.mark.parametrize("path", [CONFIGURATION, KEYS])
async def test_discovery_of_keys_is_for_reading(api, path):
    assert (await api.call("POST", path)).refusal == (405, "MethodNotAllowed")


@pytest.mark.parametrize("path", [CONFIGURATION, KEYS])
async def test_nobody_may_not_discover_keys(api, path):
    assert (await api.bearing("").call("GET", path, accept="*/*")).status == 403
