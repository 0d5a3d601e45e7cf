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
from kubeshard.manifests.image import image_of
from kubeshard.manifests.ring import ring_objects
from kubeshard.manifests.sharder import with_common
from kubeshard.manifests.template import Chosen, Each, Item, Made, Named, Part, When
from kubeshard.manifests.values import COMPONENT_LABEL, OperatorValues, plain
from kubeshard.manifests.workload import (
    POD_NAMESPACE,
    UNVERIFIED,
    Manifest,
    Workload,
    pod_spec,
    spread,
    system_namespace,
)
from kubeshard.monitoring.grafana import dashboards
from kubeshard.shard.sharding import Sharding
from kubeshard.sharding.names import APP_LABEL

Dashboards = Mapping[str, Mapping[str, Any]]

INSTANCE_LABEL = "app.kubernetes.io/instance"

OWN_LABELS = {APP_LABEL, INSTANCE_LABEL, COMPONENT_LABEL}

LONGEST_OPERATOR = 63 - len("-metrics")
"""Characters of an operator's name: it begins that of a Service."""

NAME = str(Named("name", '(include "operator.fullname" .)'))
NAMESPACE = str(Named("namespace", ".Release.Namespace"))
ACCOUNT = str(Named("account", '(include "operator.serviceAccountName" .)'))
WATCHED = str(Item())
"""One of `watchNamespaces`."""
PROGRAM = str(Named("name", '(include "operator.name" .)'))
INSTANCE = str(Named("name", ".Release.Name"))
"""Two labels, which are the name, too, where there is no Helm: what program it is, and which installation of it."""

_SHARDER = str(Chosen("ring.sharderNamespace")), str(Chosen("ring.sharderName"))


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
    parts = [
        replace(part, objects=tuple(with_common(_labelled(obj)) for obj in part.objects))
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
    """`name` and `chosen_namespace` are those that the values name; in objects, their marks stand for them."""

    def __init__(self, manager: Manager, target: str, name: str, chosen_namespace: str) -> None:
        self._manager = manager
        self._target = target
        self._name = name
        self._chosen_namespace = chosen_namespace
        labels = {APP_LABEL: PROGRAM, INSTANCE_LABEL: INSTANCE, COMPONENT_LABEL: "operator"}
        self._workload = Workload(NAME, NAMESPACE, ACCOUNT, labels)
        self._needs = needs = manager.deployment_needs()
        pages = {"health": needs.health, "metrics": needs.metrics}
        webhooks = {_webhook(number): port for number, (_, port, _) in enumerate(needs.services)}
        self._ports = {name: port for name, port in {**pages, **webhooks}.items() if port}

    def parts(self, own_dashboards: Dashboards) -> Iterator[Part]:
        """In the order in which they can be created. Some may be empty."""
        yield Part("namespace", (system_namespace(NAMESPACE, {APP_LABEL: PROGRAM}),), "createNamespace")
        yield Part("crds", tuple(definitions(self._manager, NAMESPACE)), "crds.enabled")
        yield Part("account", (self._workload.service_account(),), "serviceAccount.create")
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
        budget = (self._workload.budget(),) if self._needs.takes_turns else ()
        yield Part("pod-disruption-budget", budget, "podDisruptionBudget.enabled")
        inward = [name for name in self._ports if name != "health"]  # by clients other than the kubelet
        yield Part("network-policy", (self._workload.network_policy(inward),), "networkPolicy.enabled")
        yield Part("service-monitor", tuple(self._monitoring()), "serviceMonitor.enabled")
        ring, policies = self._ring()
        yield Part("ring", ring, "ring.enabled")
        yield Part("ring-policies", policies, "ring.enabled", also="ring.policies")
        yield Part("prometheus-rule", (self._workload.alerts(),), "prometheusRule.enabled")
        yield Part("dashboards", tuple(self._dashboards(own_dashboards)), "dashboards.enabled")
        schema = self._workload.flow_schema(f"{NAME}-leases")
        yield Part("flow-schema", (schema,) if self._needs.takes_turns else (), "flowSchema.enabled")

    def _roles(self, namespaces: frozenset[str] | None = None) -> Iterator[Manifest]:
        grants, account = self._manager.grants(namespaces), (NAMESPACE, ACCOUNT)
        for manifest in roles(grants, NAME, namespace=NAMESPACE, account=account):
            yield {**manifest, "metadata": {**manifest["metadata"], "labels": self._workload.labels}}

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
            yield self._workload.service(service, ("webhook", 443, _webhook(number)))
        if "metrics" in self._ports:
            yield self._workload.service(f"{NAME}-metrics", ("metrics", self._needs.metrics, "metrics"))

    def _deployment(self, confinable: bool) -> Manifest:
        alone = {} if self._needs.takes_turns else {"strategy": {"type": "Recreate"}}
        annotations = When("podAnnotations", Chosen("podAnnotations"))
        return self._workload.deployment(self._pod(confinable), annotations, **alone)

    def _pod(self, confinable: bool) -> Manifest:
        watched = {"name": "WATCH_NAMESPACE", "value": Made(_joined, "operator.namespaces")}
        found = pod_spec(
            ACCOUNT,
            "operator",
            Made(_image, "operator.image"),
            ["run", self._target],
            ports=self._ports,
            environment=[POD_NAMESPACE, *([When("watchNamespaces", watched)] if confinable else ())],
        )
        constraints = "topologySpreadConstraints"
        usual = (When(constraints, each, is_on=False) for each in spread(self._workload.labels))
        return {**found, constraints: [Each(constraints), *usual]}

    def _monitoring(self) -> Iterator[Manifest]:
        if "metrics" in self._ports:
            yield self._workload.metrics_reader(f"{NAME}-metrics-reader")
            yield self._workload.service_monitor(UNVERIFIED if self._needs.metrics_secure else None)

    def _ring(self) -> tuple[tuple[Manifest, ...], tuple[Manifest, ...]]:
        """The declared ring and the sharder's role for it, and the policies; nothing if none is declared."""
        sharding = self._needs.sharding
        declared = sharding.declared_ring(self._needs.controllers) if isinstance(sharding, Sharding) else None
        if declared is None:
            return (), ()
        found = json.loads(encode(declared))
        plain_ring, *rights = ring_objects(found, _SHARDER)
        ring, *all_others = ring_objects(found, _SHARDER, shards=[(NAMESPACE, ACCOUNT)])
        confined = When("ring.policies", ring["metadata"]["annotations"])
        ring = {**plain_ring, "metadata": {**plain_ring["metadata"], "annotations": confined}}
        return (ring, *rights), tuple(each for each in all_others if each not in rights)

    def _dashboards(self, own: Dashboards) -> Iterator[Manifest]:
        for name, made in {f"{self._name}-dashboard": dashboards()["operators"], **own}.items():
            own_name = f"{NAME}{name.removeprefix(self._name)}" if name.startswith(self._name) else name
            yield self._workload.dashboard(own_name, f"{name}.json", made)


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
