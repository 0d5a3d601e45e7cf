"""The sharder's admission handler: assigns objects as they are created or let go (protocol 5, kubeshard's
column).

The first row that applies decides:

| situation | answer |
|---|---|
| neither CREATE nor UPDATE, or no object | allowed |
| ring not found, unexpected path | allowed, unassigned, warning |
| object's metadata unreadable | allowed, unassigned, warning |
| shard label there and not empty | allowed |
| resource not in the ring | allowed, unassigned, warning |
| UPDATE that takes the shard label away without right (below) | allowed, label put back, warning |
| generateName on a main resource, with strict parity | denied with 400 |
| key refused | allowed, unassigned, warning |
| no key (no controller, or a foreign one) | allowed |
| Leases cannot be read | allowed, unassigned, warning |
| no available shard | allowed |
| view of the Leases stale | allowed, unassigned, warning |
| else | allowed, label added |

The shard label may be taken away by the shard itself once it was asked to let go, in an update that does
nothing else (`acknowledgement`), by a sharder, and by anyone once the shard is not available in a fresh view
of the Leases; also with strict parity, since the reference lets anyone.

Guaranteed: nobody's request is denied (reliability D1, F18), but for the one row above; an answer has at
most two operations; what is left unassigned is counted, logged at most every 10 s per ring and reason, and
told to the user. A dry run gets the same answer and counts nothing. Not guaranteed: that every object gets
its label here; the watch on unassigned objects repairs what the webhook misses (reliability F9).

| metric | labels |
|---|---|
| `controller_sharding_assignments_total` | controllerring, group, resource |
| `controller_sharding_webhook_unassigned_total` | controllerring, reason |
| `controller_sharding_webhook_restored_total` | controllerring |

Reasons: `ring`, `object`, `resource`, `key`, `generate_name`, `leases`, `stale`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshard.core.errors import KubeshardError
from kubeshard.core.kinds import GroupKind, GroupResource
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.patches import add, pointer
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.acknowledgement import acknowledges
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.classification import ResourceNotInRing, RingEntry, RingResources
from kubeshard.sharding.names import ring_of_webhook_path
from kubeshard.sharding.planner import ALREADY_ASSIGNED, ASSIGNING, NO_SHARD, Action, RingView, TypeMeta, plan
from kubeshard.sharding.ring import ring_of
from kubeshard.webhook.review import (
    AdmissionAnswer,
    AdmissionRequest,
    PreparedAnswer,
    UnexpectedObject,
    UserInfo,
    prepared,
)

POD_NAME_CLAIM = "authentication.kubernetes.io/pod-name"

RESTORING = "restoring shard label"
STALE = "the sharder's view of the shards is out of date"

_LOG_INTERVAL = 10.0
_MAX_TEXT = 250
"""Characters of a message or warning: what the API server passes on, and a bound on what object authors put
there.
"""

_LOG = get_logger("kubeshard.sharder")


class ShardingView(Protocol):
    """What this replica knows of rings and shards. Every method answers from memory.

    Equal answers should be the same object: the hash ring and all else that follows from them is remembered
    by identity.
    """

    def ring(self, name: str) -> ControllerRing | None:
        """None for a ring that does not exist, or is not known here yet."""
        ...

    def owner_kinds(self, ring: ControllerRing) -> Mapping[GroupResource, frozenset[GroupKind]]:
        """See `RingView.owner_kinds`."""
        ...

    def available(self, ring: str) -> tuple[str, ...]:
        """Names of the ring's available shards, ascending. Raises KubeshardError if Leases cannot be read."""
        ...

    def fresh(self) -> bool:
        """Whether the view of the Leases is up to date (reliability F10)."""
        ...


def _nobody(ring: ControllerRing) -> Collection[str]:
    return ()


class ShardAdmission:
    """An `AdmissionHandler`, to be served at `names.WEBHOOK_PATH_PREFIX`.

    `sharders` are user names of sharders: this one's, and others' during a migration. `shard_users` gives
    the user names of a ring's shards where they are listed; they count where shards are not named after
    their pods. `strict` is the strict parity switch.
    """

    def __init__(
        self,
        view: ShardingView,
        *,
        sharders: Collection[str] = (),
        shard_users: Callable[[ControllerRing], Collection[str]] = _nobody,
        strict: bool = False,
        registry: CollectorRegistry | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._view = view
        self._sharders = sharders
        self._shard_users = shard_users
        self._strict = strict
        self._clock = clock
        self._rings: dict[str, _Ring] = {}
        self._logged: dict[tuple[str, str], float] = {}
        metrics = registry or CollectorRegistry()
        self._assignments = _Assignments(metrics)
        self._unassigned = Counter(
            "controller_sharding_webhook_unassigned",
            "Objects that the webhook let through without a shard although they may need one.",
            ["controllerring", "reason"],
            registry=metrics,
        )
        self._restored = Counter(
            "controller_sharding_webhook_restored",
            "Shard labels that the webhook put back.",
            ["controllerring"],
            registry=metrics,
        )

    def __call__(self, request: AdmissionRequest) -> AdmissionAnswer:
        if request.operation not in ("CREATE", "UPDATE"):
            return AdmissionAnswer()
        try:
            ring = self._ring(request.path)
        except (ValueError, LookupError) as error:
            message = f"error determining ControllerRing for request: {error.args[0]}"
            return self._leave_unassigned(request, "", "ring", message)
        if request.object_error:
            return self._leave_unassigned(
                request, ring.name, "object", f"error decoding object: {request.object_error}"
            )
        if request.object is None:
            return AdmissionAnswer()
        meta, resource = request.object.metadata, request.group_resource
        if meta.label(ring.view.shard_label):
            return AdmissionAnswer(message=ALREADY_ASSIGNED)
        try:
            entry = ring.view.resources.entry(resource)
        except ResourceNotInRing as error:
            message = f"error determining hash key func for object: {error}"
            return self._leave_unassigned(request, ring.name, "resource", message)
        if request.old_object is not None and self._must_keep(request, ring, request.old_object.metadata):
            return self._restore(request, ring, meta, request.old_object.metadata)
        type_ = TypeMeta(request.object.api_version, request.object.kind)
        decision = plan(ring.view, entry, type_, meta, namespace=request.namespace)
        if decision.action is Action.REFUSED:
            return self._refused(request, ring, entry, meta, decision.reason)
        if decision.reason == NO_SHARD and ring.error:
            return self._leave_unassigned(request, ring.name, "leases", ring.error)
        if decision.action is not Action.ASSIGN:
            return AdmissionAnswer(message=decision.reason)
        if not self._view.fresh():
            return self._leave_unassigned(request, ring.name, "stale", STALE)
        if not request.dry_run:
            self._assignments.count(ring.name, resource)
        return ring.assigning(decision.target, labelled=meta.labels is not None)

    def _ring(self, path: str) -> _Ring:
        """Raises ValueError for another path, LookupError for an unknown ring, both with the protocol's
        text.
        """
        name = ring_of_webhook_path(path)
        ring = self._view.ring(name)
        if ring is None:
            self._rings.pop(name, None)
            raise LookupError(
                f'error getting ControllerRing: ControllerRing.sharding.timebertt.dev "{name}" not found'
            )
        error = ""
        try:
            available = self._view.available(name)
        except KubeshardError as failure:
            available, error = (), f"error listing Leases for ControllerRing: {failure}"
        owner_kinds = self._view.owner_kinds(ring)
        known = self._rings.get(name)
        if known is None or not known.made_of(ring, available, owner_kinds, error):
            known = _Ring(ring, available, owner_kinds, error)
            self._rings[name] = known
        return known

    def forget(self, ring: str) -> None:
        """The ring is gone, and what was counted for it."""
        self._rings.pop(ring, None)
        for place in [place for place in self._logged if place[0] == ring]:
            del self._logged[place]
        self._assignments.forget(ring)
        for metric in (self._unassigned, self._restored):
            for family in metric.collect():
                for values in {tuple(sample.labels.values()) for sample in family.samples}:
                    if values[0] == ring:
                        with suppress(KeyError):
                            metric.remove(*values)

    def _must_keep(self, request: AdmissionRequest, ring: _Ring, old: ObjectMeta) -> bool:
        """Whether the shard label of the old object may not be taken away by this update."""
        shard = old.label(ring.view.shard_label)
        if not shard or self._strict or request.user.username in self._sharders:
            return False
        if (
            old.has_label(ring.view.drain_label)
            and self._may_be(shard, ring, request.user)
            and _is_acknowledgement(request, ring.view)
        ):
            return False
        gone = shard not in ring.view.available and not ring.error and self._view.fresh()
        return not gone

    def _may_be(self, shard: str, ring: _Ring, user: UserInfo) -> bool:
        pod = user.claim(POD_NAME_CLAIM)
        if pod == shard:
            return True
        if pod in ring.view.available:
            return False  # this ring's shards are named after their pods, and this is another one of them
        users = self._shard_users(ring.ring)
        return not users or user.username in users

    def _restore(
        self, request: AdmissionRequest, ring: _Ring, meta: ObjectMeta, old: ObjectMeta
    ) -> AdmissionAnswer:
        labels = {ring.view.shard_label: old.label(ring.view.shard_label)}
        if old.has_label(ring.view.drain_label) and not meta.has_label(ring.view.drain_label):
            labels[ring.view.drain_label] = old.label(ring.view.drain_label)
        if meta.labels is None:
            operations = [add("/metadata/labels", labels)]
        else:
            operations = [add(pointer("metadata", "labels", key), value) for key, value in labels.items()]
        if not request.dry_run:
            self._restored.labels(ring.name).inc()
            self._log(request, ring.name, "restored", f"{RESTORING} of {request.user.username}'s update")
        warning = (
            f"label {ring.view.shard_label} was put back: only the object's shard gives it up, "
            "when it is drained, in an update of nothing else"
        )
        return AdmissionAnswer(message=RESTORING, patch=tuple(operations), warnings=(warning[:_MAX_TEXT],))

    def _refused(
        self, request: AdmissionRequest, ring: _Ring, entry: RingEntry, meta: ObjectMeta, reason: str
    ) -> AdmissionAnswer:
        message = f"error calculating hash key for object: {reason}"
        generate_name = entry.main and not meta.name and bool(meta.generate_name)
        if generate_name and self._strict:
            return AdmissionAnswer(allowed=False, code=400, message=message)
        return self._leave_unassigned(
            request, ring.name, "generate_name" if generate_name else "key", message
        )

    def _leave_unassigned(
        self, request: AdmissionRequest, ring: str, reason: str, message: str
    ) -> AdmissionAnswer:
        message = message if len(message) <= _MAX_TEXT else message[: _MAX_TEXT - 1] + "…"
        if not request.dry_run:
            self._unassigned.labels(ring, reason).inc()
            self._log(request, ring, reason, message)
        return AdmissionAnswer(message=message, warnings=(message,))

    def _log(self, request: AdmissionRequest, ring: str, reason: str, message: str) -> None:
        now = self._clock.monotonic()
        if now - self._logged.get((ring, reason), float("-inf")) < _LOG_INTERVAL:
            return
        self._logged[ring, reason] = now
        _LOG.warning(
            "Webhook did not assign object",
            controllerring=ring,
            resource=request.group_resource,
            object=f"{request.namespace}/{request.name}",
            reason=reason,
            message=message,
        )


def _is_acknowledgement(request: AdmissionRequest, view: RingView) -> bool:
    try:
        old, new = request.whole_old(dict), request.whole(dict)
    except UnexpectedObject:
        return False  # a number that is out of range, say: no reason to lose the label
    return old is not None and new is not None and acknowledges(old, new, view.shard_label, view.drain_label)


class _Assignments(Collector):
    """`controller_sharding_assignments_total`. The hot path pays an addition, the scrape makes the samples."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counts: dict[tuple[str, GroupResource], int] = {}
        registry.register(self)

    def count(self, ring: str, resource: GroupResource) -> None:
        key = ring, resource
        self._counts[key] = self._counts.get(key, 0) + 1

    def forget(self, ring: str) -> None:
        for key in [key for key in self._counts if key[0] == ring]:
            del self._counts[key]

    def describe(self) -> Iterator[Metric]:
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "controller_sharding_assignments",
            "Objects assigned to a shard by the webhook.",
            labels=["controllerring", "group", "resource"],
        )
        for (ring, resource), count in list(self._counts.items()):
            family.add_metric([ring, resource.group, resource.resource], count)
        yield family


@dataclass(frozen=True, slots=True)
class _Ring:
    """A ring and what follows from it, for as long as what it was made of is the same. `error` says why
    Leases could not be read; `available` is empty then.
    """

    ring: ControllerRing
    available: tuple[str, ...]
    owner_kinds: Mapping[GroupResource, frozenset[GroupKind]]
    error: str
    view: RingView = field(init=False)
    pointer: str = field(init=False)
    """Of the shard label."""
    answers: dict[tuple[str, bool], PreparedAnswer] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        resources = RingResources(self.ring.spec.resources)
        # The API server applied the namespace selector before it called.
        view = RingView(self.ring.name, resources, ring_of(self.available), owner_kinds=self.owner_kinds)
        object.__setattr__(self, "view", view)
        object.__setattr__(self, "pointer", pointer("metadata", "labels", view.shard_label))

    @property
    def name(self) -> str:
        return self.ring.name

    def assigning(self, shard: str, *, labelled: bool) -> PreparedAnswer:
        """The answer that adds the label of a shard, to an object that has labels already or has none."""
        answer = self.answers.get((shard, labelled))
        if answer is None:
            label = add(self.pointer, shard)
            operations = (label,) if labelled else (add("/metadata/labels", {}), label)
            answer = prepared(AdmissionAnswer(message=ASSIGNING, patch=operations))
            self.answers[shard, labelled] = answer
        return answer

    def made_of(
        self,
        ring: ControllerRing,
        available: tuple[str, ...],
        owner_kinds: Mapping[GroupResource, frozenset[GroupKind]],
        error: str,
    ) -> bool:
        same = self.ring is ring and (self.owner_kinds is owner_kinds or self.owner_kinds == owner_kinds)
        return same and self.available == available and self.error == error
