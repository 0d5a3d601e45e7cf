"""create, replace, patch: one way through for all, with the rules of the kind in between.

The order is the server's: decode and default, field management, what the kind takes back, validation, then
the write - if anything has changed. Source: k8s.io/apiserver `registry/generic/registry`,
`endpoints/handlers`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from kubeshard.core.errors import Invalid
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key
from kubeshard.core.patches import ApplyPatch
from kubeshard_apiserver.admission.admitting import Admitting
from kubeshard_apiserver.apply.refusals import check_fits, inconvertible
from kubeshard_apiserver.apply.tracker import Writer, applied, updated
from kubeshard_apiserver.metadata import (
    generated_name,
    keep_servers_own,
    validate_metadata,
    validate_metadata_update,
    without_empty,
)
from kubeshard_apiserver.model import Answer, Target, WriteOptions, in_version
from kubeshard_apiserver.objects import Object, in_order, is_deleting, private, same, with_metadata
from kubeshard_apiserver.patching import Patch, patched
from kubeshard_apiserver.reading import Reads
from kubeshard_apiserver.receiving import Receives, other_name, warn
from kubeshard_apiserver.resources.definitions import DEFINITIONS
from kubeshard_apiserver.resources.namespaces import NAMESPACES, check_accepts_new
from kubeshard_apiserver.schema.type_meta import check_type_meta
from kubeshard_apiserver.status import (
    FieldError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    internal,
    invalid,
    invalid_value,
)
from kubeshard_apiserver.steps import Steps, done, finish

Change = Callable[[Object], Object]
_VERSION = re.compile(r"0*[0-9]{1,20}").fullmatch
_SERVERS_OWN = ("uid", "resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds")


class Writes(Reads, Receives, Admitting):
    """Each verb twice: `creating` as steps, which ask admission webhooks, and `create` for those who make no
    calls.
    """

    def create(self, target: Target, body: Object, options: WriteOptions | None = None) -> Answer:
        return finish(self.creating(target, body, options))

    def replace(self, target: Target, body: Object, options: WriteOptions | None = None) -> Answer:
        return finish(self.replacing(target, body, options))

    def patch(self, target: Target, patch: Patch, options: WriteOptions | None = None) -> Answer:
        return finish(self.patching(target, patch, options))

    def creating(self, target: Target, body: Object, options: WriteOptions | None = None) -> Steps[Answer]:
        """Raises AlreadyExists, NotFound (no such namespace), Forbidden (it is being deleted), Invalid."""
        options = options or WriteOptions()
        writer = self._writer(target, options)

        def taken_in() -> tuple[Object, tuple[str, ...]]:
            obj, warnings = self._decoded(target, body, options)
            self._check_namespace(target, obj)
            return updated(target.resource.strategy.shape, None, obj, writer), warnings

        obj, warnings = yield from done(taken_in, large=options.large)
        return (yield from self._create(target, obj, options))._replace(warnings=warnings)

    def replacing(self, target: Target, body: Object, options: WriteOptions | None = None) -> Steps[Answer]:
        """Raises Conflict for another resourceVersion or uid than the stored one."""
        options = options or WriteOptions()
        obj, warnings = yield from done(lambda: self._decoded(target, body, options), large=options.large)
        if obj["metadata"].get("name") != target.name:
            raise other_name(obj["metadata"].get("name", ""), target)
        if target.resource.strategy.create_on_update and not self.store.get(
            target.group_resource, target.key
        ):
            return (yield from self.creating(target, obj, options))
        given = obj["metadata"].get("uid")
        stored = self.live(target)
        if given and given != stored["metadata"]["uid"]:
            problem = f"Precondition failed: UID in precondition: {given}, "
            problem += f"UID in object meta: {stored['metadata']['uid']}"
            raise conflict(
                target.group_resource, target.name, f"StorageError: invalid object, Code: 4, {problem}"
            )
        return (yield from self.changing(target, lambda _: obj, options, replaces=True))._replace(
            warnings=warnings
        )

    def patching(self, target: Target, patch: Patch, options: WriteOptions | None = None) -> Steps[Answer]:
        """An apply creates what is missing. Raises Conflict (a resourceVersion in the patch, fields of other
        managers).
        """
        options = options or WriteOptions()
        if isinstance(patch, ApplyPatch):
            told = options.duplicates.told if options.validation == "Warn" else ()
            return (yield from self._apply(target, private(patch.body), options))._replace(warnings=told)
        warnings: tuple[str, ...] = ()

        def change(live: Object) -> Object:
            nonlocal warnings
            obj, warnings = self._decoded_patch(
                target, patched(live, patch, target.resource.strategy.type), options
            )
            return obj

        return (yield from self.changing(target, change, options))._replace(warnings=warnings)

    def _apply(self, target: Target, config: Object, options: WriteOptions) -> Steps[Answer]:
        kind = target.resource.kind
        check_type_meta(config, kind.kind)
        given = (config.get("apiVersion", ""), config.get("kind", ""))
        if given != (kind.api_version, kind.kind):
            group, _, version = given[0].rpartition("/")
            raise bad_request(f"invalid object type: {group}/{version}, Kind={given[1]}")
        if config["metadata"].get("managedFields") is not None:
            raise bad_request("metadata.managedFields must be nil")
        config["metadata"].setdefault("name", target.name)
        if config["metadata"]["name"] != target.name:
            raise other_name(config["metadata"]["name"], target)
        strategy = target.resource.strategy
        if target.subresource:
            self.live(target)
        check_fits(kind, strategy.shape, config)
        writer = self._writer(target, options)

        def change(live: Object) -> Object:
            new = private(applied(strategy.shape, live, config, writer, force=options.force))
            managed = new["metadata"].get("managedFields")
            try:
                self._decoded(target, new, options)
            except Invalid as error:
                if strategy.is_custom:
                    raise
                raise inconvertible(kind, config, error.message) from None
            return with_metadata(new, managedFields=managed)

        if self.store.get(target.group_resource, target.key) is None and not target.subresource:
            blank = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
            new = yield from done(lambda: change(blank), large=options.large)
            if uid := config["metadata"].get("uid"):
                problem = (
                    f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                )
                raise conflict(target.group_resource, target.name, problem)
            return (yield from self._create(target, new, options))
        return (yield from self.changing(target, change, options, managed=True))

    def _create(self, target: Target, obj: Object, options: WriteOptions) -> Steps[Answer]:
        resource, strategy = target.group_resource, target.resource.strategy
        obj = yield from done(lambda: private(obj), large=options.large)
        meta = obj["metadata"]
        version = meta.get("resourceVersion")
        if target.resource.is_ending:
            problem = "create not allowed while custom resource definition is terminating"
            raise forbidden(resource, meta.get("name") or "", problem)
        for field in _SERVERS_OWN:
            meta.pop(field, None)
        if strategy.kind.namespaced:
            meta["namespace"] = target.namespace
            namespace = self.store.get(NAMESPACES, Key("", target.namespace))
            name = meta.get("name") or meta.get("generateName") or ""
            check_accepts_new(namespace, target.namespace, resource, name)
        asked = target if target.name else replace(target, name=meta.get("name") or "")
        obj = (yield from self._mutate("CREATE", asked, obj, None, options)) or obj
        self._check_namespace(target, obj)
        meta = obj["metadata"]
        if not meta.get("name") and (prefix := meta.get("generateName")):
            meta["name"] = generated_name(prefix, self.rng.token())
        meta |= {"uid": self.rng.token(), "creationTimestamp": self.now()}
        strategy.prepare_create(obj)
        strategy.stamp(obj, None, options.user, self.now())
        if self.check_write is not None:
            self.check_write(options.user, target, obj, None)
        obj = in_order({**obj, "metadata": without_empty(obj["metadata"])})
        meta = obj["metadata"]
        errors = yield from done(lambda: self._metadata_errors(target, obj), large=options.large)
        self._check(target, obj, errors + strategy.validate(obj))
        warn(options, strategy.warnings(obj, None))
        yield from self._validate("CREATE", replace(target, name=meta["name"]), obj, None, options)
        key = Key(meta.get("namespace", ""), meta["name"])
        if _is_version(version) and not target.name and not options.dry_run:
            raise internal("resourceVersion should not be set on objects to be created")
        if self.store.get(resource, key) is not None:
            raise already_exists(resource, meta["name"], generates=bool(meta.get("generateName")))
        if options.dry_run:  # which the storage does not see
            return Answer(201, with_metadata(obj, resourceVersion=version) if version else obj)
        stored = self.store.put(resource, key, obj)
        if resource == DEFINITIONS:
            self._defined(stored)
        return Answer(201, in_version(target.resource, stored))

    def changing(
        self,
        target: Target,
        change: Change,
        options: WriteOptions,
        *,
        replaces: bool = False,
        managed: bool = False,
    ) -> Steps[Answer]:
        """Writes what `change` makes of the live object; of the one that is then live, if it was written to
        while admission was asked. `managed`: it has seen to managedFields itself.
        """
        while True:
            live = self.live(target)
            new = yield from self._changed(target, live, change, options, replaces, managed)
            if self._is_live(target, live):
                return self._put(target, new, live, options)

    def _changed(
        self,
        target: Target,
        live: Object,
        change: Change,
        options: WriteOptions,
        replaces: bool,
        managed: bool,
    ) -> Steps[Object]:
        """What is to be written over `live`."""
        strategy = target.resource.strategy
        writer = self._writer(target, options)

        def changed() -> Object:
            new = private(change(live))
            self._check_same(target, new)
            return new if managed else updated(strategy.shape, live, new, writer)

        new = yield from done(changed, large=options.large)
        new = (yield from self._mutate("UPDATE", target, new, live, options)) or new
        self._check_version(target, new, live, replaces)
        keep_servers_own(new, live)
        strategy.prepare_update(new, live, target.subresource)
        strategy.stamp(new, live, options.user, self.now())
        if self.check_write is not None:
            self.check_write(options.user, target, new, live)
        new["metadata"] = without_empty(
            {**new["metadata"], "resourceVersion": live["metadata"]["resourceVersion"]}
        )
        new = in_order(new)
        errors = yield from done(
            lambda: self._metadata_errors(target, new) + validate_metadata_update(new, live),
            large=options.large,
        )
        # The server checks metadata twice and lists the causes twice.
        self._check(target, new, errors + errors + strategy.validate_update(new, live, target.subresource))
        if not target.subresource:
            warn(options, strategy.warnings(new, live))
        yield from self._validate("UPDATE", target, new, live, options)
        return new

    def _put(self, target: Target, new: Object, live: Object, options: WriteOptions) -> Answer:
        resource, strategy = target.group_resource, target.resource.strategy
        if _same(new, live):
            return Answer(200, live)
        if is_deleting(new) and not strategy.is_held(new):
            if not options.dry_run:
                self.store.remove(resource, target.key)
                self._gone(target)
            return Answer(200, new)
        if options.dry_run:
            return Answer(200, new)
        stored = self.store.put(resource, target.key, new)
        if resource == DEFINITIONS and not target.subresource:
            self._defined(stored)
        return Answer(200, in_version(target.resource, stored))

    def received(self, target: Target, body: Object, options: WriteOptions) -> tuple[Object, tuple[str, ...]]:
        """A body as a create takes it in, with warnings: for kinds that are answered and not stored."""
        obj, warnings = self._decoded(target, body, options)
        self._check_namespace(target, obj)
        return updated(target.resource.strategy.shape, None, obj, self._writer(target, options)), warnings

    def _check_same(self, target: Target, new: Object) -> None:
        meta = new["metadata"]
        if meta.get("name") != target.name:
            raise other_name(meta.get("name", ""), target)
        self._check_namespace(target, new)
        if target.namespace:
            meta["namespace"] = target.namespace

    def _check_version(self, target: Target, new: Object, live: Object, replaces: bool) -> None:
        given = new["metadata"].get("resourceVersion") or ""
        if not given:
            if replaces and not target.resource.strategy.unconditional_update:
                plural = target.group_resource
                error = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
                raise invalid(GroupKind(plural.group, plural.resource), target.name, [error])
            return
        if not given.isdecimal():
            raise internal(f'strconv.ParseUint: parsing "{given}": invalid syntax')
        if given != live["metadata"]["resourceVersion"]:
            raise conflict(target.group_resource, target.name)

    def _metadata_errors(self, target: Target, obj: Object) -> list[FieldError]:
        strategy = target.resource.strategy
        return validate_metadata(
            obj,
            strategy.name_rule,
            namespaced=strategy.kind.namespaced,
            qualified_finalizers=strategy.qualified_finalizers,
        )

    def _check(self, target: Target, obj: Object, errors: list[FieldError]) -> None:
        if strategy_kind := obj["kind"] != target.resource.kind.kind:
            errors = [invalid_value("kind", obj["kind"], f"must be {target.resource.kind.kind}"), *errors]
        if errors:
            kind = GroupKind(
                target.resource.kind.group, obj["kind"] if strategy_kind else target.resource.kind.kind
            )
            raise invalid(kind, obj["metadata"].get("name", ""), errors)

    def _writer(self, target: Target, options: WriteOptions) -> Writer:
        strategy, subresource = target.resource.strategy, target.subresource
        return Writer(
            options.manager,
            strategy.kind.api_version,
            subresource,
            self.now(),
            lambda path: strategy.resets(subresource, path),
            strategy.zero,
        )

    def _defined(self, definition: Object) -> None:
        """After a definition was written."""
        raise NotImplementedError

    def _gone(self, target: Target) -> None:
        """After an object was removed."""
        raise NotImplementedError


def _is_version(given: object) -> bool:
    """Whether the storage takes it for one; what it cannot read is none."""
    return isinstance(given, str) and bool(_VERSION(given)) and 0 < int(given) < 1 << 64


def _same(new: Object, old: Object) -> bool:
    """Whether nothing has changed but the times in managedFields."""
    return same(_timeless(new), _timeless(old))


def _timeless(obj: Object) -> Object:
    managed = [{**entry, "time": None} for entry in obj["metadata"].get("managedFields") or ()]
    return with_metadata(obj, managedFields=managed or None)
