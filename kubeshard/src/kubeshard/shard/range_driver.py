"""Follows the assignment of a ring that is sharded by ranges, and does what `range_ownership` says.

    ask whether it could work and hand over                       before anything else; it needs no Lease: `until_able`
    compare the assignment with what all shards of the ring say   by live reads of both
    reclaim what names this shard                                 if it can be true (`members.doubts`)
    follow it                                                     each change goes to the machine, in order
    confirm what it gives                                         by live reads of both
    take over what it gives                                       `TakeOver`
    wait for drained buckets, acknowledge them                    one compare-and-swap for all of them
    report what this shard works on                               on its Lease, with the renewals

Buckets are taken over one step after the other; those that come meanwhile wait for the next step.

What a request is answered may be older than what the watch has shown meanwhile, and what the watch shows may be older
than an answer. The first is no news. The second is none, either, unless etcd was restored and no list has shown that:
so what is true is read, unless the watch soon shows what is known. And an answer that was long under way gives this
shard nothing: others have concluded from its Lease that it has nothing else (`members.RENEWALS`).

Guaranteed: one write for all buckets that a shard is asked for at a time, unless some of them cannot be released soon:
then those that can are handed over after `PARTLY` seconds, and the others later, at most so many times more as that
doubles within the drain's timeout. Nothing is written to objects.

RBAC: `get`, `list`, `watch`, `patch` on the ConfigMap `ranges-<ring>`, next to the shards' Leases; `list` on these.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from typing import NamedTuple, NoReturn, Protocol

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Deleted, Delta, current
from kubeshard.cache.informer import Informer
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.core.builtin import ConfigMap, Lease
from kubeshard.core.errors import ApiError, Conflict, NotFound, NotOurs, PatchTestFailed
from kubeshard.core.hash_ranges import HashedField, HashRanges
from kubeshard.core.kinds import GroupResource
from kubeshard.core.selectors import FieldSelector
from kubeshard.core.versions import precedes
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import set_within
from kubeshard.runtime.notices import Notices
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.range_ownership import (
    Acknowledge,
    Command,
    Drain,
    RangeOwnership,
    Read,
    Released,
    Stop,
    Tell,
)
from kubeshard.shard.ring_leases import RingLeases
from kubeshard.shard.shard_lease import HeldShardLease
from kubeshard.sharding.assignment import Assignment, Unreadable, takes_by_labels
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.members import RENEWALS, doubts, kinds_stated
from kubeshard.sharding.names import (
    DELIVERY_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    RING_LABEL,
    SHARD_NAMESPACES_ANNOTATION,
    assignment_name,
)

RETRY, MISSED_AGAIN = 1.0, 0.1
PARTLY = 2.0
RENEWED = 2.5
"""Seconds after which it is told that others have not renewed their Leases: usually each has."""
ASKED_AGAIN = 2.0
"""Seconds after which a shard that lacks something finds out whether it was mended."""
PATIENCE = 10.0
"""Seconds until it is told that there is no assignment, or that a kind cannot be listed."""
LOGGED_EVERY = 300.0
OBJECTS_TOLD = 5
FEATURE = "ShardedListAndWatch"
"""The feature gate of API servers that select by hashes (KEP-5866)."""

_log = get_logger("kubeshard.shard")


class Runs(Protocol):
    """What acts for the objects of this shard's buckets."""

    def busy(self, bucket: int) -> bool:
        """Whether something may act for the bucket."""

    def acting(self, buckets: Collection[int]) -> list[str]:
        """What may act for these buckets, as people name it."""

    async def idle(self, bucket: int) -> None:
        """Returns when nothing acts for the bucket any more, however long that takes."""

    def cancel(self, buckets: Collection[int]) -> None:
        """Ends what acts for these buckets, as far as it can be ended."""


TakeOver = Callable[[Mapping[int, int], asyncio.TaskGroup], Awaitable[None]]
"""Has this process read exactly these buckets, in these terms, and says so with `RangeOwnership.listed`. The group is
for what goes on after it returns.
"""


async def until_able(
    shard: ShardIdentity, client: Client, divided: Buckets, unable: Callable[[str], None] = lambda why: None
) -> None:
    """Returns when this shard could work on what it is given, and hand it over. Says why not, "" at the end. It needs
    no Lease for that: who waits for its Lease until another process has ended would otherwise keep that from ending.
    """
    name, notices = assignment_name(shard.ring), Notices(client.world.clock, every=LOGGED_EVERY)
    rights = [
        _Right("list", Lease.KIND.group_resource),
        *(_Right(verb, ConfigMap.KIND.group_resource, name) for verb in ("list", "watch", "patch")),
    ]

    async def refused(right: _Right) -> bool:
        with suppress(ApiError):  # it is not known, which is no reason to wait
            return not await client.can_i(right.verb, *right.of, shard.namespace, name=right.name)
        return False

    async def lacking() -> str:
        its = divided
        with suppress(NotFound):  # somebody will write it
            its = Assignment.parse((await client.get(ConfigMap, name, shard.namespace)).data).buckets
        if its != divided:
            return f"its program divides objects by {divided}, and the ring by {its}"
        answers = await asyncio.gather(*map(refused, rights))
        rights[:] = compress(rights, answers)  # what was granted is not asked for again
        what = " or ".join(map(str, rights))
        return what and f"it may not {what}, so it could not work on what it is given, or never hand it over"

    while True:
        try:
            if (why := await lacking()) and notices.due("lacking", why):
                _log.warning(
                    "This shard gets nothing of the ring, and is not ready", ring=shard.ring, error=why
                )
        except (ApiError, Unreadable) as error:
            why = f"it cannot read the ConfigMap {name}: {error}"
            _tell_unread(notices, shard.ring, error)
        unable(why)
        if not why:
            return
        await asyncio.sleep(ASKED_AGAIN)


class _Right(NamedTuple):
    verb: str
    of: GroupResource
    name: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.of.resource} {self.name}".rstrip()


def _is_missed(error: Exception) -> bool:
    """Whether a patch was refused because another writer was faster: its tests do not hold any more."""
    return isinstance(error, (PatchTestFailed, Conflict)) and not isinstance(error, NotOurs)


def _tell_unread(notices: Notices, ring: str, error: ApiError | Unreadable) -> None:
    if notices.due("unread", type(error)):
        _log.warning("Cannot read what this shard owns, so it waits", ring=ring, error=error)


class RangeDriver:
    """For one process and ring, while it holds its Lease. `home`: a client of the cluster with the Leases; `client`:
    one whose writes need the Lease. `drain_timeout`: seconds after which runs are cancelled that keep buckets from
    being handed over. `released` is told how many seconds after this shard was asked for it each bucket was another's.
    """

    def __init__(
        self,
        shard: ShardIdentity,
        home: Client,
        client: Client,
        ownership: RangeOwnership,
        runs: Runs,
        take_over: TakeOver,
        drain_timeout: float,
        released: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._shard, self._ring = shard.name, shard.ring
        self._place = (assignment_name(shard.ring), shard.namespace)
        self._leases = RingLeases(shard, client, takes_by_labels)
        self._home = home
        self._client = client
        self._ownership = ownership
        self._runs = runs
        self._take_over = take_over
        self._drain_timeout = drain_timeout
        self._released = released
        self._asked: dict[int, float] = {}
        """When each bucket was asked for last."""
        self._notices = Notices(home.world.clock, every=LOGGED_EVERY)
        self._version = ""
        """The newest version of the object that the machine has seen."""
        self._rewinds = self._breaks = 0
        """How often etcd was restored, and that or something else has left open which versions are newer."""
        self._doubtful = False
        """Whether what was heard is not by the rules, and nothing has been read since."""
        self._behind = False
        """Whether the watch has shown last what is older than what is known."""
        self._assignment: Assignment | None = None
        """What it says; None if it is deleted or unreadable."""
        self._to_read, self._to_acknowledge = asyncio.Event(), asyncio.Event()
        self._acknowledging = asyncio.Lock()
        """Held while an acknowledgement is under way."""

    async def run(self, held: HeldShardLease) -> None:
        """After `until_able`."""
        self._held = held
        name, namespace = self._place
        found = await self._reclaimed()
        async with asyncio.TaskGroup() as self._tasks, Cache(self._home).running() as cache:
            if found is not None:
                self._see(found)
                if self._assignment is not None:
                    self._do(self._ownership.confirm(self._ownership.unconfirmed, self._assignment))
            self._report()  # from now on it is given something
            held.objects_reclaimed()
            scope = Scope(frozenset({namespace}), fields=FieldSelector.equals("metadata.name", name))
            informer = cache.declare(ConfigMap, scope)
            informer.add_handler(lambda delta: self._heard(informer, delta))
            self._tasks.create_task(self._take_over_on(), name="ranges: take over")
            self._tasks.create_task(self._acknowledge_on(), name="ranges: acknowledgements")
            if (by := self._ownership.buckets.by) != "cluster":
                self._tasks.create_task(self._tell_who_selects(by), name="ranges: who selects")
            await asyncio.sleep(PATIENCE)
            if not self._version:
                _log.warning(
                    "The ring has no assignment yet, so this shard works on nothing",
                    ring=self._ring,
                    advice='nobody shares out its objects: some instances of the program need mode="both", or the '
                    f"ControllerRing the annotations {DELIVERY_ANNOTATION} and, with the namespace of this "
                    f"shard, {SHARD_NAMESPACES_ANNOTATION}",
                )
            await asyncio.get_running_loop().create_future()

    async def _reclaimed(self) -> ConfigMap | None:
        """The object, once it can be true, and nothing can take effect on what names this shard that was decided before
        the Lease was held; None if there is none yet.
        """
        name, namespace = self._place
        while True:
            answered = self._held.answered
            try:
                leases, found = await self._read()
                self._tell_unheard(leases)
                self._tell_stranger(leases)
                assignment = Assignment.parse(found.data)
                if why := doubts(assignment, self._shard, leases):
                    self._tell_doubt(why)
                elif self._shard in assignment.shards and (late := self._leases.unrenewed(leases)):
                    self._tell_unrenewed(late)
                else:
                    if (patch := assignment.reclaim(self._shard)) is not None:
                        found = await self._client.patch(ConfigMap, name, namespace, patch)
                    if not (why := self._too_late(answered)):
                        return found
                    self._tell_doubt(why)
            except NotFound:
                return None
            except (ApiError, Unreadable) as error:
                if _is_missed(error):  # another shard has changed a group that has to be tested, too
                    await asyncio.sleep(MISSED_AGAIN)
                    continue
                _tell_unread(self._notices, self._ring, error)
            await asyncio.sleep(RETRY)

    async def _read(self) -> tuple[Sequence[Lease], ConfigMap]:
        """What all shards say, and then the object, which cannot be older than that unless it was restored."""
        name, namespace = self._place
        leases = await self._leases.read()
        return leases, await self._client.get(ConfigMap, name, namespace)

    def _too_late(self, answered: int) -> str:
        """Why an answer gives this shard nothing that was asked for when so many writes of its Lease had been answered;
        "" if it may. One that was under way then may have been the first from which others conclude something.
        """
        if self._held.sent - answered < RENEWALS:
            return ""
        return f"the API server has answered only after this shard had renewed its Lease {RENEWALS} times"

    # What the object says

    def _heard(self, informer: Informer[ConfigMap], delta: Delta[ConfigMap]) -> None:
        if informer.rewinds != self._rewinds:  # etcd was restored: older versions are news
            self._rewinds, self._version = informer.rewinds, ""
            self._breaks += 1
        found = current(delta)
        if self._is_older(found):
            if not self._behind:
                asyncio.get_running_loop().call_later(RETRY, self._to_read.set)
            self._behind = True
            return
        self._behind = False
        if isinstance(delta, Deleted):
            if delta.final:
                self._version = found.metadata.resource_version
            else:
                self._breaks += 1
            self._see_nothing()
        else:
            self._see(found)

    @property
    def _known(self) -> tuple[int, str]:
        """How far this shard has heard."""
        return self._breaks, self._version

    def _is_older(self, found: ConfigMap) -> bool:
        return self._version != "" and precedes(found.metadata.resource_version, self._version)

    def _overtaken(self, found: ConfigMap, known: tuple[int, str]) -> bool:
        """Whether something newer was heard than this answer to a request that was sent when this was known. If nothing
        was heard, one that is older shows that etcd was restored.
        """
        if self._known == known:
            return False
        return self._breaks != known[0] or self._is_older(found)

    def _see_nothing(self) -> None:
        self._assignment = None
        self._do(self._ownership.unreadable("it was deleted"))

    def _see(self, found: ConfigMap) -> None:
        """Passes on what a request or the watch has brought that is news."""
        self._version = found.metadata.resource_version
        try:
            self._assignment = Assignment.parse(found.data)
        except Unreadable as error:
            self._assignment = None
            self._do(self._ownership.unreadable(f"it cannot be read: {error}"))
            return
        self._do(self._ownership.seen(self._assignment))

    def _do(self, commands: Iterable[Command]) -> None:
        now = asyncio.get_running_loop().time()
        for command in commands:
            match command:
                case Read():
                    self._to_read.set()
                case Drain(buckets):
                    self._asked.update(dict.fromkeys(buckets, now))
                    self._tasks.create_task(self._drain(buckets), name="ranges: drain")
                case Acknowledge():
                    self._to_acknowledge.set()
                case Released(buckets):
                    for bucket in buckets:  # each of which had its `Drain`
                        self._released(now - self._asked.pop(bucket))
                case Stop(buckets):
                    self._runs.cancel(buckets)
                case Tell(problem, doubtful):
                    if doubtful:
                        self._doubtful = True
                        self._to_read.set()
                    if self._notices.due("problem", problem):
                        _log.warning(
                            "Something is wrong with the assignment of the ring; this shard keeps what it has",
                            ring=self._ring,
                            assignment="/".join(reversed(self._place)),
                            problem=problem,
                        )
        if self._ownership.leaving:  # what keeps an acknowledgement from taking effect may be over
            self._to_acknowledge.set()
        self._report()

    def _report(self) -> None:
        self._held.works_on(self._ownership.report.text(self._ownership.buckets))

    # Taking over

    async def _take_over_on(self) -> NoReturn:
        """What is confirmed does not wait for what is not, and what has to be confirmed not for lists."""
        taken: Mapping[int, int] | None = None
        confirmed = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._confirm_on(confirmed), name="ranges: confirm")
            while True:
                await confirmed.wait()
                confirmed.clear()
                terms = self._ownership.confirmed
                if terms != taken:
                    self._tell_share(terms, taken or {})
                    taken = terms
                    await self._take_over(terms, self._tasks)

    async def _confirm_on(self, confirmed: asyncio.Event) -> NoReturn:
        while True:
            again = self._ownership.unconfirmed or self._doubtful
            await set_within(self._to_read, RETRY if again else None)
            self._to_read.clear()
            await self._confirm()
            confirmed.set()

    async def _confirm(self) -> None:
        """Asks whether this shard has been given what it was heard to have been given, and nobody has it since. And
        what is true, if what was heard is not by the rules.
        """
        async with self._acknowledging:  # what is under way may be about the same
            terms, known, answered = self._ownership.unconfirmed, self._known, self._held.answered
        doubtful = self._doubtful or self._behind
        if not (terms or doubtful):
            return
        self._doubtful = self._behind = False  # until something is heard that may be later than what is read
        try:
            leases, found = await self._read()
        except NotFound:
            if self._known == known:
                self._see_nothing()
            return
        except ApiError as error:
            self._doubtful = self._doubtful or doubtful
            _tell_unread(self._notices, self._ring, error)
            return
        late = self._overtaken(found, known)
        with suppress(Unreadable):  # which is told, unless something newer was heard
            assignment = Assignment.parse(found.data)
            if terms and (why := self._too_late(answered) or doubts(assignment, self._shard, leases)):
                self._tell_doubt(why)
                terms = {}  # but what it gives to others is not ours, as if the watch had brought it
            self._do(self._ownership.confirm(terms, assignment, late=late))
        if not late and found.metadata.resource_version != self._version:
            self._see(found)

    # Handing over

    async def _drain(self, buckets: frozenset[int]) -> None:
        """Says which of them are idle, as they become so."""
        runs, loop = self._runs, asyncio.get_running_loop()
        late = loop.time() + self._drain_timeout + PATIENCE
        busy = {bucket: self._ownership.terms.get(bucket) for bucket in buckets if runs.busy(bucket)}
        self._do(self._ownership.idle(buckets - busy.keys()))
        if not busy:
            return

        def overdue() -> list[int]:
            """Those of this drain, not of one that began after it was cancelled."""
            terms = self._ownership.terms
            return [each for each in self._ownership.draining & busy.keys() if terms[each] == busy[each]]

        async def wait(bucket: int) -> None:
            await runs.idle(bucket)
            if commands := self._ownership.idle({bucket}):  # a report of each would be quadratic
                self._do(commands)

        def time_is_up() -> None:
            if not self._held.leaving:  # its runs have the grace period
                runs.cancel(overdue())

        timeout = loop.call_later(self._drain_timeout, time_is_up)
        pause = PARTLY
        waiting = {self._tasks.create_task(wait(bucket), name="ranges: idle") for bucket in busy}
        try:
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=pause)
                if waiting:
                    self._do(self._ownership.overdue())
                    pause *= 2
                    if loop.time() >= late and not self._held.leaving and (acting := runs.acting(overdue())):
                        self._tell_held_up(acting)
        finally:
            timeout.cancel()
            for task in waiting:
                task.cancel()

    async def _acknowledge_on(self) -> NoReturn:
        name, namespace = self._place
        while True:
            await self._to_acknowledge.wait()
            self._to_acknowledge.clear()
            try:
                async with self._acknowledging:
                    leaving, assignment, known = self._ownership.leaving, self._assignment, self._known
                    patch = assignment.acknowledge(self._shard, leaving) if assignment is not None else None
                    if patch is None:
                        continue
                    missed = False
                    try:
                        after = await self._client.patch(ConfigMap, name, namespace, patch)
                    except ApiError as error:
                        if not _is_missed(error):
                            raise
                        missed, after = True, await self._client.get(ConfigMap, name, namespace)
            except ApiError as error:
                self._tell_failure("Cannot hand over what this shard is asked for; trying again", error)
                await asyncio.sleep(RETRY)
                self._to_acknowledge.set()
            else:
                if not self._overtaken(after, known):
                    self._see(after)
                await asyncio.sleep(MISSED_AGAIN if missed else 0)

    async def _tell_who_selects(self, by: HashedField) -> None:
        """Once. Lists of custom resources never say whether they were selected from, so the assignment is listed."""
        name, namespace = self._place
        listed = self._home.list(
            ConfigMap,
            namespace,
            field_selector=FieldSelector.equals("metadata.name", name),
            shard_selector=HashRanges.everything(by),
        )
        try:
            async for _ in listed:
                pass
        except ApiError as error:
            _log.debug("Cannot find out who selects this shard's objects", ring=self._ring, error=error)
            return
        if listed.shard_info:
            _log.info("The API server selects this shard's objects", ring=self._ring)
        else:
            _log.info(
                "The API server sends all objects, and this shard leaves out those of others",
                ring=self._ring,
                advice=f"it selects them as of Kubernetes 1.38, or with the feature gate {FEATURE}",
            )

    def _tell_share(self, now: Mapping[int, int], before: Mapping[int, int]) -> None:
        if now.keys() != before.keys():
            _log.info(
                "The share of this shard has changed",
                ring=self._ring,
                buckets=f"{len(now)} of {self._ownership.buckets.count}",
                new=len(now.keys() - before.keys()),
                gone=len(before.keys() - now.keys()),
            )

    def _tell_unheard(self, leases: Iterable[Lease]) -> None:
        own = (each.metadata for each in leases if each.metadata.name == self._shard)
        if not any(each.annotation(OWNED_RANGES_ANNOTATION) for each in own) and self._notices.due("unheard"):
            _log.warning(
                "The Lease of this shard lacks what this shard has written, so it is given nothing",
                ring=self._ring,
                missing=f"the label {RING_LABEL}, or the annotation {OWNED_RANGES_ANNOTATION}",
                advice="an admission webhook, a policy or another program removes it: exempt the Leases of the ring",
            )

    def _tell_stranger(self, leases: Iterable[Lease]) -> None:
        kinds = kinds_stated(leases)
        ours = kinds.pop(self._shard, frozenset())
        others = frozenset().union(*kinds.values())
        if ours and others and not ours & others and self._notices.due("stranger"):
            _log.warning(
                "All other shards of the ring work on other kinds, so this one gets nothing while they have it",
                ring=self._ring,
                kinds=", ".join(sorted(ours)),
                theirs=", ".join(sorted(others)),
                advice="give one of the two programs another ring, unless this is the next version of theirs",
            )

    def _tell_held_up(self, acting: Sequence[str]) -> None:
        if self._notices.due("held up", tuple(acting)):
            more = len(acting) - OBJECTS_TOLD
            _log.warning(
                "Cannot hand over buckets, because something goes on for their objects that was cancelled",
                ring=self._ring,
                objects=", ".join(acting[:OBJECTS_TOLD]) + (f" and {more} more" if more > 0 else ""),
            )

    def _tell_unrenewed(self, late: Mapping[str, float]) -> None:
        """Once, and not at each start: others renew in two seconds, unless they have just ended."""
        if self._notices.due("unrenewed", after=RENEWED):
            _log.info(
                "This shard waits until others have renewed their Leases, or these have expired, because just after a "
                "restore of etcd they may have what it would take back",
                ring=self._ring,
                shards=", ".join(sorted(late)),
                at_most=f"{math.ceil(max(late.values()))} s",
            )

    def _tell_doubt(self, why: str) -> None:
        self._tell_failure("Cannot believe what the assignment says, so this shard waits", why)

    def _tell_failure(self, what: str, error: Exception | str) -> None:
        if self._notices.due(what, type(error)):
            _log.warning(what, ring=self._ring, error=error)
