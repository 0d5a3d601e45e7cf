"""Values as a chart's files show them: `values.schema.json`, `values.yaml` with comments, and the table of its README.

Guaranteed: the schema accepts what `kubeshard manifests` accepts, except for null, which Helm takes for absence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kubeshard.core.yaml_output import as_yaml
from kubeshard.manager.config_file import DURATION, Duration
from kubeshard.manifests.pod_values import Values
from kubeshard.manifests.values import described

Schema = Mapping[str, Any]


def components(*types: Any) -> tuple[list[Schema], dict[str, Any]]:
    """The schemas of these types, and the definitions that they refer to, without null, defaults and unknown fields."""
    roots, definitions = msgspec.json.schema_components(
        types, schema_hook=_schema_of, ref_template="#/$defs/{name}"
    )
    return list(roots), {name: _closed(definition) for name, definition in definitions.items()}


def schema(root: Schema, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The file `values.schema.json`. `global` is Helm's, which gives it to every chart that another one depends on."""
    name = root["$ref"].rpartition("/")[2]
    whole = {**definitions[name], "patternProperties": {"^global$": {"type": "object"}}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "$defs": {**definitions, name: whole},
    }


def commented(type_: type[Values], defaults: Mapping[str, Any]) -> str:
    """The file `values.yaml`, with the defaults that there are."""
    return "".join(
        f"\n# {text}\n{as_yaml({name: defaults[name]})}"
        for name, text in described(type_)
        if name in defaults
    )


def table(found: Schema, type_: type[Values], defaults: Mapping[str, Any]) -> list[str]:
    """The lines of a table of all values, in Markdown, in the order of `values.yaml`. `found` is a whole schema."""
    properties = found["$defs"][type_.__name__]["properties"]
    ordered = {name: properties[name] for name, _ in described(type_) if name in properties}
    rows = [
        f"| `{path}` | {kind} | {_shown(default)} | {about} |"
        for path, kind, default, about in _values(found, ordered, defaults)
    ]
    return ["| value | type | default | |", "|---|---|---|---|", *rows]


def _schema_of(type_: Any) -> dict[str, Any]:
    if type_ is Duration:
        return {"type": "string", "pattern": DURATION}
    raise NotImplementedError


def _closed(schema: Any) -> Any:
    """The schema without null, defaults and unknown fields."""
    match schema:
        case {"anyOf": [only, {"type": "null"}], **rest}:
            return _closed({**rest, **only})
        case {"properties": properties, **rest}:
            fields = {name: _closed(each) for name, each in properties.items()}
            return {**_closed(rest), "properties": fields, "additionalProperties": False}
        case dict():
            return {key: _closed(each) for key, each in schema.items() if key != "default"}
        case list():
            return [_closed(each) for each in schema]
        case _:
            return schema


def _values(
    schema: Mapping[str, Any], properties: Mapping[str, Any], defaults: Any, path: str = ""
) -> Iterator[tuple[str, str, Any, str]]:
    """Path, type, default and description of each value, down to those that are set as a whole."""
    for name, found in properties.items():
        place, default = f"{path}{name}", defaults.get(name) if isinstance(defaults, Mapping) else None
        inner = schema["$defs"].get(found.get("$ref", "").rpartition("/")[2], {})
        if "properties" not in inner or place == "config":
            yield place, _type(schema, found), default, found.get("description", "")
            continue
        if about := found.get("description"):
            yield place, "object", "", about
        yield from _values(schema, inner["properties"], default, f"{place}.")


def _type(schema: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if reference := found.get("$ref"):
        return _type(schema, schema["$defs"][reference.rpartition("/")[2]])
    if "anyOf" in found:
        return " or ".join(_type(schema, each) for each in found["anyOf"])
    if "enum" in found:
        return ", ".join(f"`{each}`" for each in found["enum"] if each != "")
    return str(found.get("type", "object"))


def _shown(default: Any) -> str:
    if default in ("", None):
        return ""
    text = json.dumps(default, ensure_ascii=False)
    return f"`{text}`" if len(text) < 60 else "see values.yaml"
