"""Schemas of OpenAPI 3: of built-in kinds from their Go types, of custom ones from their definitions. Pure.

They contain what clients use: types, required fields, list types, merge keys and strategies, groups and kinds.
Built-in kinds have no descriptions and no enumerations, because those are Kubernetes' own prose.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.resources.strategy import Strategy
from kubeshard_apiserver.schema.catalog import said_of

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
        name = custom_name(resource) if custom else self.add_type(_type_name(resource))
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
        required = [name for name, facts in fields.items() if facts.get("required")]
        return {
            "type": "object",
            **({"required": required} if required else {}),
            "properties": {name: self._field(facts) for name, facts in fields.items()},
            **({"x-kubernetes-map-type": "atomic"} if said.get("atomic") else {}),
        }

    def _field(self, facts: Mapping[str, Any]) -> Schema:
        schema = self._of(facts["type"])
        extensions = {_EXTENSIONS[word]: value for word, value in facts.items() if word in _EXTENSIONS}
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
        schema = _published(resource.strategy.schema)
        properties = {
            **(schema.get("properties") or {}),
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "metadata": {
                **self._reference(self.add_type("meta.v1.ObjectMeta")),
                "description": "The metadata that every object has.",
            },
        }
        return {**schema, "type": "object", "properties": dict(sorted(properties.items()))}


def custom_name(resource: Resource) -> str:
    kind = resource.kind
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _type_name(resource: Resource) -> str:
    kind = resource.kind
    return f"{kind.group.partition('.')[0] or 'core'}.{kind.version}.{kind.kind}"


def _schema_name(go_type: str) -> str:
    return f"{_PREFIXES.get(go_type.partition('.')[0], 'io.k8s.api')}.{go_type}"


def _package(name: str) -> str:
    return name.rpartition(".")[0]


def _published(schema: Mapping[str, Any]) -> Schema:
    """Returns the schema of a definition as it is published to clients."""
    published = dict(_members(schema))
    if schema.get("x-kubernetes-int-or-string") and "anyOf" not in schema:
        published["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return published


def _members(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for word, value in schema.items():
        if word == "properties":
            yield word, {name: _published(inner) for name, inner in (value or {}).items()}
        elif word in ("items", "additionalProperties") and isinstance(value, Mapping):
            yield word, _published(value)
        else:
            yield word, value
