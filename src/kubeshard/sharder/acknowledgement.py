"""Distinguishes a shard's acknowledgement of a drain from any other update.

Guaranteed: an acknowledgement takes the shard label and the drain label away and changes nothing else. What the
API server itself writes does not count: resourceVersion, managedFields and the other metadata that it
owns, and whether a map is empty or absent.

Not guaranteed: that an acknowledgement is recognised when another mutating webhook, called before the sharder's,
changes the object in every update (a timestamp, say). The labels are restored then, and the drain is reported as
stuck. Let that webhook skip updates of labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_SERVERS = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""Metadata that updates cannot change: the API server rejects the change or ignores it."""

_ENCODER = msgspec.json.Encoder(order="deterministic")
"""Compares as JSON does: in Python, true equals 1."""


def acknowledges(old: Mapping[str, Any], new: Mapping[str, Any], shard_label: str, drain_label: str) -> bool:
    """Whether the update from `old` to `new` (complete objects) only ends a drain. Never
    raises, whatever the objects contain.
    """
    both = frozenset({shard_label, drain_label})
    had, has = _labels(old), _labels(new)
    if not both <= had.keys() or both & has.keys():
        return False
    for label in both:
        del had[label]
    return _ENCODER.encode([_rest(old), had]) == _ENCODER.encode([_rest(new), has])


def _rest(obj: Mapping[str, Any]) -> list[Any]:
    """The object without labels and without the fields that the server owns."""
    metadata = obj.get("metadata")
    if isinstance(metadata, Mapping):
        metadata = {
            key: value for key, value in metadata.items() if value and key != "labels" and key not in _SERVERS
        }
    return [{key: value for key, value in obj.items() if key != "metadata"}, metadata]


def _labels(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = obj.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return dict(labels) if isinstance(labels, Mapping) else {}
