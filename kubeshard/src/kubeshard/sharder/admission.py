"""The sharder's admission handler: assigns objects when they are created or released.

The first row that applies decides:

| situation | answer |
|---|---|
| neither CREATE nor UPDATE, or no object | allowed |
| ring not found, unexpected path | allowed, unassigned, warning |
| object's metadata unreadable | allowed, unassigned, warning |
| UPDATE that replaces an available shard's label by another's, not by a sharder, and which shard may write the \
object is told by the label (`ring_resources`) | allowed, label restored, warning |
| UPDATE that gives a controlled object with a shard to another owner | allowed, label of the owner's shard (not if \
the view of the Leases is stale) |
| shard label present and not empty | allowed |
| resource not in the ring | allowed, unassigned, warning |
| UPDATE that removes the shard label without permission (below), if the object belongs to anybody \
(`ring_resources`) | allowed, label restored, warning |
| key rejected | allowed, unassigned, warning |
| no key (no controller, or a foreign one), or one that has to be looked up | allowed |
| no available shard | allowed |
| view of the Leases stale | allowed, unassigned, warning |
| UPDATE that ends a drain, and the same shard would get the object | allowed, unassigned |
| else | allowed, label added |

The shard label may be replaced by a sharder: a configured account, or a client that says so (`SHARDER_FIELD_MANAGER`);
and by the shard that the new label names, which takes the object back (`kubeshard.shard.label_restorer`). Who says so
wrongly misplaces an object that it may write anyway, until the sharder's next scan.

The shard label may be removed by the shard itself after a drain was requested, in an update that does
nothing else (`acknowledges`), by a sharder (in a ring that is being cleaned up, also by a client that says so), and by
anyone if the shard is not available in a fresh view of the Leases and, in a ring with strict hand-over, confirmed to
have ended.

Who the shard is, is told by the first row that applies:

| what is known | the shard is |
|---|---|
| the caller is the pod with the shard's name | the caller |
| the caller is the pod of another shard | not the caller |
| `shard_users` has accounts of the ring | a caller with one of these |
| an available shard of the ring has been seen as the pod of its name | not the caller |
| the caller's field manager is the shard's name | the caller |
| the shard's Lease says that it signs its acknowledgements like that | not the caller |
| nothing: a Go shard outside a pod | a caller without a field manager, unlike kubectl and GitOps tools |

A replica that would give an object back to the shard that has just released it knows less than the sharder that asked
for the drain, which may be about to move what the object controls: so it leaves the object to that sharder.

The API server does not say whether an update was a PUT or a patch.

Guaranteed: no request is denied; a response has at most two operations; objects left unassigned are counted, logged at
most every 10 s per ring and reason, and reported to the user. A dry run gets the same response and counts nothing. Not
guaranteed: that every object gets its label here; the watch on unassigned objects assigns what the webhook misses. Nor
that an acknowledgement is recognised when another mutating webhook, called before this one, changes the object in
every update (a timestamp, say): the labels are restored then, and the drain is reported as stuck. Let that webhook
skip updates of labels.
Metrics: `metrics`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from kubeshard.core.kinds import GroupResource, TypeMeta
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.patches import add, pointer
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.sharder.rings import Rings
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import SHARDER_FIELD_MANAGER, pod_of_process, ring_of_webhook_path
from kubeshard.sharding.planner import ALREADY_ASSIGNED, ASSIGNING, NAMESPACES, Action, RingView, plan
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.ring_resources import Belongs, ResourceNotInRing, RingEntry, belongs
from kubeshard.webhook.review import (
    AdmissionAnswer,
    AdmissionRequest,
    PreparedAnswer,
    UnexpectedObject,
    prepared,
)

POD_NAME_CLAIM = "authentication.kubernetes.io/pod-name"

RESTORING = "restoring shard label"
FOLLOWING = "assigning object to the shard of its new owner"
RELEASED = "the shard has released the object, and would be its next one: its sharder assigns it"
STALE = "the sharder's view of the shards is out of date"

_LOG_INTERVAL = 10.0
_MAX_TEXT = 250
"""Characters of a message or warning: what the API server passes on, and a limit on text that authors of objects
can inject.
"""

_SERVERS = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""Metadata that updates cannot change: the API server rejects the change or ignores it."""

_ENCODER = msgspec.json.Encoder(order="deterministic")
"""Compares as JSON does: in Python, true equals 1."""

_LOG = get_logger("kubeshard.sharder")


class ShardAdmission:
    """An `AdmissionHandler`, served at `names.WEBHOOK_PATH_PREFIX`.

    `sharders` are the user names of sharders: this one, and others during a migration. `shard_users` are the
    configured user names of shards, by ring; they are used if shards are not named after
    their pods.
    """

    def __init__(
        self,
        rings: Rings,
        clock: Clock,
        *,
        sharders: Collection[str] = (),
        shard_users: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._rings = rings
        self._clock = clock
        self._sharders = sharders
        self._shard_users = shard_users or {}
        self._served: WeakKeyDictionary[Ring, _Served] = WeakKeyDictionary()
        self._nowhere = rings.inputs.metrics.of("")
        self._notices = Notices(clock, every=_LOG_INTERVAL)
        """Of requests for rings that do not exist, by reason."""

    def __call__(self, request: AdmissionRequest) -> AdmissionAnswer:
        if request.operation not in ("CREATE", "UPDATE"):
            return AdmissionAnswer()
        try:
            ring, view = self._ring(request.path)
        except (ValueError, LookupError) as error:
            message = f"error determining ControllerRing for request: {error.args[0]}"
            return self._leave_unassigned(request, None, "ring", message)
        served = self._of(ring)
        served.saw(request.user.claim(POD_NAME_CLAIM) if request.user.extra else "", view)
        if request.object_error:
            message = f"error decoding object: {request.object_error}"
            return self._leave_unassigned(request, ring, "object", message)
        if request.object is None:
            return AdmissionAnswer()
        meta, resource = _placed(request, request.object.metadata), request.group_resource
        if shard := meta.label(view.shard_label):
            old = request.old_object.metadata if request.old_object is not None else meta
            if old.label(view.shard_label) not in ("", shard) and not self._may_exchange(
                request, ring, view, old
            ):
                return self._restore(request, ring, view, old)
            if target := self._of_new_owner(request, view, old):
                return AdmissionAnswer(
                    message=FOLLOWING, patch=(add(pointer("metadata", "labels", view.shard_label), target),)
                )
            return AdmissionAnswer(message=ALREADY_ASSIGNED)
        try:
            entry = view.resources.entry(resource)
        except ResourceNotInRing as error:
            message = f"error determining hash key func for object: {error}"
            return self._leave_unassigned(request, ring, "resource", message)
        if (
            request.old_object is not None
            and self._must_keep(request, ring, view, request.old_object.metadata)
            and _belongs(view, resource, request.old_object.metadata) is not Belongs.NOBODY
        ):
            return self._restore(request, ring, view, request.old_object.metadata)
        type_ = TypeMeta(request.object.api_version, request.object.kind)
        decision = plan(view, entry, type_, meta)
        if decision.action is Action.REFUSED:
            return self._refused(request, ring, entry, meta, decision.reason)
        if decision.action is not Action.ASSIGN:
            return AdmissionAnswer(message=decision.reason)
        if not self._rings.inputs.shards.fresh(self._clock.monotonic()):
            return self._leave_unassigned(request, ring, "stale", STALE)
        if _returns(request, view, decision.target):
            return AdmissionAnswer(message=RELEASED)
        if not request.dry_run:
            ring.metrics.add("assignments", resource)
        return served.assigning(view, decision.target, labelled=meta.labels is not None)

    def _of_new_owner(self, request: AdmissionRequest, view: RingView, old: ObjectMeta) -> str:
        """The shard of the object's owner, if the update gives it another one and that is on another shard; else ""."""
        obj, resource = request.object, request.group_resource
        if obj is None or request.operation != "UPDATE" or resource not in view.resources:
            return ""
        entry, type_ = view.resources.entry(resource), TypeMeta(obj.api_version, obj.kind)
        before, after = (plan(view, entry, type_, _placed(request, meta)) for meta in (old, obj.metadata))
        if entry.main or after.action is not Action.MOVE or before.key == after.key:
            return ""
        return after.target if self._rings.inputs.shards.fresh(self._clock.monotonic()) else ""

    def _of(self, ring: Ring) -> _Served:
        served = self._served.get(ring)
        if served is None:
            served = self._served[ring] = _Served(Notices(self._clock, every=_LOG_INTERVAL))
        return served

    def _ring(self, path: str) -> tuple[Ring, RingView]:
        """The ring, and its view for objects in a selected namespace (the API server checked that). Raises ValueError
        for another path, LookupError for an unknown ring, both with the protocol's text.
        """
        name = ring_of_webhook_path(path)
        if (ring := self._rings.get(name)) is None or (view := ring.view_of_selected) is None:
            raise LookupError(
                f'error getting ControllerRing: ControllerRing.sharding.timebertt.dev "{name}" not found'
            )
        return ring, view

    def _must_keep(self, request: AdmissionRequest, ring: Ring, view: RingView, old: ObjectMeta) -> bool:
        """Whether this update must not remove or replace the shard label of the old object."""
        shard = old.label(view.shard_label)
        if not shard or request.user.username in self._sharders:
            return False
        if view.releasing and request.field_manager == SHARDER_FIELD_MANAGER:
            return False
        if (
            old.has_label(view.drain_label)
            and self._is_from(shard, ring, view, request)
            and _is_acknowledgement(request, view)
        ):
            return False
        fresh = self._rings.inputs.shards.fresh(self._clock.monotonic())
        return shard in view.available or not fresh or not ring.has_ended(shard)

    def _may_exchange(self, request: AdmissionRequest, ring: Ring, view: RingView, old: ObjectMeta) -> bool:
        """Whether this update may replace the label of the old object's shard by that of another one. An
        acknowledgement seems to do that, if this webhook has assigned the object before in the same request.
        """
        assert request.object is not None
        shard = request.object.metadata.label(view.shard_label)
        if request.field_manager == shard and self._is_from(shard, ring, view, request):
            return True  # it takes the object back
        if request.field_manager == SHARDER_FIELD_MANAGER or not self._must_keep(request, ring, view, old):
            return True
        resource = request.group_resource
        if resource in view.resources and not _belongs(view, resource, old).by_label:
            return True  # its owner's shard takes it over
        released = old.has_label(view.drain_label) and not request.object.metadata.has_label(view.drain_label)
        return released and self._is_from(old.label(view.shard_label), ring, view, request)

    def _is_from(self, shard: str, ring: Ring, view: RingView, request: AdmissionRequest) -> bool:
        """Whether the caller is the shard (see the module)."""
        pod = request.user.claim(POD_NAME_CLAIM)
        if pod == shard:
            return True
        if pod in view.available:
            return False
        if pod and pod == pod_of_process(shard):
            return True
        if users := self._shard_users.get(ring.name):
            return request.user.username in users
        if self._of(ring).pods:
            return False
        signs = self._rings.inputs.shards.signs
        return request.field_manager == shard or not (request.field_manager or signs(ring.name, shard))

    def _restore(
        self, request: AdmissionRequest, ring: Ring, view: RingView, old: ObjectMeta
    ) -> AdmissionAnswer:
        assert request.object is not None
        meta = request.object.metadata
        labels = {view.shard_label: old.label(view.shard_label)}
        if old.has_label(view.drain_label) and not meta.has_label(view.drain_label):
            labels[view.drain_label] = old.label(view.drain_label)
        if meta.labels is None:
            operations = [add("/metadata/labels", labels)]
        else:
            operations = [add(pointer("metadata", "labels", key), value) for key, value in labels.items()]
        if not request.dry_run:
            ring.metrics.add("webhook_restored")
            self._log(request, ring, "restored", f"{RESTORING} of {request.user.username}'s update")
        warning = (
            f"label {view.shard_label} was restored: only the sharder changes it, and the object's shard removes it "
            "when it is drained, in an update that changes nothing else"
        )
        probe = request.dry_run and request.field_manager == SHARDER_FIELD_MANAGER  # expects it
        warnings = () if probe else (warning[:_MAX_TEXT],)
        return AdmissionAnswer(message=RESTORING, patch=tuple(operations), warnings=warnings)

    def _refused(
        self, request: AdmissionRequest, ring: Ring, entry: RingEntry, meta: ObjectMeta, reason: str
    ) -> AdmissionAnswer:
        message = f"error calculating hash key for object: {reason}"
        generate_name = entry.main and not meta.name and bool(meta.generate_name)
        return self._leave_unassigned(request, ring, "generate_name" if generate_name else "key", message)

    def _leave_unassigned(
        self, request: AdmissionRequest, ring: Ring | None, reason: str, message: str
    ) -> AdmissionAnswer:
        message = message if len(message) <= _MAX_TEXT else message[: _MAX_TEXT - 1] + "…"
        if not request.dry_run:
            (ring.metrics if ring else self._nowhere).add("webhook_unassigned", None, reason)
            self._log(request, ring, reason, message)
        return AdmissionAnswer(message=message, warnings=(message,))

    def _log(self, request: AdmissionRequest, ring: Ring | None, reason: str, message: str) -> None:
        if not (self._of(ring).notices if ring else self._notices).due(reason):
            return
        _LOG.warning(
            "Webhook did not assign object",
            controllerring=ring.name if ring else "",
            resource=request.group_resource,
            object=f"{request.namespace}/{request.name}",
            reason=reason,
            message=message,
        )


@dataclass(slots=True)
class _Served:
    """What is remembered of the requests for one ring."""

    notices: Notices
    """Of objects that were left unassigned, by reason."""
    pods: frozenset[str] = frozenset()
    """Those of the available shards that were seen to authenticate as the pods of their names: the others do too."""
    available: frozenset[str] = frozenset()
    """The shards that were there when the last request came."""
    hashring: HashRing | None = None
    answers: dict[tuple[str, bool], PreparedAnswer] = field(default_factory=dict)
    """Responses that label an object with a shard of this hash ring, with or without other labels."""

    def saw(self, pod: str, view: RingView) -> None:
        """This pod has sent a request, or a caller in none. A shard that was away need not be back in a pod."""
        if view.available is not self.available:
            self.available = view.available
            self.pods &= view.available
        if pod in view.available and pod not in self.pods:
            self.pods |= {pod}

    def assigning(self, view: RingView, shard: str, *, labelled: bool) -> PreparedAnswer:
        """The response that adds the label of a shard, to an object with or without labels."""
        if self.hashring is not view.hashring:
            self.hashring, self.answers = view.hashring, {}
        answer = self.answers.get((shard, labelled))
        if answer is None:
            label = add(pointer("metadata", "labels", view.shard_label), shard)
            operations = (label,) if labelled else (add("/metadata/labels", {}), label)
            answer = prepared(AdmissionAnswer(message=ASSIGNING, patch=operations))
            self.answers[shard, labelled] = answer
        return answer


def _placed(request: AdmissionRequest, meta: ObjectMeta) -> ObjectMeta:
    """With the namespace of the request, which API servers before 1.22 do not write into a new object. Others say of a
    Namespace, unless it is new, that it is in itself.
    """
    if meta.namespace or not request.namespace or request.group_resource == NAMESPACES:
        return meta
    return msgspec.structs.replace(meta, namespace=request.namespace)


def _belongs(view: RingView, resource: GroupResource, meta: ObjectMeta) -> Belongs:
    return belongs(view.resources.entry(resource), view.owner_kinds.get(resource), meta)


def _returns(request: AdmissionRequest, view: RingView, target: str) -> bool:
    """Whether the shard that acknowledges a drain would get the object back."""
    if request.old_object is None:
        return False
    old = request.old_object.metadata
    return old.label(view.shard_label) == target and old.has_label(view.drain_label)


def _is_acknowledgement(request: AdmissionRequest, view: RingView) -> bool:
    try:
        old, new = request.whole_old(dict), request.whole(dict)
    except UnexpectedObject:
        return False  # a number out of range, say: not a reason to lose the label
    return old is not None and new is not None and acknowledges(old, new, view.shard_label, view.drain_label)


def acknowledges(old: Mapping[str, Any], new: Mapping[str, Any], shard_label: str, drain_label: str) -> bool:
    """Whether the update from `old` to `new` (complete objects) only ends a drain: it takes the shard label and the
    drain label away and changes nothing else. What the API server itself writes does not count: resourceVersion,
    managedFields and the other metadata that it owns, and whether a map is empty or absent. Never raises, whatever
    the objects contain.
    """
    both = frozenset({shard_label, drain_label})
    had, has = _labels(old), _labels(new)
    if not both <= had.keys() or both & has.keys():
        return False
    for label in both:
        del had[label]
    return _ENCODER.encode([_rest(old), had]) == _ENCODER.encode([_rest(new), has])


def _rest(obj: Mapping[str, Any]) -> list[Any]:
    """The object without labels and without the fields that the server owns."""
    metadata = obj.get("metadata")
    if isinstance(metadata, Mapping):
        metadata = {
            key: value for key, value in metadata.items() if value and key != "labels" and key not in _SERVERS
        }
    return [{key: value for key, value in obj.items() if key != "metadata"}, metadata]


def _labels(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = obj.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return dict(labels) if isinstance(labels, Mapping) else {}
