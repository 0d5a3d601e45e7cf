"""What a kind decides about its objects; everything else is the same for all kinds.

The verbs call, for a write: `decode` (bring a request's body into shape), `prepare_create` or
`prepare_update`, then `validate` or `validate_update`. Objects given to `decode` and `prepare_*` are private
copies and may be changed in place; all others may not. The base class is a kind without rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cached_property
from typing import Any

from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.objects import Key
from kubeshard_apiserver.access.user import User
from kubeshard_apiserver.apply.shape import SCALAR, Path, Shape, shape_of, shape_of_type
from kubeshard_apiserver.objects import Object, same
from kubeshard_apiserver.resources.metadata import NameRule, subdomain_name, without_empty
from kubeshard_apiserver.schema.catalog import object_meta
from kubeshard_apiserver.schema.decoding import Field, Run, Struct
from kubeshard_apiserver.status import FieldError

Stored = Callable[[GroupResource], Mapping[Key, Object]]
"""What there is of a kind."""


class Strategy:
    """Of one kind in one version. `schema` describes the fields beside apiVersion, kind and metadata."""

    name_rule: NameRule = staticmethod(subdomain_name)
    create_on_update = False
    """Whether a PUT creates what is missing."""
    unconditional_update = True
    """Whether a PUT may leave out the resourceVersion."""
    qualified_finalizers = True
    counts_generations = False
    is_graceful = False
    """Whether a deletion is written down before the object goes, even when nothing holds it."""
    shown_when_deleted = False
    """Whether a DELETE that removes the object answers with it."""
    default_propagation: str | None = "Background"
    """What becomes of dependents when a deletion does not say: as DeleteOptions do. None: it may not say."""
    selectable: tuple[str, ...] = ("metadata.name", "metadata.namespace")
    typed_items = False
    """Whether the items of lists carry apiVersion and kind."""
    is_custom = False
    reads_anew = False
    """Whether stored objects may have been written under another schema."""

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
        """The fields that every object has, with the value they have when nothing was said."""
        return {}

    @cached_property
    def shape(self) -> Shape:
        """What managers can own."""
        root = shape_of(self.schema)
        implied = {"apiVersion": SCALAR, "kind": SCALAR, "metadata": shape_of_type(object_meta())}
        open_ended = self.schema.get("x-kubernetes-preserve-unknown-fields")
        return Shape("map", {**root.fields, **implied}, root.items, closed=not open_ended)

    def decode(self, obj: Object) -> list[str]:
        """Makes a body an object of this kind, in place: types checked, unknown fields dropped and returned.
        Raises Invalid (400).
        """
        raise NotImplementedError

    def decode_metadata(self, obj: Object) -> list[str]:
        """Of a kind whose Go type is not known."""
        kind, run = self.kind, Run(self.kind.kind, self.kind.version)
        at = Field(Struct(kind.kind), "metadata", object_meta(), {})
        meta = obj.get("metadata")
        obj["metadata"] = without_empty(object_meta().decode({} if meta is None else meta, (None, at), run))
        if not self.kind.namespaced:
            obj["metadata"].pop("namespace", None)
        return run.dropped

    def converted(self, obj: Object) -> Object:
        """An object of another version of the kind, in this one: they differ in nothing but their name."""
        return {**obj, "apiVersion": self.kind.api_version}

    def read(self, obj: Object) -> Object:
        """What is stored, as it is seen now."""
        return obj

    def set_defaults(self, obj: Object) -> None:
        """What a version adds to every object it decodes."""

    def prepare_create(self, obj: Object) -> None:
        """What a create sets whatever the request says. Fields set here belong to no manager."""
        if self.counts_generations:
            obj["metadata"]["generation"] = 1
        if "status" in self.subresources:
            obj.pop("status", None)
            if "status" in self.zero:
                obj["status"] = deepcopy(self.zero["status"])

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        """Takes back what this way of writing cannot change; `subresource` is empty for the object itself."""
        if subresource == "status":
            for name in old.keys() | new.keys():
                if name not in ("status", *_TYPE_AND_METADATA):
                    _restore(new, old, name)
        elif "status" in self.subresources:
            _restore(new, old, "status")
        if self.counts_generations and not same(
            _counted(new, self.subresources), _counted(old, self.subresources)
        ):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def stamp(self, new: Object, old: Object | None, user: User, now: str) -> None:
        """What the server writes of who asks and when, after `prepare_create` (`old` is None) or `prepare_update`."""

    def resets(self, subresource: str, path: Path) -> bool:
        """Whether `prepare_update` takes a change of this field back."""
        if subresource == "status":
            return path[0] not in ("f:status", "f:metadata")
        return path[0] == "f:status" and "status" in self.subresources

    def validate(self, obj: Object) -> list[FieldError]:
        """Beyond metadata."""
        return []

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return self.validate(new)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        """Warnings for the client about a valid object."""
        return []

    def is_held(self, obj: Object) -> bool:
        """Whether a deletion has to wait."""
        return bool(obj["metadata"].get("finalizers"))

    def grace_period(self, obj: Object, asked: int | None) -> int:
        """For how many seconds a deletion waits for what runs; `asked` is what the request says of it."""
        return 0

    def prepare_delete(self, obj: Object) -> None:
        """What a deletion that has to wait writes beside deletionTimestamp."""

    def fields_for_selection(self, obj: Object) -> dict[str, str]:
        """The values of `selectable`."""
        return {path: _text(obj, path) for path in self.selectable}

    def selector_problem(self, path: str) -> str:
        """The message for a field selector that is not `selectable`."""
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
