"""Reads the types of the built-in kinds from a real control plane: `make types`.

Only facts are kept: names, types, formats, list types, keys, defaults and discovery, but no descriptions. The result is
two files of `kubeshard_apiserver.schema`, the same for the same release; a test compares them with a control plane.
Their format is documented in `schema.catalog`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from kubeshard_apiserver.testing.control_plane import ControlPlane
from learning.asking import Asker, asking
from learning.go_names import learn_go_names
from learning.ways import places
from learning.zeros import AUDIT_POLICY, learn_zeros

GROUPS = (
    "", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
    "certificates.k8s.io",
    "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io", "admissionregistration.k8s.io",
    "apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io", "discovery.k8s.io",
)  # fmt: skip
"""The groups in the server's order. Aggregation, flow control and devices are not served."""

_PREFIXES = (
    "io.k8s.api.",
    "io.k8s.apimachinery.pkg.apis.",
    "io.k8s.apimachinery.pkg.",
    "io.k8s.apiextensions-apiserver.pkg.apis.",
)
_WORDS = {
    "api.resource.Quantity": "quantity",
    "meta.v1.Time": "time",
    "meta.v1.MicroTime": "micro-time",
    "meta.v1.FieldsV1": "any",
    "runtime.RawExtension": "any",
    "util.intstr.IntOrString": "int-or-string",
    "apiextensions.v1.JSON": "any",
    "apiextensions.v1.JSONSchemaPropsOrArray": "schema-or-array",
    "apiextensions.v1.JSONSchemaPropsOrBool": "schema-or-bool",
    "apiextensions.v1.JSONSchemaPropsOrStringArray": "schema-or-strings",
}
"""Types with their own JSON encoding."""
_PLAIN = ("string", "bool", "int32", "int64", "float64")
_OPEN = ("any", "schema-or-array", "schema-or-bool", "schema-or-strings")
_SCHEMA = "apiextensions.v1.JSONSchemaProps"
_EXTENSIONS = {
    "x-kubernetes-list-type": "list",
    "x-kubernetes-list-map-keys": "keys",
    "x-kubernetes-map-type": "map",
    "x-kubernetes-patch-merge-key": "merge-key",
    "x-kubernetes-patch-strategy": "strategy",
}


class Learned(NamedTuple):
    """The contents of the two files."""

    kinds: str
    types: str


def learn() -> Learned:
    """Asks a control plane on this machine about the groups that are served here. Raises ControlPlaneFailed."""
    with TemporaryDirectory(prefix="kubeshard-types-") as folder:
        policy, log = Path(folder, "policy.json"), Path(folder, "audit.log")
        policy.write_text(json.dumps(AUDIT_POLICY))
        flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}")
        with ControlPlane(arguments=flags) as kube:
            return asyncio.run(_learn(kube, log))


async def _learn(kube: ControlPlane, audit_log: Path) -> Learned:
    async with asking(kube) as ask:
        return await _told(ask, audit_log)


async def _told(ask: Asker, audit_log: Path) -> Learned:
    kinds = await _discovered(ask)
    schemas: dict[str, Any] = {}
    for group_version in kinds:
        path = group_version if "/" in group_version else f"api/{group_version}"
        document = await ask.get(f"/openapi/v3/{path if path.startswith('api/') else f'apis/{path}'}")
        schemas |= {_short(name): schema for name, schema in document["components"]["schemas"].items()}
    wanted = {
        entry["type"] for entries in kinds.values() for entry in entries if entry["type"] in schemas
    } | {"meta.v1.DeleteOptions"}
    types: dict[str, Any] = {}
    while wanted:
        name = min(wanted)
        types[name] = _struct(schemas[name])
        wanted = (wanted | set(_refs(schemas[name]))) - types.keys()
    taken = list(places(kinds, types))
    await learn_go_names(ask, taken, types)
    await learn_zeros(ask, taken, types, audit_log)
    return Learned(_written(kinds), _written(dict(sorted(types.items()))))


def folder() -> Path:
    """The folder of the files."""
    return Path(str(files("kubeshard_apiserver.schema")))


async def _discovered(ask: Asker) -> dict[str, list[dict[str, Any]]]:
    """The resources of every group version, each with the name of its type."""
    versions = {group["name"]: group["versions"] for group in (await ask.get("/apis"))["groups"]}
    found: dict[str, list[dict[str, Any]]] = {}
    for group in GROUPS:
        for version in versions[group] if group else [{"groupVersion": "v1"}]:
            name = version["groupVersion"]
            path = f"/apis/{name}" if group else "/api/v1"
            found[name] = [
                {**entry, "type": _type_of(entry, name)} for entry in (await ask.get(path))["resources"]
            ]
    return found


def _type_of(entry: Mapping[str, Any], group_version: str) -> str:
    group, _, version = group_version.rpartition("/")
    group = entry.get("group", group)
    return f"{group.partition('.')[0] or 'core'}.{entry.get('version', version)}.{entry['kind']}"


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            short = name.removeprefix(prefix)
            return _WORDS.get(short, short)
    return name


def _struct(schema: Mapping[str, Any]) -> dict[str, Any]:
    required = schema.get("required", ())
    fields = {
        name: _field(field, name in required) for name, field in sorted(schema.get("properties", {}).items())
    }
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    return {"fields": fields, **({"atomic": True} if atomic else {})}


def _field(schema: Mapping[str, Any], required: bool) -> dict[str, Any]:
    expression = _expression(schema)
    # A zero default means no default: the server reports one for fields that are always written.
    pointer = expression in _PLAIN and schema.get("default", "none") and not required
    if expression == "*int-or-string" and required:
        expression = "int-or-string"
    field: dict[str, Any] = {"type": f"*{expression}" if pointer else expression}
    for extension, name in _EXTENSIONS.items():
        if extension in schema:
            field[name] = schema[extension]
    if schema.get("default"):
        field["default"] = schema["default"]
    if required:
        field["required"] = True
    if required or (expression in _PLAIN and not schema.get("default", "none")):
        field["always"] = True
    return field


def _expression(schema: Mapping[str, Any]) -> str:
    """A type in Go's notation; a pointer to a struct if the schema has no empty default."""
    if ref := _ref(schema):
        name = _short(ref)
        return name if "default" in schema or name in _OPEN else f"*{name}"
    match schema.get("type"):
        case "array":
            return f"[]{_expression(schema['items']).lstrip('*')}"
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return f"map[string]{_expression(schema['additionalProperties']).lstrip('*')}"
        case "object" | None:
            return "any"
        case "integer":
            return str(schema.get("format", "int64"))
        case "number":
            return "float64"
        case "boolean":
            return "bool"
    return "bytes" if schema.get("format") == "byte" else "string"


def _ref(schema: Mapping[str, Any]) -> str:
    ref = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf", ()) if "$ref" in part), "")
    return str(ref).rpartition("/")[2]


def _refs(schema: Mapping[str, Any]) -> Iterator[str]:
    """The structs that a schema refers to."""
    for field in schema.get("properties", {}).values():
        inner = field
        while "items" in inner or isinstance(inner.get("additionalProperties"), Mapping):
            inner = inner.get("items") or inner["additionalProperties"]
        if name := _short(_ref(inner)):
            if name.startswith("schema-or"):
                yield _SCHEMA
            elif name not in _WORDS.values():
                yield name


def _written(table: Mapping[str, Any]) -> str:
    """One entry per line, so that diffs are easy to read."""
    lines = (f"{json.dumps(name)}:{_line(entry)}" for name, entry in table.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(entry: Any) -> str:
    return json.dumps(entry, separators=(",", ":"), sort_keys=True)


def main() -> None:
    for name, text in learn()._asdict().items():
        path = folder() / f"{name}.json"
        path.write_text(text)
        print(f"{path}: {len(text)} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
