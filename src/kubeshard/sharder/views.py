"""The rings as this replica sees them now: what webhook, resync and watch decide on.

Guaranteed: a view is made of what the caches and the lease book show at the moment it is asked for, and is
remembered until one of these changes, so asking per object is cheap, and as long as the view is the same object
every decision stands. Which namespaces are selected is looked up when it is asked, so a new view costs no look at
all namespaces.
Answers come from memory. A ring with an invalid namespace selector keeps its last good one, and selects no
namespace where this process never saw one (reliability 4.1).
`controller_sharding_ring_calculations_total` counts real calculations of a hash ring (protocol 14-B4).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Delta, Updated
from kubeshard.cache.store import Store
from kubeshard.core.builtin import Namespace
from kubeshard.core.kinds import GroupKind, GroupResource
from kubeshard.core.objects import Key
from kubeshard.core.selectors import InvalidSelector, LabelSelector, Selector
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.sharder.kinds import ResourceKinds
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.reports import RingReports
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.classification import RingResources
from kubeshard.sharding.names import MAX_RING_NAME, SYSTEM_NAMESPACE
from kubeshard.sharding.planner import RingView
from kubeshard.sharding.ring import HashRing

_SYSTEM_NAMESPACES = frozenset({"kube-system", SYSTEM_NAMESPACE})


class RingViews:
    """See the module. `calculated` is called with the ring's name for every hash ring that is built."""

    def __init__(
        self,
        cache: Cache,
        observer: LeaseObserver,
        kinds: ResourceKinds,
        reports: RingReports,
        *,
        default_selector: LabelSelector,
        strict: bool = False,
        calculated: Callable[[str], None] = lambda ring: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._cache = cache
        self._book = observer.book
        self._kinds = kinds
        self._reports = reports
        self._default_selector = default_selector
        self._strict = strict
        self._calculated = calculated
        self._clock = clock
        self._rings: Store[ControllerRing] = Store()
        self._namespaces: Store[Namespace] = Store()
        self._views: dict[str, _Known] = {}
        self._hashrings: dict[str, HashRing] = {}
        self._selectors: dict[str, Selector] = {}
        self._owner_kinds: dict[
            str, tuple[int, ControllerRing, Mapping[GroupResource, frozenset[GroupKind]]]
        ] = {}

    def declare(self) -> None:
        """Before the cache runs."""
        rings = self._cache.declare(ControllerRing)
        rings.add_handler(self._ring_changed)
        self._rings = rings.store
        namespaces = self._cache.declare(Namespace)
        namespaces.add_handler(self._namespace_changed)
        self._namespaces = namespaces.store

    def _ring_changed(self, delta: Delta[ControllerRing]) -> None:
        self._views.pop((delta.new if isinstance(delta, Updated) else delta.object).name, None)

    def _namespace_changed(self, delta: Delta[Namespace]) -> None:
        if not isinstance(delta, Updated) or delta.old.metadata.labels != delta.new.metadata.labels:
            self._views.clear()

    def ring(self, name: str) -> ControllerRing | None:
        """None, too, for a name that fits into no label key: where the definition in force lacks our rule, such
        a ring must not harm the others (reliability 4.1).
        """
        return self._rings.get(Key("", name)) if len(name) <= MAX_RING_NAME else None

    def available(self, ring: str) -> tuple[str, ...]:
        """Names of the ring's available shards, ascending."""
        return self._book.available(ring, self._clock.monotonic())

    def fresh(self) -> bool:
        """Whether the view of the Leases can be up to date (reliability F10)."""
        return self._book.fresh(self._clock.monotonic())

    def owner_kinds(self, ring: ControllerRing) -> Mapping[GroupResource, frozenset[GroupKind]]:
        """`RingView.owner_kinds`, as far as the kinds are known by now; nothing with the strict parity
        switch.
        """
        if self._strict:
            return {}
        known = self._owner_kinds.get(ring.name)
        if known is None or known[0] != self._kinds.learned or known[1] is not ring:
            known = (self._kinds.learned, ring, self._kinds.owner_kinds(RingResources(ring.spec.resources)))
            self._owner_kinds[ring.name] = known
        return known[2]

    def view(self, name: str) -> RingView | None:
        """None for a ring that does not exist, or is not known here yet."""
        known = self._views.get(name)
        if (
            known is not None
            and known.ring is self._rings.get(known.ring.key)
            and known.available is self.available(name)
            and known.learned == self._kinds.learned
        ):
            return known.view
        ring = self.ring(name)
        if ring is None:
            self.forget(name)
            return None
        available = self.available(name)
        hashring, owner_kinds = self._hashring(name, available), self.owner_kinds(ring)
        if (
            known is not None
            and known.ring is ring
            and known.view.hashring is hashring
            and known.view.owner_kinds == owner_kinds
        ):
            view = known.view
        else:
            view = RingView(
                name=name,
                resources=RingResources(ring.spec.resources),
                hashring=hashring,
                namespaces=self._selected(ring),
                owner_kinds=owner_kinds,
            )
        self._views[name] = _Known(view, ring, available, self._kinds.learned)
        return view

    def selects(self, ring: ControllerRing, labels: Mapping[str, str] | None) -> bool:
        """Whether the ring selects a namespace with these labels."""
        selector = self._selector(ring)
        return selector is not None and selector.matches(labels)

    def knows_namespace(self, namespace: str) -> bool:
        """Whether it can be told at all which rings select the namespace; "" stands for cluster-scoped objects."""
        return not namespace or self._cache.get(Namespace, namespace) is not None

    def forget(self, name: str) -> None:
        for memory in (self._views, self._hashrings, self._selectors, self._owner_kinds):
            memory.pop(name, None)

    def _hashring(self, name: str, available: tuple[str, ...]) -> HashRing:
        known = self._hashrings.get(name)
        if known is None or known.shards != available:
            known = self._hashrings[name] = HashRing(available)
            self._calculated(name)
        return known

    def _selected(self, ring: ControllerRing) -> Container[str] | None:
        selector = self._selector(ring)
        if selector is None:
            return ()
        selected = _Selected(self._cache, self._namespaces, selector)
        system = tuple(name for name in sorted(_SYSTEM_NAMESPACES) if name in selected)
        self._reports.system_namespaces(ring.name, system)
        return selected if selector else None

    def _selector(self, ring: ControllerRing) -> Selector | None:
        """None without a valid one."""
        given = ring.spec.namespace_selector
        try:
            selector = Selector.from_label_selector(self._default_selector if given is None else given)
        except InvalidSelector as error:
            self._reports.selector(ring.name, str(error))
            return self._selectors.get(ring.name)
        self._reports.selector(ring.name)
        self._selectors[ring.name] = selector
        return selector


class _Known(NamedTuple):
    """A view, and what shows that it is still up to date."""

    view: RingView
    ring: ControllerRing
    available: tuple[str, ...]
    learned: int


class _Selected:
    """The namespaces that a selector selects, as they are whenever asked. Lists come namespace by namespace, so the
    last answer is remembered for as long as the namespace is the same object.
    """

    def __init__(self, cache: Cache, namespaces: Store[Namespace], selector: Selector) -> None:
        self._cache = cache
        self._namespaces = namespaces
        self._selector = selector
        self._last: Namespace | None = None
        self._matches = False

    def __contains__(self, name: object) -> bool:
        namespace = self._namespaces.get(Key("", str(name)))
        if namespace is None:
            return self._cache.get(Namespace, str(name)) is not None  # raises where nothing is known yet
        if namespace is not self._last:
            self._last, self._matches = namespace, self._selector.matches(namespace.metadata.labels)
        return self._matches
