"""Kubernetes objects as immutable structs.

A kind is a class that declares the fields its users need; decoding skips the rest, so an object in a cache
costs what is used of it. Guaranteed: instances are frozen, hold no reference cycles (`gc=False` keeps the
collector away from large caches) and encode with the wire's camelCase names. Not guaranteed: that an instance
holds everything the server has. Therefore only a class declared `complete=True` may be written with a full
PUT; all others are written by patch or server-side apply of declared fields.

    class Website(KubeObject, group="webhosting.timebertt.dev", version="v1alpha1"):
        spec: WebsiteSpec = field(default_factory=WebsiteSpec)

`metadata.managedFields` is never decoded: no reader needs it and it is a quarter of an object's size.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast, dataclass_transform

import msgspec
from msgspec import field

from kubeshard.core.kinds import Kind, default_plural

__all__ = [
    "Form",
    "Key",
    "KubeObject",
    "ObjectMeta",
    "OwnerReference",
    "PartialObject",
    "Struct",
    "field",
    "form_of",
    "metadata_only",
]


# `dataclass_transform` tells type checkers what msgspec inherits at run time: subclasses are frozen and
# keyword-only.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Struct(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all parts of API objects: frozen, untracked by the collector, camelCase on the wire, defaults
    omitted.
    """


class OwnerReference(Struct):
    """`metadata.ownerReferences[]`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct):
    """The part of `metadata` that controllers use. Mappings and tuples are shared with caches: never mutate
    them.
    """

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    def label(self, key: str) -> str:
        """The label's value, `""` when absent."""
        return self.labels.get(key, "") if self.labels else ""

    def has_label(self, key: str) -> bool:
        return self.labels is not None and key in self.labels

    def annotation(self, key: str) -> str:
        """The annotation's value, `""` when absent."""
        return self.annotations.get(key, "") if self.annotations else ""

    @property
    def deleting(self) -> bool:
        return self.deletion_timestamp is not None


class Key(NamedTuple):
    """Namespace and name of an object within its kind; the unit of work of a controller. Cluster-scoped:
    namespace `""`.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _KindMeta(msgspec.StructMeta):
    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        group: str = "",
        version: str = "",
        kind: str = "",
        plural: str = "",
        namespaced: bool = True,
        complete: bool = False,
        **config: Any,
    ) -> Any:
        cls: Any = super().__new__(mcls, name, bases, namespace, **config)
        if version:
            kind = kind or name
            cls.KIND = Kind(group, version, kind, plural or default_plural(kind), namespaced)
            cls.COMPLETE = complete
        return cls


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class KubeObject(
    msgspec.Struct,
    metaclass=_KindMeta,
    frozen=True,
    gc=False,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
):
    """Base of all kinds. Class arguments: `group` (`""` = core), `version` (required for a concrete kind),
    `kind` (default: the class name), `plural`, `namespaced` (default True), `complete` (the class declares
    every field: PUT is allowed).
    """

    if TYPE_CHECKING:

        def __init_subclass__(
            cls,
            *,
            group: str = "",
            version: str = "",
            kind: str = "",
            plural: str = "",
            namespaced: bool = True,
            complete: bool = False,
        ) -> None: ...

    KIND: ClassVar[Kind]
    COMPLETE: ClassVar[bool] = False

    metadata: ObjectMeta = field(default_factory=ObjectMeta)

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)


class PartialObject(KubeObject):
    """An object's metadata and nothing else.

    Read through a `Form` (`metadata_only(...)`) it is of a class of its own kind, so `KIND` is that of the
    object and not PartialObjectMetadata. Where nobody asked for a kind (the objects of an admission review)
    it has no `KIND`.
    """


T = TypeVar("T", bound=KubeObject)


class _Form(NamedTuple, Generic[T]):
    kind: Kind
    type: type[T]
    metadata_only: bool = False


class Form(_Form[T]):
    """How objects of a kind are read: in full as a class, or their metadata only. Hashable; informers are
    shared by it.

    The class may be of no kind, or of another one: then `type` is a class derived from it, the same for equal
    arguments, whose instances are of the form's kind. So a class can serve kinds known by name only:

        class Anything(KubeObject):
            spec: Mapping[str, Any] | None = None

        services = Form(await client.discovery.kind("", kind="Service"), Anything)
        service = services.type(metadata=..., spec={...})
    """

    __slots__ = ()

    def __new__(cls, kind: Kind, type: type[T], metadata_only: bool = False) -> Self:
        return tuple.__new__(cls, (kind, _of_kind(type, kind), metadata_only))

    def __str__(self) -> str:
        return f"{self.kind} (metadata)" if self.metadata_only else str(self.kind)


@cache
def _of_kind(type_: type[T], kind: Kind) -> type[T]:
    """The class whose instances are of the kind: of all ways to know an object's kind the one that costs an
    object nothing.
    """
    if getattr(type_, "KIND", None) == kind:
        return type_
    namespace = {
        "__module__": type_.__module__,
        "__qualname__": type_.__qualname__,
        "__doc__": type_.__doc__,
        "__reduce__": lambda obj: (_revived, (type_, kind, msgspec.structs.asdict(obj))),
        "KIND": kind,
    }
    return cast(type[T], _KindMeta(type_.__name__, (type_,), namespace))


def _revived(type_: type[T], kind: Kind, fields: dict[str, Any]) -> T:
    obj: T = _of_kind(type_, kind)(**fields)
    return obj


def form_of(target: type[T] | Form[T]) -> Form[T]:
    """The form of a class of a kind; a form is returned as it is. Raises TypeError for a class that is of no
    kind, and for what is no class.
    """
    if isinstance(target, Form):
        return target
    if not isinstance(target, type):
        raise TypeError(f"{target!r} is no kind: give a class derived from KubeObject, or a Form")
    kind = getattr(target, "KIND", None)
    if kind is None:
        name = target.__name__
        raise TypeError(
            f"{name} is no kind: declare it as class {name}(KubeObject, version=...), "
            f"or use Form(kind, {name}) and, for new objects, its type"
        )
    return Form(kind, target, issubclass(target, PartialObject))


def metadata_only(target: type[KubeObject] | Kind) -> Form[PartialObject]:
    """The metadata form of a kind: lists and watches transfer and keep `metadata` only."""
    kind = target if isinstance(target, Kind) else form_of(target).kind
    return Form(kind, PartialObject, metadata_only=True)
