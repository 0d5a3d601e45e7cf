"""`kubectl shard drain` says what it will do, asks for confirmation, and writes nothing but an eviction."""

from __future__ import annotations

import asyncio
import io
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from commands import KubectlShard
from ring_cluster import RING, RingCluster, name_on

from kubeshard.client import Client
from kubeshard.core import NotFound
from kubeshard.core.errors import Forbidden, Timeout, Unavailable
from kubeshard.inspection import shard_drain
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.errors import Unanswerable
from kubeshard.inspection.ring import see
from kubeshard.inspection.shard_drain import Pod
from kubeshard_apiserver.testing import EmbeddedApi, MemoryApi

NAME = name_on("b", "a", "b")


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", **metadata},
        "spec": {
            "terminationGracePeriodSeconds": 7,
            "containers": [{"name": "operator", "image": "operator"}],
        },
    }


def owned_by(kind: str) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": "backups", "uid": "u", "controller": True}
    return {"ownerReferences": [reference]}


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedApi]:
    """A server without a garbage collector or a kubelet: nothing ends pods, and they need no owners."""
    api = EmbeddedApi(controllers=False, pods=False)

    async def begin(client: Client) -> None:
        cluster = RingCluster(client)
        await cluster.install()
        for name in ("a", "b"):
            await cluster.shard(name)
        await cluster.shard("dead", holder="")
        await cluster.secret(NAME, "b")

    api.call(begin)
    yield api
    api.stop()


@pytest.fixture
def manned(server: EmbeddedApi, kubectl_shard: KubectlShard) -> Iterator[Callable[..., None]]:
    """Creates the pod of the shard b, which is removed after the test."""

    def make(**metadata: Any) -> None:
        server.install(pod("b", **metadata))

    async def end(client: Client) -> None:
        with suppress(NotFound):
            await client.delete(Pod, "b", "team", grace_period=0)

    kubectl_shard.at(server.kubeconfig)
    yield make
    server.call(end)


def there(server: EmbeddedApi) -> bool:
    async def look(client: Client) -> bool:
        try:
            return not (await client.get(Pod, "b", "team")).metadata.deleting
        except NotFound:
            return False

    return server.call(look)


def test_it_says_what_it_will_do_and_does_nothing_in_a_dry_run(
    server: EmbeddedApi, manned: Callable[..., None], kubectl_shard: KubectlShard
) -> None:
    manned()
    done = kubectl_shard("drain", "b", "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "its pod team/b is evicted, has 7 s to end the reconciles under way" in done.out
    assert ["secrets", "a", "1"] in [line.split() for line in done.out.splitlines()]
    assert done.out.endswith("nothing was done (--dry-run)\n")
    assert there(server)


@pytest.mark.parametrize(
    ("kind", "said"), [("StatefulSet", "which gets its objects back"), ("ReplicaSet", "pod-deletion-cost=-1")]
)
def test_it_says_what_comes_after(
    manned: Callable[..., None], kubectl_shard: KubectlShard, kind: str, said: str
) -> None:
    manned(**owned_by(kind))
    assert said in kubectl_shard("drain", "b", "--dry-run").out


def test_it_asks_before_it_does_anything(
    server: EmbeddedApi,
    manned: Callable[..., None],
    kubectl_shard: KubectlShard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manned()
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    refused = kubectl_shard("drain", "b")
    assert (refused.code, refused.out.splitlines()[-1]) == (130, "nothing was done")
    assert there(server)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    done = kubectl_shard("drain", "b", "--timeout", "0")
    assert (done.code, done.out.splitlines()[-1]) == (0, "Evict the pod? [y/N]: the pod team/b is evicted")
    assert not there(server)


def test_a_shard_that_does_not_leave_in_time(
    manned: Callable[..., None], kubectl_shard: KubectlShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing moves its object here."""
    monkeypatch.setattr(shard_drain, "POLL_INTERVAL", 0.1)
    manned()
    done = kubectl_shard("drain", "b", "--yes", "--timeout", "1")
    assert done.code == 1
    assert done.out.splitlines()[-1] == "the pod of b is gone, and 1 object still on it"
    assert done.err == "Error: b has not left within 1 s; the drain continues: see `kubectl shard status r`\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bb"], "there is no shard bb; did you mean b?"),
        (["dead"], "dead is dead: the sharder is already moving its objects"),
        (["b", "--ring", "rr"], "there is no ring rr; did you mean r?"),
        (
            ["a"],
            "there is no pod team/a: stop the shard's process with SIGTERM; it finishes its work and releases",
        ),
    ],
)
def test_a_shard_that_cannot_be_drained(
    manned: Callable[..., None], kubectl_shard: KubectlShard, arguments: list[str], message: str
) -> None:
    done = kubectl_shard("drain", *arguments, "--yes")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"Error: {message}")


def test_a_budget_may_refuse_it(
    server: EmbeddedApi, manned: Callable[..., None], kubectl_shard: KubectlShard
) -> None:
    manned(labels={"app": "backups"})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget", "namespace": "team"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "backups"}}},
    }
    server.install(budget)
    running = json.dumps(
        {"status": {"phase": "Running"}}
    ).encode()  # a pod that has not started may always be evicted
    path, merge = "/api/v1/namespaces/team/pods/b/status", "application/merge-patch+json"
    server.call(lambda client: client.raw("PATCH", path, running, content_type=merge))
    done = kubectl_shard("drain", "b", "--yes", "--timeout", "1")
    assert done.code == 1
    assert done.err.startswith("Error: the pod cannot be evicted now: ")
    assert there(server)


def test_it_says_so_if_nobody_knows_whether_the_pod_was_evicted(
    manned: Callable[..., None], kubectl_shard: KubectlShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = Client.raw

    async def unanswered(self: Client, method: str, path: str, *arguments: Any, **how: Any) -> Any:
        if path.endswith("/eviction"):
            raise Timeout("no answer within 10 s", reason="Timeout")
        return await raw(self, method, path, *arguments, **how)

    monkeypatch.setattr(Client, "raw", unanswered)
    manned()
    done = kubectl_shard("drain", "b", "--yes")
    assert (done.code, done.err) == (
        1,
        "Error: it is not known whether the pod was evicted (no answer within 10 s): see whether it is terminating,"
        " with `kubectl get pod b -n team`, and if not, run the command again\n",
    )


def test_what_cannot_be_seen_for_a_while_is_told_and_waited_for(
    manned: Callable[..., None], kubectl_shard: KubectlShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [Unavailable("it is broken"), 2, 2, 0]

    async def left(*_: object) -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    monkeypatch.setattr(shard_drain, "POLL_INTERVAL", 0.0)
    monkeypatch.setattr(shard_drain, "_objects_on", left)
    manned()
    done = kubectl_shard("drain", "b", "--yes")
    assert (done.code, done.out.splitlines()[-4:]) == (
        0,
        [
            "the pod team/b is evicted",
            "the progress of b cannot be read, trying again: it is broken",
            "the pod of b is gone, and 2 objects still on it",
            "the pod of b is gone, and no object is on it",
        ],
    )


def test_a_right_that_is_missing_while_it_waits_is_named_and_what_was_begun_goes_on(
    manned: Callable[..., None], kubectl_shard: KubectlShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise Forbidden("no")

    begin = shard_drain.begin

    async def evicted(*arguments: Any) -> None:
        await begin(*arguments)
        monkeypatch.setattr(Client, "list", refused)

    monkeypatch.setattr(shard_drain, "begin", evicted)
    manned()
    done = kubectl_shard("drain", "b", "--yes")
    assert done.code == 1
    assert done.err == (
        'Error: you may not list secrets: ask for the rule {apiGroups: [""], resources: ["secrets"], verbs: ["list"]};'
        " the drain continues: see `kubectl shard status r`\n"
    )


@pytest.mark.parametrize(
    ("where", "said", "gone"),
    [
        ("progress", "this stops the waiting only; the drain continues: see `kubectl shard status r`", True),
        ("begin", "it is not known whether the pod was evicted: see whether it is terminating, with", False),
    ],
)
def test_an_interrupted_drain_says_what_goes_on(
    server: EmbeddedApi,
    manned: Callable[..., None],
    kubectl_shard: KubectlShard,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    said: str,
    gone: bool,
) -> None:
    """SIGTERM is Ctrl-C to it."""

    async def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(10)

    monkeypatch.setattr(shard_drain, "_poll" if where == "progress" else "begin", interrupted)
    manned()
    former = signal.getsignal(signal.SIGTERM)
    try:
        done = kubectl_shard("drain", "b", "--yes")
    finally:
        signal.signal(signal.SIGTERM, former)
    assert done.code == 130
    assert done.out.splitlines()[-1].startswith(said)
    assert there(server) is not gone


async def test_the_last_shard_stays(kube_memory: MemoryApi) -> None:
    async with kube_memory.client() as client:
        cluster = RingCluster(client)
        await cluster.install()
        await cluster.shard("a")
        await client.apply(pod("a"))
        ring = await see(client, await read_cluster(client), RING)
        with pytest.raises(Unanswerable, match="a is the only available shard of r"):
            await shard_drain.plan_drain(client, ring, "a")


@pytest.mark.parametrize("named", ["pod-0", "pod-0-1"])
async def test_the_shards_of_one_pod_leave_together(kube_memory: MemoryApi, named: str) -> None:
    async with kube_memory.client() as client:
        cluster = RingCluster(client)
        await cluster.install()
        for name in "pod-0-0", "pod-0-1", "b":
            await cluster.shard(name)
        await client.apply(pod("pod-0"))
        ring = await see(client, await read_cluster(client), RING)
        with pytest.raises(Unanswerable, match=r"\(pod-0-0, pod-0-1\): `kubectl delete pod pod-0 -n team`"):
            await shard_drain.plan_drain(client, ring, named)
