"""create, replace and patch: the object is decoded, checked by the rules of its kind, and stored if it has changed.

Source: k8s.io/apiserver `registry/generic/registry`, `endpoints/handlers`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from kubeshard.core.errors import Invalid
from kubeshard.core.objects import Key
from kubeshard.core.patches import ApplyPatch
from kubeshard_apiserver.admission.attributes import Attributes
from kubeshard_apiserver.admission.chain import Admission
from kubeshard_apiserver.apply.field_manager import applied, updated
from kubeshard_apiserver.apply.validation import check_fits, inconvertible
from kubeshard_apiserver.model import Answer, Model, Target, WriteOptions, check_size
from kubeshard_apiserver.objects import JsonObject, Object, in_order, is_deleting, private, with_metadata
from kubeshard_apiserver.patching import Patch, patched
from kubeshard_apiserver.resources.definitions import DEFINITIONS
from kubeshard_apiserver.resources.metadata import (
    generated_name,
    without_empty,
)
from kubeshard_apiserver.resources.namespaces import NAMESPACES, check_accepts_new
from kubeshard_apiserver.schema.numbers import whole_numbers
from kubeshard_apiserver.status import (
    already_exists,
    bad_request,
    conflict,
    forbidden,
    internal,
)
from kubeshard_apiserver.steps import Steps, done
from kubeshard_apiserver.verbs.establishing import Definitions
from kubeshard_apiserver.verbs.receiving import (
    check_name,
    check_namespace,
    decoded,
    decoded_patch,
    warn,
    with_owners_once,
)
from kubeshard_apiserver.verbs.updating import MutateFn, Updates, is_same, metadata_errors, refuse, writer_of

_VERSION = re.compile(r"0*[0-9]{1,20}").fullmatch
_OF_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")
_GENERATED = 8
"""How many names are tried until one is free (KEP-4420)."""
_SERVERS_OWN = ("uid", "resourceVersion", "selfLink", *_OF_DELETION)


class Writes:
    def __init__(
        self, model: Model, admission: Admission, updates: Updates, definitions: Definitions
    ) -> None:
        self._model = model
        self._store = model.store
        self._admission = admission
        self._updates = updates
        self._definitions = definitions

    def creating(
        self, target: Target, body: Object, options: WriteOptions | None = None, known: Object | None = None
    ) -> Steps[Answer]:
        """Creates an object of which `body` becomes a part. `known` is a part of an object of this kind that has been
        decoded: what is the same in both is not decoded again. Raises AlreadyExists, NotFound (no such namespace),
        Forbidden (the namespace is being deleted), Invalid.
        """
        options = options or WriteOptions()
        obj, warnings = yield from done(
            lambda: self.received(target, body, options, known), large=options.large
        )
        return (yield from self._create(target, obj, options))._replace(warnings=warnings)

    def replacing(self, target: Target, body: Object, options: WriteOptions | None = None) -> Steps[Answer]:
        """Replaces an object. Raises Conflict if the resourceVersion or the uid differs from the stored one."""
        options = options or WriteOptions()
        obj, warnings = yield from done(lambda: decoded(target, body, options), large=options.large)
        check_name(target, obj)
        check_namespace(target, obj)
        if target.resource.strategy.create_on_update and not self._store.get(
            target.group_resource, target.key
        ):
            self._check_uid(target, obj, "")
            return (yield from self.creating(target, obj, options))
        stored = yield from self._model.reading(target)
        self._check_uid(target, obj, stored["metadata"]["uid"])
        return (yield from self.updating(target, lambda _: obj, options))._replace(warnings=warnings)

    @staticmethod
    def _check_uid(target: Target, obj: Object, uid: str) -> None:
        """Raises Conflict if the object has another uid than this one."""
        if (given := obj["metadata"].get("uid")) and given != uid:
            problem = f"Precondition failed: UID in precondition: {given}, UID in object meta: {uid}"
            raise conflict(
                target.group_resource, target.name, f"StorageError: invalid object, Code: 4, {problem}"
            )

    def patching(self, target: Target, patch: Patch, options: WriteOptions | None = None) -> Steps[Answer]:
        """Patches an object; an apply creates it if it is missing. Raises Conflict (a resourceVersion in the patch,
        fields of other managers).
        """
        options = options or WriteOptions()
        if isinstance(patch, ApplyPatch):
            found = options.duplicates.warnings if options.validation == "Warn" else ()
            return (yield from self._apply(target, patch.body, options))._replace(warnings=found)
        warnings: tuple[str, ...] = ()

        def mutate(live: Object) -> Object:
            nonlocal warnings
            result = patched(live, patch, target.resource.strategy.type)
            obj, warnings = decoded_patch(target, result, options, live)
            return obj

        code, obj, _ = yield from self.updating(target, mutate, options, fresh=True)
        return Answer(code, obj, warnings)

    def _apply(self, target: Target, body: JsonObject, options: WriteOptions) -> Steps[Answer]:
        kind, config = target.resource.kind, private(body)
        strategy = target.resource.strategy
        if target.subresource:
            yield from self._model.reading(target)
        given = [
            value if isinstance(value := config.get(name), str) else "" for name in ("apiVersion", "kind")
        ]
        if given != [kind.api_version, kind.kind]:
            group, _, version = given[0].rpartition("/")
            raise bad_request(f"invalid object type: {group}/{version}, Kind={given[1]}")
        given_metadata = _applicable(body.get("metadata"), is_custom=strategy.is_custom)
        whole_numbers(config)  # the server reads YAML here, where 1.0 is the integer 1
        check_fits(kind, strategy.shape, {**config, "metadata": given_metadata})
        if isinstance(given_metadata, dict):
            config = {**config, "metadata": {name: config["metadata"][name] for name in given_metadata}}
        writer = writer_of(target, options, self._model.now())

        def mutate(live: Object) -> Object:
            new = private(applied(strategy.shape, live, config, writer, force=options.force))
            managed = new["metadata"].get("managedFields")
            try:
                decoded(target, new, options, applied=True)
            except Invalid as error:
                if strategy.is_custom:
                    raise
                raise inconvertible(kind, config, error.message) from None
            return with_metadata(new, managedFields=managed)

        if self._store.get(target.group_resource, target.key) is None and not target.subresource:
            blank = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
            new = yield from done(lambda: mutate(blank), large=options.large)
            if uid := config["metadata"].get("uid"):
                problem = (
                    f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                )
                raise conflict(target.group_resource, target.name, problem)
            check_namespace(target, new)
            check_name(target, new)
            return (yield from self._create(target, new, options))
        return (yield from self.updating(target, mutate, options, managed=True, fresh=True))

    def _create(self, target: Target, obj: Object, options: WriteOptions) -> Steps[Answer]:
        """`obj` is of this request alone, which changes it."""
        resource, strategy = target.group_resource, target.resource.strategy
        meta = obj["metadata"]
        version = meta.get("resourceVersion")
        if target.resource.is_ending:
            problem = "create not allowed while custom resource definition is terminating"
            raise forbidden(resource, meta.get("name") or "", problem)
        for field in _SERVERS_OWN:
            meta.pop(field, None)
        if strategy.kind.namespaced:
            meta["namespace"] = target.namespace
            self.check_accepts_new(target, meta.get("name") or meta.get("generateName") or "")
        asked = target if target.name else replace(target, name=meta.get("name") or "")
        strategy.admit(obj, None, self._model.rng.token)
        left = yield from self._admission.mutate(Attributes("CREATE", asked, obj, None, options))
        if left is not None and left is not obj:
            obj = private(left)
            strategy.admit(obj, None, self._model.rng.token)
        obj = with_owners_once(obj, options)
        strategy.settle(obj, {})
        check_namespace(target, obj)
        meta = obj["metadata"]
        if not meta.get("name") and (prefix := meta.get("generateName")):
            for _ in range(_GENERATED):
                meta["name"] = generated_name(prefix, self._model.rng.token())
                if self._store.get(resource, Key(meta.get("namespace", ""), meta["name"])) is None:
                    break
        meta |= {"uid": self._model.rng.token(), "creationTimestamp": self._model.now()}
        strategy.prepare_create(obj)
        strategy.stamp(obj, None, options.user, self._model.now())
        options.rights.check_write(options.user, target, obj, None)
        obj = in_order({**obj, "metadata": without_empty(obj["metadata"])})
        meta = obj["metadata"]
        checked = yield from done(
            lambda: metadata_errors(target, obj) + strategy.validate(obj), large=options.large
        )
        refuse(target, obj, checked)
        warn(options, strategy.warnings(obj, None))
        asked = replace(target, name=meta["name"])
        yield from self._admission.validate(Attributes("CREATE", asked, obj, None, options))
        to_store = yield from self._model.storable(target, obj)
        key = Key(meta.get("namespace", ""), meta["name"])
        if _is_version(version) and not target.name and not options.dry_run:
            raise internal("resourceVersion should not be set on objects to be created")
        if (there := self._store.get(resource, key)) is not None:
            generates = bool(meta.get("generateName"))
            raise already_exists(resource, meta["name"], generates=generates, deleting=is_deleting(there))
        if options.dry_run:  # a dry run does not reach the storage
            obj = yield from self._model.shown(target, to_store)
            return Answer(201, with_metadata(obj, resourceVersion=version) if version else obj)
        if options.large:
            check_size(target, to_store)
        stored = self._store.put(resource, key, to_store)
        if resource == DEFINITIONS:
            self._definitions.defined(stored)
        return Answer(201, (yield from self._model.shown(target, stored)))

    def updating(
        self,
        target: Target,
        mutate: MutateFn,
        options: WriteOptions,
        *,
        managed: bool = False,
        fresh: bool = False,
    ) -> Steps[Answer]:
        """Stores the result of applying `mutate` to the live object. See `Updates.updating`."""
        steps = self._updates.updating(target, mutate, options, managed=managed, fresh=fresh)
        live, new, to_store = yield from steps
        return (yield from self._put(target, new, to_store, live, options))

    def _put(
        self, target: Target, new: Object, to_store: Object, live: Object, options: WriteOptions
    ) -> Steps[Answer]:
        resource, strategy = target.group_resource, target.resource.strategy
        if is_same(new, live):
            return Answer(200, live)
        if is_deleting(new) and not strategy.is_held(new):
            if not options.dry_run:
                self._store.remove(resource, target.key)
                self._definitions.gone(target)
            return Answer(200, new)
        if options.dry_run:
            return Answer(200, (yield from self._model.shown(target, to_store)))
        stored = self._store.put(resource, target.key, to_store)
        if resource == DEFINITIONS and not target.subresource:
            self._definitions.defined(stored)
        return Answer(200, (yield from self._model.shown(target, stored)))

    def check_accepts_new(self, target: Target, name: str) -> None:
        """Raises NotFound if the namespace does not exist, Forbidden if it is being deleted. As on the real server,
        bindings, evictions and tokens are new, too.
        """
        namespace = self._store.get(NAMESPACES, Key("", target.namespace))
        check_accepts_new(namespace, target.namespace, target.group_resource, name)

    def received(
        self, target: Target, body: Object, options: WriteOptions, known: Object | None = None
    ) -> tuple[Object, tuple[str, ...]]:
        """Decodes a body as a create does, and returns it with warnings; for kinds that are not stored."""
        obj, warnings = decoded(target, body, options, known=known)
        check_namespace(target, obj)
        for field in _OF_DELETION:
            obj["metadata"].pop(field, None)
        writer = writer_of(target, options, self._model.now())
        return updated(target.resource.strategy.shape, None, obj, writer), warnings


def _is_version(given: object) -> bool:
    """Whether the storage accepts the value as a resource version; one that it cannot parse counts as missing."""
    return isinstance(given, str) and bool(_VERSION(given)) and 0 < int(given) < 1 << 64


def _applicable(metadata: Any, *, is_custom: bool) -> Any:
    """Returns the metadata of an apply without what the server does not look at. Raises Invalid (400)."""
    if not isinstance(metadata, dict):
        return metadata
    managed = metadata.get("managedFields")
    if isinstance(managed, list) and managed != [None] * max(len(managed), 1):
        raise bad_request("metadata.managedFields must be nil")
    ignored = {"managedFields"} if isinstance(managed, list) else set()
    ignored |= {"creationTimestamp"} if is_custom else set()
    return {name: value for name, value in metadata.items() if name not in ignored}
