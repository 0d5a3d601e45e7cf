"""Patches that add finalizers to an object and remove them, and the rules for their names.

A deleted object stays, terminating, until its last finalizer is removed. The list is shared with other controllers: so
each patch tests the values that it depends on, and the API server rejects it as a whole if they have changed.
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
    """Whether it is `<domain>/<name>`, which every kind accepts and which does not collide with others."""
    domain, slash, _ = text.partition("/")
    return bool(slash) and is_label_key(text) and is_dns_subdomain(domain) and "." in domain


def is_kubernetes_own(finalizer: str) -> bool:
    """Whether Kubernetes itself removes it: `foregroundDeletion`, `kubernetes.io/pvc-protection`."""
    domain, slash, _ = finalizer.partition("/")
    return not slash or any(
        domain == own or domain.endswith(f".{own}") for own in ("kubernetes.io", "k8s.io")
    )


def adding(meta: ObjectMeta, keys: Collection[str]) -> JsonPatch:
    """Adds finalizers to exactly this object, if it is not being deleted and the list is unchanged."""
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
    """Removes those of the keys that are present from exactly this object, even if others are appended meanwhile."""
    # Starting with the last one, so that the indexes of the others do not change.
    places = [n for n, key in reversed(list(enumerate(meta.finalizers))) if key in keys]
    ops = [test(_UID, meta.uid)]
    for place in places:
        ops += [test(f"{_LIST}/{place}", meta.finalizers[place]), remove(f"{_LIST}/{place}")]
    return JsonPatch(ops)


def deletion_age(meta: ObjectMeta, now: float) -> float:
    """Seconds since the deletion; 0 if not deleted. `now`: since the epoch."""
    began = parse_time(meta.deletion_timestamp)
    return 0.0 if began is None else max(0.0, now - began)


def spoken(seconds: float) -> str:
    """A coarse age, which does not change all the time: `3 h`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "less than a minute"
