"""`kubeshard experiment --on cluster`: a ring runs already; the run loads it, and leaves the cluster as it was."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kubeshard.cli.program import cli
from kubeshard.core import Namespace
from kubeshard.core.errors import ConfigurationError, Unprepared
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import KubeObject, field
from kubeshard.manager.roles import roles
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import RING_LABEL, STATE_LABEL
from kubeshard_apiserver.testing import ControlPlane, wait_until
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.kube_api import EmbeddedApi, KubeApi, RealApi
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import NAMESPACE, OPERATOR, RING, Theme, Website
from kubeshard_lab.experiment.cluster import found, grants
from kubeshard_lab.experiment.job import job_objects
from kubeshard_lab.experiment.plan import LoadPlan
from kubeshard_lab.experiment.recording import Event, Generation, Usage, read, read_run
from kubeshard_lab.experiment.report import page
from kubeshard_lab.experiment.running import ready_shards
from kubeshard_lab.experiment.scenarios import SCENARIOS, scaled
from kubeshard_lab.experiment.setups import Programs, Setup
from kubeshard_lab.virtual_world import SeededRng

WITHIN = 120.0
SHARDS = 2
ACCOUNT = ("experiment", "experiment")
WITHOUT_THE_EXTRA = """
import sys
missing = ["cel_expr_python", "re2", "google.protobuf", "matplotlib", "psutil", "rich"]
sys.modules.update(dict.fromkeys(missing))
from kubeshard.cli import main
main()
"""


class Template(KubeObject, group="apps", version="v1", kind="Deployment", plural="deployments"):
    spec: dict[str, Any] = field(default_factory=dict)


class Pod(KubeObject, version="v1"):
    pass


on_both = pytest.mark.parametrize(
    "cluster", ["embedded", pytest.param("real", marks=pytest.mark.kube)], indirect=True
)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[KubeApi]:
    """Empty, and the test's own. It is embedded unless the test says otherwise."""
    with ExitStack() as stack:
        api: KubeApi
        if getattr(request, "param", "embedded") == "real":
            api = RealApi(stack.enter_context(ControlPlane(controller_manager=True, pods=True)))
        else:
            api = EmbeddedApi(controllers=True, pods=True)
        stack.callback(api.stop)
        yield api


@pytest.fixture
def ring(cluster: KubeApi, tmp_path: Path) -> Iterator[KubeApi]:
    """A cluster with the operator, whose instances are processes, and objects of others."""
    cluster.install(controller_ring_crd(), *manifests.crds(), manifests.system_namespace())
    cluster.install(
        manifests.project("project-mine"),
        manifests.theme("mine", "blue", "Arial"),
        manifests.website("mine", "project-mine", "mine"),
    )
    (tmp_path / "operators").mkdir()
    programs = Programs(
        Setup("in-manager", SHARDS, 5), cluster.kubeconfig, tmp_path / "operators", 15.0, REAL_WORLD.clock
    )
    operators = [
        Child(
            launch.name,
            launch.command,
            tmp_path / f"{launch.name}.log",
            {**os.environ, **launch.environment},
        )
        for launch in programs.operators()
    ]
    try:
        wait_until(
            lambda: len(cluster.call(lambda client: ready_shards(client, RING))) == SHARDS,
            WITHIN,
            "the shards: ready",
        )
        yield cluster
    finally:
        for operator in operators:
            operator.kill()


def acting_as(cluster: KubeApi, account: tuple[str, str], folder: Path) -> Path:
    """A kubeconfig with the rights of a service account only."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in document["users"]:
        user["user"]["as"] = f"system:serviceaccount:{account[0]}:{account[1]}"
    file = folder / "kubeconfig-as"
    file.write_text(yaml.safe_dump(document))
    return file


def start(folder: Path, kubeconfig: Path, *options: str) -> Child:
    command = [sys.executable, "-c", WITHOUT_THE_EXTRA, "experiment", *options, "--on", "cluster"]
    command += ["--kubeconfig", str(kubeconfig), "--output", str(folder / "run")]
    return Child("experiment", command, folder / "tool.log", dict(os.environ))


def ended(tool: Child) -> int:
    wait_until(lambda: not tool.running, WITHIN, "the run: ended")
    assert tool.exit_code is not None
    return tool.exit_code


def names(cluster: KubeApi) -> Mapping[str, Sequence[str]]:
    """Of all objects of the kinds that a run creates, with their UIDs."""

    def of(cls: type[KubeObject]) -> Sequence[str]:
        found = cluster.call(lambda client: client.list_all(cls, ALL if cls is Website else None))
        return sorted(f"{obj.metadata.name} {obj.metadata.uid}" for obj in found)

    return {cls.__name__: of(cls) for cls in (Namespace, Theme, Website)}


@on_both
@pytest.mark.system
@pytest.mark.real_at_night
def test_a_run_with_the_jobs_rights_and_without_the_extra_leaves_the_cluster_as_it_was(
    ring: KubeApi, tmp_path: Path
) -> None:
    container = {"name": "operator", "image": "operator"}
    labels = {"app": OPERATOR}
    ring.install(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": OPERATOR, "namespace": NAMESPACE},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
    )
    wanted = scaled(SCENARIOS["rolling-update"], 0.1, 12.0)
    ring.install(*job_objects(wanted, [], RING, "kubeshard", ACCOUNT[0], ""))
    before = names(ring)
    kubeconfig = acting_as(ring, ACCOUNT, tmp_path)
    tool = start(tmp_path, kubeconfig, "rolling-update", "--duration", "12s")
    code = ended(tool)
    assert names(ring) == before
    run = read_run(tmp_path / "run")
    assert run.finished, tool.tail(20)
    assert code == (3 if run.invalid else 1 if any(not level.kept for level in run.levels) else 0)
    assert (run.server, run.setup, run.instances) == ("cluster", "in-manager", SHARDS)
    generations = list(read(tmp_path / "run", Generation))
    assert len(generations) >= 12
    assert any(each.ready >= each.due for each in generations)
    assert {level.name for level in run.levels} == {"reconcile p99", "API server: writes p99 of the load"}
    assert any("not judged" in note for note in run.notes)
    assert {usage.process for usage in read(tmp_path / "run", Usage)} == {"experiment"}
    assert "kubeshard report" in tool.tail()
    deployment = ring.call(lambda client: client.get(Template, OPERATOR, NAMESPACE))
    assert deployment.spec["template"]["metadata"]["annotations"].keys() == {
        "kubectl.kubernetes.io/restartedAt"
    }
    assert page.write(tmp_path / "run").stat().st_size


@pytest.mark.system
def test_after_an_interrupt_everything_is_removed_and_the_run_is_recorded(
    ring: KubeApi, tmp_path: Path
) -> None:
    for meta in ring.call(lambda client: ready_shards(client, RING)):
        pod = {"containers": [{"name": "operator", "image": "operator"}]}
        ring.install(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": meta.name, "namespace": NAMESPACE},
                "spec": pod,
            }
        )
    before = names(ring)
    tool = start(tmp_path, ring.kubeconfig, "chaos", "--duration", "18s", "--scale", "0.5")

    def killed() -> bool:
        assert tool.running, tool.tail()
        events = tmp_path / "run" / "events.csv"
        return events.exists() and any(event.kind == "killed" for event in read(tmp_path / "run", Event))

    wait_until(killed, WITHIN, "a pod: deleted")
    assert names(ring) != before
    tool.signal(signal.SIGINT)
    assert ended(tool) == 130
    assert names(ring) == before
    assert not read_run(tmp_path / "run").finished
    pods = ring.call(lambda client: client.list_all(Pod, NAMESPACE))
    assert len(pods) == SHARDS - 1


@pytest.mark.system
def test_an_object_that_exists_already_ends_the_run_and_remains(ring: KubeApi, tmp_path: Path) -> None:
    taken = LoadPlan(scaled(SCENARIOS["basic"], 0.1, None), SeededRng(2)).projects[3]
    ring.install(manifests.project(taken))
    before = names(ring)
    tool = start(tmp_path, ring.kubeconfig, "basic")
    assert ended(tool) == 1
    (line,) = (line for line in tool.tail().splitlines() if line.startswith("Error: "))
    assert line.startswith(f"Error: Namespace {taken} exists already")
    assert names(ring) == before


def refusal(cluster: KubeApi, folder: Path, *options: str, kubeconfig: Path | None = None) -> str:
    command = [
        "experiment", "basic", "--on", "cluster", "--kubeconfig", str(kubeconfig or cluster.kubeconfig),
        "--output", str(folder / "run"), *options,
    ]  # fmt: skip
    with pytest.raises(Unprepared) as error:
        CliRunner().invoke(cli, command, catch_exceptions=False)
    assert not (folder / "run").exists()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_the_cluster_lacks_is_said_in_one_line_before_anything_is_created(
    cluster: KubeApi, tmp_path: Path
) -> None:
    assert "does not serve websites.webhosting.timebertt.dev" in refusal(cluster, tmp_path)
    cluster.install(controller_ring_crd(), *manifests.crds())
    assert refusal(cluster, tmp_path).startswith("the ring webhosting-operator does not exist")
    assert refusal(cluster, tmp_path, "--ring", "other").startswith("the ring other does not exist")
    cluster.install(manifests.controller_ring(RING))
    assert refusal(cluster, tmp_path).startswith("the ring webhosting-operator has no ready shard")


def test_all_missing_rights_are_named(cluster: KubeApi, tmp_path: Path) -> None:
    kubeconfig = acting_as(cluster, ACCOUNT, tmp_path)
    said = refusal(cluster, tmp_path, kubeconfig=kubeconfig)
    for right in ("create namespaces", "get namespaces default", "watch websites.webhosting", "list leases"):
        assert right in said
    given = [grant for grant in grants(SCENARIOS["basic"], RING) if grant.resource.resource != "leases"]
    cluster.install(*roles(given, "nearly", account=ACCOUNT))
    said = refusal(cluster, tmp_path, kubeconfig=kubeconfig)
    assert said.startswith("the rights do not suffice: list leases.coordination.k8s.io: bind the ClusterRole")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("cold-start", "--on", "cluster"), "cold-start starts and stops"),
        (("webhook-outage", "--on", "cluster"), "webhook-outage starts and stops"),
        (("flapping", "--on", "cluster"), "flapping starts and stops"),
        (
            ("basic", "--on", "cluster", "--setup", "external", "--instances", "2"),
            "leave out --setup, --instances",
        ),
        (("basic", "--on", "cluster", "--latency", "1s"), "leave out --latency"),
        (("basic", "--context", "test"), "need --on cluster"),
    ],
)
def test_what_needs_the_programs_processes_is_refused(options: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(cli, ["experiment", *options])
    assert isinstance(result.exception, ConfigurationError), result.output
    assert says in str(result.exception)


@pytest.mark.parametrize(
    ("scenario", "says"), [("chaos", "deletes pods in"), ("rolling-update", "restarts the Deployment")]
)
async def test_a_disturbance_needs_its_pods_or_deployment(scenario: str, says: str, cluster: KubeApi) -> None:
    metadata = {"name": "a-host", "namespace": "default", "labels": {RING_LABEL: RING, STATE_LABEL: "ready"}}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    cluster.install(*manifests.crds(), lease)
    async with cluster.client() as client:
        with pytest.raises(Unprepared, match=says):
            await found(client, SCENARIOS[scenario], RING)
        assert await found(client, SCENARIOS["basic"], RING) == ("in-manager", 1)
