"""OpenAPI documents: `/openapi/v3` and a document for each group and version below it, and `/openapi/v2`.

Guaranteed: a document is built on its first request and rebuilt only after its kinds have changed; its hash in the
index changes with it. The format is JSON; v2 is also served as protobuf, which kubectl needs for its message about an
unknown kind. A client that accepts neither gets a 406.

Schemas contain what clients use: types, required fields, list types, merge keys and strategies, groups and kinds. Those
of built-in kinds are made from their Go types, without descriptions and enumerations, because these are Kubernetes' own
prose; those of custom kinds are in their definitions. Paths are there for the group, version and kind of an operation
and for the names of its parameters (`fieldValidation` in particular). Operations have no IDs, and watches have no
separate paths.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kubeshard_apiserver.front.discovery import Listed, listed
from kubeshard_apiserver.front.openapi_v2 import MEDIA_TYPE, MEDIA_TYPES, encoded, version_2
from kubeshard_apiserver.front.replies import JSON, TEXT, Reply, first_of
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.resources.registry import Registry, Resource
from kubeshard_apiserver.resources.strategy import Strategy
from kubeshard_apiserver.schema.catalog import RELEASE, Entry, said_of

Schema = dict[str, Any]

REF = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
PATCH = f"{_META}.Patch"
DELETE_OPTIONS = f"{_META}.DeleteOptions"
_PREFIXES = {
    "meta": "io.k8s.apimachinery.pkg.apis",
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis",
}
_SCALARS: Mapping[str, Schema] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float64": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_WORDS: Mapping[str, tuple[str, Schema]] = {
    "time": (f"{_META}.Time", {"type": "string", "format": "date-time"}),
    "micro-time": (f"{_META}.MicroTime", {"type": "string", "format": "date-time"}),
    "quantity": (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        {"oneOf": [{"type": "string"}, {"type": "number"}]},
    ),
    "int-or-string": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    ),
}
_EXTENSIONS = {
    "list": "x-kubernetes-list-type",
    "keys": "x-kubernetes-list-map-keys",
    "map": "x-kubernetes-map-type",
    "merge-key": "x-kubernetes-patch-merge-key",
    "strategy": "x-kubernetes-patch-strategy",
    "default": "default",
}
_LIST_META: Schema = {
    "type": "object",
    "properties": {
        "continue": {"type": "string"},
        "remainingItemCount": {"type": "integer", "format": "int64"},
        "resourceVersion": {"type": "string"},
        "selfLink": {"type": "string"},
    },
}
_API_VERSION = {
    "type": "string",
    "description": "The API group and version in which the object is represented.",
}
_KIND = {"type": "string", "description": "The kind of the object."}


class Schemas:
    """Collects schemas, and all schemas that they refer to, in `by_name`."""

    def __init__(self) -> None:
        self.by_name: dict[str, Schema] = {}

    def add_kind(self, resource: Resource) -> str:
        """Adds the schemas of the resource's objects and of their list; returns the name of the object schema."""
        kind, custom = resource.kind, resource.strategy.is_custom
        gvk = {"group": kind.group, "kind": kind.kind, "version": kind.version}
        name = _custom_name(resource) if custom else self.add_type(_type_name(resource))
        if custom:
            self.by_name[name] = self._custom(resource)
        self.by_name[name] = {**self.by_name[name], "x-kubernetes-group-version-kind": [gvk]}
        if custom and (paths := resource.strategy.selectable[len(Strategy.selectable) :]):
            fields = [{"fieldPath": path} for path in paths]
            self.by_name[name]["x-kubernetes-selectable-fields"] = fields
        if "list" in resource.verbs:
            list_kind = resource.list_kind or f"{kind.kind}List"
            self.by_name[f"{_package(name)}.{list_kind}"] = {
                "type": "object",
                "required": ["items"],
                "properties": {
                    "apiVersion": _API_VERSION,
                    "items": {"type": "array", "items": {"$ref": REF + name}},
                    "kind": _KIND,
                    "metadata": self._reference(self._plain(f"{_META}.ListMeta", _LIST_META)),
                },
                "x-kubernetes-group-version-kind": [{**gvk, "kind": list_kind}],
            }
        return name

    def add_type(self, go_type: str) -> str:
        """Adds the schema of a struct in the catalog."""
        name = _schema_name(go_type)
        if name not in self.by_name:
            self.by_name[name] = {}  # the type may be recursive
            said = said_of(go_type)
            self.by_name[name] = self._struct(said)
        return name

    def add_common(self, verbs: Collection[str]) -> None:
        """Adds the schemas that requests for all kinds use."""
        if "patch" in verbs:
            self._plain(PATCH, {"type": "object"})
        if "delete" in verbs:
            self.add_type("meta.v1.DeleteOptions")

    def _struct(self, said: Mapping[str, Any]) -> Schema:
        fields = said["fields"]
        required = [name for name, markers in fields.items() if markers.get("required")]
        return {
            "type": "object",
            **({"required": required} if required else {}),
            "properties": {name: self._field(markers) for name, markers in fields.items()},
            **({"x-kubernetes-map-type": "atomic"} if said.get("atomic") else {}),
        }

    def _field(self, markers: Mapping[str, Any]) -> Schema:
        schema = self._of(markers["type"])
        extensions = {_EXTENSIONS[word]: value for word, value in markers.items() if word in _EXTENSIONS}
        if "$ref" in schema:
            return {"allOf": [schema], **extensions}
        return {**schema, **extensions}

    def _of(self, go_type: str) -> Schema:
        if go_type.startswith("*"):
            return self._of(go_type[1:])
        if go_type.startswith("[]"):
            return {"type": "array", "items": self._of(go_type[2:])}
        if go_type.startswith("map[string]"):
            return {"type": "object", "additionalProperties": self._of(go_type.removeprefix("map[string]"))}
        if go_type.startswith("schema-or-"):
            return {}
        if go_type in _SCALARS:
            return dict(_SCALARS[go_type])
        name = self._plain(*_WORDS[go_type]) if go_type in _WORDS else self.add_type(go_type)
        return {"$ref": REF + name}

    def _plain(self, name: str, schema: Schema) -> str:
        self.by_name[name] = schema
        return name

    def _reference(self, name: str) -> Schema:
        return {"allOf": [{"$ref": REF + name}]}

    def _custom(self, resource: Resource) -> Schema:
        implied = {
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "metadata": {
                **self._reference(self.add_type("meta.v1.ObjectMeta")),
                "description": "The metadata that every object has.",
            },
        }
        schema = _published(resource.strategy.schema, implied)
        return {**schema, "properties": _with(implied, schema)}


def _custom_name(resource: Resource) -> str:
    kind = resource.kind
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _type_name(resource: Resource) -> str:
    kind = resource.kind
    return f"{kind.group.partition('.')[0] or 'core'}.{kind.version}.{kind.kind}"


def _schema_name(go_type: str) -> str:
    return f"{_PREFIXES.get(go_type.partition('.')[0], 'io.k8s.api')}.{go_type}"


def _package(name: str) -> str:
    return name.rpartition(".")[0]


def _with(implied: Mapping[str, Schema], schema: Mapping[str, Any]) -> dict[str, Schema]:
    return dict(sorted({**(schema.get("properties") or {}), **implied}.items()))


def _published(schema: Mapping[str, Any], implied: Mapping[str, Schema]) -> Schema:
    """Returns the schema of a definition as it is published. `implied` are the fields of complete objects."""
    published = dict(_members(schema, implied))
    if schema.get("x-kubernetes-embedded-resource"):
        published["properties"] = _with(implied, published)
        required = schema.get("required") or ()
        published["required"] = list(dict.fromkeys((*required, "kind", "apiVersion")))
    if schema.get("x-kubernetes-int-or-string") and "anyOf" not in schema:
        published["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return published


def _members(schema: Mapping[str, Any], implied: Mapping[str, Schema]) -> Iterator[tuple[str, Any]]:
    for word, value in schema.items():
        if word == "properties":
            yield word, {name: _published(inner, implied) for name, inner in (value or {}).items()}
        elif word in ("items", "additionalProperties") and isinstance(value, Mapping):
            yield word, _published(value, implied)
        else:
            yield word, value


_WRITE = {"dryRun": "string", "fieldManager": "string", "fieldValidation": "string"}
_SELECT = {
    "continue": "string",
    "fieldSelector": "string",
    "labelSelector": "string",
    "limit": "integer",
    "resourceVersion": "string",
    "resourceVersionMatch": "string",
    "sendInitialEvents": "boolean",
    "timeoutSeconds": "integer",
}
_LIST = {**_SELECT, "allowWatchBookmarks": "boolean", "watch": "boolean"}
_DELETE = {
    "dryRun": "string",
    "gracePeriodSeconds": "integer",
    "orphanDependents": "boolean",
    "propagationPolicy": "string",
}
_COLLECTION = {"list": "get", "create": "post", "deletecollection": "delete"}
_OBJECT = {"get": "get", "update": "put", "patch": "patch", "delete": "delete"}
_SUBRESOURCE = {**_OBJECT, "create": "post"}
_ACTIONS = {"create": "post", "update": "put"}
_PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "list": _LIST,
    "create": _WRITE,
    "update": _WRITE,
    "patch": {**_WRITE, "force": "boolean"},
    "delete": _DELETE,
    "deletecollection": {**_SELECT, **_DELETE},
}
_PATCHES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"
_BODIES = ("application/json", "application/yaml")


def _paths_of(resource: Resource, listed: Listed, schema: str) -> dict[str, Any]:
    """Returns the paths of a resource. `schema` is the name of the schema of its objects."""
    kind = resource.kind
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    here = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    own = (kind.group, kind.version)
    patches = _PATCHES if resource.strategy.is_custom else (*_PATCHES, _STRATEGIC)

    def item(path: str, entry: Entry, verbs: Mapping[str, str]) -> None:
        named = {verb: method for verb, method in verbs.items() if verb in entry.verbs}
        if named:
            paths[path] = _item(path, entry, named, own, schema, patches)

    paths: dict[str, Any] = {}
    if kind.namespaced:
        item(f"{root}/{kind.plural}", listed.entry, {"list": "get"})
    item(here, listed.entry, _COLLECTION)
    item(f"{here}/{{name}}", listed.entry, _OBJECT)
    for name, entry in listed.subresources.items():
        item(f"{here}/{{name}}/{name}", entry, _SUBRESOURCE)
    return paths


def _item(
    path: str,
    entry: Entry,
    verbs: Mapping[str, str],
    own: tuple[str, str],
    schema: str,
    patches: tuple[str, ...],
) -> dict[str, Any]:
    group, version = (entry.group, entry.version) if entry.version else own
    in_path = [name for name in ("name", "namespace") if f"{{{name}}}" in path]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in in_path
    ]
    connects = entry.kind.endswith("Options")
    operations = {
        method: {
            "parameters": _query({} if connects else _PARAMETERS.get(verb, {})),
            **({} if connects else _body(verb, schema, patches)),
            "responses": {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}},
            "x-kubernetes-action": "connect" if connects else _ACTIONS.get(verb, verb),
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": entry.kind},
        }
        for verb, method in verbs.items()
    }
    return {**operations, "parameters": [*parameters, *_query({"pretty": "string"})]}


def _query(parameters: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "schema": {"type": type_, "uniqueItems": True}}
        for name, type_ in parameters.items()
    ]


def _body(verb: str, schema: str, patches: tuple[str, ...]) -> dict[str, Any]:
    match verb:
        case "patch":
            types, name = patches, PATCH
        case "create" | "update":
            types, name = _BODIES, schema
        case "delete" | "deletecollection":
            types, name = _BODIES, DELETE_OPTIONS
        case _:
            return {}
    content = {media_type: {"schema": {"$ref": REF + name}} for media_type in types}
    return {"requestBody": {"content": content}}


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
            paths |= _paths_of(resource, listed(self._registry, resource), name)
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
