"""The manifests that register webhooks with the API server. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import KUBE_SYSTEM, NAMESPACE_NAME_LABEL
from kubeshard.webhook.conversion import Conversion
from kubeshard.webhook.typed import Admits, name_of, says_of

Manifest = dict[str, Any]

CONFIGURATIONS = {"validate": "ValidatingWebhookConfiguration", "default": "MutatingWebhookConfiguration"}
"""The kind of configuration by what a function does."""

_TIMEOUT = 10


@dataclass(frozen=True, slots=True)
class Address:
    """The address that the API server calls: a Service, or the `url` if there is one."""

    service: str = ""
    namespace: str = ""
    port: int = 443
    url: str = ""

    def client_config(self, path: str, ca_bundle: str) -> Manifest:
        bundle = {"caBundle": ca_bundle} if ca_bundle else {}
        if self.url:
            return {**bundle, "url": self.url.removesuffix("/") + path}
        service = {"namespace": self.namespace, "name": self.service, "path": path, "port": self.port}
        return {**bundle, "service": service}


def path_of(function: Any) -> str:
    """The path of a function that `validates` or `defaults`."""
    says = says_of(function)
    assert isinstance(says, Admits)
    return f"/{says.does}/{name_of(function)}"


def conversion_path(conversion: Conversion) -> str:
    """The path of a conversion. The API server refuses capital letters in the path of a Service."""
    return f"/convert/{conversion.kind}".lower()


def configuration(
    does: str,
    name: str,
    functions: Iterable[Any],
    address: Address,
    ca_bundle: str,
    metadata: Mapping[str, Any],
) -> Manifest:
    """The webhook configuration for the functions that do this."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": CONFIGURATIONS[does],
        "metadata": {"name": name, **metadata},
        "webhooks": [_webhook(function, address, ca_bundle) for function in functions],
    }


def conversion_stanza(conversion: Conversion, address: Address, ca_bundle: str) -> Manifest:
    """`spec.conversion` of a CustomResourceDefinition."""
    return {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": address.client_config(conversion_path(conversion), ca_bundle),
            "conversionReviewVersions": ["v1"],
        },
    }


def _webhook(function: Any, address: Address, ca_bundle: str) -> Manifest:
    says = says_of(function)
    assert isinstance(says, Admits)
    when, kind = says.when, says.target.KIND
    found: Manifest = {
        "name": f"{name_of(function)}.{kind.plural}.{kind.group or 'core'}",
        "clientConfig": address.client_config(path_of(function), ca_bundle),
        "rules": [_rule(kind, says.operations, when.get("subresource", ""))],
        "failurePolicy": when.get("failure_policy", "Fail"),
        "timeoutSeconds": when.get("timeout", _TIMEOUT),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    if "namespaces" in when:
        found["namespaceSelector"] = msgspec.to_builtins(when["namespaces"])
    elif found["failurePolicy"] == "Fail" and _is_kubernetes_own(kind):
        without = sorted({KUBE_SYSTEM, address.namespace} - {""})
        expression = {"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": without}
        found["namespaceSelector"] = {"matchExpressions": [expression]}
    if "objects" in when:
        found["objectSelector"] = msgspec.to_builtins(when["objects"])
    if when.get("conditions"):
        conditions = when["conditions"]
        found["matchConditions"] = [{"name": name, "expression": conditions[name]} for name in conditions]
    return found


def _is_kubernetes_own(kind: Kind) -> bool:
    """Whether pods may need objects of the kind to begin, as they need Secrets and ReplicaSets. While nobody serves a
    webhook with the policy `Fail`, its own pods must be able to, and what runs nodes.
    """
    return "." not in kind.group or kind.group.endswith(".k8s.io")


def _rule(kind: Kind, operations: Sequence[str], subresource: str) -> Manifest:
    return {
        "operations": list(operations),
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "resources": [f"{kind.plural}/{subresource}" if subresource else kind.plural],
        "scope": "Namespaced" if kind.namespaced else "Cluster",
    }
