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
    `boolean` or `date`, by default that of the field. Columns with a `priority` above 0 are only shown with `-o wide`.
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

    Keys are required in every item, as its class must say by giving them no default.
    """

    keys: tuple[str, ...]

    def __init__(self, *keys: str) -> None:
        object.__setattr__(self, "keys", keys)


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule that the API server validates objects with (`x-kubernetes-validations`). `rule` uses `self`, and
    `oldSelf` for the value before an update. On a class it is a decorator, on a field an annotation:

        @Rule("self.low <= self.high", "low is at most high")
        class Range(Struct):
            low: int
            high: int
            unit: Annotated[str, Rule("self == oldSelf", "unit cannot be changed")]

    The names in a rule are those on the wire. Lists, maps and strings that a rule iterates over need an upper bound
    (`Meta(max_length=...)`), or the API server rejects the rule as too expensive.
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
    """The rules of the class and of its bases."""
    return tuple(rule for base in reversed(cls.__mro__) for rule in base.__dict__.get(_RULES, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomResource:
    """A decorator of a kind, for what `definition` cannot derive from its fields.

    `columns` and `scale` are for this version. `short_names` and `categories` (`all` for `kubectl get all`) only count
    on the stored version. `storage`: objects are stored in this version; needed if there are several. `served=False`:
    may still be stored, but is not served any more. `deprecated` is the warning that clients of the version get.
    `selectable`: paths of fields that field selectors can use.
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
    """The declaration of the class's own decorator; those of its bases do not count."""
    found: CustomResource | None = cls.__dict__.get(_DECLARED)
    return found
