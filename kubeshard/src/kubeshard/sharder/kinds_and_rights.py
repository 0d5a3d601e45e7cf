"""What is known of a ring's resources besides their objects: their kinds, and what the sharder may do with them. The
answers are the same for all rings, so one question serves all.

Guaranteed of kinds (group, preferred version, kind, scope; from discovery): one is cached until the server returns 404
for it, or no ring needs it; kinds are never guessed; an API group that does not respond does not delay discovery of
other groups. Not guaranteed: that every resource is known immediately; until its kind is known, a controlled resource
accepts any controller, which is why a webhook waits for `tried`.

A 403 is caused by RBAC or by a policy on one object: the server is asked which. The answer may come from an API server
that has not heard of a change yet that another one enforces, so what is refused again is asked about again.

RBAC: none beyond what every authenticated user has.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Collection, Sequence

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, Unavailable
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.runtime.clock import Clock
from kubeshard.sharder.rings import Rings, reading
from kubeshard.sharder.tasks import DrivenResource
from kubeshard.sharding.ring_resources import PossibleOwners, RingResources, named_namespaces, owner_kinds
from kubeshard.sharding.schedule import ScanScope

RETRY = 10.0
"""Seconds until a resource that is not served is looked up again."""
PATIENCE = 5.0
"""Seconds after which `tried` stops waiting for groups that do not respond."""


class ResourceKinds:
    """`learned` increases with every kind learned, so that results derived from kinds can be cached."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kinds: dict[GroupResource, Kind] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Locks by group, so that the second caller finds the result cached."""
        self._untried: set[GroupResource] = set()
        self._tried = asyncio.Event()
        self.learned = 0

    async def learn(self, resource: GroupResource) -> Kind:
        """The kind, from the server. Raises KindNotServed and other ApiErrors."""
        async with self._asking[resource.group]:
            kind = await self._client.discovery.kind(resource.group, resource=resource.resource)
        if self._kinds.get(resource) != kind:
            self._kinds[resource] = kind
            self.learned += 1
        return kind

    def known(self, resource: GroupResource) -> Kind | None:
        """The kind, if it is cached."""
        return self._kinds.get(resource)

    async def kind(self, resource: GroupResource) -> Kind:
        """The kind, from the cache or from the server. Raises like `learn`."""
        return self._kinds.get(resource) or await self.learn(resource)

    async def eventually(self, resource: GroupResource) -> Kind:
        """The kind, as soon as it is known."""
        while True:
            try:
                return await self.kind(resource)
            except ApiError:
                await asyncio.sleep(RETRY)

    def forget(self, resource: GroupResource) -> None:
        """The server returned 404 for a request of the kind: it is looked up again."""
        if self._kinds.pop(resource, None) is not None:
            self._client.discovery.forget(resource.group)
            self.learned += 1

    async def tried(self) -> None:
        """Waits until `keep_learning` has looked up the kinds of all rings that existed when it started."""
        await self._tried.wait()

    async def keep_learning(self, rings: Rings) -> None:
        """Learns the kinds of all rings' resources, including new ones. Runs until cancelled, in every
        replica. Start it when the existing rings are known.
        """
        timer = asyncio.get_running_loop().call_later(PATIENCE, self._tried.set)
        learning: dict[GroupResource, asyncio.Task[None]] = {}
        wanted = _Wanted(rings)
        for ring in rings:
            wanted.heard(ring.name)

        try:
            with reading(rings.changes) as inbox:
                async with asyncio.TaskGroup() as group:
                    while True:
                        self._learn_all(wanted.count, learning, group)
                        for name in await inbox.take():
                            wanted.heard(name)
        finally:
            timer.cancel()

    def _learn_all(
        self,
        wanted: Collection[GroupResource],
        learning: dict[GroupResource, asyncio.Task[None]],
        group: asyncio.TaskGroup,
    ) -> None:
        for resource in [resource for resource in learning if resource not in wanted]:
            learning.pop(resource).cancel()
            self._let_go(resource)
        new = [resource for resource in wanted if resource not in learning]
        self._untried.update(new)
        for resource in new:
            learning[resource] = group.create_task(
                self._learn_patiently(resource), name=f"learning {resource}"
            )
        self._note_tried()

    async def _learn_patiently(self, resource: GroupResource) -> None:
        while True:
            try:
                await self.kind(resource)
                return
            except ApiError:
                pass
            finally:
                self._untried.discard(resource)
                self._note_tried()
            await asyncio.sleep(RETRY)

    def _note_tried(self) -> None:
        if not self._untried:
            self._tried.set()

    def _let_go(self, resource: GroupResource) -> None:
        """No ring lists the resource any more."""
        self._untried.discard(resource)
        if self._kinds.pop(resource, None) is not None:
            self.learned += 1
        if not any(known.group == resource.group for known in self._kinds):
            self._asking.pop(resource.group, None)

    def owner_kinds(self, resources: RingResources) -> dict[GroupResource, PossibleOwners]:
        """See `RingView.owner_kinds`."""
        return owner_kinds(resources, self._kinds)


class _Wanted:
    """The resources of all rings. A change of one ring costs the same, however many there are."""

    def __init__(self, rings: Rings) -> None:
        self._rings = rings
        self._listed: dict[str, tuple[GroupResource, ...]] = {}
        self.count: dict[GroupResource, int] = {}
        """By how many rings each is listed."""

    def heard(self, name: str) -> None:
        """The ring was added, deleted, or changed."""
        ring = self._rings.get(name)
        now = tuple(entry.resource for entry in ring.resources.entries) if ring is not None else ()
        for resource in now:
            self.count[resource] = self.count.get(resource, 0) + 1
        for resource in self._listed.pop(name, ()):
            self.count[resource] -= 1
            if not self.count[resource]:
                del self.count[resource]
        if now:
            self._listed[name] = now


ASKED_EVERY = 60.0
SHARED_FOR = 5.0
"""Seconds for which an answer, or that there was none, also serves other rings."""
ASKED_AGAIN = 10.0
"""Seconds between questions about a right that is missing, or without which a request was refused."""


_Question = tuple[GroupResource, str, str | AllNamespaces]
"""A resource, a verb and a namespace."""


class Permissions:
    """Checks permissions with the server, at most every `ASKED_EVERY` seconds per verb and machine, or `ASKED_AGAIN` if
    a request is refused, and records them in the report. A right that is missing is asked for until it is there;
    then all objects are scanned.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._answers: dict[_Question, tuple[float, bool | None]] = {}
        """The last answers, None if there was none, and when they were asked for."""
        self._asking: defaultdict[_Question, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._forgets_at = -math.inf

    async def check(self, machine: DrivenResource) -> None:
        """Checks all verbs that the sharder needs, except the one that just worked."""
        for verb in ("get", "patch", "watch"):
            await self._ask(machine, verb, ASKED_EVERY)

    async def refused(self, machine: DrivenResource, verb: str) -> None:
        """A request was forbidden: checks whether the verb is."""
        await self._ask(machine, verb, ASKED_AGAIN)

    async def ask(self, machine: DrivenResource) -> None:
        """An object could not be read or written: checks what moving one needs. And what was missing."""
        report, resource = machine.ring.report, machine.entry.resource
        missing = report.missing_verbs.get(resource, {})
        try:
            for verb in dict.fromkeys(("get", "patch", *missing)):
                await self._ask(machine, verb, SHARED_FOR if verb in missing else ASKED_AGAIN)
        finally:
            if resource in report.missing_verbs:
                machine.ask_again(ASKED_AGAIN)

    async def _ask(self, machine: DrivenResource, verb: str, every: float) -> None:
        now = self._clock.monotonic()
        if now - machine.asked.get(verb, -math.inf) < every:
            return
        machine.asked[verb] = now
        try:
            missing = await self._missing(machine, verb)
        except ApiError:
            return
        if machine.open:
            self._tell(machine, verb, not missing, tuple(n for n in missing if n is not ALL))

    def granted(self, machine: DrivenResource, verb: str) -> None:
        """A request succeeded."""
        machine.asked.pop(verb, None)
        self._tell(machine, verb, True)

    def _tell(self, machine: DrivenResource, verb: str, allowed: bool, in_: tuple[str, ...] = ()) -> None:
        report, resource = machine.ring.report, machine.entry.resource
        lacked = resource in report.missing_verbs
        report.permitted(resource, verb, allowed, in_)
        if not allowed:
            machine.ask_again(ASKED_AGAIN)
        elif lacked and resource not in report.missing_verbs:
            machine.request(ScanScope.ALL, self._clock.monotonic())

    async def everywhere(self, machine: DrivenResource, verb: str) -> bool:
        """Whether it is allowed in all namespaces; True if that is not known."""
        try:
            return await self._allowed(machine.entry.resource, verb, ALL)
        except ApiError:
            return True

    async def _missing(self, machine: DrivenResource, verb: str) -> Sequence[str | AllNamespaces]:
        """Where the ring needs it, and it is not allowed: for a ring that names its namespaces, in these. All of them
        may be read and written one by one, few of them listed and watched. Raises ApiError.
        """
        resource, ring = machine.entry.resource, machine.ring
        places: Sequence[str | AllNamespaces] = (ALL,)
        if await self._allowed(resource, verb, ALL):
            return ()
        if ring.named:
            places = ring.named_and_selected()
        elif verb in ("get", "patch"):
            places = named_namespaces(ring.resource.spec.namespace_selector) or places
        return [place for place in places if not await self._allowed(resource, verb, place)]

    async def _allowed(self, resource: GroupResource, verb: str, namespace: str | AllNamespaces) -> bool:
        """Raises ApiError."""
        what, wanted = (resource, verb, namespace), self._clock.monotonic()
        self._forget(wanted)
        async with self._asking[what]:
            at, answer = self._answers.get(what, (-math.inf, False))
            if wanted - at > SHARED_FOR:  # else it serves those who waited for it, however long it took
                at = self._clock.monotonic()
                self._answers[what] = at, None
                answer = await self._client.can_i(verb, resource.group, resource.resource, namespace)
                self._answers[what] = at, answer
            if answer is None:
                raise Unavailable(f"whether {verb} {resource} is allowed was not answered just now")
            return answer

    def _forget(self, now: float) -> None:
        """Answers that serve nobody any more: namespaces come and go."""
        if now < self._forgets_at:
            return
        self._forgets_at = now + ASKED_EVERY
        for what, lock in tuple(self._asking.items()):
            at, _ = self._answers.get(what, (-math.inf, None))
            if now - at > ASKED_EVERY and not lock.locked():
                del self._asking[what]
                self._answers.pop(what, None)
