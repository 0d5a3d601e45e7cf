"""The subresource `scale`: the current and desired number of replicas of a workload, as an `autoscaling/v1` Scale.

A write changes only the replicas of the workload, and its field manager then owns them. Source: k8s.io/kubernetes
`pkg/registry/apps/*/storage`, k8s.io/apimachinery `util/managedfields/scalehandler.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubeshard.core.errors import Conflict
from kubeshard.core.kinds import GroupKind
from kubeshard.core.patches import ApplyPatch
from kubeshard_apiserver.apply.field_manager import conflicting
from kubeshard_apiserver.apply.fieldset import FieldSet, contains
from kubeshard_apiserver.apply.managed_fields import read_managers
from kubeshard_apiserver.front.handler import HandlerContext
from kubeshard_apiserver.model import Answer, Target, WriteOptions
from kubeshard_apiserver.objects import Object, private, with_metadata
from kubeshard_apiserver.patching import patch_of, patched
from kubeshard_apiserver.resources.field_paths import value_at, with_value
from kubeshard_apiserver.resources.scales import (
    KIND,
    SCALE,
    SCALES,
    paths_of,
    reviewed_scale,
    scale_of,
    written_scale,
)
from kubeshard_apiserver.status import (
    bad_request,
    conflict,
    internal,
    invalid,
    invalid_value,
    method_not_allowed,
)
from kubeshard_apiserver.steps import Steps
from kubeshard_apiserver.verbs.receiving import check_name, decoded_patch

_NO_REPLICAS = -(1 << 31)
"""What the server takes for a missing number of replicas of a custom resource."""


def scale(context: HandlerContext) -> Steps[Answer]:
    """Reads or writes the scale. Raises Conflict if the resourceVersion or the uid differs from the workload's, and
    Invalid for a negative number of replicas.
    """
    target, request = context.target, context.request
    match request.method:
        case "GET":
            server, version = context.server, request.query.get("resourceVersion", "")
            live = yield from server.model.converting(lambda: server.reads.get(target, version))
            return Answer(200, scale_of(live, target.resource))
        case "PUT":
            options = context.write_options("UpdateOptions")
            wanted, warnings = _received(context, request.decode(KIND.kind, KIND.api_version), options)
            return (yield from _written(context, lambda _: wanted, options))._replace(warnings=warnings)
        case "PATCH":
            options = context.write_options("PatchOptions")
            document = request.decode_patch(typed=not target.resource.strategy.is_custom)
            patch = patch_of(request.content_type, document, request.body)
            if isinstance(patch, ApplyPatch):
                return (yield from _applied(context, patch.body, options))

            def wanted_of(live: Object) -> Object:
                made = private(patched(_before(live, target), patch, SCALES.type))
                wanted, _ = decoded_patch(Target(SCALE, target.namespace, target.name), made, options)
                check_name(target, wanted)
                return wanted

            return (yield from _written(context, wanted_of, options))
    raise method_not_allowed()


def _before(live: Object, target: Target) -> Object:
    """The Scale that a patch changes. A custom resource without a replica count may be scaled."""
    scale, is_custom = reviewed_scale(live, target.resource), target.resource.strategy.is_custom
    if not is_custom or value_at(live, paths_of(target.resource).spec) is not None:
        return scale
    return with_value(scale, ("spec", "replicas"), _NO_REPLICAS)


def _received(context: HandlerContext, body: Object, options: WriteOptions) -> tuple[Object, tuple[str, ...]]:
    target = context.target
    obj, warnings = context.server.writes.received(
        Target(SCALE, target.namespace, target.name), body, options
    )
    check_name(target, obj)
    return obj, warnings


def _written(
    context: HandlerContext, wanted_of: Callable[[Object], Object], options: WriteOptions
) -> Steps[Answer]:
    def change(live: Object) -> Object:
        wanted = wanted_of(live)
        given, meta = wanted["metadata"], live["metadata"]
        is_custom = context.target.resource.strategy.is_custom
        if given.get("uid") not in ("", None, meta["uid"]) and not is_custom:
            problem = f"Precondition failed: UID in precondition: {given['uid']}, "
            problem += f"UID in object meta: {meta['uid']}"
            raise conflict(context.target.group_resource, meta["name"], problem)
        replicas = _replicas(wanted, context.target)
        changed = with_value(live, paths_of(context.target.resource).spec, replicas)
        return with_metadata(changed, resourceVersion=given.get("resourceVersion"))

    answer = yield from context.server.writes.updating(context.target, change, options)
    return answer._replace(object=written_scale(answer.object, context.target.resource))


def _applied(context: HandlerContext, config: Mapping[str, Any], options: WriteOptions) -> Steps[Answer]:
    """Applies the workload's replicas. A conflict names every manager as if it had written through `scale`."""
    target, kind = context.target, context.target.resource.kind
    live = yield from context.server.model.reading(target)
    if (config.get("apiVersion"), config.get("kind")) != (KIND.api_version, KIND.kind):
        group, _, version = (config.get("apiVersion") or "").rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={config.get('kind')}")
    named = config.get("metadata") or {}
    if target.resource.strategy.is_custom:
        return _applied_to_custom(target, live, config, options)
    intent = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": named.get("name") or target.name},
        "spec": {"replicas": _replicas(config, target)},
    }
    try:
        answer = yield from context.server.writes.patching(target, ApplyPatch(intent), options)
    except Conflict as error:
        ours, theirs = f"using {kind.api_version}", f"using {KIND.api_version}"
        causes = [
            {**cause, "message": cause["message"].replace(ours, theirs)}
            for cause in error.details.get("causes", ())
        ]
        raise Conflict(
            error.message.replace(ours, theirs),
            code=error.code,
            reason=error.reason,
            details={**error.details, "causes": causes} if causes else error.details,
        ) from None
    return answer._replace(object=written_scale(answer.object, target.resource))


def _applied_to_custom(
    target: Target, live: Object, config: Mapping[str, Any], options: WriteOptions
) -> Answer:
    """Answers an apply to the scale of a custom resource. It changes nothing: the real server converts a changed Scale
    as if it were the custom resource, and fails. It notices conflicts before that. Raises Conflict, ApiError (500).
    """
    why = f"to proper version: request to convert CR to an invalid group/version: {KIND.api_version}"
    path = paths_of(target.resource).spec
    field = tuple(f"f:{name}" for name in path)
    owners = {
        manager: owned for manager, owned in read_managers(live).items() if contains(owned.fields, field)
    }
    if not owners:
        told = f"failed to convert live object (/; {KIND.api_version}, Kind={KIND.kind}) {why}"
        raise internal(f"failed to create manager for existing fields: {told}")
    wanted = (config.get("spec") or {}).get("replicas")
    if wanted in (None, value_at(live, path)):
        return Answer(200, scale_of(live, target.resource))
    others = [manager for manager in owners if manager[:2] != (options.manager, "Apply")]
    if others and not options.force:
        shown: FieldSet = {"f:spec": {"f:replicas": {}}}
        raise conflicting(
            {one: (owners[one]._replace(api_version=KIND.api_version), shown) for one in others}
        )
    name = (config.get("metadata") or {}).get("name") or ""
    raise internal(f"failed to convert new object (/{name}; {KIND.api_version}, Kind={KIND.kind}) {why}")


def _replicas(wanted: Mapping[str, Any], target: Target) -> int:
    replicas = (wanted.get("spec") or {}).get("replicas") or 0
    if replicas >= 0:
        return int(replicas)
    if target.resource.strategy.is_custom:
        if replicas == _NO_REPLICAS:
            path = ".".join(paths_of(target.resource).spec)
            raise bad_request(f'the spec replicas field ".{path}" cannot be empty')
        at, kind = f".{'.'.join(paths_of(target.resource).spec)}", target.resource.kind.group_kind
        raise invalid(kind, target.name, [invalid_value(at, replicas, "should be a non-negative integer")])
    error = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
    raise invalid(GroupKind(KIND.group, KIND.kind), target.name, [error])
