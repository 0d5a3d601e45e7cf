"""`kubeshard.kinds` on an API server: what the classes send is accepted and settles, and every object can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from test_ensure_kube import settles

from kubeshard import ALL, Client, Context, Controller, KubeObject, Manager, ObjectMeta, is_ready, kinds
from kubeshard.client import KindNotServed
from kubeshard.core import MergePatch

LABELS = {"app": "a"}
SELECTOR = kinds.LabelSelector(match_labels=LABELS)
PASSWORD = kinds.EnvVarSource(secret_key_ref=kinds.SecretKeySelector(name="a", key="password"))
CONTAINER = kinds.Container(
    name="main",
    image="app:1",
    ports=(kinds.ContainerPort(container_port=80),),
    env=(kinds.EnvVar(name="MODE", value="fast"), kinds.EnvVar(name="PASSWORD", value_from=PASSWORD)),
    resources=kinds.ResourceRequirements(requests={"cpu": "1000m"}, limits={"memory": "1024Mi"}),
)
POD = kinds.PodSpec(containers=(CONTAINER,), node_selector={"disk": "fast"})
TEMPLATE = kinds.PodTemplateSpec(metadata=ObjectMeta(labels=LABELS), spec=POD)
ONCE = msgspec.structs.replace(TEMPLATE, spec=msgspec.structs.replace(POD, restart_policy="Never"))
CLAIM = kinds.PersistentVolumeClaimSpec(
    access_modes=("ReadWriteOnce",), resources=kinds.VolumeResourceRequirements(requests={"storage": "1Gi"})
)
BACKEND = kinds.IngressBackend(
    service=kinds.IngressServiceBackend(name="a", port=kinds.ServiceBackendPort(number=80))
)
PATHS = kinds.HTTPIngressRuleValue(
    paths=(kinds.HTTPIngressPath(path="/", path_type="Prefix", backend=BACKEND),)
)

WANTED: Mapping[type[KubeObject], Mapping[str, Any]] = {
    kinds.ConfigMap: {"data": {"a": "b"}},
    kinds.Secret: {"data": {"password": "eA=="}, "type": "Opaque"},
    kinds.ServiceAccount: {"automount_service_account_token": False},
    kinds.Service: {
        "spec": kinds.ServiceSpec(selector=LABELS, ports=(kinds.ServicePort(port=80, target_port="http"),))
    },
    kinds.PersistentVolumeClaim: {"spec": CLAIM},
    kinds.LimitRange: {
        "spec": kinds.LimitRangeSpec(limits=(kinds.LimitRangeItem(type="Container", max={"cpu": "2"}),))
    },
    kinds.ResourceQuota: {"spec": kinds.ResourceQuotaSpec(hard={"pods": "10"})},
    kinds.Deployment: {"spec": kinds.DeploymentSpec(replicas=2, selector=SELECTOR, template=TEMPLATE)},
    kinds.DaemonSet: {"spec": kinds.DaemonSetSpec(selector=SELECTOR, template=TEMPLATE)},
    kinds.StatefulSet: {
        "spec": kinds.StatefulSetSpec(
            selector=SELECTOR,
            template=TEMPLATE,
            service_name="a",
            volume_claim_templates=(
                kinds.PersistentVolumeClaim(metadata=ObjectMeta(name="data"), spec=CLAIM),
            ),
        )
    },
    kinds.Job: {"spec": kinds.JobSpec(template=ONCE, backoff_limit=0)},
    kinds.CronJob: {
        "spec": kinds.CronJobSpec(
            schedule="@daily", job_template=kinds.JobTemplateSpec(spec=kinds.JobSpec(template=ONCE))
        )
    },
    kinds.Ingress: {"spec": kinds.IngressSpec(rules=(kinds.IngressRule(host="example.com", http=PATHS),))},
    kinds.NetworkPolicy: {
        "spec": kinds.NetworkPolicySpec(
            pod_selector=SELECTOR,
            ingress=(
                kinds.NetworkPolicyIngressRule(from_=(kinds.NetworkPolicyPeer(pod_selector=SELECTOR),)),
            ),
        )
    },
    kinds.PodDisruptionBudget: {
        "spec": kinds.PodDisruptionBudgetSpec(max_unavailable="50%", selector=SELECTOR)
    },
    kinds.HorizontalPodAutoscaler: {
        "spec": kinds.HorizontalPodAutoscalerSpec(
            max_replicas=3,
            scale_target_ref=kinds.CrossVersionObjectReference(
                api_version="apps/v1", kind="Deployment", name="a"
            ),
        )
    },
    kinds.Role: {"rules": (kinds.PolicyRule(verbs=("get",), api_groups=("",), resources=("pods",)),)},
    kinds.RoleBinding: {
        "role_ref": kinds.RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="a"),
        "subjects": (kinds.Subject(kind="ServiceAccount", name="a"),),
    },
    kinds.EndpointSlice: {
        "address_type": "IPv4",
        "endpoints": (kinds.Endpoint(addresses=("10.0.0.1",)),),
        "ports": (kinds.EndpointPort(port=80, protocol="TCP", name="http"),),
    },
    kinds.Lease: {"spec": kinds.LeaseSpec(holder_identity="a", lease_duration_seconds=10)},
}


@pytest.mark.parametrize("class_", WANTED, ids=lambda class_: class_.__name__)
async def test_what_is_wanted_is_sent_once(
    class_: type[KubeObject], kube_client: Client, namespace: str
) -> None:
    wanted = class_(metadata=ObjectMeta(name="a", namespace=namespace), **WANTED[class_])
    await settles(kube_client, wanted)
    read = await kube_client.get(class_, "a", namespace)
    assert is_ready(read).state in ("Current", "InProgress")


async def test_a_desired_set_of_all_of_them_settles_and_the_next_process_sends_nothing(
    kube_client: Client, namespace: str
) -> None:
    members = [
        class_(metadata=ObjectMeta(name="a", namespace=namespace), **fields)
        for class_, fields in WANTED.items()
        if class_ is not kinds.ServiceAccount
    ]
    reconciled = asyncio.Queue[None]()

    async def reconcile(ctx: Context, account: kinds.ServiceAccount) -> None:
        if account.metadata.namespace == namespace:
            await ctx.apply(*members)
            reconciled.put_nowait(None)

    async def written() -> list[str]:
        """What a process writes for the object."""
        writes: list[str] = []
        client = kube_client.on_write(lambda record: writes.append(str(record.kind)))
        controller = Controller(
            name="all",
            reconciler=reconcile,
            primary=kinds.ServiceAccount,
            applies=[type(each) for each in members],
        )
        manager = Manager([controller], client=client, status_pages=None)
        running = asyncio.create_task(manager.run())
        await asyncio.wait_for(reconciled.get(), 60)
        manager.stop()
        await running
        return writes

    await kube_client.create(kinds.ServiceAccount(metadata=ObjectMeta(name="owner", namespace=namespace)))
    assert {str(type(each).KIND) for each in members} <= set(await written())
    assert await written() == []


async def test_what_others_set_stays_when_a_field_is_changed(kube_client: Client, namespace: str) -> None:
    spec = kinds.DeploymentSpec(selector=SELECTOR, template=TEMPLATE)
    made = await kube_client.create(
        kinds.Deployment(metadata=ObjectMeta(name="a", namespace=namespace), spec=spec)
    )
    assert made.spec.replicas == 1  # the server's default
    await kube_client.patch(kinds.Deployment, "a", namespace, MergePatch({"spec": {"paused": True}}))
    changed = msgspec.structs.replace(made.spec, replicas=3)
    applied = await kube_client.apply(
        msgspec.structs.replace(made, metadata=ObjectMeta(name="a", namespace=namespace), spec=changed),
        field_manager="other",
        force=True,
    )
    assert (applied.spec.replicas, applied.spec.paused) == (3, True)


async def test_a_review_is_answered(kube_client: Client) -> None:
    asked = kinds.ResourceAttributes(verb="get", resource="pods", namespace="default")
    spec = kinds.SelfSubjectAccessReviewSpec(resource_attributes=asked)
    answer = await kube_client.create(kinds.SelfSubjectAccessReview(spec=spec))
    assert answer.status.allowed


async def test_every_object_that_a_server_has_can_be_read(kube_client: Client) -> None:
    read = []
    for name in kinds.__all__:
        class_ = getattr(kinds, name)
        if not issubclass(class_, KubeObject):
            continue
        try:
            kind = await kube_client.discovery.kind(class_.KIND.group, kind=class_.KIND.kind)
        except KindNotServed:  # the embedded server has no API for devices, for example
            continue
        assert (kind.plural, kind.namespaced) == (class_.KIND.plural, class_.KIND.namespaced)
        if not name.endswith(("Review", "Binding")) or name.startswith(("Role", "ClusterRole")):
            items = [item async for item in kube_client.list(class_, ALL)]
            read += items[:1]
    assert {"Namespace", "ClusterRole", "PriorityClass", "Service"} <= {type(each).__name__ for each in read}
