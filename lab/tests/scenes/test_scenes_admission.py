"""Writes that pass the sharder's webhook during a handover."""

import asyncio
import json

import pytest
from test_scenes_takeover import Cluster

from kubeshard.client import Client
from kubeshard.controller import Context, Reconciler
from kubeshard.core import MergePatch
from kubeshard.core.builtin import Namespace
from kubeshard.core.kinds import GroupResource
from kubeshard.core.selectors import LabelSelector
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.config import SharderConfig
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_apiserver import InMemoryTransport, User
from kubeshard_apiserver.admission.caller import WebhookCall, WebhookReply
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.virtual_time import virtual_time


class Busy(Reconciler[Thing]):
    """A reconciler that keeps each object busy until it may end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.running: set[str] = set()

    async def reconcile(self, ctx: Context, obj: Thing) -> None:
        self.running.add(obj.metadata.name)
        await self.may_end.wait()
        self.running.discard(obj.metadata.name)


@pytest.mark.regression
@virtual_time
async def test_an_object_being_drained_changes_hands_by_an_acknowledgement_and_by_no_other_update() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        busy = Busy()
        world.shard("s0", busy, workers=20)
        await world.make_things(20)
        await world.until(lambda: len(busy.running) == 20, within=30)
        world.shard("s1", Busy())
        await world.until(world.draining, within=30)
        await asyncio.sleep(10)
        asked, before = world.draining(), world.owners()
        assert before == {f"t{number}": "s0" for number in range(20)}
        async with world.admin() as client:
            for name in before:
                await client.patch(
                    Thing, name, "team", MergePatch({"metadata": {"labels": None}, "spec": {"v": 1}})
                )
            assert world.owners() == before
            assert world.draining() == asked
            for name in asked:
                only = {"metadata": {"labels": {shard_label(world.ring): None}}}
                await client.patch(Thing, name, "team", MergePatch(only))
                only = {"metadata": {"labels": {drain_label(world.ring): "true", "x": "y"}}}
                await client.patch(Thing, name, "team", MergePatch(only))
        assert world.owners() == before
        busy.may_end.set()
        await world.until(lambda: world.all_owned("s0", "s1"), within=30)
        assert {name for name, owner in world.owners().items() if owner == "s1"} == asked


OPERATOR = User("system:serviceaccount:team:operator", groups=("system:masters",))
JANE = User("jane", groups=("system:masters",))


@pytest.mark.regression
@pytest.mark.parametrize("listed", [True, False])
@virtual_time
async def test_a_drain_is_acknowledged_by_shards_and_by_nobody_else_whether_their_users_are_listed_or_not(
    listed: bool,
) -> None:
    """Where none are listed, shards of this library are known by their signature. It was once enough that the update
    changed nothing else, and jane's would have been taken for the shard's.
    """
    async with SimulatedCluster(users={"s0": OPERATOR, "s1": OPERATOR, "jane": JANE}) as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0", SharderConfig(shard_users={world.ring: (OPERATOR.name,)} if listed else {}))
        busy = Busy()
        world.shard("s0", busy, workers=20)
        await world.make_things(20)
        await world.until(lambda: len(busy.running) == 20, within=30)
        world.shard("s1", Busy())
        await world.until(world.draining, within=30)
        await asyncio.sleep(10)
        asked, before = world.draining(), world.owners()
        given_up = {shard_label(world.ring): None, drain_label(world.ring): None}
        transport, config = InMemoryTransport(world.front), world.config("jane")
        async with Client(config, transport=transport, world=world.outside) as jane:
            for name in asked:
                await jane.patch(Thing, name, "team", MergePatch({"metadata": {"labels": given_up}}))
        handed_over = {**before, **dict.fromkeys(asked, "s1")}
        assert world.draining() == asked
        assert world.owners() == before
        busy.may_end.set()
        await world.until(lambda: world.all_owned("s0", "s1"), within=30)
        assert world.owners() == handed_over


class Counted:
    """Counts the webhook calls of a world's API server."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.calls = 0
        self._ask = world.caller.call
        world.caller.call = self  # type: ignore[method-assign]

    async def __call__(self, call: WebhookCall) -> WebhookReply:
        self.calls += 1
        return await self._ask(call)


@pytest.mark.quick
@pytest.mark.regression
@virtual_time
async def test_the_sharders_own_assignments_are_not_shown_to_the_webhook_but_a_removed_label_is() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        await asyncio.sleep(5)
        counted = Counted(world)
        await world.make_things(10)
        assert counted.calls == 10
        world.shard("s0", Busy(), workers=10)
        await world.until(lambda: world.all_owned("s0"), within=30)
        assert counted.calls == 10
        async with world.admin() as client:
            await client.patch(Thing, "t0", "team", MergePatch({"metadata": {"labels": None}}))
        assert counted.calls == 11
        assert world.owners()["t0"] == "s0"


def webhooks(world: SimulatedCluster) -> list[dict[str, object]]:
    resource = GroupResource("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
    return [webhook for obj in world.server.store.objects(resource).values() for webhook in obj["webhooks"]]


class OldServer:
    """The API server in front of a sharder, which drops or rejects match conditions of webhooks."""

    def __init__(self, world: SimulatedCluster, sharder: Process, refusal: int) -> None:
        self._inner = InMemoryTransport(world.front)
        self._refusal = refusal
        self.applied = 0
        for network in sharder.networks:
            network.before = self

    async def __call__(self, request: HttpRequest) -> HttpResponse | None:
        if request.method != "PATCH" or "mutatingwebhookconfigurations" not in request.target:
            return None
        self.applied += 1
        body = json.loads(request.body or b"")
        conditions = [webhook.pop("matchConditions", None) for webhook in body["webhooks"]]
        if any(conditions) and self._refusal:
            status = {"message": ".webhooks[0].matchConditions: field not declared in schema"}
            return HttpResponse(self._refusal, {}, json.dumps(status).encode())
        return await self._inner.request(request._replace(body=json.dumps(body).encode()))


@pytest.mark.regression
@pytest.mark.parametrize("refusal", [0, 400, 422, 500], ids=["dropped", "400", "422", "500"])
@virtual_time
async def test_a_server_that_knows_no_match_conditions_is_not_fought_and_objects_are_assigned(
    refusal: int,
) -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        old = OldServer(world, world.sharder("x0"), refusal)
        world.shard("s0", Touch())
        await world.make_things(5)
        await world.until(lambda: world.all_owned("s0"), within=30)
        await asyncio.sleep(60)
        assert [webhook.get("matchConditions") for webhook in webhooks(world)] == [None]
        assert old.applied <= 4
        await world.make_ring("r2")
        await asyncio.sleep(60)
        assert len(webhooks(world)) == 2
        assert old.applied <= 5


@pytest.mark.regression
@pytest.mark.parametrize("seed", [1, 2])
@virtual_time
async def test_an_object_that_a_user_replaces_without_labels_during_its_drain_is_never_in_two_hands(
    seed: int,
) -> None:
    async with SimulatedCluster(seed=seed) as world:
        cluster = Cluster(world)
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        for name in ("s0", "s1"):
            cluster.shard(name)
        await asyncio.sleep(30)
        await world.make_things(20)
        await world.until(lambda: world.all_owned("s0", "s1"), within=60)
        replaced: set[str] = set()
        async with world.admin() as admin:
            for number in range(20):  # keeps the shards at work
                await admin.patch(Thing, f"t{number}", "team", MergePatch({"spec": {"v": 1}}))
            cluster.shard("s2")
            for _ in range(300):
                await asyncio.sleep(0.1)
                for name in sorted(world.draining() - replaced):
                    path = f"/apis/sim.example/v1/namespaces/team/things/{name}"
                    thing = json.loads((await admin.raw("GET", path)).body)
                    del thing["metadata"]["labels"]
                    await admin.raw("PUT", path, json.dumps(thing).encode())
                    replaced.add(name)
        assert replaced
        assert cluster.together == []
        await world.until(lambda: world.all_owned("s0", "s1", "s2") and not world.draining(), within=30)
        assert {name for name, owner in world.owners().items() if owner == "s2"} == replaced


@pytest.mark.quick
@pytest.mark.regression
@virtual_time
async def test_a_webhook_that_swallows_its_calls_delays_a_creation_by_two_seconds_and_the_object_is_assigned() -> (
    None
):
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        world.shard("s0", Touch())
        await asyncio.sleep(20)

        async def swallowed(call: WebhookCall) -> WebhookReply:
            await asyncio.sleep(call.timeout)
            return WebhookReply(problem="context deadline exceeded")

        world.caller.call = swallowed  # type: ignore[method-assign]
        began = world.loop.time()
        await world.make_things(1)
        assert 1.9 < world.loop.time() - began < 2.1
        await world.until(lambda: world.all_owned("s0"), within=1)


@pytest.mark.regression
@virtual_time
async def test_a_webhook_is_not_said_to_be_unreached_because_of_a_namespace_for_which_it_is_not_called() -> (
    None
):
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring(selector=LabelSelector(match_labels={"space": "a"}))

        async def label(value: str | None) -> None:
            async with world.admin() as client:
                await client.patch(
                    Namespace, "team", "", MergePatch({"metadata": {"labels": {"space": value}}})
                )

        def said() -> bool:
            (ring,) = world.objects("sharding.timebertt.dev", "controllerrings").values()
            return "WebhookReached" in {each["type"] for each in ring["status"]["conditions"]}

        await label("a")
        world.sharder("x0")
        world.shard("s0", Touch())
        await asyncio.sleep(20)
        world.caller.reachable = False
        await world.make_things(1)
        await world.until(said, within=60)
        world.caller.reachable = True
        await label(None)
        await world.until(lambda: not said(), within=65)
        await asyncio.sleep(130)
        assert not said()


@pytest.mark.regression
@virtual_time
async def test_an_update_that_exchanges_the_shard_is_stored_with_the_shard_that_the_object_has() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        for name in ("s0", "s1"):
            world.shard(name, Touch())
        await world.make_things(6)
        await world.until(lambda: world.all_owned("s0", "s1"), within=30)
        await asyncio.sleep(30)
        before, calls = world.owners(), Counted(world)
        async with world.admin() as admin:
            for name, shard in before.items():
                for other in ("s1" if shard == "s0" else "s0", "ghost", "", None):
                    labels = {"app": "x", shard_label(world.ring): other}
                    patch = MergePatch({"metadata": {"labels": labels}, "spec": {"v": str(other)}})
                    stored = await admin.patch(Thing, name, "team", patch)
                    assert stored.metadata.labels == {"app": "x", shard_label(world.ring): shard}
                    assert stored.spec["v"] == str(other)
            assert calls.calls == 4 * len(before)
            calls.calls = 0
            await admin.patch(Thing, "t0", "team", MergePatch({"spec": {"v": "1"}}))
            assert calls.calls == 0
        assert world.owners() == before
        world.shard("s2", Touch())
        await world.until(lambda: "s2" in world.owners().values() and not world.draining(), within=30)
