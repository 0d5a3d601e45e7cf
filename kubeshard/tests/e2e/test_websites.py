"""The webhosting operator's ring grows, shrinks and loses a shard."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
from e2e_processes import Processes, ended
from e2e_recorder import Labels, Recorder, Seen
from e2e_ring import Ring, owners
from e2e_user import User

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Conflict, MergePatch, NotOurs, ObjectMeta, metadata_only
from kubeshard.shard import ShardFence, ShardIdentity
from kubeshard.shard.identity import Incarnation
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.ring_resources import RingResources
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import RING, SKIP_WORKLOAD_LABEL, Website, WebsiteSpec
from kubeshard_lab.examples.webhosting.workload import Deployment, Ingress, Service

CHILDREN = (ConfigMap, Deployment, Ingress, Service)
COUNT = 12


def website(name: str, namespace: str) -> Website:
    meta = ObjectMeta(name=name, namespace=namespace, labels={SKIP_WORKLOAD_LABEL: "true"})
    return Website(metadata=meta, spec=WebsiteSpec(theme="lame"))


class Sites:
    """Websites that only the operator and the sharder touch, and all their recorded events."""

    def __init__(self, recorder: Recorder, websites: list[Website]) -> None:
        self._recorder = recorder
        self._websites = websites

    @property
    def labels(self) -> dict[str, Labels]:
        return self._only_mine(self._recorder.labels(Website))

    def owners(self, *shards: str) -> dict[str, Labels]:
        return owners(self._websites, *shards)

    def complete(self) -> bool:
        """Every website is ready, and all of its children are on its shard."""
        live = self._recorder.latest(Website)
        return all(live[name].status.phase == "Ready" for name in self.labels) and self.followed()

    def followed(self) -> bool:
        labels = self.labels
        return all(self.of_children(name) == [labels[name]] * len(CHILDREN) for name in labels)

    def of_children(self, name: str) -> list[Labels]:
        return [self._recorder.labels_of(child) for _, child in self._children(name)]

    def traces_of_children(self, name: str, since: int) -> list[list[Labels]]:
        return [
            self._recorder.trace(kind, child.metadata.name, since) for kind, child in self._children(name)
        ]

    def trace(self, name: str, since: int) -> list[Labels]:
        """Returns the website's labels each time they changed."""
        before = [e for e in self._recorder.of(Website, name) if e.version <= since][-1]
        changes = [self._recorder.labels_of(before.object)]
        for labels in self._recorder.trace(Website, name, since):
            if labels != changes[-1]:
                changes.append(labels)
        return changes[1:]

    def touched(self, since: int) -> set[str]:
        return self._recorder.touched(Website, since) & self.labels.keys()

    async def quiet(self, seconds: float = 0.7) -> None:
        """Waits until the websites no longer change; the sharder checks again after 3 s."""

        def mine(event: Seen) -> bool:
            meta = event.object.metadata
            return (meta.name if event.kind == "Website" else meta.label("website")) in self.labels

        await self._recorder.quiet(Website, *CHILDREN, about=mine, seconds=seconds)

    def _children(self, name: str) -> list[tuple[type, object]]:
        return [
            (kind, child)
            for kind in CHILDREN
            for child in self._recorder.latest(kind).values()
            if child.metadata.label("website") == name
        ]

    def _only_mine(self, labels: dict[str, Labels]) -> dict[str, Labels]:
        mine = {website.metadata.name for website in self._websites}
        return {name: value for name, value in labels.items() if name in mine}


@pytest.fixture
async def ring(kube_client: Client, namespace: str, shards: Processes) -> AsyncIterator[Ring]:
    ring = Ring(kube_client, RING, website("probe", namespace))
    await kube_client.apply(manifests.controller_ring(RING))
    yield ring
    await ring.delete()


@pytest.fixture
async def recorder(kube_client: Client, namespace: str) -> AsyncIterator[Recorder]:
    kinds = [metadata_only(kind) for kind in CHILDREN]
    async with Recorder(kube_client, RING, [namespace], kinds, [Website]).recording() as recorder:
        yield recorder


@pytest.fixture
async def user(kube_client: Client, namespace: str) -> AsyncIterator[User]:
    """A user works on other websites while the test runs."""
    work = User(kube_client, lambda number: website(f"user-{number}", namespace), pause=0.3)
    async with work.working():
        yield work


@pytest.fixture
async def sites(
    ring: Ring,
    kube_client: Client,
    namespace: str,
    shards: Processes,
    sharders: Processes,
    recorder: Recorder,
    user: User,
) -> Sites:
    """Settled websites on the shards one and two."""
    shards.start_websites("one", "two", namespace=namespace)
    await ring.available(2, 60)
    websites = [website(f"site-{i}", namespace) for i in range(COUNT)]
    created = await asyncio.gather(*map(kube_client.create, websites))
    sites = Sites(recorder, websites)
    assert {site.metadata.name: recorder.labels_of(site) for site in created} == sites.owners("one", "two")
    await recorder.until(lambda: len(sites.labels) == COUNT and sites.complete(), 30)
    await sites.quiet()
    return sites


@pytest.mark.main_job
async def test_a_joining_shard_gets_its_objects_after_they_were_let_go_and_children_follow(
    sites: Sites, recorder: Recorder, shards: Processes, namespace: str
) -> None:
    before, now = sites.labels, recorder.now
    after = sites.owners("one", "two", "three")
    moving = {name for name in before if before[name] != after[name]}
    assert 0 < len(moving) < COUNT
    shards.start_websites("three", namespace=namespace)
    await recorder.until(lambda: sites.labels == after and sites.followed(), 30, "scaling up")
    await sites.quiet(3.5)
    for name in moving:
        assert sites.trace(name, now) == [before[name]._replace(draining=True), after[name]]
        assert sites.traces_of_children(name, now) == [[after[name]]] * len(CHILDREN)
    for name in before.keys() - moving:
        assert sites.trace(name, now) == []
        assert sites.traces_of_children(name, now) == [[]] * len(CHILDREN)


async def test_the_objects_of_a_leaving_shard_move_in_one_event_each(
    sites: Sites, recorder: Recorder, shards: Processes
) -> None:
    before, now = sites.labels, recorder.now
    after = sites.owners("one")
    stopped = shards.request_stop("two", signal.SIGTERM)
    await recorder.until(lambda: sites.labels == after and sites.followed(), 30, "scaling down")
    await sites.quiet()
    assert ended(stopped) == 0
    check_forced_moves(sites, recorder, {name for name in before if before[name].shard == "two"}, now)
    lease = recorder.lease("two")
    assert lease is not None
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("", 1)
    await recorder.until(lambda: recorder.state("two") == "dead", 30)


async def test_the_objects_of_a_crashed_shard_move_in_one_event_each_once_its_lease_is_taken(
    sites: Sites, recorder: Recorder, shards: Processes, user: User, kube_client: Client, namespace: str
) -> None:
    """A write based on what the crashed shard knew is rejected afterwards."""
    before, now = sites.labels, recorder.now
    after = sites.owners("one")
    known = {name: recorder.latest(Website)[name] for name in before if before[name].shard == "two"}
    shards.kill("two")
    await recorder.until(lambda: sites.labels == after and sites.followed(), 60, "recovering from a crash")
    await sites.quiet(3.5)
    check_forced_moves(sites, recorder, {name for name in before if before[name].shard == "two"}, now)
    assert recorder.seizure("two").version < min(
        event.version for name in before for event in recorder.of(Website, name, now)
    )
    assert recorder.labels(Website).items() >= owners(user.created, "one").items()
    # The writes that the killed shard might have sent a moment later.
    killed = ShardIdentity(RING, "two", namespace, Incarnation("", "", "killed"))
    fenced = kube_client.fenced(
        ShardFence(
            killed,
            RingResources([RingResource(group=Website.KIND.group, resource=Website.KIND.plural)]),
            (),
            lambda: None,
        )
    )
    for name, website in known.items():
        with pytest.raises((Conflict, NotOurs)):
            await fenced.patch(
                Website, name, namespace, MergePatch({"spec": {"theme": "late"}}), base=website
            )
        assert (await kube_client.get(Website, name, namespace)).spec.theme == "lame"


def check_forced_moves(sites: Sites, recorder: Recorder, moving: set[str], since: int) -> None:
    """Checks that exactly these websites and their children were moved, each in one event, without being unassigned in
    between.
    """
    after = sites.labels
    assert 0 < len(moving) < COUNT
    assert sites.touched(since) == moving
    for name in after:
        trace = [after[name]] if name in moving else []
        assert recorder.trace(Website, name, since) == trace
        assert sites.traces_of_children(name, since) == [trace] * len(CHILDREN)
