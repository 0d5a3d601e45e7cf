"""The CustomResourceDefinition of a kind, from its class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

from kubeshard.core.kinds import Kind
from kubeshard.core.objects import KubeObject
from kubeshard.crd.declaring import Column, CustomResource, declared
from kubeshard.crd.schema import Schema, schema_of


def definition(*versions: type[KubeObject], conversion: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The manifest of a kind, from one class for each of its versions. `conversion` is the field of that name, as
    `Webhooks.conversion` returns it. Without it the API server only changes the apiVersion, and drops the fields that
    the other version lacks (`lost`).

    A class that declares `status` gets the `status` subresource. Raises TypeError for classes that no schema can
    describe (`kubeshard.crd.schema`), and ValueError for versions that do not belong together.
    """
    kinds = [_kind_of(cls) for cls in versions]
    stored = _stored(versions)
    kind, says = stored.KIND, _says(stored)
    for other in kinds:
        if other != kind._replace(version=other.version):
            raise ValueError(
                f"{other} and {kind} are not versions of one kind: plural and scope must be equal as well"
            )
    if len({other.version for other in kinds}) < len(kinds):
        raise ValueError(f"{kind.group_kind}: two classes have the same version")
    names: dict[str, Any] = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if says.short_names:
        names["shortNames"] = list(says.short_names)
    if says.categories:
        names["categories"] = list(says.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(kind.group_resource)},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            **({"conversion": dict(conversion)} if conversion else {}),
            "versions": [_version(cls, storage=cls is stored) for cls in versions],
        },
    }


def lost(definition: Mapping[str, Any]) -> Sequence[str]:
    """The fields that are lost where the API server converts objects by their apiVersion only, as in
    `.spec.color of v1, which v2 lacks`; empty if the definition has a conversion.
    """
    spec = definition["spec"]
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        return ()
    fields = {
        version["name"]: set(_paths(version["schema"]["openAPIV3Schema"], "")) for version in spec["versions"]
    }
    return [
        f"{path} of {one}, which {other} lacks"
        for one, other in permutations(fields, 2)
        for path in sorted(fields[one] - fields[other])
        if path.rpartition(".")[0] in {"", *fields[other]}
    ]


def _paths(schema: Schema, path: str) -> Iterator[str]:
    """The fields of a schema; those of a list's items and a map's values are written like those of an object."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from _paths(field, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), dict):
            yield from _paths(inner, path)


def _kind_of(cls: type[KubeObject]) -> Kind:
    kind: Kind | None = getattr(cls, "KIND", None)
    if kind is None:
        raise TypeError(f"{cls.__name__} is not a kind: class {cls.__name__}(KubeObject, version=...)")
    if "." not in kind.group:
        raise ValueError(f"{kind} is not a custom resource: its group needs a dot, as in apps.example.com")
    return kind


def _says(cls: type[KubeObject]) -> CustomResource:
    return declared(cls) or CustomResource()


def _stored(versions: tuple[type[KubeObject], ...]) -> type[KubeObject]:
    if len(versions) == 1:
        return versions[0]
    marked = [cls for cls in versions if _says(cls).storage]
    if len(marked) != 1:
        names = ", ".join(cls.__name__ for cls in (marked or versions))
        raise ValueError(
            f"objects are stored in one version: mark one of {names} with CustomResource(storage=True)"
        )
    return marked[0]


def _version(cls: type[KubeObject], *, storage: bool) -> dict[str, Any]:
    says, schema = _says(cls), schema_of(cls)
    subresources: dict[str, Any] = {"status": {}} if "status" in schema["properties"] else {}
    if says.scale is not None:
        subresources["scale"] = _scale(cls, schema)
    found: dict[str, Any] = {"name": cls.KIND.version, "served": says.served, "storage": storage}
    if says.deprecated:
        found |= {"deprecated": True, "deprecationWarning": says.deprecated}
    if subresources:
        found["subresources"] = subresources
    if says.columns:
        found["additionalPrinterColumns"] = [_column(cls, column, schema) for column in says.columns]
    if says.selectable:
        found["selectableFields"] = [{"jsonPath": _known(cls, path, schema)} for path in says.selectable]
    return {**found, "schema": {"openAPIV3Schema": schema}}


def _scale(cls: type[KubeObject], schema: Schema) -> dict[str, str]:
    scale = _says(cls).scale
    assert scale is not None
    paths = {
        "specReplicasPath": scale.replicas,
        "statusReplicasPath": scale.status_replicas,
        "labelSelectorPath": scale.selector,
    }
    return {name: _known(cls, path, schema) for name, path in paths.items() if path}


def _column(cls: type[KubeObject], column: Column, schema: Schema) -> dict[str, Any]:
    field = _field(cls, column.path, schema)
    type_ = column.type or _column_type(field)
    found: dict[str, Any] = {"name": column.name, "type": type_, "jsonPath": column.path}
    if description := column.description or field.get("description", ""):
        found["description"] = description
    if column.priority:
        found["priority"] = column.priority
    return found


def _known(cls: type[KubeObject], path: str, schema: Schema) -> str:
    _field(cls, path, schema)
    return path


def _column_type(field: Schema) -> str:
    if field.get("format") in ("date", "date-time"):
        return "date"
    type_ = field.get("type")
    return type_ if type_ in ("integer", "number", "boolean") else "string"


_METADATA: Schema = {
    "type": "object",
    "properties": {
        "creationTimestamp": {"type": "string", "format": "date-time"},
        "deletionTimestamp": {"type": "string", "format": "date-time"},
        "generation": {"type": "integer"},
    },
    "additionalProperties": {},
}


def _field(cls: type[KubeObject], path: str, schema: Schema) -> Schema:
    """`{}` after a filter or an index, or where anything is allowed. Raises ValueError for an unknown field."""
    if not path.startswith("."):
        raise ValueError(f"{cls.__name__}: the path {path!r} must begin with a dot, as in .status.phase")
    found = schema
    for name in path[1:].split("."):
        if not name.replace("-", "").isalnum():
            return {}
        if found is schema and name == "metadata":
            found = _METADATA
        elif name in found.get("properties", {}):
            found = found["properties"][name]
        elif "additionalProperties" in found or found.get("x-kubernetes-preserve-unknown-fields"):
            return {}
        else:
            raise ValueError(f"{cls.__name__} has no field {path}: there is no {name!r}")
    return found
