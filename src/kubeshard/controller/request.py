"""What a reconciler is asked for, and what it may answer."""

from __future__ import annotations

from dataclasses import dataclass

from kubeshard.core.objects import Key

Request = Key
"""The unit of work: namespace and name of an object of the controller's primary kind. Never which event
brought it.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """How a reconcile that did not fail ended. None and `Result()` mean: done, until something changes.

    `requeue_after`: done, but look again in so many seconds. It resets the key's backoff. Several requests
    for one key do not add up: the earliest counts, and an event in between does not cancel it.
    """

    requeue_after: float | None = None

    def __post_init__(self) -> None:
        if self.requeue_after is not None and not self.requeue_after > 0:
            raise ValueError(
                f"requeue_after {self.requeue_after} s must be positive; None means not to requeue"
            )
