"""`deploy/kustomize`: the sharder's objects for the default values, and a component for each switch.

    sharder/                      the default
    components/cert-manager/      what switching `certManager` on changes
    ...

Guaranteed: `sharder` is what `kubeshard manifests sharder` prints and, with components in the order of `COMPONENTS`,
what it prints with the corresponding values. The order matters because cert-manager's component changes what
service-monitor's adds. For values without a component, write your own patch or use `--set`.

The same holds in another namespace: `sharder` mentions its namespace only where kustomize's `namespace:` replaces it,
and components take it from the objects that they are applied to. kustomize applies components before `namespace:`, so
they belong into a kustomization above the one that sets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubeshard.core.patches import json_patch
from kubeshard.core.yaml_output import as_yaml, documents
from kubeshard.manifests.output import GENERATED
from kubeshard.manifests.sharder import NAME, parts, sharder_objects
from kubeshard.manifests.values import SharderValues, chosen, plain
from kubeshard.sharding.names import APP_LABEL, APP_NAME

SERVICE_MONITOR = "serviceMonitor.enabled=true"

COMPONENTS: Mapping[str, str] = {
    "network-policy": "networkPolicy.enabled=true",
    "pod-reports": "podReports.enabled=true",
    "service-monitor": SERVICE_MONITOR,
    "cert-manager": "certManager.enabled=true",
    "prometheus-rule": "prometheusRule.enabled=true",
    "dashboards": "dashboards.enabled=true",
    "flow-schema": "flowSchema.enabled=true",
    "without-policies": "policies.enabled=false",
    "without-namespace": "createNamespace=false",
}

HOST_NAMES: Mapping[str, str] = {
    "Certificate": "spec.dnsNames.*",
    "ServiceMonitor": "spec.endpoints.*.tlsConfig.serverName",
}
"""Fields, by kind, with names of the Service, whose second part is the namespace."""

Manifest = Mapping[str, Any]
Identity = tuple[str, str, str, str]


def kustomizations() -> Mapping[str, str]:
    """The text of each file, by its path in the folder."""
    files = dict(_base())
    for name, setting in COMPONENTS.items():
        # A patch of what is not there is none.
        beside = [SERVICE_MONITOR] if name == "cert-manager" else []
        before, wanted = (
            sharder_objects(chosen(SharderValues, None, settings))
            for settings in (beside, [*beside, setting])
        )
        files |= {f"components/{name}/{path}": text for path, text in component(before, wanted).items()}
    return files


def component(default: Iterable[Manifest], wanted: Iterable[Manifest]) -> Mapping[str, str]:
    """The files of a component that turns the default objects into the wanted ones."""
    before, after = _by_identity(default), _by_identity(wanted)
    patches = [
        _patch(identity, list(json_patch(obj, after[identity])))
        for identity, obj in before.items()
        if identity in after and obj != after[identity]
    ]
    patches += [_deletion(identity) for identity in before if identity not in after]
    added = [obj for identity, obj in after.items() if identity not in before]
    touched = [obj for identity, obj in after.items() if before.get(identity) != obj]
    replacements = [*_placed(added), *_named(touched)]
    body = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        **({"resources": ["added.yaml"]} if added else {}),
        **({"patches": patches} if patches else {}),
        **({"replacements": [{"source": _NAMESPACE, "targets": replacements}]} if replacements else {}),
    }
    files = {"kustomization.yaml": GENERATED + as_yaml(body)}
    return {**files, "added.yaml": GENERATED + documents(added)} if added else files


def _base() -> Iterable[tuple[str, str]]:
    values, names = plain(SharderValues()), []
    for part in parts():
        if not part.holds(values):
            continue
        names.append(f"{part.name}.yaml")
        yield f"sharder/{names[-1]}", GENERATED + documents(part.resolved(values))
    body = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": names}
    yield "sharder/kustomization.yaml", GENERATED + as_yaml(body)


def _by_identity(objects: Iterable[Manifest]) -> dict[Identity, Manifest]:
    return {identity(obj): obj for obj in objects}


def identity(obj: Manifest) -> Identity:
    """An object's API version, kind, namespace and name."""
    meta = obj["metadata"]
    return obj["apiVersion"], obj["kind"], meta.get("namespace", ""), meta["name"]


_NAMESPACE = {"version": "v1", "kind": "Service", "name": NAME, "fieldPath": "metadata.namespace"}
"""Where a component finds the namespace."""


def _target(wanted: Identity) -> Manifest:
    """Selects the object in any namespace; the Namespace itself by its label."""
    api_version, kind, _, name = wanted
    group, _, version = api_version.rpartition("/")
    target = {"group": group, "version": version, "kind": kind}
    named = {"labelSelector": f"{APP_LABEL}={APP_NAME}"} if kind == "Namespace" else {"name": name}
    return {key: value for key, value in (target | named).items() if value}


def _placed(objects: Iterable[Manifest]) -> Iterator[Manifest]:
    for obj in objects:
        if "namespace" in obj["metadata"]:
            yield {"select": _target(identity(obj)), "fieldPaths": ["metadata.namespace"]}


def _named(objects: Iterable[Manifest]) -> Iterator[Manifest]:
    for obj in objects:
        if path := HOST_NAMES.get(obj["kind"]):
            second = {"delimiter": ".", "index": 1}
            yield {"select": _target(identity(obj)), "fieldPaths": [path], "options": second}


def _patch(wanted: Identity, operations: list[Any]) -> Manifest:
    return {"target": _target(wanted), "patch": as_yaml(operations)}


def _deletion(wanted: Identity) -> Manifest:
    api_version, kind, _, name = wanted
    body = {"$patch": "delete", "apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
    return {"target": _target(wanted), "patch": as_yaml(body)}
