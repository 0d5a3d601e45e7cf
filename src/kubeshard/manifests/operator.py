"""The objects of an operator, from what its manager declares."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from kubeshard.core.encoding import encode
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import KubeObject
from kubeshard.crd.declaring import declared
from kubeshard.crd.defining import definition
from kubeshard.manager.manager import Manager
from kubeshard.manager.roles import roles
from kubeshard.manager.servers import Converting
from kubeshard.manifests.network import UNVERIFIED, metrics_reader, network_policy, service_monitor
from kubeshard.manifests.pods import container, pod_spec, spread, system_namespace
from kubeshard.manifests.ring import ring_objects
from kubeshard.manifests.template import Chosen, Each, When, resolved
from kubeshard.manifests.values import COMPONENT_LABEL, OperatorRing, OperatorValues, plain
from kubeshard.monitoring.alerting import prometheus_rule
from kubeshard.monitoring.grafana import dashboards
from kubeshard.shard.sharding import Sharding
from kubeshard.sharding.names import APP_LABEL

Manifest = dict[str, Any]

LONGEST_OPERATOR = 63 - len("-metrics")
"""Characters of an operator's name: it begins that of a Service."""


def operator_objects(
    manager: Manager,
    target: str,
    name: str,
    values: OperatorValues,
    own_dashboards: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Manifest]:
    """`target` is the argument of `kubeshard run` in the image. `name` is the name of the objects, and of the namespace
    if the values have none. `own_dashboards`: dashboards besides the one that all operators have, by name.

    Custom resources are the classes marked with `CustomResource`. Raises ConfigurationError for several replicas of a
    manager without leader election or sharding.
    """
    replicas = _replicas(manager, values)
    chosen = {**plain(values), "replicas": replicas}
    namespace = chosen["namespace"] = values.namespace or name
    labels = {APP_LABEL: name, COMPONENT_LABEL: "operator"}
    made = _Operator(manager, target, name, namespace, labels)
    objects = [
        *([system_namespace(namespace, {APP_LABEL: name})] if values.create_namespace else ()),
        *definitions(manager, namespace),
        *made.rights(),
        *made.services(),
        made.deployment(alone=replicas == 1 and not manager.deployment_needs().takes_turns),
        *([made.budget()] if manager.deployment_needs().takes_turns else ()),
        *([network_policy(name, namespace, labels, made.open)] if values.network_policy.enabled else ()),
        *(made.monitoring() if values.service_monitor.enabled else ()),
        *(made.ring(values.ring) if values.ring.enabled else ()),
        *([made.alerts()] if values.prometheus_rule.enabled else ()),
        *(made.dashboards(own_dashboards or {}) if values.dashboards.enabled else ()),
    ]
    return [resolved(obj, chosen) for obj in objects]


def definitions(manager: Manager, namespace: str) -> Iterator[Manifest]:
    """The definitions of the custom resources that the manager's controllers watch and that are marked as the
    operator's own, with the conversion between their versions: until the operator has brought the certificate's
    authority, the API server refuses to convert, and loses nothing.
    """
    kinds: dict[Any, list[type[KubeObject]]] = {}
    needs = manager.deployment_needs()
    for controller in needs.controllers:
        for watch in controller.all_watches:
            cls = watch.form.type
            if cls.KIND.group_kind not in kinds and declared(cls):
                kinds[cls.KIND.group_kind] = list(_versions(cls))
    try:
        for made in [definition(*versions) for versions in kinds.values()]:
            yield converting(made, needs.conversions, namespace)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(str(error)) from error


def converting(made: Manifest, conversions: Mapping[str, Converting], namespace: str) -> Manifest:
    """The definition with its conversion, if there is a server for it."""
    server = conversions.get(made["metadata"]["name"])
    if server is None:
        return made
    part = server.converting(made["metadata"]["name"], namespace)
    metadata = {**made["metadata"], **part.get("metadata", {})}
    return {**made, "metadata": metadata, "spec": {**made["spec"], **part["spec"]}}


def _versions(cls: type[KubeObject]) -> Iterator[type[KubeObject]]:
    """The class, and the classes of its module that are other versions of the kind."""
    for found in vars(sys.modules[cls.__module__]).values():
        if isinstance(found, type) and issubclass(found, KubeObject) and declared(found):
            yield from [found] if found.KIND.group_kind == cls.KIND.group_kind else []


def _replicas(manager: Manager, values: OperatorValues) -> int:
    wanted = values.replicas or (2 if manager.deployment_needs().takes_turns else 1)
    if wanted > 1 and not manager.deployment_needs().takes_turns:
        raise ConfigurationError(
            f"value replicas: {wanted} replicas would all do the same work: give the Manager leader_election= or "
            "sharding=, or set replicas=1"
        )
    return wanted


class _Operator:
    def __init__(
        self, manager: Manager, target: str, name: str, namespace: str, labels: Mapping[str, str]
    ) -> None:
        self._manager = manager
        self._target = target
        self._name = name
        self._namespace = namespace
        self._labels = dict(labels)
        self._needs = needs = manager.deployment_needs()
        pages = {"health": needs.health, "metrics": needs.metrics}
        webhooks = {_webhook(number): port for number, (_, port, _) in enumerate(needs.services)}
        self.ports = {name: port for name, port in {**pages, **webhooks}.items() if port}

    @property
    def open(self) -> list[str]:
        """Ports that clients other than the kubelet use."""
        return [name for name in self.ports if name != "health"]

    def rights(self) -> Iterator[Manifest]:
        yield {**self._object("v1", "ServiceAccount"), "automountServiceAccountToken": False}
        account = (self._namespace, self._name)
        for manifest in roles(self._manager.grants(), self._name, namespace=self._namespace, account=account):
            yield {**manifest, "metadata": {**manifest["metadata"], "labels": self._labels}}

    def services(self) -> Iterator[Manifest]:
        """A Service for each webhook server and one for metrics."""
        for number, (service, _, namespace) in enumerate(self._needs.services):
            if namespace not in (None, self._namespace):
                raise ConfigurationError(
                    f"webhooks: the Service {service} would be called in namespace {namespace}, but the manifests are "
                    f"for {self._namespace}: leave out Webhooks(namespace=), which is then the pod's, or set the value "
                    f"namespace={namespace}"
                )
            yield self._service(service, [_service_port("webhook", 443, _webhook(number))])
        if "metrics" in self.ports:
            yield self._service(
                f"{self._name}-metrics", [_service_port("metrics", self._needs.metrics, "metrics")]
            )

    def deployment(self, *, alone: bool) -> Manifest:
        only = container("operator", ["run", self._target], ports=self.ports)
        return {
            **self._object("apps/v1", "Deployment"),
            "spec": {
                "replicas": Chosen("replicas"),
                **({"strategy": {"type": "Recreate"}} if alone else {}),
                "selector": {"matchLabels": self._labels},
                "template": {
                    "metadata": {"labels": self._labels},
                    "spec": {**pod_spec(self._name, only), "topologySpreadConstraints": spread(self._labels)},
                },
            },
        }

    def budget(self) -> Manifest:
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": self._labels}}
        return {**self._object("policy/v1", "PodDisruptionBudget"), "spec": spec}

    def monitoring(self) -> Iterator[Manifest]:
        if "metrics" not in self.ports:
            raise ConfigurationError("value serviceMonitor: the manager has no metrics_address")
        yield metrics_reader(f"{self._name}-metrics-reader", self._labels)
        tls = UNVERIFIED if self._needs.metrics_secure else None
        yield service_monitor(self._name, self._namespace, self._labels, tls)

    def ring(self, values: OperatorRing) -> Iterator[Manifest]:
        sharding = self._needs.sharding
        declared = sharding.declared_ring(self._needs.controllers) if isinstance(sharding, Sharding) else None
        if declared is None:
            raise ConfigurationError(
                "value ring: the manager declares none: give it sharding=Sharding(...), and the watches sharded=True"
            )
        found = json.loads(encode(declared))
        shards = [(self._namespace, self._name)] if values.policies else []
        yield from ring_objects(found, (values.sharder_namespace, values.sharder_name), shards=shards)

    def alerts(self) -> Manifest:
        found = prometheus_rule(self._namespace)
        labels = {**self._labels, "chosen": Each("prometheusRule.labels")}
        return {**found, "metadata": {**found["metadata"], "name": self._name, "labels": labels}}

    def dashboards(self, own: Mapping[str, Mapping[str, Any]]) -> Iterator[Manifest]:
        for name, made in {f"{self._name}-dashboard": dashboards()["operators"], **own}.items():
            found = self._object("v1", "ConfigMap", name)
            labels = {**self._labels, "grafana_dashboard": "1", "chosen": Each("dashboards.labels")}
            annotations = When("dashboards.annotations", Chosen("dashboards.annotations"))
            metadata = {**found["metadata"], "labels": labels, "annotations": annotations}
            text = json.dumps(made, indent=1, ensure_ascii=False)
            yield {**found, "metadata": metadata, "data": {f"{name}.json": f"{text}\n"}}

    def _service(self, name: str, ports: list[Manifest]) -> Manifest:
        spec = {"type": "ClusterIP", "selector": self._labels, "ports": ports}
        return {**self._object("v1", "Service", name), "spec": spec}

    def _object(self, api_version: str, kind: str, name: str = "") -> Manifest:
        metadata = {"name": name or self._name, "namespace": self._namespace, "labels": self._labels}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _webhook(number: int) -> str:
    """The name of a webhook server's container port."""
    return f"webhook-{number}" if number else "webhook"


def _service_port(name: str, port: int, target: str) -> Manifest:
    return {"name": name, "port": port, "protocol": "TCP", "targetPort": target}
