"""OpenAPI documents: `/openapi/v3` and a document for each group and version below it, and `/openapi/v2`.

Guaranteed: a document is built on its first request and rebuilt only after its kinds have changed; its hash in the
index changes with it. The format is JSON; v2 is also served as protobuf, which kubectl needs for its message about an
unknown kind. A client that accepts neither gets a 406.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from kubeshard_apiserver.front.discovery import listed
from kubeshard_apiserver.front.negotiation import JSON, first_of
from kubeshard_apiserver.front.openapi_paths import paths_of
from kubeshard_apiserver.front.openapi_protobuf import MEDIA_TYPE, MEDIA_TYPES, encoded
from kubeshard_apiserver.front.openapi_schemas import Schemas
from kubeshard_apiserver.front.openapi_v2 import version_2
from kubeshard_apiserver.front.replies import TEXT, Reply
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.resources.registry import Registry, Resource
from kubeshard_apiserver.schema.catalog import RELEASE

_INFO = {"title": "Kubernetes", "version": RELEASE.removeprefix("v").rpartition(".")[0]}
Built = tuple[Sequence[Resource], str, bytes]
"""The kinds of a document, their hash, and the document."""


class OpenApi:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._built: dict[str, Built] = {}
        self._protobuf = b"", b""
        """The v2 document in JSON and in protobuf."""

    def reply(self, request: Request) -> Reply:
        """Replies to a GET below `/openapi/`."""
        path = request.path.strip("/").removeprefix("openapi/")
        if path == "v3":
            return Reply(200, {"content-type": TEXT}, msgspec.json.encode(self.index()))
        found = self.version_2() if path == "v2" else self.document(path.removeprefix("v3/"))
        if found is None:
            return Reply(404, {})
        hash_, document = found
        media_type = first_of(
            request.headers.get("accept", ""), (JSON, *MEDIA_TYPES) if path == "v2" else (JSON,)
        )
        if media_type is None:
            return Reply(406, {})
        if media_type != JSON:
            media_type, document = MEDIA_TYPE, self._in_protobuf(document)
        headers = {"content-type": media_type, "etag": f'"{hash_}"', "vary": "Accept"}
        asked = request.query.get("hash")
        if asked is not None and asked != hash_:
            return Reply(301, {"location": f"/openapi/{path}?hash={hash_}"})
        if asked is not None:
            headers["cache-control"] = "public, immutable"
        return Reply(200, headers, document)

    def index(self) -> dict[str, Any]:
        return {
            "paths": {
                path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(kinds)}"}
                for path, kinds in sorted(self._served().items())
            }
        }

    def document(self, path: str) -> tuple[str, bytes] | None:
        """Returns the hash and the document of `api/v1` or `apis/GROUP/VERSION`, or None if it is not served."""
        kinds = self._served().get(path)
        return None if kinds is None else self._document(path, kinds)

    def version_2(self) -> tuple[str, bytes]:
        """Returns the hash and the v2 document, which contains all kinds."""
        kinds = list(self._registry)
        if (built := self._built.get("")) is None or not _same(built[0], kinds):
            documents = [
                msgspec.json.decode(self._document(path, of)[1]) for path, of in self._served().items()
            ]
            built = self._built[""] = (kinds, _hash(kinds), msgspec.json.encode(version_2(documents)))
        return built[1:]

    def _in_protobuf(self, document: bytes) -> bytes:
        """Converts the v2 document to protobuf."""
        if self._protobuf[0] is not document:
            self._protobuf = document, encoded(msgspec.json.decode(document))
        return self._protobuf[1]

    def _served(self) -> dict[str, list[Resource]]:
        served: dict[str, list[Resource]] = {}
        for resource in self._registry:
            group, version = resource.kind.group, resource.kind.version
            served.setdefault(f"apis/{group}/{version}" if group else f"api/{version}", []).append(resource)
        return served

    def _document(self, path: str, kinds: Sequence[Resource]) -> tuple[str, bytes]:
        if (built := self._built.get(path)) is None or not _same(built[0], kinds):
            built = self._built[path] = (kinds, _hash(kinds), msgspec.json.encode(self._made(kinds)))
        return built[1:]

    def _made(self, kinds: Sequence[Resource]) -> dict[str, Any]:
        schemas = Schemas()
        paths: dict[str, Any] = {}
        schemas.add_common({verb for resource in kinds for verb in resource.verbs})
        for resource in kinds:
            name = schemas.add_kind(resource)
            paths |= paths_of(resource, listed(self._registry, resource), name)
        return {
            "openapi": "3.0.0",
            "info": _INFO,
            "paths": dict(sorted(paths.items())),
            "components": {"schemas": dict(sorted(schemas.by_name.items()))},
        }


def _same(before: Sequence[Resource], now: Sequence[Resource]) -> bool:
    """Whether the resources are the same: the registry makes a new one when a definition changes."""
    return len(before) == len(now) and all(one is other for one, other in zip(before, now, strict=True))


def _hash(kinds: Sequence[Resource]) -> str:
    """Returns a hash of the content of a document; built-in kinds are identified by their names."""
    content = [
        (*resource.kind, resource.verbs, sorted(resource.subresources), resource.strategy.schema)
        for resource in kinds
    ]
    return hashlib.sha512(msgspec.json.encode(content)).hexdigest().upper()
