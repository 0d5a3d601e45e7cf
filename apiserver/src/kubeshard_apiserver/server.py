"""The API server as a model: all verbs on one store, without sockets, threads or a clock of its own.

Guaranteed: a verb takes effect as a whole or raises `ApiError` and changes nothing; two servers given the
same clock, the same source of unique names and the same calls hold the same state. What it does not do yet is
listed in docs/apiserver.md.
"""

from __future__ import annotations

from kubeshard.core.objects import Key
from kubeshard.runtime.world import REAL_WORLD, World
from kubeshard_apiserver.deleting import Deletions
from kubeshard_apiserver.model import Target, WriteOptions
from kubeshard_apiserver.objects import version_of
from kubeshard_apiserver.resources.definitions import DEFINITIONS
from kubeshard_apiserver.resources.initial import INITIAL_OBJECTS
from kubeshard_apiserver.resources.namespaces import NAMESPACES
from kubeshard_apiserver.store import Journal
from kubeshard_apiserver.watching import Watches

INITIAL_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
WINDOW = 10_000


class ApiServer(Deletions, Watches):
    """`window`: for how many events of each resource watches and snapshots reach back at least. `journal`:
    what keeps the objects beyond this process, and may know some already.
    """

    def __init__(
        self,
        *,
        window: int = WINDOW,
        journal: Journal | None = None,
        world: World = REAL_WORLD,
    ) -> None:
        self.world = world
        super().__init__(clock=world.clock, rng=world.rng, window=window)
        if journal is not None:
            self._resume(journal)
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
                self.create(Target(found, namespace), dict(body), WriteOptions(manager="kube-apiserver"))

    def _resume(self, journal: Journal) -> None:
        self.store.resume(journal)
        for definition in sorted(self.store.objects(DEFINITIONS).values(), key=version_of):
            self._serve(definition)
