"""An operator's objects as a bundle for the Operator Lifecycle Manager (OLM), in the format registry+v1.

OLM itself creates the namespace, the service account with its roles, and the Deployment. It also makes the certificate
of webhooks and registers them, because it admits a ClusterServiceVersion only while they can be called; so the operator
runs with `--no-webhook-registration`. In which namespaces it works is decided by an OperatorGroup, whose namespaces OLM
writes to an annotation of the pods.

Guaranteed: rights, Deployment and definitions are those that `kubeshard manifests operator` prints, apart from what OLM
does. Not guaranteed: that OLM finds an order of versions; that is a matter of its catalog.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.yaml_output import as_yaml
from kubeshard.manager.declaration import DeploymentNeeds
from kubeshard.manager.manager import Manager
from kubeshard.manifests.image import image_of
from kubeshard.manifests.operator import WATCHED, Dashboards, operator_parts
from kubeshard.manifests.operator_files import GENERATED, Files
from kubeshard.manifests.template import Part
from kubeshard.manifests.values import About, OperatorValues, plain
from kubeshard.webhook.certificates import CertificateFiles

Manifest = dict[str, Any]

CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - where OLM mounts them
KUBERNETES = "1.28.0"

_PREFIX = "operators.operatorframework.io.bundle"
_TYPES = {
    "ValidatingWebhookConfiguration": "ValidatingAdmissionWebhook",
    "MutatingWebhookConfiguration": "MutatingAdmissionWebhook",
}
_DESCRIPTORS = {
    "boolean": "urn:alm:descriptor:com.tectonic.ui:booleanSwitch",
    "integer": "urn:alm:descriptor:com.tectonic.ui:number",
    "number": "urn:alm:descriptor:com.tectonic.ui:number",
    "string": "urn:alm:descriptor:com.tectonic.ui:text",
}


class Icon(NamedTuple):
    media_type: str
    data: bytes


def unsaid(about: About, icon: Icon | None) -> list[str]:
    """What catalogs show of an operator, and nobody has said."""
    fields = ("displayName", "description", "url", "provider", "maintainers", "keywords")
    given = plain(about)
    return [*(f"about.{each}" for each in fields if not given[each]), *([] if icon else ["--icon"])]


def operator_bundle(
    manager: Manager,
    target: str,
    name: str,
    values: OperatorValues,
    own_dashboards: Dashboards | None = None,
    icon: Icon | None = None,
) -> Files:
    """The manager registers no webhooks afterwards. Raises ConfigurationError, also for what OLM cannot do."""
    _check(values)
    if manager.has_webhooks:
        manager.only_serve_webhooks(
            CertificateFiles("tls.crt", "tls.key")
        )  # OLM has the rights, not the operator
    needs = manager.deployment_needs()
    parts, chosen = operator_parts(manager, target, name, values, own_dashboards)
    objects = {part.name: part.resolved({**chosen, "createNamespace": False}) for part in parts}
    definitions = [_bare(each) for each in objects.get("crds", [])]
    about = values.about
    webhooks = list(_webhooks(needs, name))
    account = values.service_account.name or name
    version = {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": _version_name(name, about.version),
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": json.dumps(list(_examples(definitions)), indent=2),
                "capabilities": "Basic Install",
                "containerImage": image_of(chosen["image"], about.version),
                **({"repository": about.url} if about.url else {}),
            },
        },
        "spec": {
            "displayName": about.display_name or name,
            "description": about.description or f"The operator {name}.",
            "version": about.version,
            "minKubeVersion": KUBERNETES,
            **_said(about, icon),
            "installModes": list(_modes(needs, parts)),
            "customresourcedefinitions": {"owned": [each for made in definitions for each in _owned(made)]},
            "install": {
                "strategy": "deployment",
                "spec": {
                    **_permissions(parts, chosen, account),
                    "deployments": [_deployment(objects["operator"], bool(webhooks), _confinable(parts))],
                },
            },
            **({"webhookdefinitions": webhooks} if webhooks else {}),
        },
    }
    files = {f"{name}.clusterserviceversion.yaml": version}
    files |= {f"{each['spec']['group']}_{each['spec']['names']['plural']}.yaml": each for each in definitions}
    files |= {_file(each): each for each in _beside(objects)}
    labels = _labels(name, about.channel)
    return {
        **{f"manifests/{path}": GENERATED + as_yaml(each) for path, each in files.items()},
        "metadata/annotations.yaml": GENERATED + as_yaml({"annotations": labels}),
        "bundle.Dockerfile": _containerfile(labels),
    }


def _version_name(name: str, version: str) -> str:
    """The name of the ClusterServiceVersion. Names have neither the `+` of build metadata nor capital letters."""
    return f"{name}.v{version.replace('+', '-').lower()}"


def _said(about: About, icon: Icon | None) -> Manifest:
    """What there is to say; a field that is empty would be shown as such."""
    picture = icon and {"mediatype": icon.media_type, "base64data": b64encode(icon.data).decode()}
    found = {
        "provider": about.provider and {"name": about.provider},
        "maintainers": [{"name": each.name, "email": each.email} for each in about.maintainers],
        "keywords": list(about.keywords),
        "links": about.url and [{"name": "Home", "url": about.url}],
        "icon": picture and [picture],
    }
    return {key: each for key, each in found.items() if each}


def _check(values: OperatorValues) -> None:
    for value, given, instead in (
        (
            "ring",
            values.ring.enabled,
            "apply the ring and its roles, as `kubeshard manifests ring` prints them",
        ),
        ("networkPolicy", values.network_policy.enabled, "apply it yourself"),
        ("watchNamespaces", values.watch_namespaces, "an OperatorGroup names the namespaces"),
    ):
        if given:
            raise ConfigurationError(f"value {value}: it cannot be part of an OLM bundle: {instead}")


def _confinable(parts: Iterable[Part]) -> bool:
    return any(part.switch == "watchNamespaces" for part in parts)


def _modes(needs: DeploymentNeeds, parts: Iterable[Part]) -> Iterator[Manifest]:
    """OLM allows conversions in all namespaces only, and a shard's objects may be in all."""
    some = _confinable(parts) and not needs.conversions and needs.sharding is None
    for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace"):
        yield {"type": mode, "supported": some}
    yield {"type": "AllNamespaces", "supported": True}


def _permissions(parts: Iterable[Part], chosen: Mapping[str, Any], account: str) -> Manifest:
    """Rights in the namespaces of an OperatorGroup, which are all if it names none; and those beyond namespaces."""
    parts = [part for part in parts if part.name.startswith("rights")]
    confined = {**chosen, "watchNamespaces": [WATCHED]} if _confinable(parts) else chosen
    rules: dict[str, list[Any]] = {"Role": [], "ClusterRole": []}
    for part in parts:
        for each in part.resolved(confined):
            if each["kind"] in rules:
                rules[each["kind"]] += each["rules"]
    found = {"permissions": rules["Role"], "clusterPermissions": rules["ClusterRole"]}
    return {key: [{"serviceAccountName": account, "rules": each}] for key, each in found.items() if each}


def _deployment(objects: Iterable[Manifest], webhooks: bool, confinable: bool) -> Manifest:
    found = next(each for each in objects if each["kind"] == "Deployment")
    pod = found["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    served = [f"--webhook-cert-dir={CERTIFICATES}", "--no-webhook-registration"] if webhooks else []
    place = {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}}
    watched = [{"name": "WATCH_NAMESPACE", "valueFrom": place}] if confinable else []
    only = {**only, "args": [*only["args"], *served], "env": [*only["env"], *watched]}
    template = {**found["spec"]["template"], "spec": {**pod, "containers": [only]}}
    return {
        "name": found["metadata"]["name"],
        "label": found["metadata"]["labels"],
        "spec": {**found["spec"], "template": template},
    }


def _webhooks(needs: DeploymentNeeds, name: str) -> Iterator[Manifest]:
    if len(needs.called) > 1:
        raise ConfigurationError("webhooks: OLM calls one port: give all functions to one Webhooks(...)")
    for server in needs.called:
        port = next((port for _, port, _ in needs.services), 0)
        place = {"deploymentName": name, "containerPort": 443, "targetPort": port}
        for manifest in server.manifests(namespace="placeholder"):
            for each in manifest["webhooks"]:
                yield {"type": _TYPES[manifest["kind"]], **place, **_webhook(each)}
    for definition, converting in needs.conversions.items():
        part = converting.converting(definition, "placeholder")
        yield {
            "type": "ConversionWebhook",
            **place,
            "generateName": f"convert.{definition}",
            "webhookPath": part["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["path"],
            "conversionCRDs": [definition],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }


def _webhook(found: Mapping[str, Any]) -> Manifest:
    if lost := found.keys() & {"namespaceSelector", "matchConditions"}:
        raise ConfigurationError(
            f"webhook {found['name']}: OLM has no {min(lost)}: decide in the function instead of by namespaces= or "
            "conditions="
        )
    kept = {key: each for key, each in found.items() if key not in ("name", "clientConfig")}
    return {"generateName": found["name"], "webhookPath": found["clientConfig"]["service"]["path"], **kept}


def _bare(definition: Manifest) -> Manifest:
    """The definition without what OLM adds, or other installers need."""
    metadata = {key: each for key, each in definition["metadata"].items() if key != "annotations"}
    spec = {key: each for key, each in definition["spec"].items() if key != "conversion"}
    return {**definition, "metadata": metadata, "spec": spec}


def _owned(definition: Manifest) -> Iterator[Manifest]:
    spec = definition["spec"]
    kind = spec["names"]["kind"]
    for version in spec["versions"]:
        if not version["served"]:
            continue
        schema = version["schema"]["openAPIV3Schema"]
        properties = schema.get("properties", {})
        yield {
            "name": definition["metadata"]["name"],
            "version": version["name"],
            "kind": kind,
            "displayName": _words(kind),
            "description": schema.get("description") or f"An object of the kind {kind}.",
            "specDescriptors": list(_descriptors(properties.get("spec", {}), _counted(version))),
            "statusDescriptors": list(_descriptors(properties.get("status", {}), "")),
        }


def _counted(version: Mapping[str, Any]) -> str:
    """The field that the subresource `scale` changes."""
    path = version.get("subresources", {}).get("scale", {}).get("specReplicasPath", "")
    return str(path).removeprefix(".spec.")


def _descriptors(schema: Mapping[str, Any], counted: str) -> Iterator[Manifest]:
    for name, found in schema.get("properties", {}).items():
        urn = _DESCRIPTORS.get(found.get("type", ""), "")
        if name == counted:
            urn = "urn:alm:descriptor:com.tectonic.ui:podCount"
        elif name == "conditions":
            urn = "urn:alm:descriptor:io.kubernetes.conditions"
        yield {
            "path": name,
            "displayName": _words(name),
            **({"description": found["description"]} if found.get("description") else {}),
            **({"x-descriptors": [urn]} if urn else {}),
        }


def _words(name: str) -> str:
    """`minReadySeconds` as `Min Ready Seconds`."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return text[:1].upper() + text[1:]


def _examples(definitions: Sequence[Manifest]) -> Iterator[Manifest]:
    """The least object of each kind, if the schema says what is in it."""
    for definition in definitions:
        spec = definition["spec"]
        for version in (each for each in spec["versions"] if each["served"]):
            example = _example(version["schema"]["openAPIV3Schema"])
            if example is not None:
                yield {
                    "apiVersion": f"{spec['group']}/{version['name']}",
                    "kind": spec["names"]["kind"],
                    "metadata": {"name": "example"},
                    **example,
                }


def _example(schema: Mapping[str, Any]) -> Any:
    """A value that the schema accepts; None if a pattern or a rule leaves that open."""
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    if "pattern" in schema or "x-kubernetes-validations" in schema:
        return None
    match schema.get("type"):
        case "object":
            fields = {name: _example(schema["properties"][name]) for name in schema.get("required", ())}
            return None if None in fields.values() else fields
        case "string":
            return "example"[: schema.get("maxLength", 7)].ljust(schema.get("minLength", 0), "e")
        case "integer" | "number":
            return schema.get("minimum", schema.get("maximum", 1))
        case "boolean":
            return False
        case "array":
            return [] if not schema.get("minItems") else None
        case _:
            return None


def _beside(objects: Mapping[str, Sequence[Manifest]]) -> Iterator[Manifest]:
    """The objects that a bundle contains as they are; OLM puts them into the operator's namespace."""
    for part, found in objects.items():
        if part in ("crds", "account", "namespace") or part.startswith("rights"):
            continue
        for each in found:
            webhook = each["kind"] == "Service" and each["spec"]["ports"][0]["name"] == "webhook"
            if each["kind"] != "Deployment" and not webhook:
                metadata = {key: value for key, value in each["metadata"].items() if key != "namespace"}
                yield {**each, "metadata": metadata}


def _file(obj: Manifest) -> str:
    return f"{obj['metadata']['name'].replace(':', '-')}_{obj['kind'].lower()}.yaml"


def _labels(name: str, channel: str) -> dict[str, str]:
    return {
        f"{_PREFIX}.mediatype.v1": "registry+v1",
        f"{_PREFIX}.manifests.v1": "manifests/",
        f"{_PREFIX}.metadata.v1": "metadata/",
        f"{_PREFIX}.package.v1": name,
        f"{_PREFIX}.channels.v1": channel,
        f"{_PREFIX}.channel.default.v1": channel,
    }


def _containerfile(labels: Mapping[str, str]) -> str:
    lines = [
        "FROM scratch",
        *(f"LABEL {key}={value}" for key, value in labels.items()),
        "COPY manifests /manifests/",
        "COPY metadata /metadata/",
    ]
    return GENERATED + "\n".join(lines) + "\n"
