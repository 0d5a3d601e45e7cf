"""The path of an update, from the live object to one that may replace it, with the rules of the kind in between.

The order is the server's: field management, mutating admission, fields that the kind resets, validation, validating
admission. Nothing is stored here. Source: k8s.io/apiserver `registry/generic/registry`.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeshard.core.kinds import GroupKind
from kubeshard_apiserver.admission.attributes import Attributes
from kubeshard_apiserver.admission.chain import Admission
from kubeshard_apiserver.apply.field_manager import Writer, updated
from kubeshard_apiserver.model import Model, Target, WriteOptions, check_size
from kubeshard_apiserver.objects import Object, in_order, private, same, with_metadata
from kubeshard_apiserver.resources.metadata import (
    NameRule,
    keep_servers_own,
    segment_name,
    validate_metadata,
    validate_metadata_update,
    without_empty,
)
from kubeshard_apiserver.resources.scales import SCALES, reviewed_scale, with_scale
from kubeshard_apiserver.status import FieldError, conflict, internal, invalid, invalid_value
from kubeshard_apiserver.steps import Steps, Work
from kubeshard_apiserver.verbs.receiving import check_name, check_namespace, warn, with_owners_once

MutateFn = Callable[[Object], Object]


class Updates:
    def __init__(self, model: Model, admission: Admission) -> None:
        self._model = model
        self._admission = admission

    def updating(
        self,
        target: Target,
        mutate: MutateFn,
        options: WriteOptions,
        *,
        managed: bool = False,
        fresh: bool = False,
    ) -> Steps[tuple[Object, Object, Object]]:
        """Returns the live object, the result of applying `mutate` to it, and this as it is to be stored. If the object
        was written to during admission, starts over with the new live object. `managed` means that `mutate` updates
        managedFields itself, and `fresh` that it returns an object of which nobody else has a part. Raises NotFound,
        Conflict, Invalid and the errors of admission.
        """
        while True:
            live = yield from self._model.reading(target)
            large = options.large or self._model.store.is_large(target.group_resource, target.key)
            new = yield from self._made(target, live, mutate, options, managed, fresh, large)
            to_store = yield from self._model.storable(target, new, live)
            if not self._model.is_live(target, live):
                continue
            if large and not options.dry_run:
                check_size(target, to_store)
            return live, new, to_store

    def _made(
        self,
        target: Target,
        live: Object,
        mutate: MutateFn,
        options: WriteOptions,
        managed: bool,
        fresh: bool,
        large: bool,
    ) -> Steps[Object]:
        strategy = target.resource.strategy
        writer = writer_of(target, options, self._model.now())

        def changed() -> Object:
            new = mutate(live) if fresh else private(mutate(live))
            _check_same(target, new)
            return new if managed else updated(strategy.shape, live, new, writer)

        new = (yield Work(changed)) if large else changed()
        is_scale = target.subresource == "scale"
        if not target.subresource:
            strategy.admit(new, live, self._model.rng.token)
        if self._admission.mutates(options):
            write = _attributes(target, new, live, options)
            left = yield from self._admission.mutate(write)
            if left is not None and left is not write.object:
                new = with_scale(new, left, target.resource) if is_scale else private(left)
                if not target.subresource:
                    strategy.admit(new, live, self._model.rng.token)
        new = with_owners_once(new, options)
        strategy.settle(new, live)
        _check_version(target, new, live)
        keep_servers_own(new, live)
        strategy.prepare_update(new, live, target.subresource)
        strategy.stamp(new, live, options.user, writer.now)
        options.rights.check_write(options.user, target, new, live)
        new["metadata"] = without_empty(
            {**new["metadata"], "resourceVersion": live["metadata"]["resourceVersion"]}
        )
        new = in_order(new)

        def errors() -> list[FieldError]:
            found: list[FieldError] = []
            if {**new["metadata"], **_UNCHECKED} != {**live["metadata"], **_UNCHECKED}:
                # Only a create checks the name of a custom resource by the kind's own rule.
                rule = segment_name if strategy.is_custom else None
                found = metadata_errors(target, new, rule) + validate_metadata_update(new, live)
            return found + strategy.validate_update(new, live, target.subresource)

        found = (yield Work(errors)) if large else errors()
        warn(options, [str(error) for error in found if error.is_old])
        refuse(target, new, [error for error in found if not error.is_old])
        if not target.subresource:
            warn(options, strategy.warnings(new, live))
        if self._admission.judges(options):
            yield from self._admission.validate(_attributes(target, new, live, options))
        return new


def _attributes(target: Target, new: Object, live: Object, options: WriteOptions) -> Attributes:
    """What admission sees: of a scale nothing but the Scale."""
    if target.subresource != "scale":
        return Attributes("UPDATE", target, new, live, options)
    shown, old = (reviewed_scale(obj, target.resource) for obj in (new, live))
    return Attributes("UPDATE", target, shown, old, options, SCALES)


def writer_of(target: Target, options: WriteOptions, now: str) -> Writer:
    strategy, subresource = target.resource.strategy, target.subresource
    return Writer(
        options.manager,
        strategy.kind.api_version,
        subresource,
        now,
        strategy.resets,
        strategy.zero,
        strategy.is_custom,
        strategy.siblings,
        strategy.reads_anew,
    )


def metadata_errors(target: Target, obj: Object, name_rule: NameRule | None = None) -> list[FieldError]:
    """`name_rule` replaces that of the kind."""
    strategy = target.resource.strategy
    return validate_metadata(
        obj,
        name_rule or strategy.name_rule,
        namespaced=strategy.kind.namespaced,
        qualified_finalizers=strategy.qualified_finalizers,
    )


def refuse(target: Target, obj: Object, errors: list[FieldError]) -> None:
    """Raises Invalid if there are errors."""
    if strategy_kind := obj["kind"] != target.resource.kind.kind:
        errors = [invalid_value("kind", obj["kind"], f"must be {target.resource.kind.kind}"), *errors]
    if errors:
        kind = GroupKind(
            target.resource.kind.group, obj["kind"] if strategy_kind else target.resource.kind.kind
        )
        raise invalid(kind, obj["metadata"].get("name", ""), errors)


def is_same(new: Object, old: Object) -> bool:
    """Whether nothing has changed except the times in managedFields."""
    if {**new, "metadata": None} != {**old, "metadata": None}:
        return False
    return same(_timeless(new), _timeless(old))


_UNCHECKED = dict.fromkeys(("managedFields", "resourceVersion", "generation"))
"""The metadata that is not validated. What is stored was valid when it was written, so it is not checked again where
nothing has changed; an object on disk that an older version with laxer rules accepted can thus still be updated.
"""


def _timeless(obj: Object) -> Object:
    managed = [{**entry, "time": None} for entry in obj["metadata"].get("managedFields") or ()]
    return with_metadata(obj, managedFields=managed or None)


def _check_same(target: Target, new: Object) -> None:
    check_name(target, new)
    check_namespace(target, new)
    if target.namespace:
        new["metadata"]["namespace"] = target.namespace


def _check_version(target: Target, new: Object, live: Object) -> None:
    given = new["metadata"].get("resourceVersion") or "0"
    if given == "0":
        if not target.resource.strategy.unconditional_update and target.subresource != "scale":
            plural = target.group_resource
            error = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(GroupKind(plural.group, plural.resource), target.name, [error])
        return
    if not given.isdecimal():
        raise internal(f'strconv.ParseUint: parsing "{given}": invalid syntax')
    if given != live["metadata"]["resourceVersion"]:
        raise conflict(target.group_resource, target.name)
