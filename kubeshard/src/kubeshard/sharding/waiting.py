"""Who waits in a ring, for what, and when it is looked at again. Sans-IO: whoever drives it sleeps until `wake_at`.

| who | waits for | is looked at again | by |
|---|---|---|---|
| an object | see the table of `object_job` | | |
| a ring whose webhook seems not to be called | that it is (`WebhookSeries`) | after 10, 10, 60, 60 ... s | a dry run |
| a ring that is being deleted | that its labels are gone (`CleanUp`) | every 5 s | its status |

When scans are due says `schedule`. A sharder knows objects that wait from scans, which are minutes apart; of those
whose writes are refused it knows from its retries, every ten seconds, for how long the API server has refused them, and
why (`Refusals`). A shard knows it of the objects that it cannot release, and says so on its Lease
(`UNRELEASED_ANNOTATION`): only the sharder writes conditions.

Bounded: the ages of at most `REMEMBERED` waiting objects of a resource are known, those seen first, though the count is
exact; as many are retried, and their refusals known. The same number of namespace names is kept; beyond that, every new
namespace counts as one of them. Of drains that are pending at the same time `MOST_DRAINS` are known, and of objects
that a watch shows without a shard `MANY`: a scan finds the others.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heappop, heappush
from itertools import islice
from typing import Generic, NamedTuple, Protocol, TypeVar

from kubeshard.core.conditions import for_people
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.times import parse_time
from kubeshard.sharding.hash_ring import namespace_of_key

REMEMBERED = 1000

MOST_DRAINS = 100_000
"""Keys, about 150 bytes each."""

ASSIGNMENT_DELAY = 1.0
"""Seconds without a shard before an object gets another one."""
NEW = 3.0
"""Younger objects (seconds) count as ones that have had no shard. Creation times are rounded down to seconds."""
MANY = 5000
"""Objects of a resource that are to be assigned, as a watch shows them."""

AT_ONCE = 5
"""Writes of a resource that are tried again at the same time."""
LONGEST_RETRY_AFTER = 60.0
MORE_AFTER = 30.0
TOGETHER = 10.0
"""Seconds between two times at which a success leads to the retry of all."""

SOON, LATER = 10.0, 60.0
"""Seconds before each of the first two dry runs, which a new webhook configuration needs to take effect, and between
further ones.
"""
ENOUGH = 2
"""Dry runs in a row that have to agree."""

J = TypeVar("J")
S = TypeVar("S", bound=Hashable)


class Waiting(NamedTuple):
    """An object that waits. One that is made anew under the name is another one, and begins to wait."""

    key: Key
    uid: str
    whom: str
    """For whom."""


class WaitingObjects:
    """Objects that wait for something, and for how long, as of the last scan: what has become of them since is not
    known, so they do not age between scans. `count` is their number.
    """

    def __init__(self) -> None:
        self._since: dict[Waiting, float] = {}
        self.count = 0
        self.read_at = float("-inf")
        """When the last scan that counts started (monotonic seconds)."""

    def snapshot(self, now: float) -> WaitingSnapshot:
        """A scan starts; what it finds counts once it is committed."""
        return WaitingSnapshot(self, now)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._since)

    @property
    def oldest(self) -> float:
        """Age in seconds of the oldest; 0 if there is none."""
        return max(0.0, self.read_at - min(self._since.values(), default=math.inf))

    def older_than(self, age: float) -> Iterator[Waiting]:
        """Those that had waited for longer."""
        return (each for each, since in self._since.items() if self.read_at - since > age)


class WaitingSnapshot:
    """The objects that wait as one scan sees them."""

    def __init__(self, waiting: WaitingObjects, started: float) -> None:
        self._waiting = waiting
        self._started = started
        self._seen: dict[Waiting, float] = {}
        self._count = 0

    def add(self, meta: ObjectMeta, now: float, whom: str = "", *, anew: bool = False) -> None:
        """`anew`: what it waited for before is over, and it begins to wait now."""
        waiting, known = Waiting(Key(meta.namespace, meta.name), meta.uid, whom), self._waiting._since
        self._count += 1
        if waiting in known or len(self._seen) < REMEMBERED:
            self._seen[waiting] = now if anew else known.get(waiting, now)

    def commit(self) -> None:
        """Not if a scan that began later has told more: one of all may take long, and urgent ones begin meanwhile."""
        if self._started < self._waiting.read_at:
            return
        self._waiting._since, self._waiting.count = self._seen, self._count
        self._waiting.read_at = self._started


class SkippedNamespaces:
    """Names of namespaces, or the knowledge that there are too many to remember."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._many = False

    def add(self, name: str) -> None:
        if name not in self._names and len(self._names) >= REMEMBERED:
            self._many = True
        else:
            self._names.add(name)

    def take(self, name: str) -> bool:
        """Removes the name. Returns whether it may have been added."""
        found = name in self._names
        self._names.discard(name)
        return found or self._many


class PendingDrains:
    """Keys of objects of a main resource that are being drained, so that a scan need not ask for each object that they
    control where its owner is. What leaves its shard asks nevertheless (`object_job`), so a key may be missing.

    A scan begins, adds what it sees, and ends. As long as objects could not be read, any of them may be drained.
    """

    def __init__(self) -> None:
        self._pending: set[str] = set()
        self._seen: set[str] = set()
        """By the scan that runs, or requested since the last one ended."""
        self._unread: Collection[str] | None = None
        """Namespaces that the last scan could not read; None if it could read none, or there was none yet."""

    def __len__(self) -> int:
        return len(self._pending | self._seen)

    def __contains__(self, key: str) -> bool:
        if self._unread is None or key in self._pending or key in self._seen:
            return True
        return bool(self._unread) and namespace_of_key(key) in self._unread

    def begin(self) -> None:
        self._pending = set(islice(self._pending | self._seen, MOST_DRAINS))
        self._seen = set()

    def add(self, key: str) -> None:
        """The drain is pending, was requested, or is about to be."""
        if len(self._seen) < MOST_DRAINS:
            self._seen.add(key)

    def end(self, unread: Collection[str] = ()) -> bool:
        """Everything but these namespaces was read. Returns whether a drain has ended."""
        self._unread = frozenset(unread)
        seen = self._seen | {key for key in self._pending if unread and namespace_of_key(key) in self._unread}
        ended = not self._pending <= seen
        self._pending, self._seen = seen, set()
        return ended

    def failed(self) -> None:
        """Nothing could be read."""
        self._unread = None

    def clear(self) -> None:
        """There are no objects of the kind any more."""
        self._pending, self._seen, self._unread = set(), set(), None


class HandledObjects:
    """Objects that a job deals with, or has dealt with while a scan was under way.

    A list shows each object as it was when its first page was read, and the scan gets to it later. Without this it
    would write again what another scan, the watch or a retry has written meanwhile: the slower the server, the more.

    Not guaranteed: of more than `MANY` the first ones are forgotten, which costs a refused write for each.
    """

    def __init__(self) -> None:
        self._ended: dict[Key, float] = {}
        """When, in this order; infinite for those that are under way."""

    def begins(self, key: Key) -> None:
        self._ended[key] = math.inf
        if len(self._ended) > MANY:
            del self._ended[next(iter(self._ended))]

    def ends(self, key: Key, now: float, *, done: bool) -> None:
        """`done`: nothing is left to do about the object as any list has shown it until now."""
        self._ended.pop(key, None)
        if done:
            self._ended[key] = now

    def since(self, key: Key, began: float) -> float | None:
        """When the job ended, if it runs (infinite), or ended after a scan began that shows the object."""
        ended = self._ended.get(key)
        return ended if ended is not None and ended > began else None

    def scans_since(self, began: float) -> None:
        """No scan is under way that began earlier."""
        self._ended = {key: ended for key, ended in self._ended.items() if ended > began}


class Attentive(Protocol):
    """Who sleeps until something is due: the `ResourceMachine`."""

    def attend(self) -> None: ...


class Jobs(Generic[J]):
    """What is to be done about objects of one resource: at its time, one thing about each object, and `at_once` of it,
    so that whoever does it has room for other work beside it, and no object takes the room of others. `most` are known.
    `told` that `wake_at` is earlier than before.
    """

    def __init__(self, at_once: int, most: int, told: Attentive | None = None) -> None:
        self._at_once = at_once
        self._most = most
        self._told = told
        self._jobs: dict[Key, tuple[float, J]] = {}
        """When each is due that is not under way, or has come again."""
        self._order: list[tuple[float, Key]] = []
        """The same as a heap, without what is under way, and with entries that do not count any more."""
        self._under_way: dict[Key, J] = {}

    def __len__(self) -> int:
        return len(self._jobs.keys() | self._under_way.keys())

    def __contains__(self, key: Key) -> bool:
        """Whether there is something to do about the object that is not under way."""
        return key in self._jobs

    def get(self, key: Key) -> J | None:
        """What is to be done about the object that is not under way."""
        return self._jobs[key][1] if key in self._jobs else None

    def put(self, key: Key, job: J, at: float) -> bool:
        """Takes the place of an earlier one, but makes the object wait no longer. Returns whether there is room."""
        jobs, order = self._jobs, self._order
        if key in jobs:
            if (due := jobs[key][0]) <= at:
                jobs[key] = due, job
                return True
        elif len(jobs) >= self._most and key not in self._under_way:
            return False
        jobs[key] = at, job
        if key in self._under_way:
            return True  # `ended` adds it
        heappush(order, (at, key))
        if self._told is not None and order[0] == (at, key) and len(self._under_way) < self._at_once:
            self._told.attend()
        return True

    def forget(self, key: Key) -> None:
        """Nothing is to be done about the object any more."""
        jobs = self._jobs
        if jobs.pop(key, None) is not None and len(self._order) > 2 * (self._most + self._at_once):
            # What does not count any more may be behind what waits for room.
            self._order = sorted((at, each) for each, (at, _) in jobs.items() if each not in self._under_way)

    def take(self, now: float) -> list[J]:
        """Those to do now. Call `ended` for each."""
        jobs, order, under_way, taken = self._jobs, self._order, self._under_way, list[J]()
        room = self._at_once - len(under_way)
        while order and order[0][0] <= now and room > 0:
            at, key = heappop(order)
            if key in jobs and jobs[key][0] == at and key not in under_way:
                under_way[key] = job = jobs[key][1]
                del jobs[key]
                taken.append(job)
                room -= 1
        return taken

    def ended(self, key: Key) -> None:
        waited = len(self._under_way) >= self._at_once  # others, perhaps
        if key in self._under_way:
            del self._under_way[key]
            if key in self._jobs:
                heappush(self._order, (self._jobs[key][0], key))
                waited = True
        if waited and self._told is not None:
            self._told.attend()

    def resume(self, now: float) -> None:
        """What was taken was not done to its end."""
        for key, job in tuple(self._under_way.items()):
            self.ended(key)
            if key not in self._jobs:
                self.put(key, job, now)

    @property
    def wake_at(self) -> float:
        """When to `take` the next ones; infinite if there are none, or no room."""
        order, jobs = self._order, self._jobs
        while order and (
            (key := order[0][1]) not in jobs or jobs[key][0] != order[0][0] or key in self._under_way
        ):
            heappop(order)
        return order[0][0] if order and len(self._under_way) < self._at_once else math.inf


def may_be_wanted(meta: ObjectMeta, wall: float) -> bool:
    """Whether the shard of an object that has just lost it may want it back. `wall`: seconds since the epoch.

    The object does not show whether its shard released it or a user removed the label while the shard works on it. In
    the second case the shard takes it back (`kubeshard.shard.label_restorer`), which takes it a fraction of a second.
    So an object that is not new is assigned only after `ASSIGNMENT_DELAY`. Not guaranteed: the pause for new ones that
    lose their first shard; and, if this machine's clock is behind the API server's, for those hardly older than the
    difference.
    """
    created = parse_time(meta.creation_timestamp)
    return created is not None and wall - created >= NEW


class RetryDelays(Protocol):
    """How long a write waits that has been refused again: a `Limiter` of `kubeshard.workqueue.limits`."""

    def when(self, key: Key) -> float: ...

    def forget(self, key: Key) -> None: ...


class RefusedWrites(Jobs[J], Generic[J, S]):
    """Writes of one resource that were refused, and when each is tried again: on its own, without affecting others.

    Guaranteed: after a refused write (an admission policy, another webhook, a brownout) the object is due as `backoff`
    says, or after the server's Retry-After (a minute at most). If one succeeds, all are due, because the cause may be
    gone for all. At most `AT_ONCE` are tried at a time, and `REMEMBERED` are known. If more fail, it is scanned again
    when one of these succeeds, and if that is cheap also every `MORE_AFTER` seconds.
    """

    def __init__(self, backoff: RetryDelays) -> None:
        super().__init__(AT_ONCE, REMEMBERED)
        self._backoff = backoff
        self._more: dict[S, float] = {}
        """When the scans were requested for that will find the objects that were not remembered."""
        self._woken = -math.inf

    def failed(self, key: Key, job: J, now: float, retry_after: float = 0.0) -> bool:
        """A write was refused. Returns whether it is remembered."""
        return self.put(key, job, now + max(self._backoff.when(key), min(retry_after, LONGEST_RETRY_AFTER)))

    def more(self, scope: S, now: float, *, cheap: bool) -> list[tuple[S, float]]:
        """One is not remembered, which a scan of this scope will find. Returns the scans to request, and for when."""
        if self._more.get(scope, now) > now:
            return []
        self._more[scope] = at = now + MORE_AFTER if cheap else math.inf
        return [(scope, at)] if cheap else []

    def tried(self, key: Key, now: float, *, done: bool) -> None:
        """The try has ended. `done`: nothing is left to try again; else it `failed` before, or crashed."""
        if done:
            self.forget(key)
            self._backoff.forget(key)
        elif key in self._under_way and key not in self:
            self.failed(key, self._under_way[key], now)
        self.ended(key)

    def succeeded(self, now: float) -> list[tuple[S, float]]:
        """A try has succeeded. Returns the scans to request, and for when."""
        may = self._woken + TOGETHER
        asked = [(scope, max(now, may)) for scope in self._more]
        self._more.clear()
        if now >= may:
            self._woken = now
            for key, (_, job) in tuple(self._jobs.items()):
                self.put(key, job, now)
        return asked


class WebhookSeries(Generic[J]):
    """Dry runs that find out whether the API server calls the webhook of a ring.

    An object that is found unassigned should have been assigned by the webhook. That alone proves nothing: it may be
    older than the webhook, or no shard was available when it was created. The proof is a dry run: a patch that takes
    the shard label away, and is never stored, comes back with the label if the webhook was called.

    Guaranteed: while a webhook is not called although objects are assigned late, `unreached` says so, within a minute
    of the first such object, until about a minute after the webhook is called again. Anything but an answer without the
    label, `ENOUGH` times in a row, about an object that the ring still wants, proves nothing. Not guaranteed: that it
    says so when the object of the dry runs is deleted, or not wanted any more; the next one that is assigned late
    begins anew.
    """

    def __init__(self) -> None:
        self.about: J | None = None
        """The object of the dry runs; None if there are none."""
        self._missed = 0
        self._due = math.inf

    @property
    def unreached(self) -> bool:
        return self.about is not None and self._missed >= ENOUGH

    @property
    def wake_at(self) -> float:
        """When to `take` the next dry run; infinite if there is none."""
        return self._due

    def late(self, about: J, now: float) -> None:
        """An object was assigned late."""
        if self.about is None:
            self.about, self._due = about, now + SOON

    def take(self, now: float) -> J | None:
        """The object of the dry run to do now. Call `answered` after it."""
        if self._due > now:
            return None
        self._due = math.inf
        return self.about

    def resume(self, now: float) -> None:
        """Nobody answers the dry run that was taken last, if any."""
        if self.about is not None and self._due == math.inf:
            self._due = now + SOON

    def answered(self, now: float, *, called: bool) -> None:
        """`called`: the webhook was called, or nobody can know."""
        if called or self.about is None:
            self.end()
        else:
            self._missed += 1
            self._due = now + (SOON if self._missed < ENOUGH else LATER)

    def end(self) -> None:
        self.about, self._missed, self._due = None, 0, math.inf


TOLD_AFTER = 40.0
"""Seconds for which an object has to be refused before people are told, within a minute: a brownout is over by then."""
KEPT = 60.0
LONGEST = 300
"""Characters of a reason."""
MENTIONED = 3
"""Objects of which a text says the names; the others are counted."""


@dataclass(frozen=True, slots=True)
class Objects:
    """Some objects: how many, and the first names."""

    count: int
    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> Objects:
        all_of_them = sorted(names)
        return cls(len(all_of_them), tuple(all_of_them[:MENTIONED]))

    def __str__(self) -> str:
        more = self.count - len(self.names)
        return ", ".join(self.names) + (f" and {more} more" if more else "")


def grouped(found: Iterable[tuple[str, str]]) -> dict[str, Objects]:
    """Groups names of objects by their shards, or by why they wait."""
    names = defaultdict[str, list[str]](list)
    for group, name in found:
        names[group].append(name)
    return {group: Objects.of(each) for group, each in names.items()}


def by_answer(found: Mapping[str, Objects]) -> str:
    """The most frequent answers of the API server, each with objects."""
    most = sorted(found.items(), key=lambda each: (-each[1].count, each[0]))
    parts = [f"{why} ({objects})" if why else str(objects) for why, objects in most[:MENTIONED]]
    return "; ".join(parts) + (
        f"; and {len(most) - MENTIONED} other reasons" if len(most) > MENTIONED else ""
    )


class Refusal(NamedTuple):
    uid: str
    drain: bool
    """Whether it cannot be drained; else it cannot be given to a shard."""
    since: float
    last: float
    """When it was refused last. What has become of it since is not known."""
    reason: str
    """The same for all objects that are refused for the same reason."""
    answered: float
    """When that was the answer. It is kept for `KEPT` seconds: answers may have a number, another one each time."""


class Refusals:
    """Of the objects of one resource of a ring. `told_after`: how long people are not told, at least."""

    def __init__(self, told_after: float = TOLD_AFTER) -> None:
        self._told_after = told_after
        self._known: dict[Key, Refusal] = {}

    def refused(self, meta: ObjectMeta, error: BaseException, now: float, *, drain: bool = False) -> bool:
        """An attempt failed. Returns whether there is something new to tell people."""
        key = Key(meta.namespace, meta.name)
        before = self._known.get(key)
        if before is None and len(self._known) >= REMEMBERED:
            return False
        if before is None or (before.uid, before.drain) != (meta.uid, drain):
            self._known[key] = Refusal(meta.uid, drain, now, now, _reason(key, error), now)
            return False
        new = before._replace(last=now)
        if now - before.answered >= KEPT:
            new = new._replace(reason=_reason(key, error), answered=now)
        self._known[key] = new
        return self._lasts(new) and (not self._lasts(before) or new.reason != before.reason)

    def ended(self, key: Key) -> bool:
        """The object is where it should be, or is gone. Returns whether it was refused."""
        return self._known.pop(key, None) is not None

    def why(self, key: Key) -> str:
        """Why it was refused last; "" if it was not."""
        known = self._known.get(key)
        return known.reason if known is not None else ""

    def lasting(self) -> Iterator[tuple[Key, Refusal]]:
        """Those that people should be told."""
        return ((key, each) for key, each in self._known.items() if self._lasts(each))

    def _lasts(self, refusal: Refusal) -> bool:
        """Whether people should be told."""
        return refusal.last - refusal.since >= self._told_after


_REQUEST = re.compile(r"^[A-Z]+ /\S+: ")


def _reason(key: Key, error: BaseException) -> str:
    text = _REQUEST.sub("", str(error) or type(error).__name__).replace(f'"{key.name}"', "it")
    if key.namespace:  # a name alone may be a word, or a part of one
        text = re.sub(rf"(?<![\w./-]){re.escape(str(key))}(?![\w./-])", "it", text)
    return for_people(text, LONGEST)


SETTLED = 5.0
PATIENCE = 300.0
SHARDS_NAMED = 5
"""Shards that are named as those with objects left."""


class CleanUpState(Enum):
    UNDER_WAY = auto()
    CLEAN = auto()
    GIVEN_UP = auto()


class _Read(NamedTuple):
    began: float
    holders: Mapping[str, int]

    @property
    def left(self) -> int:
        return sum(self.holders.values())


class CleanUp:
    """The clean-up of one ring that is being deleted: whether the labels are gone, and when to stop trying.

    The caller reports how many objects of each resource carried the shard label when it was read. The clean-up is over

    * when every resource was read without an error, and none had any, by reads that began `SETTLED` seconds after the
      clean-up, when every replica's webhook has seen that the ring is being deleted; or
    * when it has made no progress for `PATIENCE` seconds: no resource had fewer than ever before, and none was read
      for the first time. So a shard that does not release its objects, a missing right, or another sharder that
      assigns them again cannot keep a ring, and the time is bounded by the number of objects and not by what fails. A
      process that begins to lead has not seen any progress: its patience begins when it asks for the state first.

    All times are monotonic seconds; `began`: when this process first saw that the ring is being deleted.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self._progress: float | None = None
        """When there was some; None if nobody has read or asked yet."""
        self._reads: dict[GroupResource, _Read] = {}
        self._fewest: dict[GroupResource, int] = {}

    def found(self, resource: GroupResource, holders: Mapping[str, int], began: float, now: float) -> None:
        """The resource was read completely by a read that began then: the number of objects by shard."""
        read = self._reads[resource] = _Read(began, dict(holders))
        if resource not in self._fewest or read.left < self._fewest[resource]:
            self._fewest[resource] = read.left
            self._progress = now

    def state(self, resources: Collection[GroupResource], now: float) -> CleanUpState:
        """Whether it is over, for a ring with these resources."""
        if now - self._began >= SETTLED and all(self._is_clean(each) for each in resources):
            return CleanUpState.CLEAN
        if self._progress is None:
            self._progress = now
        if now - self._progress >= PATIENCE:
            return CleanUpState.GIVEN_UP
        return CleanUpState.UNDER_WAY

    def left(self, resources: Collection[GroupResource]) -> str:
        """What is left, in words; "" if nothing is."""
        unread = sorted(str(each) for each in resources if each not in self._reads)
        objects, shards = dict[GroupResource, int](), Counter[str]()
        for resource in resources:
            if (read := self._reads.get(resource)) is not None and read.left:
                objects[resource] = read.left
                shards.update(read.holders)
        parts = [f"{count} {resource}" for resource, count in sorted(objects.items())]
        text = f"{', '.join(parts)} with shards {_named(shards)}" if parts else ""
        return "; ".join(filter(None, (text, f"not read yet: {', '.join(unread)}" if unread else "")))

    def _is_clean(self, resource: GroupResource) -> bool:
        read = self._reads.get(resource)
        return read is not None and read.began - self._began >= SETTLED and not read.left


def _named(shards: Counter[str]) -> str:
    most = [name or "(none)" for name, _ in shards.most_common(SHARDS_NAMED)]
    return ", ".join(sorted(most)) + (", ..." if len(shards) > SHARDS_NAMED else "")
