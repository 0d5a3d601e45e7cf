"""The decisions that a kind makes about its objects; everything else is the same for all kinds.

On a write, the verbs call `decode` (which turns a request's body into an object of the kind), `prepare_create` or
`prepare_update`, and then `validate` or `validate_update`. Objects passed to `decode` and `prepare_*` are private
copies and may be changed in place; all others must not be. The base class is a kind without rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from functools import cached_property
from typing import Any

from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.objects import Key
from kubeshard_apiserver.access import User
from kubeshard_apiserver.apply.shape import Path, Shape, shape_of, shape_of_type
from kubeshard_apiserver.objects import Object, same, with_metadata
from kubeshard_apiserver.resources.admission_plugins import ADMISSION_PLUGINS
from kubeshard_apiserver.resources.metadata import NameRule, subdomain_name, without_empty
from kubeshard_apiserver.schema.catalog import object_meta
from kubeshard_apiserver.schema.decoding import DecodeState, Field, Struct
from kubeshard_apiserver.status import FieldError

Stored = Callable[[GroupResource], Mapping[Key, Object]]
"""Returns the stored objects of a resource."""


class Strategy:
    """The rules of one kind in one version. `schema` describes the fields other than apiVersion, kind and metadata."""

    name_rule: NameRule = staticmethod(subdomain_name)
    create_on_update = False
    """Whether a PUT creates a missing object."""
    unconditional_update = True
    """Whether a PUT may omit the resourceVersion."""
    qualified_finalizers = True
    status_alone = False
    """Whether the subresource `status` leaves the metadata as they are."""
    counts_generations = False
    is_graceful = False
    """Whether a deletion sets the deletion timestamp first, even if nothing holds the object."""
    shown_when_deleted = False
    """Whether a DELETE that removes the object returns it."""
    default_propagation: str | None = "Background"
    """The propagation policy of a deletion that does not specify one; None if deletions of this kind must not specify
    one.
    """
    selectable: tuple[str, ...] = ("metadata.name", "metadata.namespace")
    typed_items = False
    """Whether the items of lists have apiVersion and kind."""
    is_custom = False
    plugins: Collection[str] = ADMISSION_PLUGINS
    """The admission plugins that are enabled."""
    reads_anew = False
    """Whether stored objects may have been written with another schema."""
    needs_webhook = False
    """Whether a webhook converts between the versions of the kind, so that `read` and `for_storage` may raise
    `Unconverted`.
    """

    def __init__(
        self, kind: Kind, schema: Mapping[str, Any], *, subresources: frozenset[str] = frozenset()
    ) -> None:
        self.kind = kind
        self.schema = schema
        self.subresources = subresources

    @cached_property
    def type(self) -> Struct | None:
        """The Go type of a built-in kind."""
        return None

    @cached_property
    def zero(self) -> Mapping[str, Any]:
        """The fields that every object has, with their zero values."""
        return {}

    @cached_property
    def shape(self) -> Shape:
        """The fields that field managers can own."""
        return shape_of(self.schema, shape_of_type(object_meta()))

    @cached_property
    def siblings(self) -> Mapping[str, Shape]:
        """The shapes of other versions by `apiVersion`, where an object is converted by changing only that."""
        return {}

    def decode(self, obj: Object, former: Object | None = None) -> list[str]:
        """Turn a body into an object of this kind, in place: check types, drop unknown fields and return their paths.
        What is the same in `former`, an object of this kind, need not be looked at. Raises Invalid (400).
        """
        raise NotImplementedError

    def complete(self, obj: Object) -> list[str]:
        """Turn the result of an apply into an object of this kind, as `decode` does for a body."""
        return self.decode(obj)

    def decode_metadata(self, obj: Object, former: Object | None) -> list[str]:
        """Decode the metadata of a kind without a Go type."""
        meta = obj.get("metadata")
        was = None if former is None else former["metadata"]
        if meta is was is not None:
            obj["metadata"] = was.copy()
            return []
        state = DecodeState(self.kind.kind, self.kind.version)
        decoded = object_meta().decode({} if meta is None else meta, (None, self._metadata_field), state, was)
        obj["metadata"] = without_empty(decoded)
        if not self.kind.namespaced:
            obj["metadata"].pop("namespace", None)
        return state.dropped

    @cached_property
    def _metadata_field(self) -> Field:
        return Field(Struct(self.kind.kind), "metadata", object_meta(), {})

    def converted(self, obj: Object) -> Object:
        """Convert an object of another version to this one: the versions differ only in their name."""
        return {**obj, "apiVersion": self.kind.api_version}

    def read(self, obj: Object) -> Object:
        """Return the stored object as it appears under the current schema."""
        return obj

    def settle(self, obj: Object, live: Object) -> None:
        """Change the object, in place, into what is read again once it is stored; what it has from the live one is that
        already. Field managers and mutating webhooks see what it was before.
        """

    def for_storage(self, obj: Object, live: Object | None = None) -> Object:
        """Return the object of this version as it is stored. What is the very same part in `live`, which is the stored
        object in this version, need not be looked at.
        """
        return obj

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults that the version adds to every object it decodes."""

    def admit(self, new: Object, old: Object | None, token: Callable[[], str]) -> None:
        """Change the object in place as the admission plugins of the kind do, before webhooks are asked and again after
        they have changed it. `old` is None for a create, `token` makes names unique. Raises ApiError.
        """

    def prepare_create(self, obj: Object) -> None:
        """Set what a create sets regardless of the request. No manager owns fields set here."""
        if self.counts_generations:
            obj["metadata"]["generation"] = 1
        if "status" in self.subresources:
            obj.pop("status", None)
            if "status" in self.zero:
                obj["status"] = deepcopy(self.zero["status"])

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        """Undo changes that this subresource must not make; `subresource` is empty for the main resource."""
        if subresource == "status":
            if self.status_alone:
                meta = new["metadata"]
                managed = meta.get("managedFields", old["metadata"].get("managedFields"))
                kept = with_metadata(old, resourceVersion=meta.get("resourceVersion"), managedFields=managed)
                new["metadata"] = kept["metadata"]
            for name in old.keys() | new.keys():
                if name not in ("status", *_TYPE_AND_METADATA):
                    _restore(new, old, name)
            return  # nothing that generations count
        if "status" in self.subresources:
            _restore(new, old, "status")
        if self.counts_generations and not self.is_unchanged(
            _counted(new, self.subresources), _counted(old, self.subresources)
        ):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def is_unchanged(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        """Report whether the parts that the generation counts are equal."""
        return same(new, old)

    def stamp(self, new: Object, old: Object | None, user: User, now: str) -> None:
        """Record who writes and when, after `prepare_create` (`old` is None) or `prepare_update`."""

    def resets(self, subresource: str, path: Path) -> bool:
        """Report whether `prepare_update` undoes a change of this field."""
        if subresource == "status":
            return path[0] != "f:status" and (self.status_alone or path[0] != "f:metadata")
        return path[0] == "f:status" and "status" in self.subresources

    def validate(self, obj: Object) -> list[FieldError]:
        """Validate everything except metadata."""
        return []

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return self.validate(new)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        """Return warnings for the client about a valid object."""
        return []

    def is_held(self, obj: Object) -> bool:
        """Report whether a deletion has to wait."""
        return bool(obj["metadata"].get("finalizers"))

    def grace_period(self, obj: Object, asked: int | None) -> int:
        """Return the grace period of a deletion in seconds. `asked` is the one in the request."""
        return 0

    def prepare_delete(self, obj: Object) -> None:
        """Set what a pending deletion sets in addition to deletionTimestamp."""

    def fields_for_selection(self, obj: Object) -> dict[str, str]:
        """Return the values of the `selectable` fields."""
        return {path: _text(obj, path) for path in self.selectable}

    indexes = False
    """Whether `noticed` is called."""

    def noticed(self, key: Key, old: Object | None, new: Object | None) -> None:
        """Keep an index of the stored objects up to date: called after each write to an object of this kind."""

    def selector_problem(self, path: str) -> str:
        """Return the message for a field selector that is not `selectable`."""
        if not self.kind.group and {*self.selectable} - {*Strategy.selectable}:
            return f"field label not supported: {path}"  # kinds of core/v1 that have further ones
        known = ", ".join(f'"{name}"' for name in self.selectable)
        return f'"{path}" is not a known field selector: only {known}'


_TYPE_AND_METADATA = ("apiVersion", "kind", "metadata")


def _restore(new: Object, old: Object, name: str) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def _counted(obj: Object, subresources: frozenset[str]) -> dict[str, Any]:
    left_out = {"metadata", "status"} if "status" in subresources else {"metadata"}
    return {name: value for name, value in obj.items() if name not in left_out}


def _text(obj: Any, path: str) -> str:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    if isinstance(obj, bool):
        return str(obj).lower()
    return "" if obj is None else str(obj)
