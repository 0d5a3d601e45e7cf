"""Writes `kubeshard.kinds` from the descriptions of a real kube-apiserver: `make types`.

One module per API group and version (several for `core/v1`) has the classes of the group's definitions and imports
those of other groups. The four kinds that kubeshard itself uses are in `kubeshard.core.builtin`, and not written again.
The result is the same for the same release; a test compares it with a control plane.

The first sentence of each description is kept. They are those of the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

import asyncio
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from kubeshard.core.kinds import Kind
from kubeshard.crd.codegen import Described, Imports, ModuleWriter, reference
from kubeshard.crd.manifests import described, schemas_in
from kubeshard.crd.schema import Schema
from kubeshard_apiserver.testing.control_plane import ControlPlane
from learning.asking import Asker, asking

PACKAGE = "kubeshard.kinds.generated"
AS_MODULES: Imports = {
    "kubeshard.core.conditions": ("Condition",),
    "kubeshard.core.objects": ("KubeObject", "ObjectMeta", "Struct", "field"),
    "kubeshard.core.selectors": ("LabelSelector", "LabelSelectorRequirement"),
}
BY_HAND = {
    "core.v1": ("ConfigMap", "Namespace", "NamespaceCondition", "NamespaceSpec", "NamespaceStatus", "Secret"),
    "coordination.v1": ("Lease", "LeaseSpec"),
}
"""What `kubeshard.core.builtin` has."""
PARTS = {
    "core_v1_references": (
        "EventSource", "LocalObjectReference", "NodeSelector", "ObjectReference", "Toleration",
        "TypedLocalObjectReference",
    ),
    "core_v1_pod_templates": ("PodTemplateSpec", "PersistentVolumeClaim"),
    "core_v1_pods": ("Pod", "PodTemplate", "ReplicationController"),
    "core_v1_volumes": ("PersistentVolume",),
    "core_v1_nodes": ("Node",),
}  # fmt: skip
"""Parts of `core/v1`, which is as large as all others together, by what they begin with: a Deployment does not need the
status of pods, and a Service needs no pods. Each has what those before it have not.
"""
CHOSEN = {
    "EndpointPort": "discovery_v1",
    "Event": "events_v1",
    "EventSeries": "events_v1",
    "ResourceClaim": "resource_v1",
    "ServiceReference": "admissionregistration_v1",
    "Subject": "rbac_v1",
    "WebhookClientConfig": "admissionregistration_v1",
}
"""The modules that are meant by names which several have. The others' are imported from their modules."""
_CORE = "io.k8s.api.core.v1."
_STABLE = re.compile(r"v\d+")


def learn() -> dict[str, str]:
    """The files of the package by name, from a control plane on this machine. Raises ControlPlaneFailed."""
    with ControlPlane() as kube:
        return asyncio.run(_learn(kube))


async def _learn(kube: ControlPlane) -> dict[str, str]:
    async with asking(kube) as ask:
        release = ".".join((await ask.get("/version"))["gitVersion"].removeprefix("v").split(".")[:2])
        found: list[Described] = []
        definitions: dict[str, Schema] = {}
        for version in await _versions(ask):
            path = f"apis/{version}" if "/" in version else f"api/{version}"
            document = await ask.get(f"/openapi/v3/{path}")
            definitions |= schemas_in(document)
            resources = (await ask.get(f"/{path}"))["resources"]
            found += [Described(kind, described(document, kind)) for kind in _kinds(version, resources)]
    return written(found, definitions, release)


async def _versions(ask: Asker) -> list[str]:
    """The newest stable version of every group, as `apps/v1`; a group in the core is `v1`."""
    newest = ["v1"]
    for group in (await ask.get("/apis"))["groups"]:
        stable = [each for each in group["versions"] if _STABLE.fullmatch(each["version"])]
        if stable:
            newest.append(max(stable, key=lambda each: int(each["version"][1:]))["groupVersion"])
    return newest


def _kinds(group_version: str, resources: Sequence[Mapping[str, Any]]) -> Iterator[Kind]:
    group, _, version = group_version.rpartition("/")
    for each in resources:
        if "/" not in each["name"]:
            yield Kind(group, version, each["kind"], each["name"], each["namespaced"])


def written(found: Sequence[Described], definitions: Mapping[str, Schema], release: str) -> dict[str, str]:
    """The files of the package by name."""
    homes = _homes([reference(each.schema) for each in found], definitions)
    classes: dict[str, list[str]] = {
        "kubeshard.core.selectors": ["LabelSelector", "LabelSelectorRequirement"]
    }
    texts: dict[str, str] = {}
    for module in sorted(set(homes.values())):
        here = [name for name, home in homes.items() if home == module]
        if not module.startswith(PACKAGE):
            classes[module] = [name.rpartition(".")[2] for name in here]
            continue
        writer = ModuleWriter(definitions, partial(_elsewhere, homes, module), AS_MODULES)
        writer.write([each for each in found if reference(each.schema) in here])
        for name in here:
            writer.refer(name)
        classes[module] = list(writer.classes)
        head = (
            f"Classes of {_group_version(found, here[0])} in Kubernetes {release}, written by `make types`. The "
            "descriptions are those of the Kubernetes authors (Apache License 2.0)."
        )
        texts[f"generated/{module.removeprefix(PACKAGE + '.')}.py"] = writer.text(head)
    return texts | _faces(classes)


def _homes(kinds: Sequence[str], definitions: Mapping[str, Schema]) -> dict[str, str]:
    """Of every definition, but for apimachinery's, which are written where kubeshard has no class."""
    used = sorted(name for name in _used(kinds, definitions) if ".apimachinery." not in name)
    homes = {f"{_CORE}{name}": "kubeshard.core.builtin" for name in BY_HAND["core.v1"]}
    homes |= {
        f"io.k8s.api.coordination.v1.{name}": "kubeshard.core.builtin" for name in BY_HAND["coordination.v1"]
    }
    for part, roots in PARTS.items():
        for name in sorted(_used([f"{_CORE}{root}" for root in roots], definitions)):
            if name.startswith(_CORE):
                homes.setdefault(name, f"{PACKAGE}.{part}")
    for name in used:
        group, version = name.split(".")[-3:-1]
        homes.setdefault(name, f"{PACKAGE}.{group}_{version}")
    return {name: homes[name] for name in used}


def _used(names: Sequence[str], definitions: Mapping[str, Schema]) -> set[str]:
    """The definitions that these refer to, at any depth, and themselves."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _references(definitions[name])
    return found


def _references(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    if name := reference(schema):
        yield name
    for inner in (
        *schema.get("properties", {}).values(),
        schema.get("items"),
        schema.get("additionalProperties"),
    ):
        yield from _references(inner)


def _elsewhere(homes: Mapping[str, str], module: str, definition: str) -> str:
    home = homes.get(definition, "")
    return home if home != module else ""


def _group_version(found: Sequence[Described], definition: str) -> str:
    """The API version of the kinds beside a definition. One that has no kinds here, but types that kinds of others use,
    is called as in the names of its definitions.
    """
    place = definition.rpartition(".")[0]
    beside = (each.kind.api_version for each in found if reference(each.schema).rpartition(".")[0] == place)
    return next(beside, ".".join(place.split(".")[-2:]))


def _faces(classes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """For the interpreter, and as a stub. Raises KeyError for a name of several modules."""
    places: dict[str, list[str]] = defaultdict(list)
    for module, names in classes.items():
        for name in names:
            places[name].append(module)
    shown: dict[str, list[str]] = defaultdict(list)
    for name, modules in sorted(places.items()):
        shown[modules[0] if len(modules) == 1 else f"{PACKAGE}.{CHOSEN[name]}"].append(name)
    return {"generated/homes.py": _table(shown), "__init__.pyi": _stub(shown)}


def _table(shown: Mapping[str, Sequence[str]]) -> str:
    lines = [
        '"""Where the names of `kubeshard.kinds` are. Written by `make types`."""',
        "",
        "from __future__ import annotations",
        "",
        "_MODULES = {",
        *(line for module, names in sorted(shown.items()) for line in _entry(module, names)),
        "}",
        "HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}",
        '"""The module of each name."""',
    ]
    return "\n".join(lines) + "\n"


def _entry(module: str, names: Sequence[str]) -> list[str]:
    text = textwrap.wrap(" ".join(names), 100)
    return [f'    "{module}": """', *(f"        {line}" for line in text), '    """,']


def _stub(shown: Mapping[str, Sequence[str]]) -> str:
    lines = ["# Written by `make types`.", "# ruff: noqa: I001"]
    for module, names in sorted(shown.items()):
        lines += [f"from {module} import (", *(f"    {name} as {name}," for name in names), ")"]
    groups = sorted(module.rpartition(".")[2] for module in shown if module[-1].isdigit())
    lines += [f"from {PACKAGE} import (", *(f"    {name} as {name}," for name in groups), ")"]
    return "\n".join(lines) + "\n"


def folder() -> Path:
    """The folder of the package."""
    return Path(str(files(PACKAGE))).parent


def main() -> None:
    for name, text in learn().items():
        (folder() / name).write_text(text)
        print(f"{folder() / name}: {len(text)} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
