"""Round robin over tenants.

Guaranteed: the tenants that have ready keys take turns, one key a turn, each tenant's keys in the order in which they
were added. A new tenant joins at the end of the round; an idle one accumulates no turns. So a tenant's first key waits
for at most one key of each other tenant, however many those have.

Operations are O(1). Not guaranteed: fairness in time. A tenant whose keys take long gets as many turns as the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Generic

from kubeshard.runtime.logs import get_logger
from kubeshard.workqueue.levels import K

_log = get_logger("kubeshard.workqueue")


class RoundRobin(Generic[K]):
    """An `Order`. `tenant` returns the hashable tenant of a key; default: the key's namespace. Keys for which it raises
    are treated as one tenant; the first of them is logged.
    """

    def __init__(self, tenant: Callable[[K], Hashable] = attrgetter("namespace")) -> None:
        self._tenant = tenant
        self._turns: deque[tuple[Hashable, K]] = deque()
        """The next key of each tenant that has one, in the order of their turns."""
        self._further: dict[Hashable, deque[K] | None] = {}
        """The keys after that one; None for most tenants, which have none."""
        self._failed = False

    def append(self, key: K, /) -> None:
        try:
            tenant = self._tenant(key)
            first = tenant not in self._further
        except Exception as error:
            self._tell(key, error)
            tenant, first = _NOBODY, _NOBODY not in self._further
        if first:
            self._further[tenant] = None
            self._turns.append((tenant, key))
            return
        further = self._further[tenant]
        if further is None:
            self._further[tenant] = deque((key,))
        else:
            further.append(key)

    def popleft(self) -> K:
        tenant, key = self._turns.popleft()
        further = self._further[tenant]
        if further:
            self._turns.append((tenant, further.popleft()))
        else:
            del self._further[tenant]
        return key

    def clear(self) -> None:
        self._turns.clear()
        self._further.clear()

    def _tell(self, key: K, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            _log.error(
                "Cannot determine the tenant of a key; such keys share their turns", key=key, error=error
            )


_NOBODY = object()
"""The tenant of keys without one."""
