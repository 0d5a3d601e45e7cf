"""Which shard has which object of a ring by ranges, as the labels of a ring by labels would say it: the checker judges
both in the same words. Shares no code with kubeshard: the hash and the texts of the assignment are in here once more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chaos_records import Object

BUCKET_LABEL = "bucket.alpha.sharding.timebertt.dev/"
_GROUP = re.compile(r"(\d+)-(\d+)")
_PLACE = re.compile(r"(?:(\S+?)(?: to (\S+))?)?@\d+")


class Shares:
    """Of one ring. While its assignment is gone or cannot be read, shards go on with what they have."""

    def __init__(self, ring: str) -> None:
        self.assignment = f"ranges-{ring}"
        self._shard = f"shard.alpha.sharding.timebertt.dev/{ring}"
        self._drain = f"drain.alpha.sharding.timebertt.dev/{ring}"
        self._bucket = BUCKET_LABEL + ring
        self._by = "uid"
        self._places: list[tuple[str, str]] = [("", "")]

    def assigned(self, configmap: Object | None) -> None:
        """The assignment has changed."""
        data: Mapping[str, str] = (configmap or {}).get("data") or {}
        places: dict[int, tuple[str, str]] = {}
        for key, value in data.items():
            if (run := _GROUP.fullmatch(key)) and (place := _PLACE.fullmatch(value)):
                buckets = range(int(run[1]), int(run[2]) + 1)
                places |= dict.fromkeys(buckets, (place[1] or "", place[2] or ""))
        if places and len(places) == int(data.get("buckets", 0)):
            self._places = [places[bucket] for bucket in sorted(places)]
            self._by = data["by"]

    def labelled(self, kind: str, obj: Object | None) -> Object | None:
        """The object with the labels of its shard, and with its bucket. By uid, a child has that which it names."""
        if obj is None or kind == "lease":
            return obj
        meta = obj["metadata"]
        labels: dict[str, Any] = {
            k: v for k, v in (meta.get("labels") or {}).items() if k not in (self._shard, self._drain)
        }
        if kind == "main" or self._by == "namespace":
            labels[self._bucket] = str(_hash(meta[self._by]) * len(self._places) >> 64)
        owner, target = self._places[int(labels[self._bucket])] if self._bucket in labels else ("", "")
        labels |= {self._shard: owner} if owner else {}
        labels |= {self._drain: target} if target and kind == "main" else {}
        return {**obj, "metadata": {**meta, "labels": labels}}


def _hash(text: str) -> int:
    found = 0xCBF29CE484222325
    for byte in text.encode():
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return found
