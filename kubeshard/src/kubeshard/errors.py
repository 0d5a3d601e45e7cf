"""All errors that the code of an operator may want to catch, by cause: `from kubeshard import errors`.

Those of the API server are loaded at once, the others with what raises them when they are first used.
"""

from __future__ import annotations

from importlib import import_module

from kubeshard.core.errors import (
    AlreadyExists,
    ApiError,
    ConfigurationError,
    Conflict,
    FieldConflict,
    Forbidden,
    Gone,
    Invalid,
    KubeshardError,
    NoSuchCluster,
    NotFound,
    NotOurs,
    PatchTestFailed,
    Retry,
    SchemaMismatch,
    Terminal,
    Throttled,
    Timeout,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnexpectedResponse,
    Unprepared,
)

TYPE_CHECKING = False

if TYPE_CHECKING:
    from kubeshard.cache.errors import CacheBehind, OutsideScope, UndeclaredKind
    from kubeshard.cache.store import UndeclaredIndex
    from kubeshard.cache.transforms import TransformFailed
    from kubeshard.cache.waiting import WaitedTooLong
    from kubeshard.client.discovery import KindNotServed
    from kubeshard.controller.desired.applyset import AnothersApplySet
    from kubeshard.controller.desired.plan import ApplyFailed, ImmutableFields, NotAdopted
    from kubeshard.controller.status import NoStatusSubresource
    from kubeshard.core.encoding import UndecodableObject
    from kubeshard.core.namespaces import WrongNamespace
    from kubeshard.core.owners import AlreadyControlled, IllegalOwner
    from kubeshard.core.selectors import InvalidSelector
    from kubeshard.manager.membership import RightLost

__all__ = [
    "AlreadyControlled",
    "AlreadyExists",
    "AnothersApplySet",
    "ApiError",
    "ApplyFailed",
    "CacheBehind",
    "ConfigurationError",
    "Conflict",
    "FieldConflict",
    "Forbidden",
    "Gone",
    "IllegalOwner",
    "ImmutableFields",
    "Invalid",
    "InvalidSelector",
    "KindNotServed",
    "KubeshardError",
    "NoStatusSubresource",
    "NoSuchCluster",
    "NotAdopted",
    "NotFound",
    "NotOurs",
    "OutsideScope",
    "PatchTestFailed",
    "Retry",
    "RightLost",
    "SchemaMismatch",
    "Terminal",
    "Throttled",
    "Timeout",
    "TooLarge",
    "TransformFailed",
    "Unauthorized",
    "Unavailable",
    "UndeclaredIndex",
    "UndeclaredKind",
    "UndecodableObject",
    "UnexpectedResponse",
    "Unprepared",
    "WaitedTooLong",
    "WrongNamespace",
]

_HOMES = {
    "cache.errors": ("CacheBehind", "OutsideScope", "UndeclaredKind"),
    "cache.store": ("UndeclaredIndex",),
    "cache.waiting": ("WaitedTooLong",),
    "cache.transforms": ("TransformFailed",),
    "client.discovery": ("KindNotServed",),
    "controller.desired.applyset": ("AnothersApplySet",),
    "controller.desired.plan": ("ApplyFailed", "ImmutableFields", "NotAdopted"),
    "controller.status": ("NoStatusSubresource",),
    "core.encoding": ("UndecodableObject",),
    "core.namespaces": ("WrongNamespace",),
    "core.owners": ("AlreadyControlled", "IllegalOwner"),
    "core.selectors": ("InvalidSelector",),
    "manager.membership": ("RightLost",),
}

if not TYPE_CHECKING:  # as in `kubeshard` itself

    def __getattr__(name: str) -> object:
        for home, names in _HOMES.items():
            if name in names:
                value: object = getattr(import_module(f"kubeshard.{home}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
