"""The patches that put finalizers on an object and take them off, and what may be a finalizer.

An object with finalizers stays, being deleted, until the last of them is off. The list is everybody's: so each patch
tests what it relies on, and is refused by the API server, as a whole, where that has changed.
"""

from __future__ import annotations

from collections.abc import Collection

from kubeshard.core.names import is_dns_subdomain, is_label_key
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.patches import JsonPatch, add, pointer, remove, test
from kubeshard.core.times import parse_time

_LIST = pointer("metadata", "finalizers")
_UID = pointer("metadata", "uid")


def is_finalizer(text: str) -> bool:
    """Whether it is `<domain>/<what>`, which every kind accepts and nobody else uses."""
    domain, slash, _ = text.partition("/")
    return bool(slash) and is_label_key(text) and is_dns_subdomain(domain) and "." in domain


def is_kubernetes_own(finalizer: str) -> bool:
    """Whether Kubernetes itself takes it off: `foregroundDeletion`, `kubernetes.io/pvc-protection`."""
    domain, slash, _ = finalizer.partition("/")
    return not slash or any(
        domain == own or domain.endswith(f".{own}") for own in ("kubernetes.io", "k8s.io")
    )


def adding(meta: ObjectMeta, keys: Collection[str]) -> JsonPatch:
    """Adds finalizers to the very object, as long as it lives and nobody else has changed the list."""
    have = list(meta.finalizers)
    return JsonPatch(
        [
            test(_UID, meta.uid),
            test(pointer("metadata", "deletionTimestamp"), None),
            test(_LIST, have or None),
            add(_LIST, [*have, *(key for key in keys if key not in have)]),
        ]
    )


def removing(meta: ObjectMeta, keys: Collection[str]) -> JsonPatch:
    """Takes those of the keys that are there off the very object, whatever others add behind them."""
    # From the last one on, so that the places of the others stay as they are.
    places = [n for n, key in reversed(list(enumerate(meta.finalizers))) if key in keys]
    ops = [test(_UID, meta.uid)]
    for place in places:
        ops += [test(f"{_LIST}/{place}", meta.finalizers[place]), remove(f"{_LIST}/{place}")]
    return JsonPatch(ops)


def deletion_age(meta: ObjectMeta, now: float) -> float:
    """Seconds since the deletion began; 0 where it has not. `now`: since the epoch."""
    began = parse_time(meta.deletion_timestamp)
    return 0.0 if began is None else max(0.0, now - began)


def spoken(seconds: float) -> str:
    """A coarse age, which does not change with every look: `3 h`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "less than a minute"
