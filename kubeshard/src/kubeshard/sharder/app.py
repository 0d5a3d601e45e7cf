"""The sharder process and its components.

    every replica   caches (shard Leases, ControllerRings, Namespaces, own webhook configurations), lease
                    observer and its probe, webhook server, metrics and health pages
    the leader      shardlease and controllerring controllers, assignments

Guaranteed: memory does not grow with the number of sharded objects. RBAC: see the controllers; leader
election needs get, create, update on leases in its namespace, metrics need create on tokenreviews and
subjectaccessreviews.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from prometheus_client import CollectorRegistry

from kubeshard.cache.cache import Cache
from kubeshard.client.client import Client
from kubeshard.client.connecting import connected
from kubeshard.core.objects import Key
from kubeshard.manager.manager import Manager
from kubeshard.manager.metrics_access import self_signed
from kubeshard.manager.pages import StatusPages
from kubeshard.manager.program import run
from kubeshard.manager.runnable import Runnable
from kubeshard.manager.settings import Settings
from kubeshard.runtime.world import REAL_WORLD, World
from kubeshard.sharder.admission import ShardAdmission
from kubeshard.sharder.assignments import LabelAssignor
from kubeshard.sharder.config import SharderConfig
from kubeshard.sharder.lease_controller import lease_controller
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.metrics import SharderMetrics, StateCollector
from kubeshard.sharder.ring_controller import ring_controller
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.tasks import Crashes, supervised
from kubeshard.sharder.webhook_config import SECRET_NAME, serving_names
from kubeshard.sharder.webhook_registration import WebhookDrift
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import APP_NAME, SHARDER_FIELD_MANAGER, WEBHOOK_PATH_PREFIX
from kubeshard.sharding.ring import RingInputs
from kubeshard.webhook.app import Webhook
from kubeshard.webhook.certificates import CertificateFiles, CertificateSource
from kubeshard.webhook.server import WebhookServer
from kubeshard.webhook.shared_certificate import SharedCertificate


def build_sharder(
    config: SharderConfig, client: Client, *, webhook_server: Callable[..., WebhookServer] = WebhookServer
) -> Manager:
    """The sharder, ready to run. The caller keeps the client and closes it. `webhook_server` makes what serves the
    webhook: another one in simulations. Raises ConfigurationError.
    """
    clock, rng, registry = client.world.clock, client.world.rng, CollectorRegistry()
    sharder = client.with_user_agent("sharder").with_field_manager(SHARDER_FIELD_MANAGER)
    metrics = SharderMetrics(registry)
    observer = LeaseObserver(sharder, clock)
    cache = Cache(sharder, transforms=observer.transforms)
    assignor = LabelAssignor(sharder, cache, config.controller.sharder, service=True)
    ring_objects = cache.declare(ControllerRing)
    rings = Rings(
        RingInputs(
            shards=observer.states,
            kinds=assignor.kinds,
            metrics=metrics,
            clock=clock,
            default_selector=config.webhook.config.namespace_selector,
            system_namespaces=config.system_namespaces,
            namespaces=assignor.namespaces,
            leases=observer,
            chains=assignor.chains,
            drain_timeout=config.controller.sharder.drain_timeout,
            on_deletion="clean up",
        )
    )
    observer.declare(cache, rings)
    rings.declare(cache)
    registry.register(StateCollector(cache, rings))
    address = config.webhook.server.address
    certificates = _certificates(config, sharder) if address else None
    servers = []
    if address and certificates:
        host, port = address
        admission = ShardAdmission(rings, clock, sharders=config.sharders, shard_users=config.shard_users)

        async def prepared() -> None:
            await cache.synced()
            await assignor.kinds.tried()

        servers.append(
            webhook_server(
                {WEBHOOK_PATH_PREFIX: Webhook(admission, on_failure="Ignore")},
                certificates,
                host=host,
                port=port,
                reuse_port=config.webhook.server.reuse_port,
                server_name=serving_names(config.webhook.config.client_config)[0],
                client_authority=config.webhook.server.client_authority or "",
                after=prepared,
                registry=registry,
            )
        )

    def certified() -> ssl.SSLContext | None:
        """The webhook's certificate, which scrapers can verify: it has the Service's name."""
        return servers[0].context if servers else None

    async def observe() -> None:
        await supervised(observer.run, "lease observer", Crashes(metrics.of(""), clock))

    async def learn_kinds() -> None:
        await ring_objects.synced()
        await assignor.kinds.keep_learning(rings)

    ca = certificates if isinstance(certificates, SharedCertificate) else None
    drift = WebhookDrift(sharder, clock, rng)
    secure = not config.insecure_metrics
    election = config.leader_election.election(config.election_name, config.election_namespace, rng)
    leader = sharder.fenced(election.fence) if election else sharder
    assign = partial(assignor.lead, rings, observer, leader, leader)
    return Manager(
        [
            lease_controller(rings, observer, clock, config.controller.sharder.mass_failure_grace),
            ring_controller(
                rings,
                observer,
                config.webhook.config,
                drift,
                ca,
                clock,
                config.sharders,
                Key(config.election_namespace, config.election_name) if election else None,
            ),
        ],
        client=client,
        cache=cache,
        leader_election=election,
        runnables=[
            Runnable("lease-observer", observe),
            Runnable("ring-kinds", learn_kinds),
            Runnable("assignments", assign, needs_leadership=True),
        ],
        servers=servers,
        status_pages=StatusPages(
            metrics_address=config.metrics_address,
            metrics_ssl=self_signed(client.world, certified)
            if secure and config.metrics_address != "0"
            else None,
            metrics_auth=secure,
            health_address=config.health_address,
            readiness={
                "webhook": lambda: None if all(s.ready() for s in servers) else "the webhook is not listening"
            },
            debug=config.debug_access,
        ),
        graceful_timeout=config.graceful_shut_down,
        registry=registry,
    )


@asynccontextmanager
async def connected_sharder(
    config: SharderConfig, kubeconfig: str | None, context: str | None, world: World
) -> AsyncIterator[Manager]:
    """The sharder with its own client for the cluster that `load_config` finds; the client is closed when the block
    exits. Raises ConfigurationError, Unauthorized.
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
    """Runs the sharder until it is stopped. Raises SystemExit like `kubeshard.manager.run`."""
    run(connected_sharder(config, kubeconfig, context, world), settings=Settings())


def _certificates(config: SharderConfig, client: Client) -> CertificateSource:
    """The files of the configuration; if it names none and none exist, the sharder's own
    certificate.
    """
    server = config.webhook.server
    certificate, key = server.directory / server.cert_name, server.directory / server.key_name
    if server.cert_dir or certificate.exists():
        return CertificateFiles(certificate, key)
    names = serving_names(config.webhook.config.client_config)
    return SharedCertificate(
        client,
        names,
        namespace=config.election_namespace,
        secret=SECRET_NAME,
        app=APP_NAME,
        clock=client.world.clock,
        rng=client.world.rng,
    )
