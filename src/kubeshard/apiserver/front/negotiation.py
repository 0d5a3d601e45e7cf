"""In which form an answer goes out: media types, and whole objects or their metadata only.

Served are JSON and YAML. Protobuf and Table are not: they are passed over for the next type that the client
takes, which is how clients fall back; a client that takes nothing else gets 406.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from kubeshard.apiserver.status import not_acceptable

JSON = "application/json"
YAML = "application/yaml"
_OFFERED = (JSON, YAML)
_ANY = ("*/*", "application/*", "")
_PARTIAL = {"PartialObjectMetadata": False, "PartialObjectMetadataList": True}


@dataclass(frozen=True)
class Format:
    """`metadata_only`: PartialObjectMetadata (or a list of it) instead of the object."""

    media_type: str = JSON
    metadata_only: bool = False

    def encode(self, document: Any) -> bytes:
        if self.media_type == YAML:
            return yaml.safe_dump(document, sort_keys=False).encode()
        return msgspec.json.encode(document)


def negotiate(accept: str) -> Format:
    """Raises ApiError (406)."""
    for entry in accept.split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        given = dict(parameter.partition("=")[::2] for parameter in parameters)
        wanted = JSON if media_type in _ANY else media_type
        if wanted not in _OFFERED:
            continue
        form = given.get("as", "")
        if form in _PARTIAL and given.get("g") == "meta.k8s.io":
            return Format(wanted, metadata_only=True)
        if not form:
            return Format(wanted)
    raise not_acceptable((*_OFFERED, "application/vnd.kubernetes.protobuf"))
