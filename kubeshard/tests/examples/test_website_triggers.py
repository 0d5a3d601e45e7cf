"""What triggers a reconcile of a Website, its metrics, manifests and configuration."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kubeshard import Client, Context, Manager, Result
from kubeshard.cache.deltas import Added, Deleted, Updated
from kubeshard.client import ClusterConfig
from kubeshard.core import ConfigurationError, Key, KubeObject, MergePatch, ObjectMeta
from kubeshard.manifests.operator import operator_objects
from kubeshard.manifests.values import OperatorValues, chosen
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import (
    OPERATOR,
    PHASES,
    Theme,
    ThemeSpec,
    Website,
    WebsiteSpec,
    WebsiteStatus,
)
from kubeshard_lab.examples.webhosting.config import load_settings
from kubeshard_lab.examples.webhosting.controller import (
    BY_THEME,
    WebsiteReconciler,
    website_controller,
    websites_using,
)
from kubeshard_lab.examples.webhosting.operator import StateMetrics, manager
from kubeshard_lab.examples.webhosting.workload import (
    Deployment,
    DeploymentCondition,
    DeploymentStatus,
    Ingress,
    ServerFiles,
    Service,
    is_ready,
)
from kubeshard_lab.virtual_time import virtual_time
from kubeshard_lab.virtual_world import SeededRng, virtual_world

CONTROLLER = website_controller()
META = ObjectMeta(name="a", namespace="ns", uid="1", generation=1, resource_version="1")
ROLLED_OUT = (
    DeploymentCondition(type="Available", status="True"),
    DeploymentCondition(type="Progressing", status="True", reason="NewReplicaSetAvailable"),
)


def watch(cls: type[KubeObject]) -> Any:
    return next(watch for watch in CONTROLLER.all_watches if watch.form.type is cls)


def triggers(old: KubeObject, **changes: Any) -> bool:
    meta = {
        name.removeprefix("meta_"): changes.pop(name) for name in list(changes) if name.startswith("meta_")
    }
    new = msgspec.structs.replace(
        old, metadata=msgspec.structs.replace(old.metadata, resource_version="2", **meta), **changes
    )
    return bool(watch(type(old)).when(Updated(old, new)))


def test_the_controller_is_called_website_and_has_fifteen_workers() -> None:
    assert (CONTROLLER.name, CONTROLLER.workers) == ("website", 15)


@pytest.mark.parametrize(
    ("changes", "triggered"),
    [
        ({"meta_generation": 2}, True),
        ({"meta_annotations": {"experiment-reconcile": "2026-01-01T00:00:00Z"}}, True),
        ({"status": WebsiteStatus(phase="Ready")}, True),
        ({"meta_labels": {"a": "b"}}, False),
    ],
)
def test_spec_annotations_and_status_of_a_website_count_labels_do_not(changes: Any, triggered: bool) -> None:
    assert triggers(Website(metadata=META), **changes) is triggered


def test_a_deployment_counts_when_its_generation_or_readiness_changes() -> None:
    ready = DeploymentStatus(observed_generation=1, conditions=ROLLED_OUT)
    deployment = Deployment(metadata=META)
    assert triggers(deployment, status=ready)
    assert triggers(deployment, meta_generation=2)
    assert not triggers(deployment, status=DeploymentStatus(observed_generation=1))


def test_a_config_map_counts_when_its_data_changes_others_by_generation() -> None:
    assert triggers(ServerFiles(metadata=META), data={"a": "b"})
    assert not triggers(ServerFiles(metadata=META), meta_labels={"a": "b"})
    for cls in (Service, Ingress):
        assert triggers(cls(metadata=META), meta_generation=2)
        assert not triggers(cls(metadata=META), meta_labels={"a": "b"})


@pytest.mark.parametrize("cls", [Website, Theme, Deployment, ServerFiles, Service, Ingress])
def test_what_comes_and_goes_always_counts(cls: type[KubeObject]) -> None:
    assert watch(cls).when(Added(cls(metadata=META), initial=False))
    assert watch(cls).when(Deleted(cls(metadata=META), final=True))


def test_a_theme_triggers_the_websites_that_use_it() -> None:
    class Reader:
        def list(self, target: object, namespace: object = None, *, index: object = None, **_: object) -> Any:
            assert (target, index) == (Website, (BY_THEME, "dark"))
            return [Website(metadata=META)]

    reader: Any = Reader()
    assert websites_using(reader, Theme(metadata=ObjectMeta(name="dark"))) == [Key("ns", "a")]
    (index,) = CONTROLLER.indexes
    assert list(index.function(Website(metadata=META, spec=WebsiteSpec(theme="dark")))) == ["dark"]


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        (DeploymentStatus(observed_generation=1, conditions=ROLLED_OUT), True),
        (DeploymentStatus(observed_generation=0, conditions=ROLLED_OUT), False),
        (DeploymentStatus(observed_generation=1, conditions=ROLLED_OUT[:1]), False),
        (DeploymentStatus(observed_generation=1, conditions=ROLLED_OUT[1:]), False),
        (
            DeploymentStatus(
                observed_generation=1,
                conditions=(
                    ROLLED_OUT[0],
                    msgspec.structs.replace(ROLLED_OUT[1], reason="ReplicaSetUpdated"),
                ),
            ),
            False,
        ),
    ],
)
def test_readiness_needs_the_generation_seen_availability_and_a_finished_rollout(
    status: DeploymentStatus, ready: bool
) -> None:
    assert is_ready(Deployment(metadata=META, status=status)) is ready


def test_metrics_have_the_references_names_and_labels() -> None:
    shard = {
        "shard.alpha.sharding.timebertt.dev/webhosting-operator": "shard-1",
        "drain.alpha.sharding.timebertt.dev/webhosting-operator": "true",
    }
    website = Website(
        metadata=msgspec.structs.replace(META, labels=shard, generation=3),
        spec=WebsiteSpec(theme="dark"),
        status=WebsiteStatus(observed_generation=2, phase="Ready"),
    )
    theme = Theme(
        metadata=ObjectMeta(name="dark", uid="2", generation=4),
        spec=ThemeSpec(color="black", font_family="Menlo"),
    )
    registry = CollectorRegistry()
    registry.register(StateMetrics(lambda: [website], lambda: [theme]))
    labels = {"namespace": "ns", "website": "a", "uid": "1"}
    value = registry.get_sample_value
    assert value("kube_website_info", {**labels, "theme": "dark"}) == 1
    assert value("kube_website_shard", {**labels, "shard": "shard-1", "drain": "true"}) == 1
    assert value("kube_website_metadata_generation", labels) == 3
    assert value("kube_website_observed_generation", labels) == 2
    assert {phase: value("kube_website_status_phase", {**labels, "phase": phase}) for phase in PHASES} == {
        "Pending": 0,
        "Ready": 1,
        "Error": 0,
        "Terminating": 0,
    }
    looks = {"theme": "dark", "uid": "2", "color": "black", "font_family": "Menlo"}
    assert value("kube_theme_info", looks) == 1
    assert value("kube_theme_metadata_generation", {"theme": "dark", "uid": "2"}) == 4


def test_without_a_file_the_operator_has_the_references_defaults() -> None:
    settings, unknown = load_settings(None, {})
    election = settings.config.leader_election.election(
        "webhosting-operator", settings.namespace, SeededRng(1)
    )
    assert election is not None
    assert (election.namespace, election.name) == ("webhosting-system", "webhosting-operator")
    assert (settings.workers, settings.sharding, unknown) == (15, None, ())
    assert (settings.config.metrics_address, settings.config.health_address) == (":8080", ":8081")


def test_the_file_tells_what_ingresses_have(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        """
apiVersion: config.webhosting.timebertt.dev/v1alpha1
kind: WebhostingOperatorConfig
ingress:
  annotations: {cert-manager.io/cluster-issuer: issuer}
  hosts: [webhosting.example.com]
  tls: [{hosts: [webhosting.example.com], secretName: tls}]
  tsl: []
"""
    )
    settings, unknown = load_settings(file, {})
    ingress = settings.config.ingress
    assert ingress.annotations == {"cert-manager.io/cluster-issuer": "issuer"}
    assert ingress.hosts == ("webhosting.example.com",)
    assert ingress.tls[0].secret_name == "tls"
    assert unknown == ("unknown field ingress.tsl (did you mean tls?)",)


def test_the_environment_configures_sharding_workers_and_election() -> None:
    environment = {
        "ENABLE_SHARDING": "true",
        "WEBSITE_CONCURRENT_SYNCS": "50",
        "SHARD_NAME": "one",
        "POD_NAME": "pod-1",
        "DISABLE_HTTP2": "true",
    }
    settings, _ = load_settings(None, environment)
    assert (settings.sharding, settings.workers, settings.shard_name) == ("shard", 50, "one")
    election = settings.config.leader_election.election("x", "y", SeededRng(1))
    assert election is not None
    assert election.identity.startswith("pod-1_")
    elected, _ = load_settings(None, {"LEADER_ELECT": "0"})
    assert elected.config.leader_election.election("x", "y", SeededRng(1)) is None


@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        ({"SHARDING_ENABLED": "true"}, "both"),
        ({"SHARDING_ENABLED": "true", "SHARD_MODE": "both"}, "both"),
        ({"SHARDING_ENABLED": "true", "SHARD_MODE": "shard"}, "shard"),
        ({"SHARDING_ENABLED": "true", "SHARD_MODE": "sharder"}, "sharder"),
        ({"SHARDING_ENABLED": "false", "SHARD_MODE": "sharder"}, None),
        ({"ENABLE_SHARDING": "true", "SHARD_MODE": "both"}, "both"),
    ],
)
def test_the_variables_of_the_first_generation_work(environment: dict[str, str], mode: str | None) -> None:
    settings, _ = load_settings(None, {**environment, "SHARD_ID": "one"})
    assert (settings.sharding, settings.shard_name) == (mode, "one")


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"ENABLE_SHARDING": "yes please"}, "ENABLE_SHARDING"),
        (
            {"SHARDING_ENABLED": "true", "SHARD_MODE": "leader"},
            "SHARD_MODE='leader': expected shard, sharder, both",
        ),
        ({"SHARDING_ENABLED": "true", "LEADER_ELECT": "false"}, "the shard's Lease"),
        ({"LEADER_ELECT": "2"}, "LEADER_ELECT"),
        ({"WEBSITE_CONCURRENT_SYNCS": "0"}, "WEBSITE_CONCURRENT_SYNCS"),
        ({"WEBSITE_CONCURRENT_SYNCS": "many"}, "WEBSITE_CONCURRENT_SYNCS"),
        ({"ENABLE_SHARDING": "true", "LEADER_ELECT": "false"}, "ENABLE_SHARDING needs the shard's Lease"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(environment: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        load_settings(None, environment)


def test_printed_columns_and_required_fields_are_the_references() -> None:
    theme, website = manifests.crds()
    (version,) = website["spec"]["versions"]
    assert [column["name"] for column in version["additionalPrinterColumns"]] == [
        "Theme",
        "Phase",
        "Since",
        "Age",
    ]
    assert version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] == ["theme"]
    (version,) = theme["spec"]["versions"]
    assert [column["name"] for column in version["additionalPrinterColumns"]] == [
        "Color",
        "Font Family",
        "Age",
    ]
    assert version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] == ["color", "fontFamily"]
    assert (theme["spec"]["scope"], website["spec"]["scope"]) == ("Cluster", "Namespaced")


def test_the_operator_may_write_leases_in_its_own_namespace_only() -> None:
    """D7 in docs/defects.md."""
    values = chosen(OperatorValues, None, ["image=a/b:c", "namespace=webhosting-system"])
    granting = [
        role
        for role in operator_objects(manager(), "a", OPERATOR, values)
        if any("leases" in rule["resources"] for rule in role.get("rules", ()))
    ]
    assert [(role["kind"], role["metadata"]["namespace"]) for role in granting] == [
        ("Role", "webhosting-system")
    ]


def test_the_samples_are_those_of_the_references_kustomization() -> None:
    assert [(sample["kind"], sample["metadata"]["name"]) for sample in manifests.samples()] == [
        ("Namespace", "project-foo"),
        ("Theme", "exciting"),
        ("Theme", "lame"),
        ("Website", "kubecon"),
        ("Website", "library"),
    ]


@virtual_time
async def test_a_website_is_reconciled_once_for_each_change_and_not_for_what_that_writes() -> None:
    runs: list[Key] = []

    class Noting(WebsiteReconciler):
        async def reconcile(self, ctx: Context, website: Website) -> Result | None:
            runs.append(ctx.key)
            return await super().reconcile(ctx, website)

    world = virtual_world()
    transport = InMemoryTransport(ApiServer(world=world))
    async with Client(ClusterConfig("http://in-memory"), transport=transport, world=world) as client:
        themes = (manifests.theme(name, name, "Menlo") for name in ("dark", "light"))
        for each in (*manifests.crds(), manifests.project("ns"), *themes):
            await client.apply(each)
        manager = Manager([replace(CONTROLLER, reconciler=Noting())], client=client, status_pages=None)
        running = asyncio.create_task(manager.run())
        await client.apply(manifests.website("a", "ns", "dark"))
        await asyncio.sleep(60)
        assert len(runs) == 1
        for number, (change, part) in enumerate(
            [
                ({"spec": {"theme": "light"}}, None),
                ({"status": {"phase": "Ready"}}, "status"),
                ({"metadata": {"annotations": {"a": "b"}}}, None),
            ]
        ):
            await client.patch(Website, "a", "ns", MergePatch(change), subresource=part)
            await asyncio.sleep(60)
            assert len(runs) == number + 2
        assert (await client.get(Website, "a", "ns")).status.phase == "Pending"
        running.cancel()
        await asyncio.wait([running])
