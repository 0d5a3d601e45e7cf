"""Writing a status: `ctx.status(app, AppStatus(...))`.

The given status is everything that this controller states about the object: one server-side apply on the subresource
`status`, with the controller's field manager. Fields of others stay; a field that the controller stated before and now
leaves at None is removed. Nothing is sent if the object's status is already as stated.

Caches drop `managedFields`, so whether something needs to be sent is found out differently: the new status is merged
over the cached one, as in `ensure`. If that changes nothing but the cached status has more fields, those either belong
to somebody else or were stated before. The status is then sent once, and the fields that remain belong to somebody
else. That is remembered until the controller states something else about the object.

Not guaranteed: that conditions of others survive in a kind whose CustomResourceDefinition does not set
`x-kubernetes-list-type: map` and `x-kubernetes-list-map-keys: [type]` on its conditions: there the whole list is one
field, and belongs to whoever applied it last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from kubeshard.controller.run import Report, Run
from kubeshard.core.conditions import get_condition
from kubeshard.core.desired_status import completed, conditions_of, leaves_out, stating
from kubeshard.core.encoding import to_plain
from kubeshard.core.errors import Conflict, NotFound, NotOurs, Terminal
from kubeshard.core.objects import Form, KubeObject, form_of, metadata_only
from kubeshard.core.patches import ApplyPatch, merge_patch
from kubeshard.core.times import second_time

T = TypeVar("T", bound=KubeObject)

TRIES = 4
"""Attempts to write one status while others change the object."""


class NoStatusSubresource(Terminal):
    """The kind has no `status` subresource."""


async def write_status(run: Run, obj: T, status: msgspec.Struct) -> T:
    """See `Context.status`."""
    form, meta = form_of(type(obj)), obj.metadata
    live = await run.get(form, meta.name, meta.namespace or None)
    if live is None:
        return obj
    if live.metadata.uid != meta.uid:
        raise _replaced(form, obj)
    have: Any = getattr(live, "status", None)
    _check_type(form, status, have)
    report = run.report
    if report is not None and (form != run.form or obj.key != run.key):
        report = None
    carried = None
    if report is not None:
        report.stated |= get_condition(conditions_of(status), report.type) is not None
        carried = get_condition(conditions_of(have), report.type)
    now = second_time(run.clock.wall())
    status = completed(status, have, generation=meta.generation, now=now, carried=carried)
    if have == status:
        _note(report, status)
        return live
    target = stating(status, have)
    said, had = to_plain(status), {} if have is None else to_plain(have)
    differs: object = None
    if target is not have:  # without what the server is known to rewrite
        patch = {"status": merge_patch(had, to_plain(target))}
        differs = run.rewrites.without_known(meta.uid, patch, {"status": had}).get("status")
    if not differs and (not leaves_out(said, had) or (meta.uid, said) in run.rewrites.statements):
        _note(report, status)
        return live
    _check_values(status, said)
    repair = await run.contests.check(
        run.client, live, {"status": differs or {}}, by=(run.key, "status"), wish=said
    )
    written = await apply_status(run, form, live, said)
    run.contests.wrote(repair)
    if written is None:
        return obj
    _note(report, status)
    _learn(run, form, said, written, status)
    return written


async def apply_status(run: Run, form: Form[T], live: T, said: Mapping[str, Any]) -> T | None:
    """Replaces what the controller states in the object's status with this, and returns the object, or None if it is
    gone. Raises NoStatusSubresource, Conflict and other ApiErrors.

    The resourceVersion is sent along, because nothing else prevents writing the status of a deleted object to its
    successor: the API server ignores the UID in an apply to a status. If others change the object in the meantime, it
    tries again.
    """
    meta = live.metadata
    where = (meta.name, meta.namespace or None)
    for tries_left in reversed(range(TRIES)):
        try:
            return await run.client.patch(
                form, *where, _body(live, said), base=live, subresource="status", force=True
            )
        except NotFound:
            break
        except NotOurs:
            raise
        except Conflict:
            if not tries_left:
                raise
        try:
            live = await run.client.get(form, *where)
        except NotFound:
            return None
        if live.metadata.uid != meta.uid:
            raise _replaced(form, live)
    try:
        await run.client.get(metadata_only(form.kind), *where)
    except NotFound:
        return None
    raise NoStatusSubresource(
        f"{form.kind} has no status subresource: in its CustomResourceDefinition, set `subresources: {{status: {{}}}}` "
        f"in version {form.kind.version}"
    )


def _body(live: KubeObject, said: Mapping[str, Any]) -> ApplyPatch:
    kind, meta = live.KIND, live.metadata
    place = {"namespace": meta.namespace} if meta.namespace else {}
    metadata = {"name": meta.name, **place, "resourceVersion": meta.resource_version}
    return ApplyPatch(
        {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "status": said}
    )


def _replaced(form: Form[Any], obj: KubeObject) -> Conflict:
    return Conflict(f"{form.kind} {obj.key} was deleted and recreated since it was read")


def _check_type(form: Form[Any], status: object, have: object) -> None:
    name = form.type.__name__
    if "status" not in form.type.__struct_fields__:
        raise TypeError(f"{name} declares no status: declare one, with the class of the status that you pass")
    if not isinstance(status, msgspec.Struct):
        raise TypeError(f"a status must be a Struct, as {name} declares it, not {status!r}")
    if have is not None and type(have) is not type(status):
        raise TypeError(
            f"{name} declares a status of type {type(have).__name__}, not {type(status).__name__}"
        )


def _check_values(status: msgspec.Struct, said: Mapping[str, Any]) -> None:
    """Raises TypeError, which names the field, for values that the class does not allow."""
    try:
        msgspec.convert(said, type(status))
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        raise TypeError(f"{type(status).__name__}{place.rstrip('`')}: {problem}") from None


def _note(report: Report | None, status: msgspec.Struct) -> None:
    """The API server has it: only now a report of the run's outcome can build on it."""
    if report is not None:
        report.said = status


def _learn(run: Run, form: Form[Any], said: dict[str, Any], written: Any, status: Any) -> None:
    target = stating(status, written.status)
    has = {} if written.status is None else to_plain(written.status)
    if target is not written.status and (again := merge_patch(has, to_plain(target))):
        run.rewrites.learn(
            form.kind, written.metadata.uid, {"status": said}, {"status": again}, {"status": has}
        )
    more = leaves_out(said, has)
    run.rewrites.statements.note(written.metadata.uid, said, there_is_more=more)
