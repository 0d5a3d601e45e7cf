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
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, dataclass_transform

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


class PartialObject(KubeObject, version="v1", kind="PartialObjectMetadata", group="meta.k8s.io"):
    """An object's metadata and nothing else. `api_version` and `kind` are what the server said: in lists and
    watches of the metadata form that is PartialObjectMetadata, not the object's own kind.
    """

    api_version: str = ""
    kind: str = ""


T = TypeVar("T", bound=KubeObject)


class Form(NamedTuple, Generic[T]):
    """How objects of a kind are read: in full as a class, or their metadata only. Hashable; informers are
    shared by it.
    """

    kind: Kind
    type: type[T]
    metadata_only: bool = False

    def __str__(self) -> str:
        return f"{self.kind} (metadata)" if self.metadata_only else str(self.kind)


def form_of(target: type[T] | Form[T]) -> Form[T]:
    """The typed form of a class; a form is returned as it is. Raises TypeError for a class without group and
    version, and for what is no class.
    """
    if isinstance(target, Form):
        return target
    if not isinstance(target, type):
        raise TypeError(f"{target!r} is no kind: give a class derived from KubeObject, or a Form")
    kind = getattr(target, "KIND", None)
    if kind is None:
        raise TypeError(
            f"{target.__name__} is no kind: declare it as class {target.__name__}(KubeObject, version=...)"
        )
    return Form(kind, target)


def metadata_only(target: type[KubeObject] | Kind) -> Form[PartialObject]:
    """The metadata form of a kind: lists and watches transfer and keep `metadata` only."""
    kind = target if isinstance(target, Kind) else form_of(target).kind
    return Form(kind, PartialObject, metadata_only=True)
