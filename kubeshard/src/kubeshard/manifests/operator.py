"""A description (`template`) of an operator's objects, from what its manager declares: what is printed, and what a
chart and a kustomization of the operator consist of.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kubeshard.core.encoding import encode
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import KubeObject
from kubeshard.crd.declaring import declared
from kubeshard.crd.defining import definition
from kubeshard.manager.manager import Manager
from kubeshard.manager.roles import roles
from kubeshard.manager.servers import Converting
from kubeshard.manifests.flow_schema import flow_schema
from kubeshard.manifests.image import image_of
from kubeshard.manifests.network import UNVERIFIED, metrics_reader, network_policy, service_monitor
from kubeshard.manifests.pods import container, pod_spec, spread, system_namespace
from kubeshard.manifests.ring import ring_objects
from kubeshard.manifests.sharder import with_common
from kubeshard.manifests.template import Chosen, Each, File, Item, Made, Named, Part, When, symbol, symbolic
from kubeshard.manifests.values import COMPONENT_LABEL, OperatorValues, plain
from kubeshard.monitoring.alerting import prometheus_rule
from kubeshard.monitoring.grafana import dashboards
from kubeshard.shard.sharding import Sharding
from kubeshard.sharding.names import APP_LABEL

Manifest = dict[str, Any]
Dashboards = Mapping[str, Mapping[str, Any]]

INSTANCE_LABEL = "app.kubernetes.io/instance"

OWN_LABELS = {APP_LABEL, INSTANCE_LABEL, COMPONENT_LABEL}

LONGEST_OPERATOR = 63 - len("-metrics")
"""Characters of an operator's name: it begins that of a Service."""

NAME, NAMESPACE, ACCOUNT, WATCHED, PROGRAM, INSTANCE = map(
    symbol, ("name", "namespace", "account", "item", "program", "instance")
)
"""Symbols of the name of the operator's objects, its namespace and service account, one of `watchNamespaces`, and two
labels, which are the name, too, where there is no Helm: what program it is, and which installation of it.
"""

SHARDER = symbol("sharderspace"), symbol("sharderaccount")


def operator_objects(
    manager: Manager,
    target: str,
    name: str,
    values: OperatorValues,
    own_dashboards: Dashboards | None = None,
) -> list[Manifest]:
    """`target` is the argument of `kubeshard run` in the image. `name` is the name of the objects, and of the namespace
    if the values have none. `own_dashboards`: dashboards besides the one that all operators have, by name.

    Custom resources are the classes marked with `CustomResource`. Raises ConfigurationError for several replicas of a
    manager without leader election or sharding.
    """
    parts, chosen = operator_parts(manager, target, name, values, own_dashboards)
    return [obj for part in parts for obj in part.resolved(chosen)]


def operator_parts(
    manager: Manager,
    target: str,
    name: str,
    values: OperatorValues,
    own_dashboards: Dashboards | None = None,
) -> tuple[list[Part], dict[str, Any]]:
    """The description of `operator_objects`, and the values with all defaults. A value that the manager can do nothing
    with has no part: a ring that it does not declare, for example. Raises like `operator_objects`.
    """
    needs = manager.deployment_needs()
    chosen = {**plain(values), "replicas": _replicas(needs.takes_turns, values)}
    account = values.service_account.name or name
    chosen |= {"name": name, "namespace": values.namespace or name, "account": account}
    for key, given in (("podLabels", values.pod_labels), ("commonLabels", values.common_labels)):
        if taken := set(given) & OWN_LABELS:
            raise ConfigurationError(f"value {key}: {min(taken)} is the operator's own; pods are found by it")
    made = _Operator(manager, target, name, chosen["namespace"])
    symbols: dict[str, Chosen | Named | Item] = {
        NAME: Named("name", '(include "operator.fullname" .)'),
        NAMESPACE: Named("namespace", ".Release.Namespace"),
        ACCOUNT: Named("account", '(include "operator.serviceAccountName" .)'),
        PROGRAM: Named("name", '(include "operator.name" .)'),
        INSTANCE: Named("name", ".Release.Name"),
        WATCHED: Item(),
        SHARDER[0]: Chosen("ring.sharderNamespace"),
        SHARDER[1]: Chosen("ring.sharderName"),
    }
    parts = [
        replace(part, objects=tuple(symbolic(with_common(_labelled(obj)), symbols) for obj in part.objects))
        for part in made.parts(own_dashboards or {})
        if part.objects
    ]
    _check(values, {part.switch for part in parts})
    return parts, chosen


def _check(values: OperatorValues, switches: Collection[str]) -> None:
    if values.ring.enabled and "ring.enabled" not in switches:
        raise ConfigurationError(
            "value ring: the manager declares none: give it sharding=Sharding(...), and the watches sharded=True"
        )
    if values.service_monitor.enabled and "serviceMonitor.enabled" not in switches:
        raise ConfigurationError("value serviceMonitor: the manager has no metrics_address")
    if values.flow_schema.enabled and "flowSchema.enabled" not in switches:
        raise ConfigurationError(
            "value flowSchema: the manager has no Lease: it has no leader_election= or sharding="
        )
    if values.watch_namespaces and "watchNamespaces" not in switches:
        raise ConfigurationError("value watchNamespaces: the program has created the manager's cache itself")


def definitions(manager: Manager, namespace: str) -> Iterator[Manifest]:
    """Of the operator's own kinds, with their conversion, which is refused until the authority is there."""
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


def _replicas(takes_turns: bool, values: OperatorValues) -> int:
    wanted = (2 if takes_turns else 1) if values.replicas is None else values.replicas
    if wanted > 1 and not takes_turns:
        raise ConfigurationError(
            f"value replicas: {wanted} replicas would all do the same work: give the Manager leader_election= or "
            "sharding=, or set replicas=1"
        )
    return wanted


class _Operator:
    """`name` and `chosen_namespace` are those that the values name; in objects, they are symbols."""

    def __init__(self, manager: Manager, target: str, name: str, chosen_namespace: str) -> None:
        self._manager = manager
        self._target = target
        self._name = name
        self._chosen_namespace = chosen_namespace
        self._labels = {APP_LABEL: PROGRAM, INSTANCE_LABEL: INSTANCE, COMPONENT_LABEL: "operator"}
        self._needs = needs = manager.deployment_needs()
        pages = {"health": needs.health, "metrics": needs.metrics}
        webhooks = {_webhook(number): port for number, (_, port, _) in enumerate(needs.services)}
        self._ports = {name: port for name, port in {**pages, **webhooks}.items() if port}

    def parts(self, own_dashboards: Dashboards) -> Iterator[Part]:
        """In the order in which they can be created. Some may be empty."""
        yield Part("namespace", (system_namespace(NAMESPACE, {APP_LABEL: PROGRAM}),), "createNamespace")
        yield Part("crds", tuple(definitions(self._manager, NAMESPACE)), "crds.enabled")
        yield Part("account", (self._account(),), "serviceAccount.create")
        everywhere = tuple(self._roles())
        confined = self._confined()
        if confined:
            yield Part("rights", everywhere, "watchNamespaces", is_on=False)
            here = tuple(each for each in confined if each["metadata"].get("namespace") != WATCHED)
            there = tuple(each for each in confined if each not in here)
            yield Part("rights-in-namespaces", here, "watchNamespaces")
            yield Part("rights-in-each-namespace", there, "watchNamespaces", each="watchNamespaces")
        else:
            yield Part("rights", everywhere)
        yield Part("operator", (*self._services(), self._deployment(bool(confined))))
        budget = (self._budget(),) if self._needs.takes_turns else ()
        yield Part("pod-disruption-budget", budget, "podDisruptionBudget.enabled")
        inward = [name for name in self._ports if name != "health"]  # by clients other than the kubelet
        policy = network_policy(NAME, NAMESPACE, self._labels, inward)
        yield Part("network-policy", (policy,), "networkPolicy.enabled")
        yield Part("service-monitor", tuple(self._monitoring()), "serviceMonitor.enabled")
        ring, policies = self._ring()
        yield Part("ring", ring, "ring.enabled")
        yield Part("ring-policies", policies, "ring.enabled", also="ring.policies")
        yield Part("prometheus-rule", (self._alerts(),), "prometheusRule.enabled")
        yield Part("dashboards", tuple(self._dashboards(own_dashboards)), "dashboards.enabled")
        schema = flow_schema(f"{NAME}-leases", NAMESPACE, ACCOUNT, self._labels)
        yield Part("flow-schema", (schema,) if self._needs.takes_turns else (), "flowSchema.enabled")

    def _account(self) -> Manifest:
        found = self._object("v1", "ServiceAccount", ACCOUNT)
        annotations = When("serviceAccount.annotations", Chosen("serviceAccount.annotations"))
        metadata = {**found["metadata"], "annotations": annotations}
        return {**found, "metadata": metadata, "automountServiceAccountToken": False}

    def _roles(self, namespaces: frozenset[str] | None = None) -> Iterator[Manifest]:
        grants, account = self._manager.grants(namespaces), (NAMESPACE, ACCOUNT)
        for manifest in roles(grants, NAME, namespace=NAMESPACE, account=account):
            yield {**manifest, "metadata": {**manifest["metadata"], "labels": self._labels}}

    def _confined(self) -> tuple[Manifest, ...]:
        """The roles for `watchNamespaces`; none if the program decides itself what it caches."""
        try:
            return tuple(self._roles(frozenset({WATCHED})))
        except ConfigurationError:
            return ()

    def _services(self) -> Iterator[Manifest]:
        """A Service for each webhook server and one for metrics."""
        for number, (service, _, namespace) in enumerate(self._needs.services):
            if namespace not in (None, self._chosen_namespace):
                raise ConfigurationError(
                    f"webhooks: the Service {service} would be called in namespace {namespace}, but the manifests are "
                    f"for {self._chosen_namespace}: leave out Webhooks(namespace=), which is then the pod's, or set "
                    f"the value namespace={namespace}"
                )
            yield self._service(service, [_service_port("webhook", 443, _webhook(number))])
        if "metrics" in self._ports:
            yield self._service(f"{NAME}-metrics", [_service_port("metrics", self._needs.metrics, "metrics")])

    def _deployment(self, confinable: bool) -> Manifest:
        alone = {} if self._needs.takes_turns else {"strategy": {"type": "Recreate"}}
        labels = {**self._labels, "pods": Each("podLabels")}
        annotations = When("podAnnotations", Chosen("podAnnotations"))
        return {
            **self._object("apps/v1", "Deployment"),
            "spec": {
                "replicas": Chosen("replicas"),
                **alone,
                "selector": {"matchLabels": self._labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": annotations},
                    "spec": self._pod(confinable),
                },
            },
        }

    def _pod(self, confinable: bool) -> Manifest:
        watched = {"name": "WATCH_NAMESPACE", "value": Made(_joined, "operator.namespaces")}
        environment = [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            *([When("watchNamespaces", watched)] if confinable else ()),
            Each("extraEnv"),
        ]
        only = container("operator", ["run", self._target], ports=self._ports, environment=environment)
        only |= {
            "image": Made(_image, "operator.image"),
            "imagePullPolicy": Chosen("imagePullPolicy"),
            "args": [*only["args"], Each("extraArgs")],
            "securityContext": Chosen("securityContext"),
            "volumeMounts": When("extraVolumeMounts", Chosen("extraVolumeMounts")),
        }
        optional = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets", "priorityClassName")
        return {
            **pod_spec(ACCOUNT, only),
            "securityContext": Chosen("podSecurityContext"),
            "topologySpreadConstraints": [
                Each("topologySpreadConstraints"),
                *(When("topologySpreadConstraints", each, is_on=False) for each in spread(self._labels)),
            ],
            "volumes": When("extraVolumes", Chosen("extraVolumes")),
            **{name: When(name, Chosen(name)) for name in optional},
        }

    def _budget(self) -> Manifest:
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": self._labels}}
        return {**self._object("policy/v1", "PodDisruptionBudget"), "spec": spec}

    def _monitoring(self) -> Iterator[Manifest]:
        if "metrics" in self._ports:
            yield metrics_reader(f"{NAME}-metrics-reader", self._labels)
            tls = UNVERIFIED if self._needs.metrics_secure else None
            yield service_monitor(NAME, NAMESPACE, self._labels, tls)

    def _ring(self) -> tuple[tuple[Manifest, ...], tuple[Manifest, ...]]:
        """The declared ring and the sharder's role for it, and the policies; nothing if none is declared."""
        sharding = self._needs.sharding
        declared = sharding.declared_ring(self._needs.controllers) if isinstance(sharding, Sharding) else None
        if declared is None:
            return (), ()
        found = json.loads(encode(declared))
        plain_ring, *rights = ring_objects(found, SHARDER)
        ring, *all_others = ring_objects(found, SHARDER, shards=[(NAMESPACE, ACCOUNT)])
        confined = When("ring.policies", ring["metadata"]["annotations"])
        ring = {**plain_ring, "metadata": {**plain_ring["metadata"], "annotations": confined}}
        return (ring, *rights), tuple(each for each in all_others if each not in rights)

    def _alerts(self) -> Manifest:
        found = prometheus_rule(NAMESPACE)
        labels = {**self._labels, "chosen": Each("prometheusRule.labels")}
        return {**found, "metadata": {**found["metadata"], "name": NAME, "labels": labels}}

    def _dashboards(self, own: Dashboards) -> Iterator[Manifest]:
        for name, made in {f"{self._name}-dashboard": dashboards()["operators"], **own}.items():
            own_name = f"{NAME}{name.removeprefix(self._name)}" if name.startswith(self._name) else name
            found = self._object("v1", "ConfigMap", own_name)
            labels = {**self._labels, "grafana_dashboard": "1", "chosen": Each("dashboards.labels")}
            annotations = When("dashboards.annotations", Chosen("dashboards.annotations"))
            metadata = {**found["metadata"], "labels": labels, "annotations": annotations}
            text = json.dumps(made, indent=1, ensure_ascii=False)
            file = File(f"dashboards/{name}.json", f"{text}\n")
            yield {**found, "metadata": metadata, "data": {f"{name}.json": file}}

    def _service(self, name: str, ports: list[Manifest]) -> Manifest:
        spec = {"type": "ClusterIP", "selector": self._labels, "ports": ports}
        return {**self._object("v1", "Service", name), "spec": spec}

    def _object(self, api_version: str, kind: str, name: str = "") -> Manifest:
        metadata = {"name": name or NAME, "namespace": NAMESPACE, "labels": self._labels}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _labelled(obj: Manifest) -> Manifest:
    """Also a definition or a ring tells whose it is, unless it already has such a label."""
    labels = {APP_LABEL: PROGRAM, **obj["metadata"].get("labels", {})}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


def _image(values: Mapping[str, Any]) -> str:
    return image_of(values["image"], values["about"]["version"])


def _joined(values: Mapping[str, Any]) -> str:
    return ",".join(values["watchNamespaces"])


def _webhook(number: int) -> str:
    """The name of a webhook server's container port."""
    return f"webhook-{number}" if number else "webhook"


def _service_port(name: str, port: int, target: str) -> Manifest:
    return {"name": name, "port": port, "protocol": "TCP", "targetPort": target}
