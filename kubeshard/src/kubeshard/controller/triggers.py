"""The triggers of a controller's watches: they turn deltas into keys in its queue, without losing any.

* The predicate raises: the change counts. An unnecessary reconcile is harmless, a lost trigger is not.
* A full list shows the change (`Updated.relisted`): the predicate is also asked as if the object had just been added.
  After a restore of etcd, generations and versions come again with other contents; comparing them would lose edits and
  deletions for good.
* The map function raises: the states of the object that it did not map are kept and mapped again, with backoff, and
  before the object's next change.
* The event shows what a run for the object that it concerns wrote: it does not trigger this object if the watch says so
  (`Watch.echoes`), except with a new spec. While a run writes, that is decided at its end, since the event may come
  before the answer.
* Time passes: in a resync every cached object triggers as if it had just been added.
* The object is from the initial list or a resync, or counts only as if it had been added: recent changes have
  priority (`kubeshard.workqueue.LOW`).
* The spec changed, or may have changed in a full list, or the object is new: its backoff is reset. No other trigger
  changes its backoff.

Guaranteed: `handle` never raises, whatever the author's functions do, and does not affect other triggers. The states of
one object are mapped in order. Mapping the current state of an object is retried until it succeeds; mapping an earlier
one, or the last one of an object that left, is retried for at least 20 minutes. Both kinds of failure are counted; the
log, which has the object's key, does not show each of them.

Bounded: for an object whose changes all fail, the oldest state and the newest few are kept; of objects that left, GONE
at most. Dropped states are logged. A resync only adds keys while fewer keys wait than there are workers, so a change
waits behind at most that many keys.

A controller with finalizers is triggered when the deletion of an object with one of them begins; one with
daemons also when `restart_on` changes or the object is gone, and one with `expires` by objects that expire and when
their time changes, whatever the `when` of its primary watch lets pass, and also if a run has written that.
Otherwise every deletion would wait forever. For the same reason, every event of a member triggers while its desired set
is not complete.

Not guaranteed: a bound on the cost of a map function. It runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.informer import Informer
from kubeshard.controller.controller import Controller
from kubeshard.controller.desired.sets import UnfinishedSets
from kubeshard.controller.mapping import KeysOf, Reader, mapped_by, states, to_itself, to_owner
from kubeshard.controller.outcomes import ControllerMetrics, TriggerStep
from kubeshard.controller.sources import Enqueue
from kubeshard.controller.watch import Watch
from kubeshard.controller.when import Predicate, always, never
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import KubeshardError
from kubeshard.core.objects import Key, KubeObject
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import Logger
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.pace import Pace
from kubeshard.runtime.rng import Rng
from kubeshard.workqueue.limits import ItemExponential
from kubeshard.workqueue.order import LOW, NORMAL
from kubeshard.workqueue.queue import WorkQueue
from kubeshard.workqueue.reasons import Reason

STATES = 8
"""States of one object that are kept to be mapped again."""

GONE = 10_000
"""Objects, beyond those in the cache, that are kept to be mapped again."""

TRIES = 30
"""Attempts for a state that is not current: the first eight within a minute, then one every minute or two."""

LOG_INTERVAL = 10.0
"""Seconds between two lines about the same step."""

TRICKLE = 0.05
"""Seconds that a resync waits while there is other work."""


LISTED, ADDED, CHANGED, LEFT, RESYNCED = "listed", "added", "changed", "left the cache", "resynced"
"""What happened to an object, as used in reasons and a metric."""


class Unmapped(NamedTuple):
    """States of one object, in order."""

    states: tuple[KubeObject, ...]
    newest: bool
    """Whether the last one is the newest state that was seen."""
    tries: int = 0


class Trigger:
    """`handle` is an informer's handler; `run` does the deferred work. `has_time` returns whether the controller has
    little to do. `renewed` is called with keys whose own spec changed, `left` with those that left the cache.
    `unless_own`, if given, is called in place of `enqueue` with the metadata that a watch event shows, except for what
    `lives` passes.
    """

    def __init__(
        self,
        watch: Watch[Any],
        keys_of: KeysOf,
        informer: Informer[Any],
        enqueue: Enqueue,
        has_time: Callable[[], bool],
        *,
        renewed: Callable[[Key], None] = lambda _: None,
        left: Callable[[Key], None] = lambda _: None,
        unless_own: Callable[..., None] | None = None,
        lives: Predicate[Any] = never,
        metrics: ControllerMetrics,
        log: Logger,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._watch = watch
        self._test = watch.when.test
        self._kind = watch.form.kind.kind
        self._source = str(watch.form)
        self._keys_of = keys_of
        self._store = informer.store
        self._enqueue = enqueue
        self._has_time = has_time
        self._renewed = renewed
        self._left = left
        self._unless_own = unless_own
        self._lives = lives.test
        self._metrics = metrics
        self._log = log.bind(source=self._source)
        self._clock = clock
        self._rng = rng
        self._unmapped: dict[Key, Unmapped] = {}
        self._again: WorkQueue[Key] = WorkQueue(clock=clock, limiter=ItemExponential(rng=rng))
        self._own_reasons: dict[str, Reason] = {}
        """Reasons for changes of the reconciled objects themselves: shared by all of them."""
        self._failures: dict[TriggerStep, int] = {"predicate": 0, "map": 0}
        self._notices = Notices(clock, every=LOG_INTERVAL)

    def handle(self, delta: Delta[Any]) -> None:
        """Adds the keys that depend on the object to the queue."""
        obj = delta.new if isinstance(delta, Updated) else delta.object
        about = obj.key
        if type(delta) is Deleted:
            self._left(about)
        if self._passes(delta, about):
            what, priority, renewed = _what(delta)
        elif (
            isinstance(delta, Updated)
            and delta.relisted
            and self._passes(Added(delta.new, initial=True), about)
        ):
            what, priority, renewed = LISTED, LOW, True
        else:
            return
        if renewed:
            self._renewed(about)
        enqueue = self._enqueue
        if (
            self._unless_own is not None
            and what in (ADDED, CHANGED)
            and self._may_be_own(delta, about, renewed)
        ):
            enqueue = partial(self._unless_own, obj.metadata)
        if self._keys_of is to_itself:  # both states have the same key, which needs no function of an author
            enqueue(about, self._own(what), priority=priority)
        else:
            self._map(about, states(delta), what, priority, enqueue)

    async def run(self) -> None:
        """Retries failed mappings and runs resyncs, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._retry(), name=f"triggers of {self._source}, again")
                if self._watch.resync:
                    tasks.create_task(self._resync(self._watch.resync), name=f"resync of {self._source}")
        finally:
            self._again.shut_down(discard=True)

    # Deltas

    def _may_be_own(self, delta: Delta[Any], about: Key, renewed: bool) -> bool:
        """Not what a full list shows, which may hide what others wrote before; nor a new spec, which is for another
        run, whoever wrote it.
        """
        if (isinstance(delta, Updated) and delta.relisted) or (renewed and self._keys_of is to_itself):
            return False
        return not self._passes(delta, about, self._lives)

    def _passes(
        self, delta: Delta[Any], about: Key, test: Callable[[Delta[Any]], bool] | None = None
    ) -> bool:
        try:
            return (test or self._test)(delta)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            self._failed("predicate", about, error, "Predicate failed; the change counts")
            return True

    def _map(
        self, about: Key, seen: tuple[KubeObject, ...], what: str, priority: int, enqueue: Enqueue
    ) -> None:
        """Maps the states, after earlier ones that are still waiting."""
        waiting = self._unmapped.pop(about, None)
        if waiting is not None:
            seen = (*waiting.states, *(state for state in seen if state is not waiting.states[-1]))
            enqueue = self._enqueue  # the earlier states are not what this event shows
        failed = self._enqueued(about, seen, what, priority, enqueue)
        if failed:
            tries = waiting.tries if waiting else 0
            self._keep(about, Unmapped(failed, failed[-1] is seen[-1], tries))
            if waiting is None:
                self._again.add_rate_limited(about)
        elif waiting is not None:
            self._again.forget(about)

    def _enqueued(
        self, about: Key, seen: tuple[KubeObject, ...], what: str, priority: int, enqueue: Enqueue
    ) -> tuple[KubeObject, ...]:
        """Adds the keys of each state, each key once. Returns the states that could not be mapped."""
        added: set[Key] = set()
        failed = []
        for state in seen:
            try:
                for key in self._keys_of(state):
                    if key not in added:
                        _check_key(key)
                        reason = self._own(what) if key == about else Reason(what, self._kind, about)
                        enqueue(key, reason, priority=priority)
                        added.add(key)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                self._failed("map", about, error, "Map function failed; trying this change again")
                failed.append(state)
        return tuple(failed)

    def _own(self, what: str) -> Reason:
        reason = self._own_reasons.get(what)
        if reason is None:
            reason = self._own_reasons[what] = Reason(what, self._kind)
        return reason

    # Trying again

    async def _retry(self) -> None:
        pace = Pace(self._clock)
        while True:
            async with self._again.get() as about:
                self._map_again(about)
            await pace.step()

    def _map_again(self, about: Key) -> None:
        waiting = self._unmapped.pop(about, None)
        if waiting is None:  # mapped with a later change, or dropped
            self._again.forget(about)
            return
        failed = self._enqueued(about, waiting.states, CHANGED, NORMAL, self._enqueue)
        if not failed:
            self._again.forget(about)
            return
        tries = waiting.tries + 1
        newest = waiting.newest and failed[-1] is waiting.states[-1]
        if tries < TRIES or (newest and self._store.metadata(about) is not None):
            self._keep(about, Unmapped(failed, newest, tries))
            self._again.add_rate_limited(about)
        else:
            self._again.forget(about)
            self._log.error("Gave up mapping an earlier state", object=about, tries=tries)

    def _keep(self, about: Key, unmapped: Unmapped) -> None:
        if len(self._unmapped) >= len(self._store) + GONE:
            self._log.error("Gave up mapping an earlier state: too many are waiting", object=about)
            return
        first, *rest = unmapped.states
        self._unmapped[about] = unmapped._replace(states=(first, *rest[-(STATES - 1) :]))

    # Resync

    async def _resync(self, period: float) -> None:
        while True:
            await asyncio.sleep(period * self._rng.uniform(0.9, 1.1))
            pace = Pace(self._clock)
            keys = []  # not the objects: they would stay alive for the whole resync
            for obj in self._store.list():
                keys.append(obj.key)
                await pace.step()
            for key in keys:
                while not self._has_time():  # noqa: ASYNC110 - low-rate work needs no wake-up
                    await asyncio.sleep(TRICKLE)
                self._replay(key)
                await pace.step()

    def _replay(self, key: Key) -> None:
        try:
            obj = self._store.get(key)
        except UndecodableObject:
            return
        if obj is not None and self._passes(Added(obj, initial=True), key):
            self._map(key, (obj,), RESYNCED, LOW, self._enqueue)

    def _failed(self, step: TriggerStep, about: Key, error: BaseException, message: str) -> None:
        self._failures[step] += 1
        self._metrics.trigger_failed(self._source, step)
        if not self._notices.due(step):
            return
        if self._failures[step] == 1 and not isinstance(error, KubeshardError):
            self._log.crash(message, error, object=about)
        else:
            self._log.error(message, error=error, object=about, so_far=self._failures[step])


def _check_key(key: object) -> None:
    if not isinstance(key, Key):
        raise TypeError(f"map functions return Key(namespace, name), not {key!r}")


def _what(delta: Delta[Any]) -> tuple[str, int, bool]:
    """What happened, its priority, and whether there is a new spec to try. Kinds without a generation have none."""
    match delta:
        case Updated(old, new, relisted):
            return CHANGED, NORMAL, relisted or new.metadata.generation != old.metadata.generation
        case Added(initial=True):
            return LISTED, LOW, False
        case Added():
            return ADDED, NORMAL, True
        case Deleted():
            return LEFT, NORMAL, False


def mapped_watches(
    controller: Controller[Any], reader: Reader, unfinished: UnfinishedSets
) -> Iterator[tuple[Watch[Any], KeysOf]]:
    """The watches in the cluster of the primary objects, in the order of `Controller.all_watches`."""
    of_members = Predicate(unfinished.concerns, "of an unfinished set")
    primary = controller.primary_watch
    if (lives := lives_of(controller)) is not never:
        primary = replace(primary, when=primary.when | lives)
    yield primary, to_itself
    for watch in controller.owned_watches:
        if watch.when is not always:
            watch = replace(watch, when=watch.when | of_members)
        yield watch, to_owner(primary.form.kind, controller_only=not watch.any_owner)
    for watch in controller.mapping_watches:
        yield watch, mapped(watch, reader)
    for watch in (*controller.read_watches, *controller.leaving_watches):
        yield watch, to_itself


def mapped(watch: Watch[Any], reader: Reader) -> KeysOf:
    """The keys that a watch in `Controller.watches` triggers."""
    assert watch.to is not None, "checked where the controller is declared"
    return mapped_by(watch.to, reader)


def lives_of(controller: Controller[Any]) -> Predicate[Any]:
    """Passes what finalizers, daemons and `expires` must not miss. Other changes of an object that is being deleted are
    left to the watch: a cleanup may write to its object, and would trigger itself.
    """
    if not (controller.finalizers or controller.daemons or controller.expires):
        return never
    keys = {finalizer.key for finalizer in controller.finalizers}
    daemons, expires = controller.daemons, controller.expires
    depends = [*(daemon.restart_on for daemon in daemons), *([expires] if expires else [])]

    def concerns(obj: Any) -> bool:
        return bool(daemons) or not keys.isdisjoint(obj.metadata.finalizers)

    def test(delta: Delta[Any]) -> bool:
        match delta:
            case Added(obj):
                if obj.metadata.deleting:
                    return concerns(obj)
                return expires is not None and expires(obj) is not None
            case Updated(old, new):
                if old.metadata.deletion_timestamp != new.metadata.deletion_timestamp:
                    return concerns(new)
                return any(of(old) != of(new) for of in depends)
            case Deleted():
                return bool(daemons)

    return Predicate(test, "lives")
