"""The webhosting operator as a process: a shard of its ring, its sharder, both, or a singleton with leader election.

RBAC: what `kubeshard rbac kubeshard_lab.examples.webhosting.operator` prints.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubeshard import ALL, Client, Manager, Sharding, StatusPages
from kubeshard.client.connecting import connected
from kubeshard.core.selectors import LabelSelector
from kubeshard.manager.metrics_access import self_signed
from kubeshard.manager.runnable import Runnable
from kubeshard.runtime import environ
from kubeshard.runtime.world import REAL_WORLD, World
from kubeshard.shard.settings import DeclaredRing, LeaseTerms
from kubeshard.shard.sharding import Mode
from kubeshard.shard.timing import scaled
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_lab.examples.webhosting.api import OPERATOR, PHASES, PROJECT_LABEL, RING, Theme, Website
from kubeshard_lab.examples.webhosting.config import OperatorSettings, load_settings
from kubeshard_lab.examples.webhosting.controller import website_controller


def manager() -> Manager:
    """The operator for `kubeshard run` and `kubeshard manifests operator`: a shard of its ring, with a sharder service,
    unless environment variables say otherwise; its Lease is in the pod's namespace.
    """
    environment = {"ENABLE_SHARDING": "true", **environ.variables()}
    settings, _ = load_settings(None, environment)
    namespace = settings.config.leader_election.resource_namespace
    return build_operator(msgspec.structs.replace(settings, namespace=namespace), None, REAL_WORLD)


def build_operator(settings: OperatorSettings, client: Client | None, world: World) -> Manager:
    """In the client's world. The caller keeps ownership of the client. Raises ConfigurationError."""
    config = settings.config
    secure = not config.insecure_metrics and config.metrics_address != "0"

    async def export_state() -> None:
        # Runs once the caches have synced; before that, exported metrics would be wrong.
        built.metrics.registry.register(
            StateMetrics(lambda: built.cache.list(Website, ALL), lambda: built.cache.list(Theme))
        )

    election = config.leader_election
    built = Manager(
        [website_controller(config.ingress, workers=settings.workers)],
        client=client,
        sharding=_membership(settings, settings.sharding) if settings.sharding else None,
        leader_election=None
        if settings.sharding
        else election.election(OPERATOR, settings.namespace, world.rng),
        runnables=[Runnable("state-metrics", export_state)],
        status_pages=StatusPages(
            metrics_address=config.metrics_address,
            metrics_ssl=self_signed(world) if secure else None,
            metrics_auth=secure,
            health_address=config.health_address,
            debug=config.debug_access,
        ),
        graceful_timeout=config.graceful_shut_down,
    )
    return built


@asynccontextmanager
async def connected_operator(
    settings: OperatorSettings, kubeconfig: str | None, context: str | None, world: World
) -> AsyncIterator[Manager]:
    """With its own client, closed when the block is left. Raises ConfigurationError, Unauthorized."""
    limiter = settings.config.client_connection.limiter(world.clock)
    async with connected(kubeconfig, context, world=world, limiter=limiter) as client:
        yield build_operator(settings, client, world)


def _membership(settings: OperatorSettings, mode: Mode) -> Sharding:
    projects = None if settings.ranges else LabelSelector(match_labels={PROJECT_LABEL: "true"})
    return Sharding(
        DeclaredRing(RING, namespace_selector=projects),
        settings.shard_name or None,
        settings.namespace or None,
        mode=mode,
        delivery="ranges" if settings.ranges else "labels",
        lease=LeaseTerms(scaled(settings.config.leader_election.lease_duration)),
    )


_WEBSITE_LABELS = ("namespace", "website", "uid")


class StateMetrics(Collector):
    """`kube_website_*` and `kube_theme_*` of cached objects, at each scrape; of a shard, its part."""

    def __init__(
        self, websites: Callable[[], Iterable[Website]], themes: Callable[[], Iterable[Theme]]
    ) -> None:
        self._websites = websites
        self._themes = themes

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._website_metrics()
        yield from self._theme_metrics()

    def _website_metrics(self) -> Iterator[Metric]:
        info = _gauge("kube_website_info", "Information about a Website", *_WEBSITE_LABELS, "theme")
        shard = _gauge("kube_website_shard", "Shard of a Website", *_WEBSITE_LABELS, "shard", "drain")
        generation = _gauge("kube_website_metadata_generation", "Generation of a Website", *_WEBSITE_LABELS)
        observed = _gauge(
            "kube_website_observed_generation", "Generation last seen by the operator", *_WEBSITE_LABELS
        )
        phase = _gauge(
            "kube_website_status_phase", "Phase of a Website (stateset)", *_WEBSITE_LABELS, "phase"
        )
        shard_key, drain_key = shard_label(RING), drain_label(RING)
        for website in self._websites():
            meta = website.metadata
            labels: Sequence[str] = (meta.namespace, meta.name, meta.uid)
            info.add_metric([*labels, website.spec.theme], 1)
            shard.add_metric([*labels, meta.label(shard_key), meta.label(drain_key)], 1)
            generation.add_metric(labels, meta.generation)
            observed.add_metric(labels, website.status.observed_generation)
            for name in PHASES:
                phase.add_metric([*labels, name], float(website.status.phase == name))
        yield from (info, shard, generation, observed, phase)

    def _theme_metrics(self) -> Iterator[Metric]:
        info = _gauge("kube_theme_info", "Information about a Theme", "theme", "uid", "color", "font_family")
        generation = _gauge("kube_theme_metadata_generation", "Generation of a Theme", "theme", "uid")
        for theme in self._themes():
            meta = theme.metadata
            info.add_metric([meta.name, meta.uid, theme.spec.color, theme.spec.font_family], 1)
            generation.add_metric([meta.name, meta.uid], meta.generation)
        yield from (info, generation)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)
