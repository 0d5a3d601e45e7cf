"""The objects of the load: Websites, their projects and Themes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeshard.client.client import Client
from kubeshard.core.objects import Form, KubeObject, ObjectMeta, form_of
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import Selector
from kubeshard.sharding.crd import sharder_prerequisites
from kubeshard.sharding.names import shard_label
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import (
    READY,
    RING,
    SKIP_WORKLOAD_LABEL,
    Theme,
    Website,
    WebsiteSpec,
)
from kubeshard_lab.experiment.objectives import CONTROLLER
from kubeshard_lab.experiment.plan import Due, LoadPlan
from kubeshard_lab.experiment.subject import REQUESTED, RUN_LABEL, Seen, labels_of


class Websites:
    """Their requests, and what a watch sees of them. `run` is the run's id."""

    controller = CONTROLLER

    def __init__(self, run: str, scenario: str, ring: str = RING) -> None:
        self.ring = ring
        self._labels = {**labels_of(run, scenario), SKIP_WORKLOAD_LABEL: "true"}
        self._shard_label = shard_label(ring)
        self.selector = Selector.equals(RUN_LABEL, run)

    async def form(self, client: Client) -> Form[Any]:
        return form_of(Website)

    def installation(self, *, ring: bool) -> Iterator[Mapping[str, Any]]:
        if ring:
            yield from sharder_prerequisites()
            yield manifests.controller_ring(RING)
        yield from manifests.crds()
        yield manifests.system_namespace()

    def foundation(self, plan: LoadPlan) -> Iterator[Mapping[str, Any]]:
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
                    change = {"metadata": {"annotations": {REQUESTED: str(due.number)}}}
                return (await client.patch(Website, due.name, due.namespace, MergePatch(change))).metadata

    def seen(self, obj: KubeObject) -> Seen:
        assert isinstance(obj, Website)
        status, meta = obj.status, obj.metadata
        generation = status.observed_generation if status.phase == READY else 0
        return Seen(meta.uid, generation, meta.label(self._shard_label))

    def _labelled(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        metadata = manifest["metadata"]
        return {
            **manifest,
            "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **self._labels}},
        }
