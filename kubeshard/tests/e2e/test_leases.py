"""Leases of shards: the durations of the protocol, and deletion of a Lease by a user (A23 in docs/defects.md)."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator

import pytest
from e2e_kinds import CHORES, Chore
from e2e_processes import Processes
from e2e_recorder import Labels, Recorder
from e2e_ring import Ring, owners
from e2e_user import User

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Lease, ObjectMeta, Secret, Selector
from kubeshard.sharding.api import RingGroupResource, RingResource

PREFIX = "checksum-controller-c95c4fdb6-"
NAMES = ["foo", *(f"foo{number}" for number in range(1, 10))]
PLACES = {
    "7jb2v hv8pb rtvrm": "hv8pb rtvrm 7jb2v rtvrm hv8pb rtvrm hv8pb 7jb2v rtvrm hv8pb",
    "7jb2v hv8pb": "hv8pb hv8pb 7jb2v 7jb2v hv8pb hv8pb hv8pb 7jb2v 7jb2v hv8pb",
    "7jb2v hv8pb kdrss": "hv8pb hv8pb 7jb2v 7jb2v hv8pb kdrss hv8pb 7jb2v kdrss hv8pb",
}
"""Golden vectors: the shards that a real cluster assigned."""


def places(shards: str) -> dict[str, Labels]:
    return {name: Labels(PREFIX + shard) for name, shard in zip(NAMES, PLACES[shards].split(), strict=True)}


@pytest.fixture
async def secrets(kube_client: Client) -> AsyncIterator[list[Secret]]:
    mine = {"e2e": "golden"}
    data = {"key": base64.b64encode(b"value").decode()}
    yield [
        Secret(metadata=ObjectMeta(name=name, namespace="default", labels=mine), data=data) for name in NAMES
    ]
    for kind in (Secret, ConfigMap):
        await kube_client.delete_collection(kind, "default", label_selector=Selector.equals("e2e", "golden"))


@pytest.mark.usefixtures("kube_control_plane")  # a minute of waiting, so only on the real server
async def test_a_crash_with_default_durations_and_a_new_shard_show_the_protocols_times_and_places(
    kube_client: Client, namespace: str, secrets: list[Secret], shards: Processes, sharders: Processes
) -> None:
    """The shards have the names in the reference's getting-started guide."""
    ring = Ring(
        kube_client, "checksum-controller", Secret(metadata=ObjectMeta(name="probe", namespace="default"))
    )
    config_maps = RingGroupResource(group="", resource="configmaps")
    main = RingResource(group="", resource="secrets", controlled_resources=(config_maps,))
    await ring.create([main], {"kubernetes.io/metadata.name": "default"})
    first = [PREFIX + name for name in ("7jb2v", "hv8pb", "rtvrm")]
    shards.start_checksum(*first, ring=ring.name, namespace=namespace)
    await ring.available(3)
    recorder = Recorder(kube_client, ring.name, ["default", namespace], [Secret, ConfigMap])
    async with recorder.recording():
        await asyncio.gather(*map(kube_client.create, secrets))
        before = places("7jb2v hv8pb rtvrm")

        def children(of: dict[str, Labels]) -> dict[str, Labels]:
            return {f"checksums-{name}": labels for name, labels in of.items()}

        await recorder.until(lambda: recorder.labels(Secret) == before)
        await recorder.until(lambda: children(before).items() <= recorder.labels(ConfigMap).items())
        await recorder.quiet(Secret, ConfigMap)

        now, lost = recorder.now, PREFIX + "rtvrm"
        shards.kill(lost)
        after = places("7jb2v hv8pb")
        await recorder.until(lambda: recorder.labels(Secret) == after, 45, "recovering from a crash")
        await recorder.until(lambda: children(after).items() <= recorder.labels(ConfigMap).items())
        await recorder.quiet(Secret, ConfigMap)
        last = recorder.renewals(lost)[-1]
        taken = recorder.seizure(lost)
        assert taken.object.spec.lease_duration_seconds == 30
        transitions = last.object.spec.lease_transitions or 0
        assert taken.object.spec.lease_transitions == transitions + 1
        states = {
            e.object.metadata.label("alpha.sharding.timebertt.dev/state"): e
            for e in reversed(recorder.of(Lease, lost))
        }
        assert abs(states["expired"].at - last.at - 15) < 1.0
        assert abs(states["uncertain"].at - last.at - 30) < 1.0
        assert abs(taken.at - last.at - 30) < 1.0
        for name in NAMES:
            trace = [] if before[name] == after[name] else [after[name]]
            assert recorder.trace(Secret, name, now) == trace
            assert recorder.trace(ConfigMap, f"checksums-{name}", now) == trace
            for event in recorder.of(Secret, name, now):
                assert event.version > taken.version
                assert event.at - taken.at < 1.5
        await recorder.until(lambda: recorder.state(lost) == "dead")

        now = recorder.now
        shards.start_checksum(PREFIX + "kdrss", ring=ring.name, namespace=namespace)
        before, after = after, places("7jb2v hv8pb kdrss")
        await recorder.until(lambda: recorder.labels(Secret) == after, 15, "scaling up")
        await recorder.until(lambda: children(after).items() <= recorder.labels(ConfigMap).items())
        await recorder.quiet(Secret, ConfigMap)
        assert recorder.touched(Secret, now) == {"foo5", "foo8"}
        assert recorder.touched(ConfigMap, now) == {"checksums-foo5", "checksums-foo8"}
        for name in ("foo5", "foo8"):
            draining = before[name]._replace(draining=True)
            assert recorder.trace(Secret, name, now) == [draining, after[name]]
            assert recorder.trace(ConfigMap, f"checksums-{name}", now) == [after[name]]
    await ring.delete()


async def test_a_lease_that_is_deleted_by_hand_moves_nothing_while_its_shard_lives(
    ring: Ring, kube_client: Client, namespace: str, shards: Processes, sharders: Processes
) -> None:
    await ring.create([CHORES], {"kubernetes.io/metadata.name": namespace})
    shards.start_gated("a", "b", ring=ring.name, namespace=namespace, kinds=["chores"])
    await ring.available(2)
    chores = [Chore(metadata=ObjectMeta(name=f"chore-{i}", namespace=namespace)) for i in range(8)]

    def make(number: int) -> Chore:
        return Chore(metadata=ObjectMeta(name=f"user-{number}", namespace=namespace))

    async with (
        Recorder(kube_client, ring.name, [namespace], [Chore]).recording() as recorder,
        User(kube_client, make).working(),
    ):
        await asyncio.gather(*map(kube_client.create, chores))
        mine = {chore.metadata.name for chore in chores}
        await recorder.until(lambda: mine <= recorder.labels(Chore).keys())
        now = recorder.now
        await kube_client.delete(Lease, "b", namespace)
        await recorder.until(lambda: recorder.renewals("b", now), 5, "the shard's new Lease")
        # Longer than it takes to declare a shard dead.
        await recorder.until(lambda: len(recorder.renewals("b", now)) > 16, 5 * shards.lease_seconds)
        assert not recorder.touched(Chore, now) & mine
        assert shards["b"].running
        placed = owners(chores, "a", "b")
        assert {name: labels for name, labels in recorder.labels(Chore).items() if name in mine} == placed


@pytest.mark.usefixtures("kube_control_plane")  # a minute of waiting, so only on the real server
async def test_gone_shards_lose_their_objects_in_time_and_their_leases_are_collected_after_it(
    ring: Ring, kube_client: Client, namespace: str, shards: Processes, sharders: Processes
) -> None:
    """Three shards at once: one is killed, one is killed and its Lease deleted by hand, one stops gracefully."""
    await ring.create([CHORES], {"kubernetes.io/metadata.name": namespace})
    shards.start_gated("a", "b", "c", "d", ring=ring.name, namespace=namespace, kinds=["chores"])
    await ring.available(4)
    chores = [Chore(metadata=ObjectMeta(name=f"chore-{i}", namespace=namespace)) for i in range(24)]
    async with Recorder(kube_client, ring.name, [namespace], [Chore]).recording() as recorder:
        await asyncio.gather(*map(kube_client.create, chores))
        placed = owners(chores, *"abcd")
        await recorder.until(lambda: recorder.labels(Chore) == placed)
        await recorder.quiet(Chore)
        now = recorder.now
        shards.kill("b")
        shards.kill("c")
        await kube_client.delete(Lease, "c", namespace)
        released = time.monotonic()
        assert shards.stop("d") == 0
        ended = owners(chores, *"abc")
        await recorder.until(lambda: recorder.labels(Chore) == ended, 5, "scaling down")
        last = {name: recorder.renewals(name)[-1].at for name in "bc"}
        ended = owners(chores, "a")
        seized = 2 * int(shards.lease_seconds)  # after the last renewal
        await recorder.until(lambda: recorder.labels(Chore) == ended, seized + 8, "recovering from crashes")
        await recorder.quiet(Chore)
        for name in "bc":
            taken = recorder.seizure(name)
            assert abs(taken.at - last[name] - seized) < 1.5
            assert taken.object.spec.lease_duration_seconds == seized
            for chore, labels in placed.items():
                if labels.shard == name:
                    assert recorder.of(Chore, chore, now)[0].version > taken.version
        await recorder.until(lambda: not recorder.lease("d"), 70, "collecting the released Lease")
        assert abs(time.monotonic() - released - 61) < 2.0
        await recorder.until(
            lambda: recorder.latest(Lease).keys() == {"a"}, 2 * seized + 10, "collecting the others"
        )
        for name in "bc":
            gone = recorder.of(Lease, name)[-1]
            assert gone.type == "DELETED"
            assert abs(gone.at - recorder.seizure(name).at - seized - 60) < 2.0
