"""A ring switches its sharder to kubeshard's and back to the Go reference's, while it is in use."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from objects import create_objects, placed, shards
from programs import LEASE_SECONDS, Programs
from ring import Ring, eventually
from service import Service, service

from kubeshard.core import ConfigMap, Lease, NotFound, ObjectMeta, Secret
from kubeshard.manifests.kustomization import identity
from kubeshard.manifests.ring import ring_objects
from kubeshard_apiserver.testing.assets import find_assets
from kubeshard_apiserver.testing.child import Child

pytestmark = pytest.mark.interop

PAGE = Path(__file__).resolve().parents[3] / "docs" / "migration.md"
SHARDS = ("shard-0", "shard-1", "shard-2")
WINDOW = 7.0
"""Seconds in which nothing may move: longer than the sync period of both sharders."""
LONGEST_GAP = 1.0
"""The maximum number of seconds without a response of the webhook."""


async def test_a_settled_ring_goes_to_kubeshard_and_back_without_a_label_changed_or_a_webhook_unanswered(
    ring: Ring, programs: Programs, go_sharder: Path
) -> None:
    """The next replica starts before the last one stops, as with a Deployment."""
    owners = await create_objects(ring)
    async with shards(ring, *SHARDS), sharders_of(ring) as replicas:
        await ring.create()
        go = await leading(ring, programs, replicas, go_sharder)
        await placed(ring, owners, SHARDS)
        async with ring.history() as mains, ring.history(ConfigMap) as children, probing(ring) as probes:
            kubeshard = await leading(ring, programs, replicas, None, instead_of=go)
            await asyncio.sleep(WINDOW)
            await leading(ring, programs, replicas, go_sharder, instead_of=kubeshard)
            await asyncio.sleep(WINDOW)
        settled = {name: changes for name, changes in mains.items() if not name.startswith(PROBE)}
        assert (settled, children) == ({}, {})
        print(f"{probes.answered} answers, none for at most {probes.longest_gap:.2f} s")
        assert probes.answered > 100
        assert probes.longest_gap <= LONGEST_GAP


@pytest.mark.parametrize("killed", ["go", "kubeshard"])
async def test_replicas_of_both_share_the_work_and_either_goes_on_alone(
    ring: Ring, programs: Programs, go_sharder: Path, killed: str
) -> None:
    owners = await create_objects(ring)
    async with shards(ring, *SHARDS) as leases, sharders_of(ring) as replicas:
        await ring.create()
        first, second = (go_sharder, None) if killed == "go" else (None, go_sharder)
        leader = await leading(ring, programs, replicas, first)
        programs.sharder(second, replica_of=replicas)
        await placed(ring, owners, SHARDS)
        holder = await leader_of(ring, replicas)
        leader.kill()
        await leases.release(SHARDS[0])
        await eventually(lambda: is_led_by_another(ring, replicas, holder), 6 * LEASE_SECONDS)
        await placed(ring, owners, SHARDS[1:])


def sharders_of(ring: Ring) -> AbstractAsyncContextManager[Service]:
    """Their namespace is a system namespace, so it is not the ring's."""
    return service("default", f"sharder-{ring.namespace}")


PROBE = "probe-"


@dataclass
class Probes:
    answered: int = 0
    longest_gap: float = 0.0
    last: float = field(default_factory=time.monotonic)

    def answer(self, assigned: bool) -> None:
        now = time.monotonic()
        if assigned:
            self.longest_gap = max(self.longest_gap, now - self.last)
            self.answered, self.last = self.answered + 1, now


@asynccontextmanager
async def probing(ring: Ring) -> AsyncIterator[Probes]:
    """Creates objects all the time. If one has no shard afterwards, the webhook did not respond."""
    probes, numbers = Probes(), count()

    async def probe() -> None:
        while True:
            name = f"{PROBE}{next(numbers)}"
            made = await ring.client.create(Secret(metadata=ObjectMeta(name=name, namespace=ring.namespace)))
            probes.answer(bool(ring.of(made).get("shard")))
            await ring.client.delete(Secret, name, ring.namespace)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(probe())
    try:
        yield probes
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
    probes.answer(True)  # a gap that lasts until the end counts too


async def leading(
    ring: Ring, programs: Programs, replicas: Service, go: Path | None, *, instead_of: Child | None = None
) -> Child:
    """Starts another replica. `instead_of` stops as soon as the new one accepts connections."""
    before = await leader_of(ring, replicas)
    child = programs.sharder(go, replica_of=replicas)
    port = replicas.backends[-1]
    await eventually(lambda: accepts(port))
    if instead_of is not None:
        await asyncio.to_thread(instead_of.stop)
    await eventually(lambda: is_led_by_another(ring, replicas, before), 4 * LEASE_SECONDS)
    return child


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def leader_of(ring: Ring, replicas: Service) -> str:
    try:
        return (
            await ring.client.get(Lease, replicas.election, replicas.namespace)
        ).spec.holder_identity or ""
    except NotFound:
        return ""


async def is_led_by_another(ring: Ring, replicas: Service, before: str) -> bool:
    return await leader_of(ring, replicas) not in ("", before)


async def test_the_manifests_of_either_take_the_place_of_the_others_in_one_apply(
    kubeconfig: Path, go_manifests: Path, tmp_path: Path
) -> None:
    """Under the same names: no selector, role binding or other field that cannot change is in the way. Without the
    objects of cert-manager, which is not there. What is left of the others goes with the page's commands, and the
    policies of a ring stay.
    """
    command = [sys.executable, "-m", "kubeshard", "manifests", "sharder", "--set=certManager.enabled=true"]
    ours = installable(await run(*command, "--set=image=kubeshard:test"))
    theirs = installable(await asyncio.to_thread(go_manifests.read_text))
    kubectl = [str(find_assets(["kubectl"]) / "kubectl"), f"--kubeconfig={kubeconfig}"]

    async def apply(documents: list[Any]) -> None:
        file = tmp_path / "given.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        applied = await run(*kubectl, "apply", "--server-side", "--force-conflicts", f"--filename={file}")
        assert applied.count("serverside-applied") == len(documents)

    fence = [each for each in ring_objects(FENCED, ACCOUNT, shards=[ACCOUNT]) if is_policy(each)]
    await apply(theirs)
    for manifests, others, section in ((ours, theirs, "2. Install"), (theirs, ours, "Back")):
        await apply(manifests)
        if manifests is ours:
            await apply(fence)
        deployment = json.loads(
            await run(*kubectl, "get", "deployment", "sharder", "-nsharding-system", "-ojson")
        )
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert ("kubeshard" in container["image"]) is (manifests is ours)
        (mount,) = [each for each in container["volumeMounts"] if "cert" in each["mountPath"]]
        names = [each["name"] for each in deployment["spec"]["template"]["spec"]["volumes"]]
        assert sorted(names) == sorted({mount["name"], "config"})
        deleted = [await run(*kubectl, *shlex.split(line)) for line in deletions(section)]
        left = {identity(each) for each in others} - {identity(each) for each in manifests}
        assert len("".join(deleted).splitlines()) == len(left)
        for _, kind, namespace, name in left:
            place = [f"--namespace={namespace}"] if namespace else []
            assert not await run(*kubectl, "get", kind, name, "--ignore-not-found", *place)
        for each in fence:
            await run(*kubectl, "get", each["kind"], each["metadata"]["name"])
    for each in fence:
        await run(*kubectl, "delete", each["kind"], each["metadata"]["name"])


ACCOUNT = ("sharding-system", "sharder")
FENCED = {
    "apiVersion": "sharding.timebertt.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": "fenced"},
    "spec": {"resources": [{"group": "", "resource": "configmaps"}]},
}


def is_policy(manifest: Any) -> bool:
    return manifest["kind"].startswith("ValidatingAdmissionPolicy")


def installable(manifests: str) -> list[Any]:
    return [each for each in yaml.safe_load_all(manifests) if "cert-manager.io" not in each["apiVersion"]]


def deletions(section: str) -> list[str]:
    """The arguments of the commands with which this section of the page deletes something."""
    (text,) = re.findall(rf"^## {re.escape(section)}.*?(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    return re.findall(r"^\$ kubectl (.*\bdelete .*)$", text, re.M)


async def run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()
