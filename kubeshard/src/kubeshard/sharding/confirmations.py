"""Strict hand-over: a shard that is dead by its Lease keeps its objects until there is a record in the cluster that
its process has ended. Opt-in per ring. Sans-IO.

A Lease says that a process has not renewed it. A fence refuses what that process still writes to objects. Neither says
that it does nothing any more: a machine that its hypervisor has stopped goes on where it was, and so do its requests to
systems that know neither Leases nor fences.

| the Leases of the shard's name | its objects may be taken |
|---|---|
| one is held, was deleted while it was held, or was taken by a sharder and is not confirmed | no |
| each was released by its holder, or is confirmed | yes |
| there are none | `longest` seconds after that was first asked here, since there was last one |

A Lease is confirmed by `CONFIRMED_ANNOTATION`, with the number of its transitions, so that the annotation is void once
anybody has taken the Lease again. Who confirms:

* a sharder, because the kubelet reports that the containers of the shard have ended (`Confirmed.KUBELET`), or because
  `longest` seconds are over since it saw that the Lease was taken (`Confirmed.WAITED`);
* a person, who knows it (`Confirmed.OPERATOR`).

Not guaranteed: anything about a shard of another implementation that releases its Lease while it still works.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from enum import Enum

from kubeshard.core.builtin import Lease
from kubeshard.sharding.shard_states import Shard, is_confirmed

REMEMBERED = 1000
"""Names without a Lease: they are read from labels, which any user may write."""

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Confirmed(Enum):
    """Why a process is known to have ended."""

    KUBELET = "kubelet"
    WAITED = "waited"
    """It is not known; the ring does not want to wait any longer."""
    OPERATOR = "operator"


def longest_wait(text: str) -> float | None:
    """The seconds of a ring's annotation: infinite for `true`, None if the ring does not ask for strict hand-over.
    Raises ValueError.
    """
    if text in ("", "false"):
        return None
    if text == "true":
        return math.inf
    if (found := re.fullmatch(r"([1-9][0-9]{0,8})([smh])", text)) is None:
        raise ValueError(f"{text!r} is neither true nor a duration such as 30m")
    return int(found[1]) * _SECONDS[found[2]]


def confirmation(lease: Lease, by: Confirmed) -> str:
    """The annotation that confirms that the process has ended from which a sharder took the Lease."""
    return f"{lease.spec.lease_transitions or 0}/{by.value}"


class Confirmations:
    """Of one ring. `longest`: for how many seconds objects wait at most."""

    def __init__(self, longest: float) -> None:
        self.longest = longest
        self._absent: dict[str, float] = {}
        """Since when names are known to have no Lease."""

    def has_ended(self, shard: str, leases: Collection[Lease], now: float) -> bool:
        """Whether objects may be taken from a shard. `leases`: all of its name, also those that were deleted while they
        were held.
        """
        if leases:
            self._absent.pop(shard, None)
            return all(map(is_confirmed, leases))
        if shard not in self._absent and len(self._absent) >= REMEMBERED:
            del self._absent[next(iter(self._absent))]
        return now - self._absent.setdefault(shard, now) >= self.longest

    def there(self, shard: str) -> None:
        """There is a Lease of this name: nobody may ask about it until that is gone again."""
        self._absent.pop(shard, None)

    def over(self, shard: Shard) -> bool:
        """Whether a shard whose Lease was taken is not waited for any longer."""
        return shard.times.duration - shard.times.to_expired >= self.longest
