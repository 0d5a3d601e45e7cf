"""Leader election and events against a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from test_flow_schema_kube import silent_server

from kubeshard.client import Client
from kubeshard.client.watching import Changed
from kubeshard.controller.events import Event, EventRecorder
from kubeshard.core import ConfigMap, Lease, ObjectMeta
from kubeshard.leases.renewer import NoLeaseMetrics
from kubeshard.manager.leader_election import LeaderElection, LeaderElector
from kubeshard.runtime.clock import SystemClock


def candidate(client: Client, namespace: str, identity: str = "") -> LeaderElector:
    # A lost leadership would end the process of the tests.
    election = LeaderElection(name="lock", namespace=namespace, identity=identity, watchdog=False)
    return LeaderElector(client, election, NoLeaseMetrics())


def fit() -> str | None:
    return None


async def test_one_candidate_leads_and_hands_over_after_a_clean_stop(
    kube_client: Client, namespace: str
) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(candidate(kube_client, namespace, "a").held(fit))
        waiting = asyncio.create_task(
            stack.enter_async_context(candidate(kube_client, namespace, "b").held(fit))
        )
        await asyncio.sleep(0)
        lease = await kube_client.get(Lease, "lock", namespace)
        assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("a", 15)
        assert lease.spec.lease_transitions == 0
        assert first.holds()
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
        first.stopped_cleanly()
    lease = await kube_client.get(Lease, "lock", namespace)
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("", 1)
    async with asyncio.timeout(5), candidate(kube_client, namespace, "b").held(fit) as second:
        lease = await kube_client.get(Lease, "lock", namespace)
        assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("b", 1)
        assert second.holds()


async def test_a_leader_renews_and_is_lost_when_its_lease_is_taken(
    kube_client: Client, namespace: str
) -> None:
    async with candidate(kube_client, namespace, "a").held(fit) as leadership:
        taken = await kube_client.get(Lease, "lock", namespace)
        spec = taken.spec
        stolen = Lease(
            metadata=taken.metadata,
            spec=type(spec)(holder_identity="b", lease_duration_seconds=15, renew_time=spec.renew_time),
        )
        await kube_client.replace(stolen)
        async with asyncio.timeout(5):
            assert await leadership.lost() == "the Lease is held by 'b'"


@pytest.mark.system
@pytest.mark.real_at_night
async def test_a_leader_keeps_its_lease_while_a_webhook_delays_each_write_of_it_by_four_seconds(
    kube_client: Client, namespace: str
) -> None:
    """One that does not answer, and is ignored after that."""
    async with (
        silent_server() as port,
        delayed_leases(kube_client, namespace, port),
        candidate(kube_client, namespace, "a").held(fit) as leadership,
    ):
        renewals = {(await kube_client.get(Lease, "lock", namespace)).spec.renew_time}
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                async with kube_client.watch(Lease, namespace) as events:
                    async for event in events:
                        assert leadership.holds()
                        if isinstance(event, Changed) and event.object.metadata.name == "lock":
                            renewals.add(event.object.spec.renew_time)
        assert leadership.holds()
        assert 5 <= len(renewals) <= 10
        leadership.stopped_cleanly()
    assert (await kube_client.get(Lease, "lock", namespace)).spec.holder_identity == ""


@asynccontextmanager
async def delayed_leases(client: Client, namespace: str, port: int) -> AsyncIterator[None]:
    """Returns when writes of Leases are delayed there."""
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    webhook = {
        "name": "slow.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 4,
        "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [
            {
                "apiGroups": ["coordination.k8s.io"],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["leases"],
            }
        ],
    }
    name = f"slow-{namespace}"
    await client.apply_manifest({**kind, "metadata": {"name": name}, "webhooks": [webhook]})
    try:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 60
        took, number = 0.0, 0
        while took < 3.5:
            assert loop.time() < deadline
            began, number = loop.time(), number + 1
            await client.create(Lease(metadata=ObjectMeta(name=f"probe-{number}", namespace=namespace)))
            took = loop.time() - began
        yield
    finally:
        await client.raw("DELETE", f"/apis/{kind['apiVersion']}/validatingwebhookconfigurations/{name}")


async def test_events_are_accepted_and_counted(kube_client: Client, namespace: str) -> None:
    config = await kube_client.create(ConfigMap(metadata=ObjectMeta(name="config", namespace=namespace)))
    recorder = EventRecorder(kube_client, "test-controller", "host", clock=SystemClock())
    async with recorder.running():
        for number in range(5):
            recorder.event(config, "Warning", "Failed", f"try {number} " + "x" * 5000)
    assert recorder.failed == 0
    (event,) = [event async for event in kube_client.list(Event, namespace)]
    assert event.series is not None
    assert event.series.count == 5
    assert event.regarding is not None
    assert event.regarding.uid == config.metadata.uid
