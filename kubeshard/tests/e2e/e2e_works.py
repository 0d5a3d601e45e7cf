"""Objects of the gated operator, and their journal entries."""

from __future__ import annotations

from collections.abc import Iterable

from e2e_kinds import Chore, Entry, Realm, WorkSpec
from e2e_recorder import Labels, Recorder, Seen
from e2e_ring import owners

from kubeshard.client import Client
from kubeshard.core import ObjectMeta
from kubeshard.core.patches import MergePatch


class Works:
    """Creates, holds and releases chores and realms."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        namespace: str,
        kinds: Iterable[type[Chore] | type[Realm]] = (Chore, Realm),
    ) -> None:
        self._client = client
        self._kinds = tuple(kinds)
        self._recorder = recorder
        self._namespace = namespace
        self.all: list[Chore | Realm] = []

    async def create(self, count: int, hold: bool = False) -> None:
        for number in range(count):
            spec = WorkSpec(hold=hold, note="")
            chore = ObjectMeta(name=f"chore-{number}", namespace=self._namespace)
            realm = ObjectMeta(name=f"realm-{self._namespace}-{number}")
            for kind in self._kinds:
                meta = chore if kind is Chore else realm
                self.all.append(await self._client.create(kind(metadata=meta, spec=spec)))
        await self._recorder.until(
            # Each kind has its own watch, so an entry may arrive before its object.
            lambda: (
                self.labels.keys() == set(self.names)
                and all(self.entries(name, "began" if hold else "ended") for name in self.names)
            ),
            what="a reconcile of each",
        )

    @property
    def names(self) -> list[str]:
        return [obj.metadata.name for obj in self.all]

    @property
    def labels(self) -> dict[str, Labels]:
        recorded = {
            name: found for kind in self._kinds for name, found in self._recorder.labels(kind).items()
        }
        return {name: recorded[name] for name in self.names if name in recorded}

    def owners(self, *shards: str) -> dict[str, Labels]:
        return owners(self.all, *shards)

    def events(self, name: str, since: int = 0) -> list[Seen]:
        return self._recorder.of(Realm if name.startswith("realm") else Chore, name, since)

    def trace(self, name: str, since: int) -> list[Labels]:
        """Returns the labels each time they changed."""
        *_, before = (event for event in self.events(name) if event.version <= since)
        changes = [self._recorder.labels_of(before.object)]
        for event in self.events(name, since):
            labels = self._recorder.labels_of(event.object)
            if labels != changes[-1]:
                changes.append(labels)
        return changes[1:]

    def entries(self, name: str, what: str, shard: str = "") -> list[Seen]:
        return [
            event
            for event in self._recorder.of(Entry)
            if (event.object.spec.work, event.object.spec.what) == (name, what)
            and shard in ("", event.object.spec.shard)
        ]

    async def let_go(self, *names: str) -> None:
        for obj in self.all:
            if not names or obj.metadata.name in names:
                meta = obj.metadata
                await self._client.patch(
                    type(obj), meta.name, meta.namespace, MergePatch({"spec": {"hold": False}})
                )

    async def touch(self, obj: Chore | Realm) -> None:
        """Triggers a reconcile."""
        meta = obj.metadata
        patch = MergePatch({"spec": {"note": "touched"}})
        await self._client.patch(type(obj), meta.name, meta.namespace, patch)

    def never_in_two_hands(self) -> None:
        """Checks that no shard began to work on an object while another one worked on it, that is, had neither finished
        nor lost its Lease.
        """
        at_work: dict[str, str] = {}
        for event in self._recorder.events:
            if event.kind == "Lease" and event.object.spec.holder_identity != event.key.name:
                at_work = {work: shard for work, shard in at_work.items() if shard != event.key.name}
            if event.kind != "Entry":
                continue
            spec = event.object.spec
            if spec.what == "ended":
                assert at_work.pop(spec.work) == spec.shard
            else:
                before = at_work.setdefault(spec.work, spec.shard)
                assert before == spec.shard, (
                    f"{spec.shard} began with {spec.work} while {before} worked on it"
                )
