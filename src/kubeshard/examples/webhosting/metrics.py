"""State metrics of Websites and Themes, computed from the instance's own cache at each scrape.

Every instance exports the contents of its cache: a shard exports its part, a singleton everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubeshard.examples.webhosting.api import PHASES, RING, Theme, Website
from kubeshard.sharding.names import drain_label, shard_label

_WEBSITE_LABELS = ("namespace", "website", "uid")


class StateMetrics(Collector):
    """`kube_website_*` and `kube_theme_*`; `websites` and `themes` list the cached objects."""

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
