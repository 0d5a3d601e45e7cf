"""Which reports of a kubelet prove that a shard has died."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from small_api import SmallApi, status

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.partial_kinds import Pod
from kubeshard.sharder.lease_controller import ASKED_AGAIN, PodReports, has_died
from kubeshard.sharding.names import INCARNATION_ANNOTATION
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

BEGAN = 1_767_225_600  # 2026-01-01T00:00:00Z
MINE = f"pod-1/boot/x//{BEGAN}"
RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:30Z"}}}


def ended(at: str | None = "2026-01-01T00:01:00Z", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"finishedAt": at, "reason": reason, "exitCode": 137}}


def pod(*containers: dict[str, Any], uid: str = "pod-1", of: int = 0, **status: Any) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": "a", "namespace": "ns", "uid": uid},
            "spec": {"containers": [{"name": str(number)} for number in range(of or len(containers))]},
            "status": {"phase": "Failed", "containerStatuses": list(containers), **status},
        },
        Pod,
    )


DEAD = pod({"state": ended()})
ALIVE_OR_UNKNOWN = {
    "it runs": pod(RUNNING),
    "it runs again": pod({**RUNNING, "lastState": ended()}),
    "another container of the pod runs": pod({"state": ended()}, RUNNING),
    "a sidecar runs": pod({"state": ended()}, initContainerStatuses=[RUNNING]),
    "it ended before the process began": pod({"state": ended("2025-12-31T23:59:59Z")}),
    "it never ran": pod({"state": {"waiting": {"reason": "ImagePullBackOff"}}}),
    "the kubelet has lost it": pod({"state": ended(reason="ContainerStatusUnknown")}),
    "nobody knows when it ended": pod({"state": ended(None)}),
    "the time is nonsense": pod({"state": ended("yesterday")}),
    "only the phase says so": pod(of=1),
    "a container is missing": pod({"state": ended()}, of=2),
    "another pod of the name": pod({"state": ended()}, uid="pod-2"),
}


def test_a_container_that_ended_after_the_process_began_proves_its_death() -> None:
    assert has_died(DEAD, MINE)
    assert has_died(pod({"state": ended("2026-01-01T00:00:00Z")}), MINE)
    assert has_died(pod({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended()}), MINE)
    assert has_died(pod({"state": ended()}, {"state": ended()}), MINE)


@pytest.mark.parametrize("report", ALIVE_OR_UNKNOWN.values(), ids=list(ALIVE_OR_UNKNOWN))
def test_anything_less_proves_nothing(report: Pod) -> None:
    assert not has_died(report, MINE)


@pytest.mark.parametrize(
    "incarnation", ["", "pod-1/boot/x", "pod-1/boot/x/p", "//x//1", "pod-1/boot/x//soon"]
)
def test_a_process_that_does_not_say_where_it_is_and_when_it_began_has_no_certificate(
    incarnation: str,
) -> None:
    assert not has_died(DEAD, incarnation)


@virtual_time
async def test_without_the_right_to_read_pods_the_namespace_is_left_alone_for_a_while() -> None:
    api, clock = SmallApi(), VirtualClock()
    api.faults.append(lambda request: status(403, "Forbidden"))
    metadata = ObjectMeta(name="a", namespace="ns", annotations={INCARNATION_ANNOTATION: MINE})
    lease = Lease(metadata=metadata, spec=LeaseSpec(holder_identity="a"))
    reports = PodReports(clock)
    for _ in range(3):
        assert not await reports.certify(api.client(clock), lease)
    assert api.requests == [("GET", "/api/v1/namespaces/ns/pods/a", None)]
    await asyncio.sleep(ASKED_AGAIN)
    assert not await reports.certify(api.client(clock), lease)
    assert len(api.requests) == 2


@virtual_time
@pytest.mark.parametrize(("name", "asked"), [("op-0", ["op-0", "op"]), ("op-x", ["op-x"])])
async def test_the_pod_of_one_of_its_processes_is_found_by_the_name_without_the_number(
    name: str, asked: list[str]
) -> None:
    api, clock = SmallApi(), VirtualClock()
    api.objects["/api/v1/namespaces/ns/pods/op"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        **msgspec.to_builtins(DEAD),
    }
    metadata = ObjectMeta(name=name, namespace="ns", annotations={INCARNATION_ANNOTATION: MINE})
    lease = Lease(metadata=metadata, spec=LeaseSpec(holder_identity=name))
    assert await PodReports(clock).certify(api.client(clock), lease) == (name == "op-0")
    assert [path for _, path, _ in api.requests] == [f"/api/v1/namespaces/ns/pods/{each}" for each in asked]
