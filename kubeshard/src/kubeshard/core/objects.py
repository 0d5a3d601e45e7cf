"""Kubernetes objects as immutable structs.

A kind is a class that declares the fields its users need; decoding skips the rest, so an object in a cache
only needs memory for those fields. Guaranteed: instances are frozen, have no reference cycles (`gc=False` keeps the
collector away from large caches) and encode with the wire's camelCase names. Not guaranteed: that an instance
has all fields of the server's object. Therefore only a class declared `complete=True` may be written with a full
PUT; all others are written by patch or server-side apply of declared fields.

    class Website(KubeObject, group="webhosting.timebertt.dev", version="v1alpha1"):
        spec: WebsiteSpec = field(default_factory=WebsiteSpec)

`metadata.managedFields` is not decoded, except by `managed_fields.ManagedMeta`: few readers need it and it is a quarter
of an object's size.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from itertools import repeat
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    NoReturn,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
)

import msgspec
from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import replace

from kubeshard.core.kinds import Kind, default_plural
from kubeshard.core.times import parse_time

__all__ = [
    "UNSET",
    "Form",
    "Key",
    "KubeObject",
    "Meta",
    "ObjectMeta",
    "OwnerReference",
    "PartialObject",
    "Struct",
    "UnsetType",
    "field",
    "form_of",
    "metadata_only",
    "replace",
    "two_classes",
]


class _StructMeta(msgspec.StructMeta):
    """Makes the encoder omit None and `UNSET` if they are a field's default, and nothing else.

    msgspec's `omit_defaults` omits values that are identical to the default, and 0, `""`, `()` and True are
    always the same object. So all other defaults become factories, for which values are always encoded. They are
    C functions: decoding does not call Python code for an absent field.
    """

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        omit_defaults: bool | None = None,
        kw_only: bool = True,
        **config: Any,
    ) -> Any:
        if omit_defaults is None:
            omit_defaults = next((base._OMIT for base in bases if isinstance(base, _StructMeta)), None)
        if omit_defaults is None:
            namespace = {**namespace, **_encoded_defaults(namespace)}
        cls: Any = super().__new__(
            mcls,
            name,
            bases,
            namespace,
            omit_defaults=omit_defaults is not False,
            kw_only=kw_only,  # msgspec does not inherit it
            **config,
        )
        cls._OMIT = omit_defaults
        for attribute in _annotations(namespace):
            _check_factory(name, attribute, namespace.get(attribute))
        if cls.__struct_config__.frozen:
            # msgspec's own say neither the field nor what to do.
            cls.__setattr__ = cls.__delattr__ = _refuse_change
        return cls

    _OMIT: bool | None


def _refuse_change(obj: msgspec.Struct, name: str, value: object = None) -> NoReturn:
    kind = type(obj).__name__
    raise AttributeError(
        f"{kind}.{name} cannot be set: objects are immutable, because caches share them. Make a changed copy with "
        f"msgspec.structs.replace(..., {name}=...); to change the object in the cluster, write it: ctx.status for its "
        "status, ctx.client.patch or ensure for the rest",
        name=name,
        obj=obj,
    )


def _check_factory(owner: str, attribute: str, default: Any) -> None:
    """A factory that cannot work would fail where an object without the field is read, far from its declaration."""
    made = default.default_factory if isinstance(default, _Field) else None
    if isinstance(made, _StructMeta) and (required := _required(made)):
        raise TypeError(
            f"{owner}.{attribute}: default_factory={made.__name__} cannot work, because {made.__name__} has required "
            f"fields: {', '.join(required)}. Give them defaults; or make the field required, as in "
            f"`{attribute}: {made.__name__}`; or optional, as in `{attribute}: {made.__name__} | None = None`"
        )


def _required(made: Any) -> list[str]:
    return [field.name for field in msgspec.structs.fields(made) if field.required]


def _encoded_defaults(namespace: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _encoded(namespace[name])
        for name, hint in _annotations(namespace).items()
        if name in namespace and "ClassVar" not in str(hint)
    }


def _encoded(default: Any) -> Any:
    """The default of a field in a form that the encoder omits only if it is None or UNSET."""
    name = None
    if isinstance(default, _Field):
        name = default.name
        if default.default_factory in _CONTAINERS:
            return field(default_factory=partial(default.default_factory), name=name)
        if default.default is msgspec.NODEFAULT:
            return default
        default = default.default
    container: Any = type(default)
    if container in _CONTAINERS and not default:
        return field(default_factory=partial(container), name=name)
    if default is None or default is UNSET or not isinstance(default, Hashable):
        return field(default=default, name=name)
    return field(default_factory=repeat(default).__next__, name=name)


_CONTAINERS = (list, dict, set)
_Field: Any = type(field(default=None))


def _annotations(namespace: Mapping[str, Any]) -> Mapping[str, Any]:
    if sys.version_info >= (3, 14):
        from annotationlib import Format, call_annotate_function, get_annotate_from_class_namespace

        annotate = get_annotate_from_class_namespace(namespace)
        if annotate is not None:
            return call_annotate_function(annotate, Format.FORWARDREF)
    found: Mapping[str, Any] = namespace.get("__annotations__", {})
    return found


# `dataclass_transform` tells type checkers what msgspec inherits at run time: subclasses are frozen and
# keyword-only.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Struct(msgspec.Struct, metaclass=_StructMeta, frozen=True, gc=False, rename="camel"):
    """Base of all parts of API objects: frozen, untracked by the collector, camelCase on the wire.

    All fields are encoded and sent, except those left at a default of None or `UNSET`: other class defaults
    are sent like any value. None that is not the default is encoded as null, which removes a field:

        replicas: int = 1                                 # always sent; 1 is what this program wants
        replicas: int | None = None                       # sent when set, else left to the server or other managers
        replicas: int | None | UnsetType = UNSET          # as before, and None removes it

    A class with `omit_defaults=True` omits all values equal to their default, as `omitempty` does in Go.
    """


class OwnerReference(Struct, omit_defaults=True):
    """`metadata.ownerReferences[]`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class ObjectMeta(Struct, omit_defaults=True):
    """The part of `metadata` that controllers use. Its mappings are shared with caches: never change them."""

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
    def created(self) -> datetime | None:
        """The creation timestamp, which stays text in objects; None if the object is not stored yet. Its age in
        seconds is `ctx.clock.wall() - created.timestamp()`.
        """
        seconds = parse_time(self.creation_timestamp)
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)

    @property
    def deleting(self) -> bool:
        return self.deletion_timestamp is not None

    def __repr__(self) -> str:
        """Without kubectl's copy of the object, which has the values of a Secret too."""
        if not self.annotations or LAST_APPLIED not in self.annotations:
            return msgspec.Struct.__repr__(self)
        return msgspec.Struct.__repr__(replace(self, annotations={**self.annotations, LAST_APPLIED: "..."}))


class Key(NamedTuple):
    """Namespace and name of an object within its kind; the unit of work of a controller. Cluster-scoped:
    namespace `""`. A key in another cluster (`at`) never equals a key in a different cluster.
    """

    namespace: str
    name: str

    @property
    def cluster(self) -> str:
        """The object's cluster in the manager; `""` is the home cluster."""
        return ""

    def at(self, cluster: str) -> Key:
        """The key of the object with the same name in that cluster; `""` is the home cluster."""
        return ClusterKey(self.namespace, self.name, cluster) if cluster else self

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ClusterKey(Key):
    """A key outside of the home cluster: a tuple of three, so that keys of the home cluster stay small."""

    __slots__ = ()

    def __new__(cls, namespace: str, name: str, cluster: str) -> Self:
        return tuple.__new__(cls, (namespace, name, cluster))

    @property
    def cluster(self) -> str:
        *_, cluster = self
        return cluster

    def at(self, cluster: str) -> Key:
        return Key(self.namespace, self.name).at(cluster)

    def __str__(self) -> str:
        return f"{super().__str__()}@{self.cluster}"

    def __repr__(self) -> str:
        return f"Key(namespace={self.namespace!r}, name={self.name!r}).at({self.cluster!r})"


class _KindMeta(_StructMeta):
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
        if group and not version:
            raise TypeError(
                f"{name}: a kind needs its version: class {name}(KubeObject, group={group!r}, version='v1')"
            )
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
    rename="camel",
):
    """Base of all kinds; encoded like `Struct`. Class arguments: `group` (`""` = core), `version`
    (required for a concrete kind), `kind` (default: the class name), `plural`, `namespaced` (default True),
    `complete` (the class declares every field: PUT is allowed).
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
            omit_defaults: bool | None = None,
        ) -> None: ...

    KIND: ClassVar[Kind]
    COMPLETE: ClassVar[bool] = False

    metadata: ObjectMeta = field(default_factory=ObjectMeta)

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    def __repr__(self) -> str:
        """Without the values of a Secret, since objects get into logs and messages of errors."""
        kind = getattr(type(self), "KIND", None)
        if kind is None or (kind.group, kind.kind) != ("", "Secret"):
            return msgspec.Struct.__repr__(self)
        hidden = {
            name: dict.fromkeys(values, "...")
            for name in ("data", "string_data")
            if isinstance(values := getattr(self, name, None), Mapping)
        }
        return msgspec.Struct.__repr__(replace(self, **hidden))


class PartialObject(KubeObject):
    """An object's metadata and nothing else.

    Read through a `Form` (`metadata_only(...)`) it is an instance of a class for its kind, so `KIND` is that of the
    object and not PartialObjectMetadata. If it was decoded without a kind (the objects of an admission review)
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

    The class may have no kind, or another one: then `type` is a class derived from it with the form's kind, the same
    for equal arguments. So one class can be used for kinds that are known by name only:

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

    def same_but_class(self, other: Form[Any]) -> bool:
        """Whether both read the same objects of the API server, as two different classes."""
        same = (self.kind, self.metadata_only) == (other.kind, other.metadata_only)
        return same and self.type is not other.type


def two_classes(one: Form[Any], other: Form[Any]) -> str:
    """Why they cannot both be cached, and what to do."""
    first, second = (f"{form.type.__module__}.{form.type.__qualname__}" for form in (one, other))
    return (
        f"{one} is cached as {first}, and {second} is another class of the same kind, which would cost "
        "a second list, watch and copy: use one class with the fields of both"
    )


@cache
def _of_kind(type_: type[T], kind: Kind) -> type[T]:
    """Says which kind an object is of, without extra memory for each object."""
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
    """The form of a class with a kind; a form is returned unchanged. Raises TypeError for anything else."""
    if isinstance(target, Form):
        return target
    form: Form[T] = _form_of(target)
    return form


@lru_cache(maxsize=1024)
def _form_of(target: Any) -> Form[Any]:
    if not isinstance(target, type):
        raise TypeError(f"{target!r} is not a kind: give a class derived from KubeObject, or a Form")
    kind = getattr(target, "KIND", None)
    if kind is None:
        name = target.__name__
        raise TypeError(
            f"{name} is not a kind: declare it as class {name}(KubeObject, version=...), "
            f"or use Form(kind, {name}) and, for new objects, its type"
        )
    return Form(kind, target, issubclass(target, PartialObject))


@lru_cache(maxsize=1024)
def metadata_only(target: type[KubeObject] | Kind) -> Form[PartialObject]:
    """The metadata form of a kind: lists and watches transfer and store only `metadata`."""
    kind = target if isinstance(target, Kind) else form_of(target).kind
    return Form(kind, PartialObject, metadata_only=True)
