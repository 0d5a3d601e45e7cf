"""delete and deletecollection.

An object without finalizers is removed immediately, unless its kind has a reason to keep it. Otherwise it gets a
deletionTimestamp and stays until the last finalizer is removed. A pod is always seen with its deletionTimestamp for a
moment: controllers act on that. `Foreground` and `Orphan` add the finalizer that the garbage collector processes.
Source: k8s.io/apiserver `registry/rest/delete.go`, `registry/generic/registry/store.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeshard.core.errors import NotFound
from kubeshard.core.kinds import GroupKind, GroupResource
from kubeshard.core.times import parse_time, second_time
from kubeshard_apiserver.access import ADMINISTRATOR, User
from kubeshard_apiserver.admission.attributes import Attributes
from kubeshard_apiserver.admission.chain import Admission
from kubeshard_apiserver.model import EVERY_RIGHT, Answer, Model, Rights, Target
from kubeshard_apiserver.objects import Object, is_deleting, key_of, with_metadata
from kubeshard_apiserver.resources.definitions import DEFINITIONS, terminating
from kubeshard_apiserver.resources.namespaces import NAMESPACES
from kubeshard_apiserver.status import FieldError, conflict, invalid, success, unsupported
from kubeshard_apiserver.steps import Pause, Steps
from kubeshard_apiserver.verbs.establishing import Definitions
from kubeshard_apiserver.verbs.reading import ListOptions, Page, Reads

_OPTIONS = GroupKind("meta.k8s.io", "DeleteOptions")
_POLICIES = ("Foreground", "Background", "Orphan", "nil")
_FINALIZER_OF = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}
_PRESERVED = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
    "or set propagationPolicy=Orphan to suppress this warning"
)
_JOBS = GroupResource("batch", "jobs")
_SEEN = 0.01
"""The seconds for which an object that nothing holds is seen with its deletionTimestamp before it is removed. On the
real server it is the time of a second write.
"""


@dataclass(frozen=True)
class DeleteOptions:
    """`uid` and `resource_version` are preconditions. `grace` is the grace period in seconds, or None for the object's
    own. `at_once` means that the request sets the deprecated `orphanDependents` to false. For `sent`, `warnings` and
    `asks` see `WriteOptions`.
    """

    uid: str | None = None
    resource_version: str | None = None
    propagation: str | None = None
    dry_run: bool = False
    user: User = ADMINISTRATOR
    rights: Rights = EVERY_RIGHT
    sent: Mapping[str, Any] = field(default_factory=dict)
    warnings: list[str] | None = None
    asks: bool = True
    grace: int | None = None
    at_once: bool = False


class Deletions:
    def __init__(self, model: Model, reads: Reads, admission: Admission, definitions: Definitions) -> None:
        self._model = model
        self._store = model.store
        self._reads = reads
        self._admission = admission
        self._definitions = definitions

    def deleting(self, target: Target, options: DeleteOptions | None = None) -> Steps[Answer]:
        """Deletes an object. Returns a Status if the object is gone, otherwise the object waiting for its deletion.
        Raises NotFound, Conflict (preconditions).
        """
        options = options or DeleteOptions()
        _check_options(options)
        _warn_of_dependents(target, options)
        live = yield from self._admitted_live(target, options, target)
        answer, marked = self._delete(target, self._as_stored(target, live), options)
        if marked:
            try:
                yield Pause(_SEEN)
            finally:  # also if the client has gone
                gone = self._removed(target, answer.object)
            answer = answer._replace(object=gone)
        if answer.object.get("kind") == "Status":
            return answer
        return answer._replace(object=(yield from self._model.shown(target, answer.object)))

    def _as_stored(self, target: Target, live: Object) -> Object:
        """Returns the object whose metadata the deletion changes: in the version that is stored, if that is another
        one only for a webhook.
        """
        stored = self._store.get(target.group_resource, target.key)
        return stored if target.resource.strategy.needs_webhook and stored is not None else live

    def _admitted_live(self, target: Target, options: DeleteOptions, asked: Target) -> Steps[Object]:
        """Returns the live object after admission of exactly this state. `asked` is the target named in the request."""
        while True:
            live = yield from self._model.reading(target)
            check_preconditions(target, live, options)
            write = Attributes("DELETE", asked, None, live, options)
            yield from self._admission.mutate(write)
            yield from self._admission.validate(write)
            if self._model.is_live(target, live):
                return live

    def _delete(self, target: Target, live: Object, options: DeleteOptions) -> tuple[Answer, bool]:
        """Returns the answer, and whether the object is still to be removed."""
        resource, strategy = target.group_resource, target.resource.strategy
        doomed = self._doomed(target, live, options)
        waits = resource == DEFINITIONS or strategy.is_held(doomed)
        if not waits and not strategy.is_graceful:
            gone = live if options.dry_run else self._remove(target)
            shown = (
                gone
                if strategy.shown_when_deleted
                else success(resource, target.name, gone["metadata"]["uid"])
            )
            return Answer(200, shown), False
        code = 202 if waits and options.at_once else 200
        if options.dry_run or (waits and doomed == live):
            return Answer(code, doomed), False
        stored = live if doomed == live else self._store.put(resource, target.key, doomed)
        if not waits:
            return Answer(200, stored), True
        if resource == DEFINITIONS:
            self._definitions.doom_objects(stored)
        return Answer(code, stored), False

    def _remove(self, target: Target) -> Object:
        gone = self._store.remove(target.group_resource, target.key)
        self._definitions.gone(target)
        return gone

    def _removed(self, target: Target, marked: Object) -> Object:
        """Removes an object that was marked for it, and returns its last state; somebody else may have been faster."""
        found = self._store.get(target.group_resource, target.key)
        if found is None or found["metadata"]["uid"] != marked["metadata"]["uid"]:
            return marked
        return self._remove(target)

    def deleting_collection(
        self, target: Target, selected: ListOptions | None = None, options: DeleteOptions | None = None
    ) -> Steps[Page]:
        """Deletes the selected objects one after another, and returns them as they were before."""
        page = yield from self._model.converting(lambda: self._reads.list(target, selected))
        options = options or DeleteOptions()
        _check_options(options)
        _warn_of_dependents(target, options)
        all_marked = []
        for obj in page.items:
            key = key_of(obj)
            doomed = Target(target.resource, key.namespace, key.name)
            try:
                live = yield from self._admitted_live(doomed, options, target)
                answer, marked = self._delete(doomed, self._as_stored(doomed, live), options)
            except NotFound:
                continue
            if marked:
                all_marked.append((doomed, answer.object))
        try:
            if all_marked:
                yield Pause(_SEEN)
        finally:
            for doomed, obj in all_marked:
                self._removed(doomed, obj)
        return page

    def _doomed(self, target: Target, live: Object, options: DeleteOptions) -> Object:
        """Returns the object as it would wait for its deletion."""
        strategy = target.resource.strategy
        if target.group_resource == DEFINITIONS:
            return live if is_deleting(live) else terminating(live, self._model.now())
        waiting = with_metadata(live, finalizers=_finalizers(target, live, options) or None)
        meta = waiting["metadata"]
        grace = strategy.grace_period(live, options.grace)
        if is_deleting(live):
            left = meta.get("deletionGracePeriodSeconds") or 0
            if options.grace is not None and grace < left:
                end, now = (
                    (parse_time(meta["deletionTimestamp"]) or 0) + grace - left,
                    self._model.clock.wall(),
                )
                # An expired grace period does not end the deletion before the agent on the node confirms it.
                grace = min(grace, 1) if end < now else grace
                end = max(end, now)
                meta |= {"deletionTimestamp": second_time(end), "deletionGracePeriodSeconds": grace}
        else:
            end = self._model.clock.wall() + grace
            meta |= {"deletionTimestamp": second_time(end), "deletionGracePeriodSeconds": grace}
            if meta.get("generation"):
                meta["generation"] += 1
            strategy.prepare_delete(waiting)
        return waiting


def propagation_errors(policy: str | None) -> list[FieldError]:
    """Returns what is wrong with a propagation policy; None leaves it to the kind."""
    return [] if policy in (None, *_POLICIES) else [unsupported("propagationPolicy", policy, _POLICIES)]


def _check_options(options: DeleteOptions) -> None:
    if errors := propagation_errors(options.propagation):
        raise invalid(_OPTIONS, "", errors)


def check_preconditions(target: Target, live: Object, options: DeleteOptions) -> None:
    """Raises Conflict if the uid or the resource version differs from the live object's."""
    meta, kind = live["metadata"], target.resource.kind
    # Preconditions are the only place where the server names the kind instead of the resource.
    named = GroupResource(kind.group, kind.kind)
    if options.uid not in (None, meta["uid"]):
        raise conflict(
            named,
            target.name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated",
        )
    if options.resource_version not in (None, meta["resourceVersion"]):
        raise conflict(
            named,
            target.name,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified",
        )


def _finalizers(target: Target, live: Object, options: DeleteOptions) -> list[str]:
    finalizers = list(live["metadata"].get("finalizers") or ())
    strategy, propagation = target.resource.strategy, options.propagation
    if strategy.default_propagation is None:
        return finalizers
    if not propagation or propagation == "nil":
        said = any(name in finalizers for name in _FINALIZER_OF.values())
        default = _FINALIZER_OF.get(strategy.default_propagation)
        return finalizers if said or default is None else [*finalizers, default]
    if options.at_once and target.group_resource == NAMESPACES:
        propagation = "Foreground"
    kept = [name for name in finalizers if name not in _FINALIZER_OF.values()]
    wanted = _FINALIZER_OF.get(propagation)
    return [*kept, wanted] if wanted else kept


def _warn_of_dependents(target: Target, options: DeleteOptions) -> None:
    if target.group_resource == _JOBS and not options.propagation and options.warnings is not None:
        options.warnings.append(_PRESERVED)
