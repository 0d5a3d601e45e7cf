"""Network policies of pods, and what scrapes their metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeshard.manifests.template import Chosen, Each, When

Manifest = dict[str, Any]

API_SERVER_PORTS = (443, 6443, 8443, 16443)
"""Ports of API servers: behind Services, and those of kubeadm and similar tools, minikube, and microk8s."""

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path
_CONTROL_PLANE = "networkPolicy.controlPlane"


def network_policy(
    name: str, namespace: Any, labels: Mapping[str, str], inward: Iterable[str | int]
) -> Manifest:
    """Ingress to these ports only (webhooks: if known, from API servers only); egress to DNS and API servers."""
    servers = {"from": When(_CONTROL_PLANE, Chosen(_CONTROL_PLANE))}
    ingress = [{"ports": [_port("TCP", port)], **({} if port == "metrics" else servers)} for port in inward]
    dns = [_port("UDP", 53), _port("TCP", 53)]
    spec = {
        "podSelector": {"matchLabels": dict(labels)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
        "egress": [{"ports": [*dns, *(_port("TCP", port) for port in API_SERVER_PORTS)]}],
    }
    return {**_object("networking.k8s.io/v1", "NetworkPolicy", name, labels, namespace), "spec": spec}


def metrics_reader(name: str, labels: Mapping[str, str]) -> Manifest:
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    return {**_object("rbac.authorization.k8s.io/v1", "ClusterRole", name, labels), "rules": rules}


UNVERIFIED: Manifest = {"insecureSkipVerify": True}
"""TLS settings for a process with an unverifiable certificate."""


def verified(secret: Any, server_name: Any) -> Manifest:
    """TLS to a server of that name, whose certificate authority is in a Secret of the same namespace."""
    return {"ca": {"secret": {"name": secret, "key": "ca.crt"}}, "serverName": server_name}


def service_monitor(name: str, namespace: Any, labels: Mapping[str, str], tls: Manifest | None) -> Manifest:
    """A ServiceMonitor for the Prometheus operator, with what the value `serviceMonitor` says. The pods' labels
    `label.prometheus.io/*` become labels of their series. `tls` means HTTPS with the scraper's token.
    """
    access = {"scheme": "https", "bearerTokenFile": TOKEN, "tlsConfig": tls}
    endpoint = {
        "path": "/metrics",
        "port": "metrics",
        **(access if tls else {}),
        "honorLabels": True,
        **{each: Chosen(f"serviceMonitor.{each}") for each in ("interval", "scrapeTimeout")},
        "relabelings": [
            {
                "action": "labelmap",
                "regex": "__meta_kubernetes_pod_label_label_prometheus_io_(.*)",
                "replacement": "${1}",
            }
        ],
    }
    spec = {
        "jobLabel": "app.kubernetes.io/component",
        "selector": {"matchLabels": dict(labels)},
        "endpoints": [endpoint],
    }
    found = _object("monitoring.coreos.com/v1", "ServiceMonitor", name, labels, namespace)
    metadata = {**found["metadata"], "labels": {**labels, "chosen": Each("serviceMonitor.labels")}}
    return {**found, "metadata": metadata, "spec": spec}


def _port(protocol: str, port: str | int) -> Manifest:
    return {"protocol": protocol, "port": port}


def _object(
    api_version: str, kind: str, name: str, labels: Mapping[str, str], namespace: Any = None
) -> Manifest:
    place = {} if namespace is None else {"namespace": namespace}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, **place, "labels": dict(labels)},
    }
