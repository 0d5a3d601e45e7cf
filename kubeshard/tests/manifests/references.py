"""Finds names in rendered objects that name nothing: neither another of the objects, nor what is said to be there."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubeshard.manifests.ring import CLEANERS
from kubeshard.sharding.names import (
    DRAIN_LABEL_PREFIX,
    SHARD_LABEL_PREFIX,
    SHARD_NAMESPACES_ANNOTATION,
)

Object = Mapping[str, Any]
Place = tuple[str, str]
"""Namespace and name."""

_ACCOUNT = re.compile(r"system:serviceaccount:([^:\s'\"]+):([^:\s'\"\\]+)")
_PATTERN = re.compile(r"\^system:serviceaccount:\[\^:\]\+:([^$]+)\$")
"""Of any namespace, in an expression."""
_HOST = re.compile(r"\b([a-z0-9-]+)\.([a-z0-9-]+)\.svc\b")
_RING = re.compile(f"(?:{re.escape(SHARD_LABEL_PREFIX)}|{re.escape(DRAIN_LABEL_PREFIX)})([a-z0-9.-]+)")
_LEFT = re.compile(r"kubeshard-[a-z]+-chosen|%[vs]|<no value>|PLACE-\d")
"""What rendering should have replaced."""
BUILT_IN = {"leader-election"}
"""Priority levels of every API server."""
_CLEANERS = {("kube-system", name) for name in CLEANERS}


@dataclass(frozen=True, kw_only=True)
class Outside:
    """What is there besides the objects: accounts, namespaces, and Secrets and ConfigMaps by name."""

    accounts: Collection[Place] = ()
    namespaces: Collection[str] = ()
    mounted: Collection[str] = ()


def dangling(objects: Iterable[Object], outside: Outside) -> list[str]:
    """What names nothing, in words."""
    return sorted(set(_References([each for each in objects if each], outside).problems()))


class _References:
    def __init__(self, objects: list[Object], outside: Outside) -> None:
        self._objects = objects
        self._accounts = {*self._named("ServiceAccount"), *outside.accounts}
        self._services = self._named("Service")
        self._certificates = self._named("Certificate")
        self._rings = {name for _, name in self._named("ControllerRing")}
        self._namespaces = {name for _, name in self._named("Namespace")} | {*outside.namespaces}
        made = {each["spec"]["secretName"] for each in objects if each["kind"] == "Certificate"}
        maps = {name for kind in ("ConfigMap", "Secret") for _, name in self._named(kind)}
        self._mounted = {*outside.mounted, *made, *maps}
        self._pods = [
            (each["metadata"].get("namespace", ""), each["spec"]["template"])
            for each in objects
            if each["kind"] == "Deployment"
        ]

    def problems(self) -> Iterator[str]:
        for obj in self._objects:
            meta = obj["metadata"]
            for problem in (*self._texts(obj), *self._places(obj), *self._of_kind(obj)):
                yield f"{obj['kind']} {meta.get('namespace', '')}/{meta['name']}: {problem}"

    def _texts(self, obj: Object) -> Iterator[str]:
        for text in _strings(obj):
            yield from (f"{left} was not replaced" for left in _LEFT.findall(text))
            for namespace, name in _ACCOUNT.findall(text):
                known = self._accounts | _CLEANERS
                if namespace == "$(POD_NAMESPACE)":
                    known |= {(namespace, each) for _, each in self._accounts}
                if "[" not in namespace and (namespace, name) not in known:
                    yield f"no account {namespace}:{name}"
            for name in _PATTERN.findall(text):
                if name not in {each for _, each in self._accounts}:
                    yield f"no account of the name {name}"
            for name, namespace in _HOST.findall(text):
                if (namespace, name) not in self._services:
                    yield f"no Service {namespace}/{name}"
            if "bject" in text and self._rings:  # an expression
                yield from (f"no ring {name}" for name in _RING.findall(text) if name not in self._rings)

    def _places(self, obj: Object) -> Iterator[str]:
        meta = obj["metadata"]
        for namespace in (
            *filter(None, [meta.get("namespace")]),
            *filter(None, (meta.get("annotations") or {}).get(SHARD_NAMESPACES_ANNOTATION, "").split(",")),
        ):
            if namespace not in self._namespaces:
                yield f"no namespace {namespace}"
        for each in _mappings(obj):
            match each:
                case {"service": {"namespace": namespace, "name": name}}:
                    if (namespace, name) not in self._services:
                        yield f"no Service {namespace}/{name}"
                case {"cert-manager.io/inject-ca-from": str() as text}:
                    namespace, _, name = text.partition("/")
                    places = {"$(POD_NAMESPACE)"} if namespace.startswith("$") else set()
                    if not any(
                        name == known and namespace in {*places, place} for place, known in self._certificates
                    ):
                        yield f"no Certificate {text}"

    def _of_kind(self, obj: Object) -> Iterator[str]:
        namespace, spec = obj["metadata"].get("namespace", ""), obj.get("spec") or {}
        match obj["kind"]:
            case "RoleBinding" | "ClusterRoleBinding":
                for each in obj["subjects"]:
                    if (each["namespace"], each["name"]) not in self._accounts:
                        yield f"no account {each['namespace']}:{each['name']}"
                reference = obj["roleRef"]
                place = namespace if reference["kind"] == "Role" else ""
                if (place, reference["name"]) not in self._named(reference["kind"]):
                    yield f"no {reference['kind']} {reference['name']}"
            case "Deployment":
                yield from self._pod(namespace, spec)
            case "Service":
                yield from self._selects(namespace, spec["selector"])
                ports = {
                    port["name"]
                    for _, template in self._pods
                    for container in template["spec"]["containers"]
                    for port in container.get("ports", ())
                }
                yield from (
                    f"no port {each['targetPort']}"
                    for each in spec["ports"]
                    if each["targetPort"] not in ports
                )
            case "PodDisruptionBudget":
                yield from self._selects(namespace, spec["selector"]["matchLabels"])
            case "NetworkPolicy":
                yield from self._selects(namespace, spec["podSelector"]["matchLabels"])
            case "ServiceMonitor":
                labels = spec["selector"]["matchLabels"].items()
                services = [each for each in self._objects if each["kind"] == "Service"]
                if not any(labels <= each["metadata"]["labels"].items() for each in services):
                    yield "selects no Service"
                for each in spec["endpoints"]:
                    secret = ((each.get("tlsConfig") or {}).get("ca") or {}).get("secret", {}).get("name")
                    if secret and secret not in self._mounted:
                        yield f"no Secret {secret}"
            case "Certificate":
                issuer = spec["issuerRef"]
                kind = issuer.get("kind", "Issuer")
                if kind == "Issuer" and (namespace, issuer["name"]) not in self._named("Issuer"):
                    yield f"no Issuer {issuer['name']}"
            case "ValidatingAdmissionPolicyBinding":
                if ("", spec["policyName"]) not in self._named("ValidatingAdmissionPolicy"):
                    yield f"no policy {spec['policyName']}"
                parameter = (spec.get("paramRef") or {}).get("name")
                if parameter and parameter not in {each["metadata"]["name"] for each in self._objects}:
                    yield f"no parameter {parameter}"
            case "FlowSchema":
                level = spec["priorityLevelConfiguration"]["name"]
                if level not in BUILT_IN and ("", level) not in self._named("PriorityLevelConfiguration"):
                    yield f"no priority level {level}"
                for rule in spec["rules"]:
                    for subject in rule["subjects"]:
                        account = subject.get("serviceAccount")
                        if account and (account["namespace"], account["name"]) not in self._accounts:
                            yield f"no account {account['namespace']}:{account['name']}"

    def _pod(self, namespace: str, spec: Object) -> Iterator[str]:
        pod, labels = spec["template"]["spec"], spec["template"]["metadata"]["labels"]
        if (namespace, pod["serviceAccountName"]) not in self._accounts:
            yield f"no account {namespace}:{pod['serviceAccountName']}"
        if not spec["selector"]["matchLabels"].items() <= labels.items():
            yield "does not select its own pods"
        volumes = {each["name"] for each in pod.get("volumes", ())}
        for volume in pod.get("volumes", ()):
            named = [
                volume.get("configMap", {}).get("name"),
                volume.get("secret", {}).get("secretName"),
            ]
            yield from (f"no {each} to mount" for each in named if each and each not in self._mounted)
        for container in pod["containers"]:
            for mount in container.get("volumeMounts", ()):
                if mount["name"] not in volumes:
                    yield f"no volume {mount['name']}"

    def _selects(self, namespace: str, labels: Mapping[str, str]) -> Iterator[str]:
        if not any(
            place == namespace and labels.items() <= template["metadata"]["labels"].items()
            for place, template in self._pods
        ):
            yield "selects no pod"

    def _named(self, kind: str) -> set[Place]:
        return {
            (each["metadata"].get("namespace", ""), each["metadata"]["name"])
            for each in self._objects
            if each["kind"] == kind
        }


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Also those in a configuration, which is a text."""
    match value:
        case Mapping():
            yield value
            for each in value.values():
                yield from _mappings(each)
        case list():
            for each in value:
                yield from _mappings(each)
        case str() if value.startswith("{"):
            try:
                yield from _mappings(json.loads(value))
            except ValueError:
                return


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for key, each in value.items():
                yield key
                yield from _strings(each)
        case list():
            for each in value:
                yield from _strings(each)
