"""The objects of the load: Websites, their projects and Themes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kubeshard.client.client import Client
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import Selector
from kubeshard.examples.webhosting import manifests
from kubeshard.examples.webhosting.api import READY, RING, SKIP_WORKLOAD_LABEL, Theme, Website, WebsiteSpec
from kubeshard.experiment.plan import Due, Plan
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import SYSTEM_NAMESPACE, shard_label

RUN_LABEL = "run-id"
_REQUESTED = "experiment-reconcile"


class Seen(NamedTuple):
    """What a watch sees of an object."""

    uid: str
    generation: int
    """The one that its status says is ready; 0 if none is."""
    shard: str


class Websites:
    """Their requests, and what a watch sees of them. `run` is the run's id."""

    kind = Website
    ring = RING

    def __init__(self, run: str, scenario: str) -> None:
        self._labels = {
            "generated-by": "experiment",
            "scenario": scenario,
            SKIP_WORKLOAD_LABEL: "true",
            RUN_LABEL: run,
        }
        self._shard_label = shard_label(RING)
        self.selector = Selector.equals(RUN_LABEL, run)

    def installation(self, *, ring: bool) -> Iterator[Mapping[str, Any]]:
        """What an empty cluster needs; `ring`: for a sharder service too."""
        if ring:
            yield controller_ring_crd()
            yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
            yield manifests.controller_ring(RING)
        yield from manifests.crds()
        yield manifests.system_namespace()

    def foundation(self, plan: Plan) -> Iterator[Mapping[str, Any]]:
        """The projects and Themes of a plan."""
        for name in plan.projects:
            yield self._labelled(manifests.project(name))
        for name, look in plan.themes.items():
            yield self._labelled(manifests.theme(name, *look))

    async def send(self, client: Client, due: Due) -> ObjectMeta | None:
        """Returns the metadata of a Website that was created or patched. Raises ApiError."""
        match due.verb:
            case "create":
                metadata = ObjectMeta(name=due.name, namespace=due.namespace, labels=self._labels)
                return (
                    await client.create(Website(metadata=metadata, spec=WebsiteSpec(theme=due.theme)))
                ).metadata
            case "delete":
                await client.delete(Website, due.name, due.namespace)
                return None
            case "patch" if not due.namespace:
                color, font = due.look
                await client.patch(
                    Theme, due.name, None, MergePatch({"spec": {"color": color, "fontFamily": font}})
                )
                return None
            case "patch":
                change: Mapping[str, Any] = {"spec": {"theme": due.theme}}
                if not due.theme:
                    change = {"metadata": {"annotations": {_REQUESTED: str(due.number)}}}
                return (await client.patch(Website, due.name, due.namespace, MergePatch(change))).metadata

    def seen(self, website: Website) -> Seen:
        status, meta = website.status, website.metadata
        generation = status.observed_generation if status.phase == READY else 0
        return Seen(meta.uid, generation, meta.label(self._shard_label))

    def _labelled(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        metadata = manifest["metadata"]
        return {
            **manifest,
            "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **self._labels}},
        }
