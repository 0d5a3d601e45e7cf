"""What a program consists of in a cluster: its account, its pods, and what protects and observes them, described for
values (`template`). Pods are for the Pod Security level *restricted*: without privileges, with a read-only root file
system.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeshard.core.builtin import Lease
from kubeshard.manifests.template import Chosen, Each, File, When
from kubeshard.monitoring.alerting import rules

Manifest = dict[str, Any]

PROGRAM = "kubeshard"

API_SERVER_PORTS = (443, 6443, 8443, 16443)
"""Ports of API servers: behind Services, and those of kubeadm and similar tools, minikube, and microk8s."""

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path
_CONTROL_PLANE = "networkPolicy.controlPlane"

POD_NAMESPACE = {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
"""The environment variable by which a pod knows its namespace."""

UNVERIFIED: Manifest = {"insecureSkipVerify": True}
"""TLS settings for a process with an unverifiable certificate."""

PRECEDENCE = 900
"""Before the schema of service accounts (9000), and after those of the control plane's own elections (100, 200)."""
LEVEL = "leader-election"
"""A priority level that every API server creates."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`name` is that of its objects, unless they have others; `labels` are on all of them, and find its pods."""

    name: str
    namespace: str
    account: str
    labels: Mapping[str, Any]

    def object(self, api_version: str, kind: str, name: str = "", **rest: Any) -> Manifest:
        metadata = {"name": name or self.name, "namespace": self.namespace, "labels": self.labels}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}

    def service_account(self) -> Manifest:
        found = self.object("v1", "ServiceAccount", self.account, automountServiceAccountToken=False)
        found["metadata"]["annotations"] = When(
            "serviceAccount.annotations", Chosen("serviceAccount.annotations")
        )
        return found

    def service(self, name: str, *ports: tuple[str, Any, str]) -> Manifest:
        """`ports`: the name of each, its number, and the name of the container's."""
        made = [
            {"name": each, "port": port, "protocol": "TCP", "targetPort": target}
            for each, port, target in ports
        ]
        return self.object(
            "v1", "Service", name, spec={"type": "ClusterIP", "selector": self.labels, "ports": made}
        )

    def deployment(self, pod: Manifest, annotations: Any, **spec: Any) -> Manifest:
        metadata = {"labels": {**self.labels, "pods": Each("podLabels")}, "annotations": annotations}
        return self.object(
            "apps/v1",
            "Deployment",
            spec={
                "replicas": Chosen("replicas"),
                **spec,
                "selector": {"matchLabels": self.labels},
                "template": {"metadata": metadata, "spec": pod},
            },
        )

    def budget(self) -> Manifest:
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": self.labels}}
        return self.object("policy/v1", "PodDisruptionBudget", spec=spec)

    def network_policy(self, inward: Iterable[str]) -> Manifest:
        """Ingress to these ports only (webhooks: if known, from API servers only); egress to DNS and API servers."""
        servers = {"from": When(_CONTROL_PLANE, Chosen(_CONTROL_PLANE))}
        outward = [("UDP", 53), ("TCP", 53), *(("TCP", port) for port in API_SERVER_PORTS)]
        spec = {
            "podSelector": {"matchLabels": self.labels},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {
                    "ports": [{"protocol": "TCP", "port": port}],
                    **({} if port == "metrics" else servers),
                }
                for port in inward
            ],
            "egress": [{"ports": [{"protocol": protocol, "port": port} for protocol, port in outward]}],
        }
        return self.object("networking.k8s.io/v1", "NetworkPolicy", spec=spec)

    def metrics_reader(self, name: str) -> Manifest:
        """The role for who scrapes its metrics."""
        return {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": self.labels},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        }

    def service_monitor(self, tls: Manifest | None) -> Manifest:
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
            "selector": {"matchLabels": self.labels},
            "endpoints": [endpoint],
        }
        return self._labelled("serviceMonitor", self.object(f"{_MONITORING}/v1", "ServiceMonitor", spec=spec))

    def alerts(self) -> Manifest:
        return self._labelled(
            "prometheusRule", self.object(f"{_MONITORING}/v1", "PrometheusRule", spec=rules())
        )

    def dashboard(self, name: str, file: str, content: Mapping[str, Any]) -> Manifest:
        """A ConfigMap in the form that the sidecar of Grafana's chart looks for."""
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        found = self.object("v1", "ConfigMap", name, data={file: File(f"dashboards/{file}", text)})
        found["metadata"]["labels"] = {**self.labels, "grafana_dashboard": "1"}
        found["metadata"]["annotations"] = When("dashboards.annotations", Chosen("dashboards.annotations"))
        return self._labelled("dashboards", found)

    def flow_schema(self, name: str) -> Manifest:
        """Its requests about Leases have the priority of the control plane's own elections; each user has a queue.
        Needs Kubernetes 1.29 or newer.

        Without it, the renewals of shards queue with all other requests of service accounts when an API server is
        overloaded. If they wait for longer than a Lease lasts, the shards end, one ring after the other, at the worst
        time.
        """
        subject = {
            "kind": "ServiceAccount",
            "serviceAccount": {"namespace": self.namespace, "name": self.account},
        }
        requests = {
            "apiGroups": [Lease.KIND.group],
            "resources": [Lease.KIND.plural],
            "verbs": ["get", "create", "update", "patch"],
            "namespaces": ["*"],
        }
        return {
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "FlowSchema",
            "metadata": {"name": name, "labels": self.labels},
            "spec": {
                "priorityLevelConfiguration": {"name": LEVEL},
                "matchingPrecedence": PRECEDENCE,
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{"subjects": [subject], "resourceRules": [requests]}],
            },
        }

    def _labelled(self, switch: str, found: Manifest) -> Manifest:
        """With the labels by which whoever looks for it selects it."""
        labels = {**found["metadata"]["labels"], "chosen": Each(f"{switch}.labels")}
        return {**found, "metadata": {**found["metadata"], "labels": labels}}


_MONITORING = "monitoring.coreos.com"


def system_namespace(name: Any, labels: Mapping[str, str], level: Any = "restricted") -> Manifest:
    """A namespace that only admits such pods."""
    levels = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "audit", "warn")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {**labels, **levels}},
    }


def pod_spec(
    account: str,
    name: str,
    image: Any,
    arguments: Sequence[str],
    *,
    ports: Mapping[str, Any],
    environment: Sequence[Any] = (),
    mounts: Sequence[Any] = (),
    volumes: Sequence[Any] = (),
) -> Manifest:
    """A pod with one container of that name, which runs `kubeshard` with these arguments, and is probed at the port
    `health` if there is one.
    """
    probes = {
        f"{kind}Probe": {"httpGet": {"path": path, "port": "health"}, "tuned": Each(f"{kind}Probe")}
        for kind, path in (("liveness", "/healthz"), ("readiness", "/readyz"))
    }
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": Chosen("imagePullPolicy"),
        "command": [PROGRAM],
        "args": [
            *arguments,
            "--log-format=json",
            f"--log-level={Chosen('logLevel')}",
            Each("extraArgs"),
        ],
        "env": [*environment, Each("extraEnv")],
        "ports": [{"name": each, "containerPort": port, "protocol": "TCP"} for each, port in ports.items()],
        **(probes if "health" in ports else {}),
        "resources": Chosen("resources"),
        "securityContext": Chosen("securityContext"),
        "volumeMounts": _and_more(mounts, "extraVolumeMounts"),
    }
    optional = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets", "priorityClassName")
    return {
        "serviceAccountName": account,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 30,
        "securityContext": Chosen("podSecurityContext"),
        "containers": [container],
        "volumes": _and_more(volumes, "extraVolumes"),
        **{each: When(each, Chosen(each)) for each in optional},
    }


def _and_more(items: Sequence[Any], path: str) -> Any:
    return [*items, Each(path)] if items else When(path, Chosen(path))


def spread(labels: Mapping[str, str]) -> list[Manifest]:
    """Constraints that spread pods over nodes and zones where possible."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(labels)},
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]
