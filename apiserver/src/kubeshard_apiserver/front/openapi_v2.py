"""OpenAPI v2, derived from the documents of v3. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeshard_apiserver.schema.catalog import RELEASE

_INFO = {"title": "Kubernetes", "version": RELEASE.removeprefix("v").rpartition(".")[0]}
_UNKNOWN = ("nullable", "oneOf", "anyOf", "not")
"""Keywords that v2 does not have."""
_METHODS = ("get", "put", "post", "patch", "delete")


def version_2(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for document in documents:
        paths |= {path: _item(item) for path, item in document["paths"].items()}
        definitions |= {name: _schema(schema) for name, schema in document["components"]["schemas"].items()}
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
