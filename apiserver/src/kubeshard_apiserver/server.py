"""The API server as a model: all verbs on one store, without sockets, threads or a clock of its own.

Guaranteed: a verb either takes full effect or raises `ApiError` and changes nothing; two servers given the same clock,
the same source of unique names and the same calls reach the same state. docs/apiserver.md lists what is not
implemented yet. Source of the objects that every new cluster has: k8s.io/kubernetes `pkg/registry/scheduling/rest`,
`pkg/controlplane/controller/kubernetesservice`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.runtime.world import REAL_WORLD, World
from kubeshard_apiserver.admission.chain import Admission
from kubeshard_apiserver.model import Answer, Model, Target, WriteOptions
from kubeshard_apiserver.objects import JsonObject, Object, private, version_of
from kubeshard_apiserver.patching import Patch
from kubeshard_apiserver.resources.admission_plugins import ADMISSION_PLUGINS
from kubeshard_apiserver.resources.definitions import DEFINITIONS
from kubeshard_apiserver.resources.namespaces import NAMESPACES
from kubeshard_apiserver.resources.pod_defaults import SYSTEM_PRIORITIES
from kubeshard_apiserver.resources.priority_and_disruption import PRIORITY_CLASSES
from kubeshard_apiserver.resources.service_addresses import RANGE
from kubeshard_apiserver.resources.services import SERVICES
from kubeshard_apiserver.steps import finish
from kubeshard_apiserver.store import Journal
from kubeshard_apiserver.verbs.deleting import DeleteOptions, Deletions
from kubeshard_apiserver.verbs.establishing import Definitions
from kubeshard_apiserver.verbs.reading import ListOptions, Page, Reads
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH
from kubeshard_apiserver.verbs.updating import Updates
from kubeshard_apiserver.verbs.watching import WatchCursor, Watches
from kubeshard_apiserver.verbs.writing import Writes

_PORT = 6443
_USED = {
    "system-cluster-critical": "Used for system critical pods that must run in the cluster, but can be moved to "
    "another node if necessary.",
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
}


class Initial(NamedTuple):
    resource: GroupResource
    namespace: str
    body: Mapping[str, Any]


INITIAL_OBJECTS = (
    *(
        Initial(
            PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value, "description": _USED[name]}
        )
        for name, value in SYSTEM_PRIORITIES.items()
    ),
    Initial(
        SERVICES,
        "default",
        {
            "metadata": {
                "name": "kubernetes",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "clusterIP": str(RANGE[1]),
                "ports": [{"name": "https", "port": 443, "targetPort": _PORT}],
            },
        },
    ),
)


INITIAL_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
WINDOW = 10_000


class ApiServer:
    """`window` is the minimum number of events of each resource that watches and snapshots can go back. `journal`
    persists the objects beyond this process, and may already contain some. `admission_plugins` are those that change
    pods; by default all. `feature_gates`: the features that are on although they are off by default in Kubernetes 1.37;
    known is `SHARDED_LIST_AND_WATCH`.

    The verbs of this class make no calls: every admission webhook appears to be unreachable. A caller that can call
    webhooks (`steps.perform`) uses the steps of `writes`, `deletions` and `admission` instead.
    """

    def __init__(
        self,
        *,
        window: int = WINDOW,
        journal: Journal | None = None,
        world: World = REAL_WORLD,
        admission_plugins: Collection[str] = ADMISSION_PLUGINS,
        feature_gates: Collection[str] = (),
    ) -> None:
        self.world = world
        self.model = model = Model(clock=world.clock, rng=world.rng, window=window, plugins=admission_plugins)
        self.clock, self.rng, self.store, self.registry = world.clock, world.rng, model.store, model.registry
        self.durable = journal is not None
        self.admission = Admission(model)
        self.reads = Reads(model, shards=SHARDED_LIST_AND_WATCH in feature_gates)
        self.watches = Watches(model.store, self.reads)
        updates = Updates(model, self.admission)
        self.definitions = definitions = Definitions(model, updates)
        self.writes = Writes(model, self.admission, updates, definitions)
        self.deletions = Deletions(model, self.reads, self.admission, definitions)
        if journal is not None:
            self.store.resume(journal)
            for definition in sorted(self.store.objects(DEFINITIONS).values(), key=version_of):
                definitions.serve(definition)
        namespaces = self.registry.find("", "v1", "namespaces")
        if namespaces is None:
            raise AssertionError("namespaces are built in")
        for name in INITIAL_NAMESPACES:
            if self.store.get(NAMESPACES, Key("", name)) is None:
                self.create(
                    Target(namespaces), {"metadata": {"name": name}}, WriteOptions(manager="kube-apiserver")
                )
        for resource, namespace, body in INITIAL_OBJECTS:
            found = self.registry.find(resource.group, "v1", resource.resource)
            key = Key(namespace, body["metadata"]["name"])
            if found is not None and self.store.get(resource, key) is None:
                self.create(Target(found, namespace), body, WriteOptions(manager="kube-apiserver"))

    def now(self) -> str:
        return self.model.now()

    def live(self, target: Target) -> Object:
        """See `Model.live`."""
        return finish(self.model.reading(target))

    def get(self, target: Target, resource_version: str = "") -> Object:
        """See `Reads.get`."""
        return finish(self.model.converting(lambda: self.reads.get(target, resource_version)))

    def list(self, target: Target, options: ListOptions | None = None) -> Page:
        """See `Reads.list`."""
        return finish(self.model.converting(lambda: self.reads.list(target, options)))

    def watch(self, target: Target, options: ListOptions | None = None) -> WatchCursor:
        """See `Watches.watch`."""
        return self.watches.watch(target, options)

    def create(self, target: Target, body: JsonObject, options: WriteOptions | None = None) -> Answer:
        """See `Writes.creating`. The body stays the caller's."""
        return finish(self.writes.creating(target, private(body), options))

    def replace(self, target: Target, body: Object, options: WriteOptions | None = None) -> Answer:
        """See `Writes.replacing`."""
        return finish(self.writes.replacing(target, body, options))

    def patch(self, target: Target, patch: Patch, options: WriteOptions | None = None) -> Answer:
        """See `Writes.patching`."""
        return finish(self.writes.patching(target, patch, options))

    def delete(self, target: Target, options: DeleteOptions | None = None) -> Answer:
        """See `Deletions.deleting`."""
        return finish(self.deletions.deleting(target, options))

    def delete_collection(
        self, target: Target, selected: ListOptions | None = None, options: DeleteOptions | None = None
    ) -> Page:
        """See `Deletions.deleting_collection`."""
        return finish(self.deletions.deleting_collection(target, selected, options))
