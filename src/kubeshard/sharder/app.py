"""The sharder as a process: what it is made of.

    every replica   caches (shard Leases, ControllerRings, Namespaces, own webhook configurations), lease
                    observer and its probe, webhook server, metrics and health pages
    the leader      shardlease, controllerring and sharder controllers

Guaranteed: nothing that is kept grows with the number of sharded objects. RBAC: see the controllers; leader
election needs get, create, update on leases in its namespace, metrics need create on tokenreviews and
subjectaccessreviews.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Deleted, Delta
from kubeshard.client.client import Client
from kubeshard.controller.controller import Controller
from kubeshard.manager.connecting import connected
from kubeshard.manager.manager import Manager
from kubeshard.manager.metrics_certificate import self_signed
from kubeshard.manager.rights import LeaderFence
from kubeshard.manager.runnable import Runnable
from kubeshard.manager.running import run
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.rng import Rng
from kubeshard.runtime.world import REAL_WORLD, World
from kubeshard.sharder.admission import ShardAdmission
from kubeshard.sharder.assignment_controller import Assignments, assignment_controller
from kubeshard.sharder.certificate_controller import SharedCertificate, serving_names
from kubeshard.sharder.config import SharderConfig
from kubeshard.sharder.dead_shards import DeadShards
from kubeshard.sharder.kinds import ResourceKinds
from kubeshard.sharder.lanes import Lanes
from kubeshard.sharder.lease_controller import lease_controller
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.metrics import SharderMetrics, StateCollector
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.permissions import Permissions
from kubeshard.sharder.repairs import Repairs
from kubeshard.sharder.reports import RingReports
from kubeshard.sharder.resync import Resync
from kubeshard.sharder.ring_controller import ring_controller
from kubeshard.sharder.unassigned import UnassignedWatches
from kubeshard.sharder.unknown_namespaces import UnknownNamespaces
from kubeshard.sharder.views import RingViews
from kubeshard.sharder.webhook_drift import WebhookDrift
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import WEBHOOK_PATH_PREFIX
from kubeshard.webhook.app import Webhook
from kubeshard.webhook.certificates import CertificateFiles, CertificateSource
from kubeshard.webhook.server import WebhookServer


def build_sharder(config: SharderConfig, client: Client) -> Manager:
    """The sharder, ready to run. The client stays the caller's. Raises ConfigurationError."""
    clock, rng = client.world.clock, client.world.rng
    registry = CollectorRegistry()
    sharder = client.with_user_agent("sharder").with_field_manager("sharder")
    metrics = SharderMetrics(registry)
    cache = Cache(sharder)
    reports = RingReports()
    kinds = ResourceKinds(sharder)
    observer = LeaseObserver(sharder, clock=clock)
    observer.declare(cache)
    views = RingViews(
        cache,
        observer,
        kinds,
        reports,
        default_selector=config.webhook.config.namespace_selector,
        strict=config.strict,
        calculated=metrics.calculated,
        clock=clock,
    )
    views.declare()
    forgetful: list[Callable[[str], None]] = [views.forget, metrics.forget, reports.forget]
    cache.declare(ControllerRing).add_handler(lambda delta: _forget(delta, forgetful))
    registry.register(StateCollector(cache))
    address = config.webhook.server.address
    certificates = _certificates(config, sharder, clock, rng) if address else None
    servers = []
    if address and certificates:
        host, port = address
        admission = ShardAdmission(
            views,
            sharders=config.sharders,
            shard_users=lambda ring: config.shard_users.get(ring.name, ()),
            strict=config.strict,
            registry=registry,
            clock=clock,
        )
        forgetful.append(admission.forget)

        async def prepared() -> None:
            await cache.synced()
            await kinds.tried()

        servers.append(
            WebhookServer(
                {WEBHOOK_PATH_PREFIX: Webhook(admission, on_failure="Ignore")},
                certificates,
                host=host,
                port=port,
                reuse_port=config.webhook.server.reuse_port,
                server_name=serving_names(config.webhook.config.client_config)[0],
                after=prepared,
                registry=registry,
            )
        )
    ca = certificates if isinstance(certificates, SharedCertificate) else None
    secure = not config.insecure_metrics
    fence = LeaderFence()
    election = config.leader_election.election(config.election_name, config.election_namespace, rng)
    leader = sharder.fenced(fence) if election else sharder
    return Manager(
        [
            lease_controller(observer, clock),
            ring_controller(
                cache,
                observer,
                reports,
                config.webhook.config,
                WebhookDrift(sharder, clock, rng),
                ca,
                clock,
                strict=config.strict,
            ),
            _assignments(config, leader, cache, observer, views, kinds, reports, metrics, clock, rng),
        ],
        client=client,
        cache=cache,
        leader_election=election,
        leader_fence=fence,
        runnables=[
            Runnable("lease-observer", observer.run),
            Runnable("ring-kinds", lambda: kinds.keep_learning(cache)),
        ],
        servers=servers,
        metrics_address=config.metrics_address,
        metrics_ssl=self_signed(client.world) if secure and config.metrics_address != "0" else None,
        metrics_auth=secure,
        health_address=config.health_address,
        readiness={
            "webhook": lambda: None if all(s.ready() for s in servers) else "the webhook does not listen"
        },
        graceful_timeout=config.graceful_shut_down,
        registry=registry,
    )


@asynccontextmanager
async def connected_sharder(
    config: SharderConfig, kubeconfig: str | None, context: str | None, world: World
) -> AsyncIterator[Manager]:
    """The sharder with a client of its own, found as `load_config` finds the cluster; closed when the block
    is left. Raises ConfigurationError, Unauthorized.
    """
    limiter = config.client_connection.limiter(world.clock)
    async with connected(kubeconfig, context, world=world, limiter=limiter) as client:
        yield build_sharder(config, client)


def run_sharder(
    config: SharderConfig,
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    world: World = REAL_WORLD,
) -> None:
    """Runs the sharder until it is told to stop. Raises SystemExit as `kubeshard.manager.run`."""
    run(connected_sharder(config, kubeconfig, context, world))


def _assignments(
    config: SharderConfig,
    client: Client,
    cache: Cache,
    observer: LeaseObserver,
    views: RingViews,
    kinds: ResourceKinds,
    reports: RingReports,
    metrics: SharderMetrics,
    clock: Clock,
    rng: Rng,
) -> Controller[ControllerRing]:
    sharder = config.controller.sharder
    permissions = Permissions(client, reports, clock)
    repairs = Repairs(clock, rng)
    mover = Mover(
        client,
        view=views.view,
        dead=DeadShards(client, observer, clock).proven,
        failed=repairs.add,
        drained=lambda job: lanes.drained(job),
        metrics=metrics,
        clock=clock,
        rng=rng,
        strict=config.strict,
    )
    unknown = UnknownNamespaces()
    resync = Resync(
        client,
        views,
        kinds,
        mover,
        reports,
        permissions,
        metrics,
        unknown,
        concurrent_moves=sharder.concurrent_moves,
        strict=config.strict,
        clock=clock,
    )
    unassigned = UnassignedWatches(
        client,
        views,
        kinds,
        mover,
        permissions,
        unknown,
        concurrent_moves=sharder.concurrent_moves,
        clock=clock,
        rng=rng,
    )
    lanes = Lanes(resync, views, observer, sync_period=sharder.sync_period, clock=clock)
    assignments = Assignments(
        cache,
        observer,
        views,
        lanes,
        resync,
        mover,
        unassigned,
        repairs,
        permissions,
        clock=clock,
    )
    return assignment_controller(assignments, sharder.sync_period)


def _forget(delta: Delta[ControllerRing], forgetful: Iterable[Callable[[str], None]]) -> None:
    """Whatever is remembered of rings, in any replica, goes with them."""
    if isinstance(delta, Deleted):
        for forget in forgetful:
            forget(delta.object.name)


def _certificates(config: SharderConfig, client: Client, clock: Clock, rng: Rng) -> CertificateSource:
    """The files of the configuration; where it names none and there are none, a certificate of the
    sharder's own.
    """
    server = config.webhook.server
    certificate, key = server.directory / server.cert_name, server.directory / server.key_name
    if server.cert_dir or certificate.exists():
        return CertificateFiles(certificate, key)
    return SharedCertificate(client, serving_names(config.webhook.config.client_config), clock=clock, rng=rng)
