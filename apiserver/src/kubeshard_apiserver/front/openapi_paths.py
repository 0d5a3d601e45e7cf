"""Paths of OpenAPI 3: the operations on a kind and their parameters. Pure.

Clients use them to find the group, version and kind of an operation and the names of its parameters (`fieldValidation`
in particular). Operations have no IDs, and watches have no separate paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.front.discovery import Listed
from kubeshard_apiserver.front.openapi_schemas import DELETE_OPTIONS, PATCH, REF
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.schema.catalog import Entry

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


def paths_of(resource: Resource, listed: Listed, schema: str) -> dict[str, Any]:
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
