"""A cluster with controllers, two sharders, and processes that never outlive their tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_kinds import Chore, Entry, Realm
from e2e_processes import Processes, tail_since
from e2e_ring import Ring

from kubeshard.client import Client
from kubeshard.core import KubeObject, Namespace, ObjectMeta
from kubeshard.crd import definition
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import SYSTEM_NAMESPACE
from kubeshard_apiserver.testing import ControlPlane, KubeApi, plugin
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import PROJECT_LABEL

LEASE_SECONDS = {"embedded": 4.0, "real": 6.0}
"""Short enough to notice crashes soon, long enough for ten processes on two cores."""

BESIDE_OTHERS = 10.0
"""For when other tests run at the same time (`make test`), perhaps on a busy machine."""

SHARDERS = ("sharder-1", "sharder-2")

kube_api = plugin.kube_api
"""A separate server for these tests, because of their `kube_options`."""

_numbers = itertools.count(1)
_logs = pytest.StashKey[list[Path]]()
_positions = pytest.StashKey[dict[Path, int]]()


@pytest.fixture(scope="session")
def kube_options() -> dict[str, bool]:
    """Enables garbage collection, namespaces and workloads."""
    return {"controllers": True, "pods": True}


@pytest.fixture(scope="session")
def kube_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A separate control plane for the end-to-end tests."""
    with ControlPlane(controller_manager=True, folder=tmp_path_factory.mktemp("e2e-cluster")) as kube:
        yield kube


@pytest.fixture(scope="session")
def cluster(kube_api: KubeApi) -> KubeApi:
    """An API server with all kinds of the tests, embedded or real."""
    crds = [controller_ring_crd(), *manifests.crds(), *map(_lenient, (Chore, Realm, Entry))]
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
    kube_api.install(*crds, system, manifests.theme("lame", "darkgray", "Times"))
    return kube_api


@pytest.fixture(scope="session")
def lease_seconds(cluster: KubeApi) -> float:
    return BESIDE_OTHERS if "PYTEST_XDIST_WORKER" in os.environ else LEASE_SECONDS[cluster.target]


@pytest.fixture(scope="session")
def _all_sharders(
    cluster: KubeApi, lease_seconds: float, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Processes]:
    fleet = Processes(cluster.kubeconfig, tmp_path_factory.mktemp("e2e-sharders"), lease_seconds)
    yield fleet
    fleet.stop_all()


@pytest.fixture
def sharders(_all_sharders: Processes, request: pytest.FixtureRequest) -> Iterator[Processes]:
    """Two sharders behind one webhook port. If a test kills or replaces them, or one has lost its Lease, as on a
    machine that is too busy to renew it, the next test gets new ones.
    """
    for name in set(_all_sharders.names) - set(SHARDERS):
        _all_sharders.stop(name)
    for name in SHARDERS:
        if name not in _all_sharders.names:
            _all_sharders.start_sharder(name)
    _keep_logs(request, _all_sharders.folder)
    yield _all_sharders
    _all_sharders.dismiss_replaced()
    _all_sharders.check()


@pytest.fixture
def shards(
    cluster: KubeApi, lease_seconds: float, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Processes]:
    """Starts the test's shards and stops them at its end; the test fails if one ended before that on its own."""
    fleet = Processes(cluster.kubeconfig, tmp_path, lease_seconds)
    _keep_logs(request, tmp_path)
    try:
        yield fleet
        fleet.check()
    finally:
        fleet.stop_in_order()


@pytest.fixture
async def namespace(cluster: KubeApi, kube_client: Client) -> AsyncIterator[str]:
    """A project for one test, deleted with everything in it."""
    name = f"e2e-{next(_numbers)}"
    await kube_client.create(Namespace(metadata=ObjectMeta(name=name, labels={PROJECT_LABEL: "true"})))
    yield name
    await kube_client.delete_collection(Chore, name)
    await kube_client.delete_collection(Realm)
    await kube_client.delete(Namespace, name)


@pytest.fixture
async def ring(kube_client: Client, namespace: str, shards: Processes) -> AsyncIterator[Ring]:
    """A ring of chores in the test's namespace, not created yet, with a unique name."""
    probe = Chore(metadata=ObjectMeta(name="probe", namespace=namespace))
    ring = Ring(kube_client, f"ring-{namespace}", probe)
    yield ring
    await ring.delete()


def _keep_logs(request: pytest.FixtureRequest, folder: Path) -> None:
    """Prints everything logged there from now on if the test fails."""
    positions = request.node.stash.setdefault(_positions, {})
    request.node.stash.setdefault(_logs, []).append(folder)
    for log in folder.glob("*.log"):
        positions[log] = log.stat().st_size


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    report: pytest.TestReport = yield
    if report.failed:
        positions = item.stash.get(_positions, {})
        for folder in item.stash.get(_logs, []):
            for log in sorted(folder.glob("*.log")):
                report.sections.append((f"{log.name}", tail_since(log, positions.get(log, 0))))
    return report


def _lenient(kind: type[KubeObject]) -> dict[str, Any]:
    """A definition that accepts objects that do not fit the class."""
    crd = definition(kind)
    for version in crd["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
    return crd
