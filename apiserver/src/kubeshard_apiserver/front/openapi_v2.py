"""OpenAPI v2, derived from the documents of v3, and in protobuf, the form that kubectl requests. Pure.

`_MESSAGES` contains the fields that occur in our documents, each with its number and type. Source: `OpenAPIv2.proto`
of gnostic-models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from kubeshard_apiserver.schema.catalog import RELEASE
from kubeshard_apiserver.schema.protobuf_writing import Written, written

_INFO = {"title": "Kubernetes", "version": RELEASE.removeprefix("v").rpartition(".")[0]}
_UNKNOWN = ("nullable", "oneOf", "anyOf", "not")
"""Keywords that v2 does not have."""
_BUILT_IN = tuple(f"io.k8s.{package}." for package in ("api", "apimachinery", "apiextensions-apiserver"))
_PRESERVES = "x-kubernetes-preserve-unknown-fields"
_METHODS = ("get", "put", "post", "patch", "delete")


def version_2(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for document in documents:
        paths |= {path: _item(item) for path, item in document["paths"].items()}
        definitions |= {
            name: _schema(schema) if name.startswith(_BUILT_IN) else _custom(schema)
            for name, schema in document["components"]["schemas"].items()
        }
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}


def _item(item: Mapping[str, Any]) -> dict[str, Any]:
    operations = {method: _operation(item[method]) for method in _METHODS if method in item}
    return {**operations, "parameters": [_parameter(one) for one in item["parameters"]]}


def _operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    rest = {word: value for word, value in operation.items() if word not in ("parameters", "requestBody")}
    parameters = [_parameter(one) for one in operation["parameters"]]
    if body := operation.get("requestBody"):
        content = body["content"]
        schema = _schema(next(iter(content.values()))["schema"])
        parameters.append({"name": "body", "in": "body", "schema": schema})
        rest["consumes"] = list(content)
    return {**rest, "produces": ["application/json", "application/yaml"], "parameters": parameters}


def _parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    schema = parameter["schema"]
    return {**{word: value for word, value in parameter.items() if word != "schema"}, **schema}


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    older = {word: _member(word, value) for word, value in schema.items() if word not in _UNKNOWN}
    if "oneOf" in schema:  # a quantity, or an integer or string
        older["type"] = "string"
    if len(older.get("allOf") or ()) == 1 and "$ref" in older["allOf"][0]:
        older |= older.pop("allOf")[0]
    return older


def _custom(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a custom kind. kubectl cannot validate what is nullable or keeps unknown fields beside others."""
    if schema.get(_PRESERVES):
        kept = {word: value for word, value in schema.items() if word in _OF_KINDS}
        return {"type": "object", **kept}
    return _loosened(schema)


_OF_KINDS = ("x-kubernetes-group-version-kind", "x-kubernetes-selectable-fields")


def _loosened(schema: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema or any("$ref" in inner for inner in schema.get("allOf") or ()):
        return _schema(schema)
    older = {word: value for word, value in schema.items() if word not in (*_UNKNOWN, "allOf", "default")}
    if schema.get("nullable") or schema.get(_PRESERVES):
        older.pop("items", None)
        older.pop("properties", None)
    is_loose = schema.get("nullable") or (schema.get(_PRESERVES) and schema.get("type") == "object")
    if is_loose or (older.get("type") == "array" and "items" not in older):
        older.pop("type", None)
    properties = older.get("properties") or {}
    additional = older.get("additionalProperties")
    if isinstance(additional, Mapping) and additional.get("nullable"):
        older.pop("required", None)
    elif required := [name for name in schema.get("required") or () if not _is_dropped(name, schema)]:
        older["required"] = required
    else:
        older.pop("required", None)
    if properties:
        older["properties"] = {name: _loosened(inner) for name, inner in properties.items()}
    for word in ("items", "additionalProperties"):
        if isinstance(older.get(word), Mapping):
            older[word] = _loosened(older[word])
    return older


def _is_dropped(required: str, schema: Mapping[str, Any]) -> bool:
    """Whether a field is required in v3 only. What a complete object has was added, except where others are kept."""
    if schema.get(_PRESERVES):
        return bool(schema.get("x-kubernetes-embedded-resource")) and required in ("apiVersion", "kind")
    if schema.get("nullable"):
        return False  # it has no fields here that could be nullable
    return bool(((schema.get("properties") or {}).get(required) or {}).get("nullable"))


def _member(word: str, value: Any) -> Any:
    match word, value:
        case "$ref", str():
            return value.replace("#/components/schemas/", "#/definitions/")
        case "properties", dict():
            return {name: _schema(inner) for name, inner in value.items()}
        case "items" | "additionalProperties", dict():
            return _schema(value)
        case "allOf", list():
            return [_schema(inner) for inner in value]
    return value


MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
MEDIA_TYPES = (MEDIA_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
"""The content type of the response, and its former name."""

_PARAMETER = {
    "required": (1, "bool"), "in": (2, "string"), "description": (3, "string"), "name": (4, "string"),
}  # fmt: skip
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Document": {
        "swagger": (1, "string"), "info": (2, "Info"), "paths": (8, "Paths"), "definitions": (9, "Named"),
    },
    "Info": {"title": (1, "string"), "version": (2, "string")},
    "PathItem": {
        "get": (2, "Operation"), "put": (3, "Operation"), "post": (4, "Operation"), "delete": (5, "Operation"),
        "patch": (7, "Operation"), "parameters": (9, "[]Parameter"),
    },
    "Operation": {
        "description": (3, "string"), "produces": (6, "[]string"), "consumes": (7, "[]string"),
        "parameters": (8, "[]Parameter"), "responses": (9, "Responses"),
    },
    "BodyParameter": {
        "description": (1, "string"), "name": (2, "string"), "in": (3, "string"), "required": (4, "bool"),
        "schema": (5, "Schema"),
    },
    "QueryParameter": {
        **_PARAMETER, "type": (6, "string"), "format": (7, "string"), "uniqueItems": (20, "bool"),
    },
    "PathParameter": {
        **_PARAMETER, "type": (5, "string"), "format": (6, "string"), "uniqueItems": (19, "bool"),
    },
    "Response": {"description": (1, "string")},
    "Schema": {
        "$ref": (1, "string"), "format": (2, "string"), "title": (3, "string"), "description": (4, "string"),
        "default": (5, "any"), "multipleOf": (6, "double"), "maximum": (7, "double"),
        "exclusiveMaximum": (8, "bool"), "minimum": (9, "double"), "exclusiveMinimum": (10, "bool"),
        "maxLength": (11, "int"), "minLength": (12, "int"), "pattern": (13, "string"), "maxItems": (14, "int"),
        "minItems": (15, "int"), "uniqueItems": (16, "bool"), "maxProperties": (17, "int"),
        "minProperties": (18, "int"), "required": (19, "[]string"), "enum": (20, "[]any"),
        "additionalProperties": (21, "Additional"), "type": (22, "Type"), "items": (23, "Items"),
        "allOf": (24, "[]Schema"), "properties": (25, "Named"), "example": (30, "any"),
    },
}  # fmt: skip
_EXTENSIONS = {
    "PathItem": 10, "Operation": 13, "BodyParameter": 6, "QueryParameter": 23, "PathParameter": 22, "Response": 5,
    "Schema": 31,
}  # fmt: skip
"""The field number of the `x-` extensions in each message."""


def encoded(document: Mapping[str, Any]) -> bytes:
    """Encodes a document made by `front.openapi_v2`."""
    return _message("Document", document)


def _message(name: str, document: Mapping[str, Any]) -> bytes:
    fields, extension = _MESSAGES[name], _EXTENSIONS.get(name, 0)
    parts = []
    for word, value in document.items():
        if known := fields.get(word):
            number, of = known
            repeated = of.startswith("[]")
            write = _writer(of.removeprefix("[]"))
            parts += [written(number, write(item)) for item in (value if repeated else [value])]
        elif extension and word.startswith("x-"):
            parts.append(written(extension, _named(word, _any(value))))
    return b"".join(parts)


def _writer(of: str) -> Callable[[Any], Written]:
    return _WRITERS.get(of) or (lambda value: _message(of, value))


def _named(name: str, value: bytes) -> bytes:
    return written(1, name.encode()) + written(2, value)


def _any(value: Any) -> bytes:
    """Encodes a value as YAML, of which JSON is a subset."""
    return written(2, msgspec.json.encode(value) + b"\n")


def _schemas(named: Mapping[str, Any]) -> bytes:
    return b"".join(written(1, _named(name, _message("Schema", schema))) for name, schema in named.items())


def _paths(paths: Mapping[str, Any]) -> bytes:
    return b"".join(written(2, _named(path, _message("PathItem", item))) for path, item in paths.items())


def _parameter_writer(parameter: Mapping[str, Any]) -> bytes:
    if parameter["in"] == "body":
        return written(1, written(1, _message("BodyParameter", parameter)))
    kind, number = ("PathParameter", 4) if parameter["in"] == "path" else ("QueryParameter", 3)
    return written(1, written(2, written(number, _message(kind, parameter))))


def _responses(responses: Mapping[str, Any]) -> bytes:
    return b"".join(
        written(1, _named(code, written(1, _message("Response", said)))) for code, said in responses.items()
    )


def _additional(value: Any) -> bytes:
    return written(1, _message("Schema", value)) if isinstance(value, dict) else written(2, int(value))


def _types(value: str | Iterable[str]) -> bytes:
    types = [value] if isinstance(value, str) else value
    return b"".join(written(1, one.encode()) for one in types)


_WRITERS: Mapping[str, Callable[[Any], Written]] = {
    "string": lambda value: str(value).encode(),
    "bool": int,
    "int": int,
    "double": float,
    "any": _any,
    "Named": _schemas,
    "Paths": _paths,
    "Parameter": _parameter_writer,
    "Responses": _responses,
    "Additional": _additional,
    "Type": _types,
    "Items": lambda value: written(1, _message("Schema", value)),
}
