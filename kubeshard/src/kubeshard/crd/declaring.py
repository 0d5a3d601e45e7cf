"""Declarations of a class about its CustomResourceDefinition: columns, names, scale, rules, list keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from kubeshard.core.objects import KubeObject

S = TypeVar("S", bound=type[msgspec.Struct])
K = TypeVar("K", bound=type[KubeObject])

_RULES = "_RULES"
_DECLARED = "_CUSTOM_RESOURCE"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`. `path` starts with a dot (`.status.phase`); `type` is `string`, `integer`, `number`,
    `boolean` or `date`, by default the field's type. Columns with a `priority` above 0 are only shown with `-o wide`.
    """

    name: str
    path: str
    type: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """The subresource `scale`, for `kubectl scale` and autoscalers. `replicas` is a path under `.spec`,
    `status_replicas` and `selector` (a label selector as text) are paths under `.status`.
    """

    replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str = ""


@dataclass(frozen=True, slots=True)
class ListMap:
    """A list whose items are identified by these fields, so that several writers can each apply their own items:

        ports: Annotated[tuple[Port, ...], ListMap("name")] = ()

    Every item needs the keys, so its class must give them no default.
    """

    keys: tuple[str, ...]

    def __init__(self, *keys: str) -> None:
        object.__setattr__(self, "keys", keys)


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule by which the API server validates objects (`x-kubernetes-validations`). `rule` refers to the value as
    `self`, and to the value before an update as `oldSelf`. Use it as a decorator of a class or as an annotation of a
    field:

        @Rule("self.low <= self.high", "low is at most high")
        class Range(Struct):
            low: int
            high: int
            unit: Annotated[str, Rule("self == oldSelf", "unit cannot be changed")]

    A rule uses the field names on the wire. Lists, maps and strings that a rule iterates over need an upper bound
    (`Meta(max_length=...)`); otherwise the API server rejects the rule as too expensive.
    """

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    optional_old_self: bool = False

    def __call__(self, cls: S) -> S:
        own = cls.__dict__.get(_RULES, ())
        setattr(cls, _RULES, (self, *own))  # decorators are applied from the bottom up
        return cls

    @property
    def manifest(self) -> dict[str, Any]:
        found = {
            "rule": self.rule,
            "message": self.message,
            "messageExpression": self.message_expression,
            "reason": self.reason,
            "fieldPath": self.field_path,
            "optionalOldSelf": self.optional_old_self,
        }
        return {name: value for name, value in found.items() if value}


def rules_of(cls: type[Any]) -> tuple[Rule, ...]:
    """The rules of the class and its bases."""
    return tuple(rule for base in reversed(cls.__mro__) for rule in base.__dict__.get(_RULES, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomResource:
    """A decorator for a kind that declares what `definition` cannot derive from its fields.

    `columns` and `scale` apply to this version. `short_names` and `categories` (`all` for `kubectl get all`) are only
    read from the storage version. `storage` marks the storage version; it is required if there are several versions.
    `served=False` means that objects may still be stored in this version, but it is no longer served. `deprecated` is
    the warning that clients of the version get. `selectable` lists the paths of fields that field selectors can use.
    """

    columns: Sequence[Column] = ()
    scale: Scale | None = None
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    storage: bool = False
    served: bool = True
    deprecated: str = ""
    selectable: Sequence[str] = ()

    def __call__(self, cls: K) -> K:
        if getattr(cls, "KIND", None) is None:
            raise TypeError(f"{cls.__name__} is not a kind: class {cls.__name__}(KubeObject, version=...)")
        setattr(cls, _DECLARED, self)
        return cls


def declared(cls: type[KubeObject]) -> CustomResource | None:
    """What the class's own decorator declares; its bases' decorators do not count."""
    found: CustomResource | None = cls.__dict__.get(_DECLARED)
    return found
