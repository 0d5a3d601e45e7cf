"""`kubectl shard release` confirms that a dead shard has ended, asks before, and refuses what cannot be true."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from commands import KubectlShard
from ring_cluster import RING, RingCluster, name_on

from kubeshard.client import Client
from kubeshard.core import Lease, MergePatch, Namespace, ObjectMeta
from kubeshard.core.errors import NotFound
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import CONFIRMED_ANNOTATION, SHARDER_IDENTITY, STRICT_HANDOVER_ANNOTATION
from kubeshard_apiserver.testing import EmbeddedApi, KubeApi

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "kubectl-shard.md").read_text()
NAME = name_on("b", "a", "b")


def strict(api: KubeApi, asked: str = "true") -> None:
    async def annotate(client: Client) -> None:
        change = MergePatch({"metadata": {"annotations": {STRICT_HANDOVER_ANNOTATION: asked}}})
        await client.patch(ControllerRing, RING, "", change)

    api.call(annotate)


def taken(api: KubeApi, shard: str = "dead") -> None:
    async def take(client: Client) -> None:
        cluster = RingCluster(client)
        await cluster.shard(shard, holder=SHARDER_IDENTITY)
        await cluster.secret(NAME, shard)

    api.call(take)


def said(api: KubeApi, shard: str = "dead") -> str:
    async def read(client: Client) -> str:
        try:
            return (await client.get(Lease, shard, "team")).metadata.annotation(CONFIRMED_ANNOTATION)
        except NotFound:
            return "no Lease"

    return api.call(read)


def test_it_asks_and_then_confirms_it_in_the_lease(
    written: KubeApi, kubectl_shard: KubectlShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict(written)
    taken(written)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert kubectl_shard("release", "dead").code == 130
    assert said(written) == ""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    done = kubectl_shard("release", "dead")
    assert (done.code, done.err) == (0, "")
    ((asked, answered),) = re.findall(r"release (backups-2)\n([^`]*)```", PAGE)
    assert done.out == answered.replace("[y/N]: y\n", "[y/N]: ").replace(asked, "dead").replace(
        "ring backups", "ring r"
    )
    assert said(written) == "0/operator"
    again = kubectl_shard("release", "dead", "--yes")
    assert (again.code, "nothing to confirm" in again.err) == (1, True)


def test_a_shard_whose_lease_was_deleted_gets_one_that_says_so(
    written: KubeApi, kubectl_shard: KubectlShard
) -> None:
    strict(written)
    assert kubectl_shard("release", "gone", "--yes", "-n", "team").code == 0
    assert said(written, "gone") == "1/operator"


def test_a_shard_of_a_ring_without_a_controllerring_can_be_confirmed_too(
    written: KubeApi, kubectl_shard: KubectlShard
) -> None:
    taken(written)
    written.call(lambda client: client.delete(ControllerRing, RING))
    done = kubectl_shard("release", "dead", "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.count("if its operator asks for that") == 2
    assert said(written) == "0/operator"


def test_a_deleted_lease_of_a_ring_without_a_controllerring_is_confirmed_if_others_name_the_ring(
    written: KubeApi, kubectl_shard: KubectlShard
) -> None:
    written.call(lambda client: client.delete(ControllerRing, RING))
    done = kubectl_shard("release", "gone", "--yes")
    assert (done.code, f"with --ring: {RING}" in done.err) == (1, True)
    assert said(written, "gone") == "no Lease"
    assert kubectl_shard("release", "gone", "--yes", "--ring", RING).code == 0
    assert said(written, "gone") == "1/operator"


def test_it_needs_no_controllerrings_in_a_cluster_where_operators_are_their_own_sharders(
    kubectl_shard: KubectlShard,
) -> None:
    async def scene(client: Client) -> None:
        await client.create(Namespace(metadata=ObjectMeta(name="team")))
        await RingCluster(client).shard("dead", holder=SHARDER_IDENTITY)

    api = EmbeddedApi(controllers=False, pods=False)
    try:
        api.call(scene)
        kubectl_shard.at(api.kubeconfig)
        assert kubectl_shard("release", "dead", "--yes").code == 0
        assert said(api) == "0/operator"
        misspelt = kubectl_shard("release", "gone", "--yes", "--ring", "typo", "-n", "team")
        assert (misspelt.code, f"there is no ring typo; there are: {RING}" in misspelt.err) == (1, True)
        assert said(api, "gone") == "no Lease"
    finally:
        api.stop()


@pytest.mark.parametrize(
    ("shard", "problem"), [("a", "a holds its Lease"), ("released", "there is nothing to confirm")]
)
def test_what_cannot_be_true_or_is_known_is_refused(
    written: KubeApi, kubectl_shard: KubectlShard, shard: str, problem: str
) -> None:
    strict(written)

    async def release(client: Client) -> None:
        await RingCluster(client).shard("released", holder="")

    written.call(release)
    done = kubectl_shard("release", shard, "--yes")
    assert (done.code, problem in done.err) == (1, True)


def test_a_ring_that_does_not_ask_needs_nobody_to_confirm(
    written: KubeApi, kubectl_shard: KubectlShard
) -> None:
    taken(written)
    done = kubectl_shard("release", "dead", "--yes")
    assert (done.code, "no ring has strict hand-over" in done.err) == (1, True)
    done = kubectl_shard("release", "dead", "--yes", "--ring", RING)
    assert (done.code, "does not ask for confirmations" in done.err) == (1, True)


def test_why_says_that_an_object_waits_for_a_confirmation(
    written: KubeApi, kubectl_shard: KubectlShard
) -> None:
    strict(written)
    taken(written)
    done = kubectl_shard("why", f"secret/{NAME}", "-n", "team")
    assert "it is confirmed that dead has ended" in " ".join(done.out.split())
    assert "kubectl shard release dead" in done.out
