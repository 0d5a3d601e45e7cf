"""What happened in a run, as data: who sent, wrote, began and ended what, and when. The checker and the timeline of
a failure are made from nothing else.

The order of entries is that of events; several may have the same time. Requests are recorded when they leave their
process, when they are answered and when they fail, changes when they are stored, by the request that made them (0: a
user's; -1: one by which a shard only takes what nobody remembers to be another's).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import msgspec

from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportError
from kubeshard.sharding.names import INCARNATION_ANNOTATION, drain_label, shard_label
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.store import Store
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.deliveries import LEASES, THINGS
from kubeshard_lab.simulation.processes import Process, is_sharders

_KINDS = {"things": "main", "configmaps": "child", "leases": "lease"}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Something that happened. A long run has hundreds of thousands, and none refers to another."""

    at: float


class Sent(Entry, frozen=True):
    """A write leaves a process, or a read has failed. `sharder`: it acts as the sharder."""

    request: int
    process: str
    sharder: bool
    verb: str
    kind: str
    name: str
    timeout: float
    what: str


class Answered(Entry, frozen=True):
    """The server answers, or the process learns that the request has failed on its way: without a status, `why` says
    how. Not recorded if nobody learns anything: then the outcome is unknown.
    """

    request: int
    status: int
    why: str = ""


class Changed(Entry, frozen=True):
    """A main object or a child was stored. Owners and drains are those of the object itself; `main_owner` and
    `main_uid` those of its main object at this time; `belongs_to` is the UID in the child's owner reference.
    """

    request: int
    kind: str
    name: str
    uid: str
    existed: bool
    exists: bool
    owner: tuple[str, str]
    draining: tuple[bool, bool]
    labels_only: bool = False
    main_owner: str = ""
    main_uid: str = ""
    belongs_to: str = ""
    what: str = ""
    """The kind and the name of the object, where these do not follow from `kind` and `name`."""
    revision: int = 0
    unaware_until: float = -math.inf
    """Until when the sender could not know that a user has taken the object from its shard."""


class LeaseChanged(Entry, frozen=True):
    """A Lease was written; `holder` is None if it was deleted. `elected`: not a shard's, but that of an election."""

    request: int
    name: str
    holder: str | None
    incarnation: str
    elected: bool = False


class Began(Entry, frozen=True):
    """A reconcile of a main object began. An object of another UID is another one, also if it has the same name.
    `unaware`: the process cannot know yet that a user has taken it.
    """

    process: str
    name: str
    uid: str
    unaware: bool = False


class Ended(Entry, frozen=True):
    process: str
    name: str
    uid: str


class Started(Entry, frozen=True):
    process: str


class Died(Entry, frozen=True):
    process: str
    why: str


class Inflicted(Entry, frozen=True):
    """A fault began, or (`over`) ended."""

    number: int
    kind: str
    over: bool = False


class Hit(Entry, frozen=True):
    """A fault has chosen its victim."""

    number: int
    process: str


class Restored(Entry, frozen=True):
    """etcd was restored. `owners` is who then owns each main object that exists, and whether it is being drained;
    `leases` are the shards that then hold their Leases; what was written after these `revisions` is undone.
    """

    owners: dict[str, tuple[str, bool]]
    leases: tuple[str, ...] = ()
    revisions: dict[str, int] = {}


class Switched(Entry, frozen=True):
    """The shards of the ring take objects otherwise from now on. `by_version`: by ranges, not by labels."""

    by_version: bool


class Calm(Entry, frozen=True):
    """All faults are over."""


class Finished(Entry, frozen=True):
    """Everything has settled, or was given the time to."""


class Recorder:
    """Records a run from now on. `ring` is the ring whose labels matter."""

    def __init__(self, world: SimulatedCluster, ring: str) -> None:
        self.entries: list[Entry] = []
        self._world = world
        self._labels = shard_label(ring), drain_label(ring)
        self._sent = 0
        """How many requests have been sent: one that is sent again counts again."""
        self._numbers: dict[int, tuple[int, HttpRequest]] = {}
        """The number of each request by its identity, which its presence here keeps unique."""
        self._answered: set[int] = set()
        self._by_version = world.delivery.by_version
        world.leaving.append(self._leaves)
        world.observers.append(self._observe)
        world.learners.append(self._learn)
        world.deaths.append(lambda process: self.add(Died, process.name, process.dead))
        for store in world.stores:
            store.subscribe(partial(self._stored, store))

    def add(self, entry: type[Entry], *fields: Any) -> None:
        """Records what happens now; `fields` are those of the entry, without its time."""
        self.entries.append(entry(self._now, *fields))

    def restored(self) -> None:
        draining = self._world.draining()
        owners = {name: (owner, name in draining) for name, owner in self._world.owners().items()}
        leases = sorted(
            key.name
            for key, lease in self._world.objects("coordination.k8s.io", "leases").items()
            if lease["spec"].get("holderIdentity") == key.name
        )
        stores = {name: self._world.store(self._world.cluster_of(name)) for name in owners}
        self.add(Restored, owners, tuple(leases), {name: store.revision for name, store in stores.items()})

    @property
    def _now(self) -> float:
        return round(self._world.loop.time(), 6)

    def _leaves(self, process: Process, request: HttpRequest) -> None:
        if request.method != "GET":
            self._send(process, request)

    def _send(self, process: Process, request: HttpRequest) -> None:
        if (asked := self._asked(request)) is None:
            return
        kind, name, what = asked
        self._sent += 1
        self._numbers[id(request)] = self._sent, request
        sharder, timeout = is_sharders(process, request), request.timeout or 0.0
        self.add(Sent, self._sent, process.name, sharder, request.method, kind, name, timeout, what)

    def _asked(self, request: HttpRequest) -> tuple[str, str, str] | None:
        """The kind and the name that the request is about, and both in words; None if it does not matter."""
        parts = request.target.partition("?")[0].split("/")
        place = next((index for index, part in enumerate(parts) if part in _KINDS), None)
        if place is None:
            return None
        name = parts[place + 1] if len(parts) > place + 1 else ""
        return _KINDS[parts[place]], name, f"{parts[place]} {name or '*'}"

    def _observe(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        if answer is not None:
            self._answer(request, answer.status)

    def _learn(self, process: Process, request: HttpRequest, outcome: HttpResponse | TransportError) -> None:
        if isinstance(outcome, TransportError):
            status, why = 0, str(outcome)
        else:
            status, why = outcome.status, ""
        if request.method == "GET" and (status >= 400 or why) and status != 404:
            self._send(process, request)
        number, _ = self._numbers.get(id(request), (0, request))
        if why or number not in self._answered:
            self._answer(request, status, why)

    def _answer(self, request: HttpRequest, status: int, why: str = "") -> None:
        if id(request) in self._numbers:
            number, _ = self._numbers[id(request)]
            self._answered.add(number)
            self.add(Answered, number, status, why)

    def _stored(self, store: Store, resource: GroupResource) -> None:
        delivery, sender = self._world.delivery, self._world.sender.get()
        number = 0 if sender is None else self._numbers.get(id(sender[1]), (0, None))[0]
        for which, event in delivery.changes(store, resource):
            if delivery.by_version != self._by_version and which != LEASES:
                self._by_version = delivery.by_version
                self.add(Switched, self._by_version)
            if entry := self._entry(
                which, event, -1 if delivery.unremembered and which != LEASES else number
            ):
                self.entries.append(entry)

    def _entry(self, resource: GroupResource, event: Event, number: int) -> Entry | None:
        """What is recorded of a change that the request of this number made."""
        kind = _KINDS.get(resource.resource)
        old, new, name = event.old, event.new, event.key.name
        if kind == "lease":
            if event.key.namespace != "ops":
                return None
            holder = None if new is None else new["spec"].get("holderIdentity") or ""
            annotations = (new or {"metadata": {}})["metadata"].get("annotations") or {}
            incarnation = annotations.get(INCARNATION_ANNOTATION, "")
            return LeaseChanged(self._now, number, name, holder, incarnation)
        if kind is None or (some := new or old) is None:
            return None
        main_name = name.removeprefix("c-")
        main = self._world.stored(THINGS, event.key._replace(name=main_name))
        references = some["metadata"].get("ownerReferences") or [{"uid": ""}]
        by = sender[0].name if (sender := self._world.sender.get()) else ""
        return self._change(
            event,
            number,
            kind,
            main_name,
            labels_only=bool(old and new) and but_labels(old) == but_labels(new),
            main_owner=self._owner(main),
            main_uid="" if main is None else main["metadata"]["uid"],
            belongs_to=references[0]["uid"] if kind == "child" else "",
            unaware_until=self._world.delivery.unaware_until(by, (main or some)["metadata"]),
        )

    def _change(self, event: Event, number: int, kind: str, name: str, **more: Any) -> Changed:
        old, new = event.old, event.new
        some: Any = new or old
        uid, there = some["metadata"]["uid"], (old is not None, new is not None)
        owner, draining = (self._owner(old), self._owner(new)), (self._draining(old), self._draining(new))
        return Changed(
            self._now, number, kind, name, uid, *there, owner, draining, revision=event.revision, **more
        )

    def _owner(self, obj: Any) -> str:
        return "" if obj is None else str((obj["metadata"].get("labels") or {}).get(self._labels[0], ""))

    def _draining(self, obj: Any) -> bool:
        return obj is not None and self._labels[1] in (obj["metadata"].get("labels") or {})


def but_labels(obj: Any) -> Any:
    """Returns what a change of labels leaves as it is."""
    metadata = {**obj["metadata"], "labels": None, "resourceVersion": "", "managedFields": None}
    return {**obj, "metadata": metadata}
