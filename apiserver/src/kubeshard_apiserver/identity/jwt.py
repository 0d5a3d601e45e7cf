"""JSON Web Tokens (RFC 7519) of a single issuer, signed and verified with ECDSA on P-256 (ES256, RFC 7518 3.4).

Guaranteed: the contents of a token are not read unless it was signed with this key. Validity times and audiences are
not checked here. Needs the extra `certificates`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

_SIZE = 32
_HASH = ec.ECDSA(hashes.SHA256())


class SigningKey:
    """A key that signs and verifies tokens. `pem` is an existing private key (PKCS #8); the default is a new one."""

    def __init__(self, pem: bytes | None = None) -> None:
        key = (
            serialization.load_pem_private_key(pem, None) if pem else ec.generate_private_key(ec.SECP256R1())
        )
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
            raise ValueError("the service account signing key must be an ECDSA key on P-256")
        self._key = key
        public = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self._id = _encoded(sha256(public).digest())
        header = {"alg": "ES256", "kid": self._id}
        self._header = _encoded(msgspec.json.encode(header))

    @property
    def pem(self) -> bytes:
        """The private key; keep it secret."""
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def public(self) -> dict[str, str]:
        """The public key as a JSON Web Key (RFC 7517), for verifying tokens."""
        point = self._key.public_key().public_numbers()
        x, y = (_encoded(number.to_bytes(_SIZE)) for number in (point.x, point.y))
        return {"use": "sig", "kty": "EC", "kid": self._id, "crv": "P-256", "alg": "ES256", "x": x, "y": y}

    def signed(self, claims: Mapping[str, Any]) -> str:
        text = f"{self._header}.{_encoded(msgspec.json.encode(claims))}"
        r, s = decode_dss_signature(self._key.sign(text.encode(), _HASH))
        return f"{text}.{_encoded(r.to_bytes(_SIZE) + s.to_bytes(_SIZE))}"

    def claims(self, token: str) -> dict[str, Any] | None:
        """Return the token's claims, or None if this key did not sign it."""
        header, _, rest = token.partition(".")
        payload, _, given = rest.partition(".")
        if header != self._header:
            return None
        try:
            signature = _decoded(given)
            if len(signature) != 2 * _SIZE:
                return None
            r, s = int.from_bytes(signature[:_SIZE]), int.from_bytes(signature[_SIZE:])
            self._key.public_key().verify(encode_dss_signature(r, s), f"{header}.{payload}".encode(), _HASH)
            claims = msgspec.json.decode(_decoded(payload))
        except (InvalidSignature, binascii.Error, ValueError):
            return None
        return claims if isinstance(claims, dict) else None


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
