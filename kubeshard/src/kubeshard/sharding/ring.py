"""A ring as this process sees it now: its ControllerRing, its shards and the namespaces that it selects.

    rings.get("webhosting-operator").view       the input for decisions of webhook, scans and watches

Controllers and the webhook pass rings around; a name is looked up once, at the boundary. A ring that
is deleted ends, and one re-created under the name is another ring.

Guaranteed: a ring is told of what its view is made of (`update`, `shard_changed`, `namespaces_changed`) before anybody
acts on that, so that to see it per object is cheap. The view stays the same object until one of these changes. While it
does every decision is valid, except for the namespace: the selected ones are looked up on every call, and may change
shortly before the view does. System namespaces that the selector selects have to be confirmed by an
annotation. A ring with an invalid namespace selector keeps its last valid one, and selects no
namespace if this process never saw one. After a ring has ended, late responses and further calls of `end` have no
effect.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from kubeshard.core.builtin import Lease, Namespace
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.selectors import InvalidSelector, LabelSelector, Selector
from kubeshard.runtime.clock import Clock
from kubeshard.sharding.api import ControllerRing, SharedRanges
from kubeshard.sharding.conditions import CLEANED_UP, News, RingReport
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import (
    CLEAN_UP_FINALIZER,
    DELIVERY_ANNOTATION,
    MAX_RING_NAME,
    STRICT_HANDOVER_ANNOTATION,
    SYSTEM_NAMESPACES_ANNOTATION,
)
from kubeshard.sharding.planner import RingView
from kubeshard.sharding.ring_resources import (
    Controllers,
    PossibleOwners,
    RingEntry,
    RingResources,
    few_named_namespaces,
)
from kubeshard.sharding.shard_states import Availability, Confirmations, ShardChange, longest_wait
from kubeshard.sharding.take_overs import Evictions
from kubeshard.sharding.waiting import CleanUp

NO_RESOURCE = GroupResource("", "")
"""As which resource is counted what concerns none, where others count by theirs."""

OnDeletion = Literal["nothing", "pause", "clean up"]


class Shards(Protocol):
    """Which shards are available: the `ShardStates`. All methods read from memory; `now` is in monotonic seconds."""

    def availability(self, ring: str, now: float) -> Availability: ...

    def fresh(self, now: float) -> bool:
        """Whether the view of the Leases can be up to date."""
        ...

    def named(self, ring: str, shard: str) -> list[Lease]:
        """The Leases of a shard, also those that were deleted while they were held."""
        ...

    def signs(self, ring: str, shard: str) -> bool:
        """Whether the shard names itself as field manager of its acknowledgements."""
        ...


class Followed(Protocol):
    """What is followed of each ring that exists: its Leases, in these namespaces or, for None, in all."""

    def follow(self, ring: str, namespaces: frozenset[str] | None = None) -> None: ...

    def leave(self, ring: str) -> None: ...


class Namespaces:
    """Those with the objects of rings: the known ones of one moment, or of a cache, in a subclass."""

    def __init__(self, known: Mapping[str, Namespace] | None = None) -> None:
        self._known = known or {}

    def get(self, name: str) -> Namespace | None:
        return self._known.get(name)

    def all(self) -> Collection[Namespace] | None:
        """All namespaces; None if it is not known whether these are all."""
        return None


class Metrics(Protocol):
    """Those of a process: `sharder.metrics`."""

    def of(self, ring: str) -> Recorder: ...


class Recorder(Protocol):
    """The metrics of one ring, by name."""

    def add(
        self, name: str, resource: GroupResource | None = None, more: str = "", *, count: int = 1
    ) -> None: ...

    def set(self, name: str, value: float, resource: GroupResource | None = None, more: str = "") -> None: ...

    def scanned(self, scope: str, seconds: float) -> None: ...

    def keep(self, resources: Collection[GroupResource]) -> None: ...

    def leads_no_more(self) -> None: ...

    def end(self) -> None: ...


class Leading(Protocol):
    """What a leader keeps for the ring: the `RingMachine`, or, by ranges, its `RangeCoordination`."""

    def lease_changed(self, change: ShardChange) -> None: ...

    def ring_changed(self) -> None: ...

    def stop(self) -> None: ...


class OwnerKinds(Protocol):
    """The known kinds. `learned` increases with them."""

    @property
    def learned(self) -> int: ...

    def owner_kinds(self, resources: RingResources) -> Mapping[GroupResource, PossibleOwners]:
        """See `RingView.owner_kinds`."""
        ...


class Chains(Protocol):
    """What controls the objects that control others: `sharder.owners.OwnerChains`."""

    @property
    def known(self) -> Controllers: ...

    async def look_up(self, view: RingView, entry: RingEntry, meta: ObjectMeta) -> None: ...

    def note(self, meta: ObjectMeta) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RingInputs:
    """What the views of all rings of a process are computed from, and where rings count and time things."""

    shards: Shards
    kinds: OwnerKinds
    metrics: Metrics
    clock: Clock
    default_selector: LabelSelector
    """The selector for rings without a namespace selector."""
    system_namespaces: tuple[str, ...] = ()
    """Namespaces that have to be confirmed."""
    namespaces: Namespaces = field(default_factory=Namespaces)
    chains: Chains | None = None
    """Without it, an object that another controlled one controls is not placed."""
    leases: Followed | None = None
    """What reads the Leases of the rings' shards, if anything does."""
    drain_timeout: float = 0.0
    """See `Evictions`."""
    on_deletion: OnDeletion = "nothing"
    """What this sharder does about a ring with `CLEAN_UP_FINALIZER` that is being deleted. To pause leaves it to a
    sharder that cleans up.
    """


class Ring:
    """See the module. `news`: who is told when people may be told something else, of its shards, or a new finding."""

    def __init__(self, resource: ControllerRing, inputs: RingInputs, news: News | None = None) -> None:
        self.name = resource.name
        self.resource = resource
        self.resources = RingResources(resource.spec.resources)
        self.report = RingReport(self.name, news)
        self._news = news
        self._leading: Leading | None = None
        self.metrics = inputs.metrics.of(resource.name)
        self.clock = inputs.clock
        self.ended = False
        self.evictions = Evictions(inputs.drain_timeout)
        self.clean_up: CleanUp | None = None
        """Not None while the ring is being deleted, and cleaned up."""
        self.confirmations: Confirmations | None = None
        """Not None if it asks for strict hand-over."""
        self.named: tuple[str, ...] = ()
        """The few namespaces that the selector names, whether or not they exist; () if it may select others."""
        self._inputs = inputs
        self._shards = Availability(until=-math.inf)
        self._hashring: HashRing | None = None
        self._selector: Selector | None = None
        """The last valid selector; None if there was none."""
        self._views: tuple[RingView, RingView] | None = None
        """The views with the selected namespaces, and with all but system namespaces that are not confirmed."""
        self._few: tuple[int, tuple[str, ...] | None] | None = None
        """The last result of `_few_selected`, and what it was asked for."""
        self._learned = -1
        """The value of `learned` when the views were made."""
        self.metrics.keep(self.listed)
        self.ranges: SharedRanges | None = None
        """How it is to be shared out by ranges; None if it is not, or cannot be."""
        self._read_selector()
        self._begin_clean_up()
        self._ask_for_confirmations()
        self._read_delivery()

    def __str__(self) -> str:
        return self.name

    # State

    @property
    def view(self) -> RingView | None:
        """The current view. None after the ring has ended, while another sharder cleans it up, and if the name does not
        fit into a label key: with a CRD that lacks our rule such a ring may exist, and must not affect others.
        """
        views = self._seen()
        return views[0] if views else None

    @property
    def view_of_selected(self) -> RingView | None:
        """The view for objects in a namespace that is known to be selected."""
        views = self._seen()
        return views[1] if views else None

    @property
    def shards(self) -> Availability:
        """Which shards are available."""
        if self._shards.until < math.inf:
            self._look()
        return self._shards

    @property
    def available(self) -> tuple[str, ...]:
        """Names of the available shards, ascending."""
        return self.shards.names

    @property
    def fresh(self) -> bool:
        """Whether the view of its shards' Leases can be up to date."""
        return self._inputs.shards.fresh(self.clock.monotonic())

    @property
    def listed(self) -> frozenset[GroupResource]:
        """Its resources."""
        return frozenset(entry.resource for entry in self.resources.entries)

    @property
    def releasing(self) -> bool:
        """Whether all objects lose the ring's labels. It stays so until the ring is gone: after the clean-up others may
        still keep it.
        """
        return self._inputs.on_deletion == "clean up" and self._is_cleaned_up

    @property
    def _is_cleaned_up(self) -> bool:
        meta, status = self.resource.metadata, self.resource.status
        return meta.deleting and (
            CLEAN_UP_FINALIZER in meta.finalizers
            or any(condition.type == CLEANED_UP for condition in (status.conditions if status else ()))
        )

    def selects(self, labels: Mapping[str, str] | None) -> bool:
        """Whether the ring selects a namespace with these labels."""
        return self._selector is not None and self._selector.matches(labels)

    def has_ended(self, shard: str) -> bool:
        """Whether objects may be taken from a shard that is not available: unless the ring asks for a confirmation, and
        there is none.
        """
        if self.confirmations is None:
            return True
        leases = self._inputs.shards.named(self.name, shard)
        return self.confirmations.has_ended(shard, leases, self.clock.monotonic())

    def has_webhook_in(self, namespace: str) -> bool:
        """Whether the webhook is called for the objects in it."""
        return namespace not in self._inputs.system_namespaces

    def named_and_selected(self) -> tuple[str, ...]:
        """Those of `named` that exist, and that the ring shards: all that there is to read."""
        view = self.view
        return tuple(name for name in self.named if view is not None and view.selects(name))

    @property
    def required_labels(self) -> tuple[tuple[str, str] | None, ...]:
        """Labels of which every selected namespace has one; None: it may have any."""
        if self._selector is None:
            return ()
        for key, operator, values in self._selector.requirements:
            if operator == "in":
                return tuple((key, value) for value in values)
        return (None,)

    def selected(self, most: int, of: int) -> tuple[str, ...] | None:
        """The names of the namespaces that the ring selects, if they are at most `most`, out of at least `of`. None if
        not, or if there may be others.
        """
        namespaces = self._inputs.namespaces.all()
        if namespaces is None or len(namespaces) < of:
            return None
        if self._few is None or self._few[0] != most:
            self._few = most, self._few_selected(namespaces, most)
        return self._few[1]

    def _few_selected(self, namespaces: Iterable[Namespace], most: int) -> tuple[str, ...] | None:
        selector, found = self._selector, list[str]()
        if not selector:
            return None
        for namespace in namespaces:
            if selector.matches(namespace.metadata.labels):
                if len(found) == most:
                    return None
                found.append(namespace.metadata.name)
        return tuple(sorted(found))

    def knows_namespace(self, namespace: str) -> bool:
        """Whether the labels of the namespace are known; "" is for cluster-scoped objects."""
        return not namespace or self._inputs.namespaces.get(namespace) is not None

    async def look_up(self, entry: RingEntry, meta: ObjectMeta) -> None:
        """After Action.LOOK_UP: reads what is missing for a decision about the object. Raises ApiError."""
        if self._inputs.chains is not None and (view := self.view) is not None:
            self._tell_key(entry.resource, "what controlled objects control")
            await self._inputs.chains.look_up(view, entry, meta)

    def controls_others(self, meta: ObjectMeta) -> bool:
        """Whether the object is known to control controlled ones (`look_up`); if so, this is its current state."""
        if self._inputs.chains is None or meta.uid not in self._inputs.chains.known:
            return False
        self._inputs.chains.note(meta)
        return True

    # Events

    def led_by(self, leading: Leading) -> None:
        """What is told of all further events, as long as this process leads."""
        self._leading = leading

    def let_go(self, leading: Leading) -> None:
        """It does not lead the ring any more. Perhaps another one does."""
        if self._leading is leading:
            self._leading = None

    def update(self, resource: ControllerRing) -> bool:
        """Updates the ring. Returns whether something but its status has changed, or a clean-up has begun."""
        before = self._stated()
        self.resource = resource
        # Not the generation: after a restore of etcd it may come again.
        if before == self._stated():
            return False
        self._read_selector()
        self._read_delivery()
        self._ask_for_confirmations()
        self._begin_clean_up()
        self.resources = RingResources(resource.spec.resources)
        self._views = self._few = None
        self._shards = self._shards._replace(until=-math.inf)
        self.metrics.keep(self.listed)
        self.report.keep(self.listed)
        if self._leading is not None:
            self._leading.ring_changed()
        return True

    def shard_changed(self, change: ShardChange) -> None:
        """A Lease of the ring has changed."""
        shard = change.key.name
        if change.news:
            self._shards = self._shards._replace(until=-math.inf)
            if self._news is not None:
                self._news.tell(self.name)
        if change.presence and self.confirmations is not None and self._inputs.shards.named(self.name, shard):
            self.confirmations.there(shard)
        if self._leading is not None:
            self._leading.lease_changed(change)

    def namespaces_changed(self) -> None:
        """It may select a namespace now, or may not any longer."""
        self._views = self._few = None

    def end(self) -> None:
        """The ring was deleted: drops all its state."""
        self.ended = True
        self._views = None
        self.report.end()
        self.metrics.end()
        if self._leading is not None:
            self._leading.stop()

    def leads_no_more(self) -> None:
        """This process is not its sharder any more: what only a sharder sees is not told any longer."""
        self.report.waiting({}, {}, {}, {})
        self.report.refused_leases = {}
        self.report.failing_together = self.report.ranges_problem = ""
        self.report.ranges_unable = False
        self.metrics.leads_no_more()

    def _begin_clean_up(self) -> None:
        if not self.releasing:
            self.clean_up = None  # of a restore of etcd
            self.report.labels_left = None
        elif self.clean_up is None:
            self.clean_up = CleanUp(self.clock.monotonic())

    def _stated(self) -> tuple[object, ...]:
        meta, spec = self.resource.metadata, self.resource.spec
        delivery = meta.annotation(DELIVERY_ANNOTATION), self.resource.shard_namespaces
        return self._unconfirmed(), spec, self._is_cleaned_up, self._longest(), delivery

    @property
    def by_ranges(self) -> bool:
        """Whether its objects are not to be labelled."""
        return self.resource.by_ranges

    def _read_delivery(self) -> None:
        if self.by_ranges:
            self.report.keys_differing = {}
        try:
            self.ranges, self.report.ranges_problem = self.resource.ranges, ""
        except ValueError as error:
            self.ranges, self.report.ranges_problem = None, str(error)

    def _longest(self) -> str:
        return self.resource.metadata.annotation(STRICT_HANDOVER_ANNOTATION)

    def _ask_for_confirmations(self) -> None:
        try:
            longest = longest_wait(self._longest())
        except ValueError as error:
            longest = math.inf
            self.report.strict_handover_problem = str(error)
        else:
            self.report.strict_handover_problem = ""
        if longest is None or self.confirmations is None or self.confirmations.longest != longest:
            self.confirmations = None if longest is None else Confirmations(longest)

    # Views

    def _seen(self) -> tuple[RingView, RingView] | None:
        if self._shards.until < math.inf:
            self._look()
        if self._views is None or self._learned != self._inputs.kinds.learned:
            self._views = self._viewed()
        return self._views

    def _look(self) -> None:
        """Which shards are available was not told yet, or changes without an event."""
        if self._shards.until <= (now := self.clock.monotonic()):
            self._shards = self._inputs.shards.availability(self.name, now)
            if self._hashring is None or self._hashring.shards != self._shards.labelled:
                self._hashring, self._views = HashRing(self._shards.labelled), None
                self.metrics.add("ring_calculations")

    def _viewed(self) -> tuple[RingView, RingView] | None:
        paused = self._inputs.on_deletion == "pause" and self._is_cleaned_up
        if self.ended or paused or len(self.name) > MAX_RING_NAME or self._hashring is None:
            return None
        owner_kinds, self._learned = (
            self._inputs.kinds.owner_kinds(self.resources),
            self._inputs.kinds.learned,
        )
        if self._views is not None and self._views[0].owner_kinds == owner_kinds:
            return self._views
        self._tell_keys(owner_kinds)
        without, chains = self._unconfirmed(), self._inputs.chains
        anywhere = RingView(
            self.name,
            self.resources,
            self._hashring,
            owner_kinds=owner_kinds,
            namespaces=_AllBut(without) if without else None,
            controllers={} if chains is None else chains.known,
            releasing=self.releasing,
        )
        namespaces = self._namespaces(without)
        by_labels = namespaces if isinstance(namespaces, _Selected) else None
        return replace(anywhere, namespaces=namespaces, by_labels=by_labels), anywhere

    def _tell_keys(self, owner_kinds: Mapping[GroupResource, PossibleOwners]) -> None:
        for resource, kinds in owner_kinds.items():
            namespaced = any(each.resource == resource and each.namespaced for each in kinds.values())
            if namespaced and any(each.main and not each.namespaced for each in kinds.values()):
                self._tell_key(resource, "what cluster-scoped objects control in namespaces")

    def _tell_key(self, resource: GroupResource, which: str) -> None:
        if not self.by_ranges:  # no Go sharder works on such a ring
            self.report.keys_differ(resource, which)

    def _namespaces(self, without: tuple[str, ...]) -> Container[str] | None:
        selector = self._selector
        if selector is None:
            return ()
        selected = _Selected(self._inputs.namespaces, selector)
        self.report.unconfirmed_namespaces = tuple(name for name in without if name in selected)
        if not selector:
            return _AllBut(without) if without else None
        return _Selected(self._inputs.namespaces, selector, without)

    def _unconfirmed(self) -> tuple[str, ...]:
        """System namespaces that the ring does not shard, even if its selector selects them."""
        text = self.resource.metadata.annotation(SYSTEM_NAMESPACES_ANNOTATION)
        confirmed = {name.strip() for name in text.split(",")}
        return tuple(name for name in self._inputs.system_namespaces if name not in confirmed)

    def _read_selector(self) -> None:
        given = self.resource.spec.namespace_selector
        given = self._inputs.default_selector if given is None else given
        try:
            self._selector, self.report.selector_problem = Selector.from_label_selector(given), ""
        except InvalidSelector as error:
            self.report.selector_problem = str(error)
        else:
            self.named = few_named_namespaces(given)


class _AllBut:
    def __init__(self, excluded: tuple[str, ...]) -> None:
        self._excluded = excluded

    def __contains__(self, name: object) -> bool:
        return name not in self._excluded


class _Selected:
    """The namespaces that a selector selects, except for `excluded` ones, always current. Lists are ordered by
    namespace, so the last result is cached as long as the namespace is the same object.
    """

    def __init__(
        self,
        namespaces: Namespaces,
        selector: Selector,
        excluded: tuple[str, ...] = (),
    ) -> None:
        self._namespaces = namespaces
        self._excluded = excluded
        self._selector = selector
        self._last: Namespace | None = None
        self._matches = False

    def __contains__(self, name: object) -> bool:
        namespace = self._namespaces.get(str(name))
        if namespace is None:
            return False
        if namespace is not self._last:
            self._last = namespace
            self._matches = self.selects(namespace.metadata)
        return self._matches

    def selects(self, namespace: ObjectMeta) -> bool:
        return namespace.name not in self._excluded and self._selector.matches(namespace.labels)
