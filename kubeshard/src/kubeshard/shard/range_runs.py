"""The runs of a shard's controllers, by the buckets of their objects.

| the object in the cache | what happens |
|---|---|
| none | passed on: it is gone, or belongs to another shard. If its namespace or its cluster gives the bucket, like \
one in the cache, but postponed while it is open whose the bucket is |
| of a bucket that this shard owns | passed on, with a client that writes only while it owns the bucket in this term |
| of a bucket in which kinds that the controller reads have not been listed | postponed |
| of any other bucket | nothing: what is handed over leaves the cache, and comes anew if it comes back |

The object's hash is always looked at, whatever the cache says: an API server that does not know hash ranges sends
everything.

Guaranteed: when `idle` returns, nothing in this process acts for an object of the bucket (`controller.in_flight`), and
as long as the bucket is drained nothing begins to: neither a run, nor a write of a task that a run left behind. What
writes into a cluster (`writes_in`) acts for its bucket, whatever it runs for; while that is drained, only its own runs
write there.

A run may also write to objects of other buckets of this shard. `idle` does not wait for these writes, and need not.
None is sent once its object's bucket is idle (`RangeOwnership.may_write`). One that was sent before may arrive late,
but it has the version that its run had read (`version_fence`). If the next owner has written since, it is refused. If
not, there is nothing of the next owner's that it could overwrite, and the watch shows it like any other change. To wait
would couple buckets: a run that hangs in one would keep all from being handed over to which it may write. The exception
is a JSON patch without `base`: it has to test what it replaces.

A run that is cancelled (`cancel`) ends without a failure. Not guaranteed: that a run ends that swallows
its cancellation.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from kubeshard.client.version_fence import VersionFence
from kubeshard.client.write_records import WriteLedger
from kubeshard.controller.in_flight import Activities, InFlight, Object, current_object
from kubeshard.controller.reconciler import Result, RunFn, no_run
from kubeshard.controller.run import Run
from kubeshard.core.errors import NotOurs
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key, KubeObject
from kubeshard.shard.range_ownership import RangeOwnership, State

POSTPONED = 0.1
"""Seconds until an object is tried again that arrived before other kinds of its bucket; later, a fraction of the time
that these have taken, but LONGEST at most, because a kind may take for ever, and all objects of the bucket wait for it.
"""
FRACTION, LONGEST = 0.25, 60.0

CLUSTER = GroupKind("", "Cluster")

BucketOf = Callable[[Run, KubeObject | None], int | None]
"""In which bucket the object of a run is, which a cache has shown, or does not have; None if that does not show."""


class _Ledger(NamedTuple):
    """A `WriteLedger`."""

    sending: Callable[[float], Callable[[bool], None]]


class BucketRuns:
    """Of one process."""

    def __init__(self, ownership: RangeOwnership) -> None:
        self._ownership = ownership
        self._scopes: defaultdict[int, set[asyncio.Timeout]] = defaultdict(set)
        """Of the runs of each bucket."""
        self._acting: defaultdict[int, dict[Object, InFlight]] = defaultdict(dict)
        """The objects of each bucket for which something may act."""
        self._postponed: dict[int, tuple[int, float]] = {}
        """By bucket, in which term runs have been postponed, and since when."""
        self._writes = InFlight()
        """Those into clusters."""

    def bound(
        self,
        bucket_of: BucketOf,
        fence: VersionFence,
        inner: RunFn,
        reads: frozenset[GroupKind] | None = None,
    ) -> RunFn:
        """One controller's reconcile as a shard runs it: for `Controller.guarded`. `fence` is what the client of each
        run is bound with. `reads`: the shared kinds that the controller reads besides its objects; None: all of them
        have to be listed before it runs.
        """

        def run_of(run: Run, obj: KubeObject | None) -> Awaitable[Result | None]:
            if (bucket := bucket_of(run, obj)) is None:
                return inner(run, None) if obj is None else no_run(None)
            # An object in the cache has been listed. That it is not there says something once its kind has been, too.
            listed = reads if obj is not None or reads is None else reads | {run.form.kind.group_kind}
            if (term := self._ownership.term(bucket, listed)) is not None:
                return self._work(fence, inner, run, obj, bucket, term, listed)
            if obj is None and self._ownership.state(bucket) is State.FOREIGN:
                return inner(run, None)
            if (awaited := self._ownership.awaited(bucket)) is not None:
                return no_run(Result(requeue_after=self._pause(bucket, awaited)))
            return no_run(Result(requeue_after=POSTPONED) if obj is None else None)

        return run_of

    def writes_in(self, cluster: str, bucket: int) -> WriteLedger:
        """For clients of a cluster whose bucket this is."""
        return _Ledger(partial(self._sending, (CLUSTER, Key("", "a write").at(cluster)), bucket))

    def busy(self, bucket: int) -> bool:
        """Whether something may act for the bucket."""
        return any(True for _ in self._acting_for(bucket))

    def acting(self, buckets: Collection[int]) -> list[str]:
        """The objects of these buckets for which something may act."""
        return sorted(str(key) for bucket in buckets for _, key in self._acting_for(bucket))

    async def idle(self, bucket: int) -> None:
        """Returns when nothing acts for the bucket any more, however long that takes. Tasks that outlive runs are asked
        to end.
        """
        while acting := self._acting.get(bucket):
            (which, in_flight) = next(iter(acting.items()))
            await in_flight.idle(*which)
            acting.pop(which, None)
        self._acting.pop(bucket, None)

    def cancel(self, buckets: Collection[int]) -> None:
        now = asyncio.get_running_loop().time()
        for bucket in buckets:
            for scope in self._scopes.get(bucket, ()):
                if not scope.expired():
                    scope.reschedule(now)

    def _acting_for(self, bucket: int) -> Iterator[Object]:
        return (which for which, acts in self._acting.get(bucket, {}).items() if acts.count(*which))

    def _sending(self, which: Object, bucket: int, late: float) -> Callable[[bool], None]:
        if self._ownership.term(bucket) is None and current_object() not in self._acting.get(bucket, ()):
            whose = (
                "not for long this shard's" if self._ownership.may_write(bucket) else "another shard's by now"
            )
            raise NotOurs(f"cluster {which[1].cluster} is {whose}: not written")
        self._acting[bucket][which] = self._writes
        return Activities(self._writes, "", *which).sending(late)

    async def _work(
        self,
        fence: VersionFence,
        inner: RunFn,
        run: Run,
        obj: KubeObject | None,
        bucket: int,
        term: int,
        reads: frozenset[GroupKind] | None,
    ) -> Result | None:
        which, activities = (run.form.kind.group_kind, run.key), run.activities
        check = partial(self._require, bucket, term)
        run.client = run.client.fenced(fence.bound(check, str(bucket)))
        self._acting[bucket][which] = activities.in_flight
        scope, working = asyncio.Timeout(None), activities.working()
        try:
            async with scope:
                self._scopes[bucket].add(scope)
                try:
                    return await inner(run, obj)
                finally:
                    self._scopes[bucket].discard(scope)
        except TimeoutError:
            if not scope.expired():
                raise
            return None
        finally:
            working.end()
            activities.left(
                lambda: (
                    None if self._ownership.term(bucket, reads) == term else "its bucket has been handed over"
                )
            )
            acting = self._acting[bucket]
            # What others have left behind may be over, without a run that shows it.
            for each in (which, *islice(acting, 2)):
                if (acts := acting.pop(each, None)) is not None and acts.count(*each):
                    acting[each] = acts

    def _pause(self, bucket: int, term: int) -> float:
        """Seconds until a run is tried again that has to wait for the lists of this term."""
        now = asyncio.get_running_loop().time()
        before, since = self._postponed.get(bucket, (term, now))
        if before != term:
            since = now
        self._postponed[bucket] = term, since
        return min(max(POSTPONED, (now - since) * FRACTION), LONGEST)

    def _require(self, bucket: int, term: int) -> None:
        if not self._ownership.may_write(bucket, term):
            raise NotOurs(f"bucket {bucket} has been handed over since this run began: not written")
