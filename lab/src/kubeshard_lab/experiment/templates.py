"""The objects of a load that an author describes: a template of a manifest, and when such an object is ready.

An object changes by a merge patch of its spec, rendered anew. `$random` is the same again for the same seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kubeshard.client.client import Client
from kubeshard.client.requests import collection_path
from kubeshard.core.documents import at
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import Kind, split_api_version
from kubeshard.core.objects import Form, KubeObject, ObjectMeta, PartialObject, field, metadata_only
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import Selector
from kubeshard.manifests.samples import ObjectTemplate
from kubeshard.sharding.crd import sharder_prerequisites
from kubeshard.sharding.names import shard_label
from kubeshard_lab.experiment.plan import Due, LoadPlan
from kubeshard_lab.experiment.subject import REQUESTED, RUN_LABEL, Seen, labels_of


class Anything(KubeObject):
    status: dict[str, Any] = field(default_factory=dict)


class Ready(NamedTuple):
    """When an object is ready: a condition is True, or a field has a value."""

    path: tuple[str, ...] = ()
    value: str = ""
    condition: str = "Ready"

    @classmethod
    def parse(cls, text: str) -> Ready:
        """`Ready` is a condition's type, `status.phase=Running` a field below the status. Raises ConfigurationError."""
        path, equals, value = text.partition("=")
        if not equals:
            return cls(condition=text)
        parts = tuple(path.split("."))
        if len(parts) < 2 or parts[0] != "status" or not all(parts):
            raise ConfigurationError(f"--ready {text}: write a condition's type, or status.FIELD=VALUE")
        return cls(parts[1:], value)

    def generation(self, status: Mapping[str, Any], newest: int) -> int:
        """0 if none is ready. A status that does not say which it has observed is about the `newest`."""
        observed = at(status, "observedGeneration")
        if self.path:
            found = at(status, *self.path)
            written = str(found).lower() if isinstance(found, bool) else str(found)
            return (observed if isinstance(observed, int) else newest) if written == self.value else 0
        for condition in at(status, "conditions", default=()):
            if at(condition, "type") == self.condition and at(condition, "status") == "True":
                about = at(condition, "observedGeneration", default=observed)
                return about if isinstance(about, int) else newest
        return 0


class Templates:
    """`given`: manifests that the operator needs. Raises ConfigurationError for a useless template."""

    def __init__(
        self,
        run: str,
        scenario: str,
        text: str,
        *,
        ready: Ready,
        ring: str,
        controller: str,
        given: Sequence[Mapping[str, Any]],
        changes: bool,
    ) -> None:
        self._template = ObjectTemplate(text)
        self._labels = labels_of(run, scenario)
        self._ready = ready
        self._given = given
        self.ring = ring
        self.controller = controller
        self.selector = Selector.equals(RUN_LABEL, run)
        self._shard_label = shard_label(ring) if ring else ""
        one, other = (self._template.render("name", number, word) for number, word in ((1, "a"), (2, "b")))
        if changes and one.get("spec") == other.get("spec"):
            raise ConfigurationError(
                "the template's spec is always the same, so no object would change: use $random or $number in it"
            )
        self._api_version, self._kind_name = one["apiVersion"], one["kind"]
        self._namespace = one["metadata"].get("namespace", "")
        self._kind: Kind | None = None

    async def form(self, client: Client) -> Form[Any]:
        return Form(await self._served(client), Anything)

    def installation(self, *, ring: bool) -> Iterator[Mapping[str, Any]]:
        if ring:
            yield from sharder_prerequisites()
        yield from self._given

    def foundation(self, plan: LoadPlan) -> Iterator[Mapping[str, Any]]:
        for name in [self._namespace] if self._namespace else plan.projects:
            yield {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": self._labels},
            }

    async def send(self, client: Client, due: Due) -> ObjectMeta | None:
        kind = await self._served(client)
        form = metadata_only(kind)
        namespace = (self._namespace or due.namespace) if kind.namespaced else None
        match due.verb:
            case "create":
                manifest = self._template.render(due.name, due.number, due.theme)
                metadata = dict(manifest["metadata"])
                metadata["labels"] = {**metadata.get("labels", {}), **self._labels}
                if namespace is not None:
                    metadata["namespace"] = namespace
                body = msgspec.json.encode({**manifest, "metadata": metadata})
                answer = await client.raw("POST", collection_path(kind, namespace), body)
                return msgspec.json.decode(answer.body, type=PartialObject).metadata
            case "delete":
                await client.delete(form, due.name, namespace)
                return None
            case "patch" if not due.namespace:
                return None  # a Theme's, which only Websites have
            case "patch" if not due.theme:
                note = MergePatch({"metadata": {"annotations": {REQUESTED: str(due.number)}}})
                return (await client.patch(form, due.name, namespace, note)).metadata
            case "patch":
                spec = self._template.render(due.name, due.number, f"{due.theme}-{due.number}").get(
                    "spec", {}
                )
                return (await client.patch(form, due.name, namespace, MergePatch({"spec": spec}))).metadata

    def seen(self, obj: KubeObject) -> Seen:
        assert isinstance(obj, Anything)
        meta = obj.metadata
        shard = meta.label(self._shard_label) if self._shard_label else ""
        return Seen(meta.uid, self._ready.generation(obj.status, meta.generation), shard)

    async def _served(self, client: Client) -> Kind:
        if self._kind is None:
            group, version = split_api_version(self._api_version)
            self._kind = await client.discovery.kind(group, kind=self._kind_name, version=version)
        return self._kind
