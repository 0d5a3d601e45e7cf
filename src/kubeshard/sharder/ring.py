"""A ControllerRing as this process sees it, and everything that the process remembers of it.

    rings.get("webhosting-operator").view       what webhook, looks and watches decide on

Controllers and the webhook are handed rings; a name is looked up once, where it comes in from outside. A ring that
is deleted ends, and one that is created anew under the name is another ring.

Guaranteed: a view is made of what the caches and the lease book show at the moment it is asked for, and stays the
same object until one of these changes, so asking per object is cheap. As long as the view is the same object every
decision stands, but for the namespace: which ones are selected is looked up whenever it is asked, and may change a
moment before the view does. A ring with an invalid namespace selector keeps its last good one, and selects no
namespace where this process never saw one. Whatever comes for a ring that has ended - an answer that was under way, a
second end - changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from kubeshard.core.builtin import Namespace
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupKind, GroupResource
from kubeshard.core.selectors import InvalidSelector, LabelSelector, Selector
from kubeshard.runtime.clock import Clock
from kubeshard.sharder.deaths import Deaths
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.refusals import Refusals
from kubeshard.sharder.reports import RingReport
from kubeshard.sharder.schedule import FOLLOW_FIRST, FOLLOW_FIRST_MAIN, Reach, Schedule, Track
from kubeshard.sharder.waiting import Namespaces, Pending, Waiting
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.classification import RingEntry, RingResources
from kubeshard.sharding.names import MAX_RING_NAME, SYSTEM_NAMESPACE
from kubeshard.sharding.planner import Action, Decision, RingView
from kubeshard.sharding.ring import HashRing

if TYPE_CHECKING:  # a controller that is its own sharder serves no webhook
    from kubeshard.webhook.review import PreparedAnswer

_SYSTEM_NAMESPACES = ("kube-system", SYSTEM_NAMESPACE)


class Shards(Protocol):
    """Which shards are available. Every method answers from memory; equal answers should be the same object."""

    def available(self, ring: str) -> tuple[str, ...]:
        """Names of the ring's available shards, ascending."""
        ...

    def fresh(self) -> bool:
        """Whether the view of the Leases can be up to date."""
        ...


class OwnerKinds(Protocol):
    """What is known of kinds. `learned` grows with it."""

    @property
    def learned(self) -> int: ...

    def owner_kinds(self, resources: RingResources) -> Mapping[GroupResource, frozenset[GroupKind]]:
        """See `RingView.owner_kinds`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all rings of a process share."""

    shards: Shards
    kinds: OwnerKinds
    namespace: Callable[[str], Namespace | None]
    metrics: SharderMetrics
    clock: Clock
    default_selector: LabelSelector
    """Of rings without a namespace selector of their own."""
    strict: bool = False
    """The strict parity switch."""


class Repairing(Protocol):
    """What tries again what was refused. A job names its ring, so a ring cannot name the class of jobs."""

    def add(self, job: Any, error: ApiError) -> None: ...


class Ring:
    """See the module. `changed` is called when there is something new to report."""

    def __init__(
        self, resource: ControllerRing, surroundings: Surroundings, changed: Callable[[Ring], None]
    ) -> None:
        self.name = resource.name
        self.resource = resource
        self.resources = RingResources(resource.spec.resources)
        self.report = RingReport(lambda: changed(self))
        self.refusals = Refusals(self.report, surroundings.clock)
        self.metrics = surroundings.metrics.of(resource.name)
        self.ended = False
        self.answers: dict[tuple[str, bool], PreparedAnswer] = {}
        """The webhook's, that add the label of one of the present shards; to an object with or without labels."""
        self.logged: dict[str, float] = {}
        """When the webhook last told, by reason, that it left an object unassigned."""
        self.applied: tuple[Mapping[str, Any], float] | None = None
        """The webhook configuration that was applied last, and when."""
        self.lanes: dict[GroupResource, Lane] = {}
        """Where this process leads."""
        self.deaths = Deaths()
        self._around = surroundings
        self._hashring: HashRing | None = None
        self._members: tuple[str, ...] | None = None
        """Of which the hash ring was made."""
        self._selector: Selector | None = None
        """The last good one."""
        self._views: tuple[RingView, RingView] | None = None
        """With the namespaces that the ring selects, and with all."""
        self._learned = -1
        """What was known of kinds when the views were made."""
        self.metrics.keep(self._listed())

    def __str__(self) -> str:
        return self.name

    # What it is like

    @property
    def view(self) -> RingView | None:
        """None once the ring has ended, and for a name that fits into no label key: where the definition in force lacks
        our rule, such a ring must not harm the others.
        """
        views = self._seen()
        return views[0] if views else None

    @property
    def view_of_selected(self) -> RingView | None:
        """For objects of which it is known that the ring selects their namespace."""
        views = self._seen()
        return views[1] if views else None

    @property
    def available(self) -> tuple[str, ...]:
        """Names of the available shards, ascending."""
        return self._around.shards.available(self.name)

    @property
    def strict(self) -> bool:
        return self._around.strict

    def selects(self, labels: Mapping[str, str] | None) -> bool:
        """Whether the ring selects a namespace with these labels."""
        selector = self._present_selector()
        return selector is not None and selector.matches(labels)

    def knows_namespace(self, namespace: str) -> bool:
        """Whether it can be told at all which rings select the namespace; "" stands for cluster-scoped objects."""
        return not namespace or self._around.namespace(namespace) is not None

    # What happens to it

    def update(self, resource: ControllerRing) -> None:
        """Updates the ring. What it no longer lists ends."""
        if resource.metadata.generation != self.resource.metadata.generation:
            self.request(Reach.ALL)
        self.resource = resource
        self.resources = RingResources(resource.spec.resources)
        self._views = None
        for lane in [lane for lane in self.lanes.values() if lane.entry not in self.resources.entries]:
            self._close(lane)
        self.metrics.keep(self._listed())
        self.report.keep(self._listed())

    def namespaces_changed(self) -> None:
        """The namespaces that it selects may have changed."""
        self._views = None

    def members_changed(self) -> None:
        """The available shards may have changed. To be called at once, also for a shard that comes back soon: a look
        that is under way may have seen the ring without it.
        """
        now, available = self._around.clock.monotonic(), self.available
        for lane in self.lanes.values():
            lane.schedule.members(available, now)
            lane.tell()

    def request(self, reach: Reach) -> None:
        """Something asks for a look at all resources."""
        for lane in self.lanes.values():
            lane.request(reach, self._around.clock.monotonic())

    def drained(self, resource: GroupResource, decision: Decision) -> None:
        """A main object was asked to be let go: it is looked after, together with what it may control."""
        now = self._around.clock.monotonic()
        for lane in self.lanes.values():
            if lane.entry.resource == resource:
                lane.pending.asked(decision.key)
            elif resource not in lane.entry.owners:
                continue
            lane.schedule.follow(now)
            lane.tell()

    def refused(self, resource: GroupResource, decision: Decision) -> Repairing | None:
        """What had to be done with an object was refused. Returns what tries it again later, alone."""
        if (lane := self.lanes.get(resource)) is None:
            return None
        if decision.action is Action.DRAIN:
            lane.pending.refused(decision.key)
        return lane.repairs

    def rest(self) -> None:
        """This process does not lead any more: whatever a leader does for the ring ends."""
        for lane in list(self.lanes.values()):
            self._close(lane)
        self.deaths.end()

    def end(self) -> None:
        """The ring is gone, and all that is remembered of it goes."""
        self.ended = True
        self._views = None
        self.rest()
        self.report.end()
        self.metrics.end()

    def _close(self, lane: Lane) -> None:
        del self.lanes[lane.entry.resource]
        lane.close()

    # How it is seen

    def _listed(self) -> frozenset[GroupResource]:
        return frozenset(entry.resource for entry in self.resources.entries)

    def _seen(self) -> tuple[RingView, RingView] | None:
        if self.ended or len(self.name) > MAX_RING_NAME:
            return None
        available, learned = self.available, self._around.kinds.learned
        if self._views is None or self._members is not available or self._learned != learned:
            hashring = self._present_hashring(available)
            owner_kinds = {} if self.strict else self._around.kinds.owner_kinds(self.resources)
            known, self._learned = self._views, learned
            if known is None or known[1].hashring is not hashring or known[1].owner_kinds != owner_kinds:
                anywhere = RingView(self.name, self.resources, hashring, owner_kinds=owner_kinds)
                self._views = replace(anywhere, namespaces=self._namespaces()), anywhere
        return self._views

    def _present_hashring(self, available: tuple[str, ...]) -> HashRing:
        if self._hashring is None or self._members != available:
            self._hashring = HashRing(available)
            self.answers.clear()
            self.metrics.calculated()
        self._members = available
        return self._hashring

    def _namespaces(self) -> Container[str] | None:
        selector = self._present_selector()
        if selector is None:
            return ()
        selected = _Selected(self._around.namespace, selector)
        self.report.system_namespaces(tuple(name for name in _SYSTEM_NAMESPACES if name in selected))
        return selected if selector else None

    def _present_selector(self) -> Selector | None:
        """None without a valid one."""
        given = self.resource.spec.namespace_selector
        try:
            self._selector = Selector.from_label_selector(
                self._around.default_selector if given is None else given
            )
        except InvalidSelector as error:
            self.report.selector(str(error))
        else:
            self.report.selector()
        return self._selector


class _Selected:
    """The namespaces that a selector selects, as they are whenever asked. Lists come namespace by namespace, so the
    last answer is remembered for as long as the namespace is the same object.
    """

    def __init__(self, namespace: Callable[[str], Namespace | None], selector: Selector) -> None:
        self._namespace = namespace
        self._selector = selector
        self._last: Namespace | None = None
        self._matches = False

    def __contains__(self, name: object) -> bool:
        namespace = self._namespace(str(name))
        if namespace is None:
            return False
        if namespace is not self._last:
            self._last, self._matches = namespace, self._selector.matches(namespace.metadata.labels)
        return self._matches


class Lane:
    """One resource of a ring, where this process leads: when its objects are looked at, and what is remembered of them.
    `group` is where its tasks run.
    """

    def __init__(
        self, ring: Ring, entry: RingEntry, sync_period: float, group: asyncio.TaskGroup | None = None
    ) -> None:
        self.ring = ring
        self.entry = entry
        self.schedule = Schedule(sync_period, FOLLOW_FIRST_MAIN if entry.main else FOLLOW_FIRST)
        self.open = True
        """Whether the ring still has the resource."""
        self.pending = Pending()
        """Drains of a main resource, for what its objects control."""
        self.drains = Waiting()
        """Objects that are being drained."""
        self.unassigned = Waiting()
        """Objects without an available shard."""
        self.asked: dict[str, float] = {}
        """When the server was asked whether a verb is allowed."""
        self.passed_over = Namespaces()
        """In which objects were seen before the namespace was: whether the ring selects them could not be told."""
        self.appeared: set[str] = set()
        """Namespaces to be looked at."""
        self.looking_for = False
        """Whether somebody does."""
        self.repairs: Repairing | None = None
        self._group = group
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._busy: set[Track] = set()
        self._ended = dict.fromkeys(Track, 0)
        self._news = asyncio.Event()

    def __str__(self) -> str:
        return f"{self.entry.resource} of {self.ring}"

    def start(self, work: Coroutine[object, object, None], what: str) -> None:
        """Something that ends with the lane."""
        if not self.open or self._group is None:
            work.close()
            return
        task = self._group.create_task(work, name=f"{what} {self}")
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))

    def close(self) -> None:
        """The ring does not have the resource any more."""
        self.open = False
        self.tell()
        for task in tuple(self._tasks):
            task.cancel()

    def request(self, reach: Reach, now: float) -> None:
        """Something asks for a look."""
        self.schedule.request(reach, now)
        self.tell()

    def tell(self) -> None:
        """Something has changed: wakes those who wait for this lane, to look again."""
        self._news.set()
        self._news = asyncio.Event()

    async def news(self, within: float | None = None) -> None:
        try:
            async with asyncio.timeout(within):
                await self._news.wait()
        except TimeoutError:
            pass

    def begin(self, track: Track) -> None:
        self._busy.add(track)

    def end(self, track: Track) -> None:
        self._busy.discard(track)
        self._ended[track] += 1
        self.tell()

    def due_soon(self, track: Track, now: float) -> bool:
        """Whether a look of the track is under way, or about to begin."""
        return self.open and (track in self._busy or self.schedule.due(track, now) is not None)

    async def passed(self, track: Track, clock: Clock) -> None:
        """Waits for the end of the look that is under way or about to begin, if one is."""
        ended = self._ended[track]
        while self._ended[track] == ended and self.due_soon(track, clock.monotonic()):
            await self.news()
