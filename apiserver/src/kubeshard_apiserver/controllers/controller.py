"""What a controller is here: it is told of changes, and asked to look at what they concern.

`concerned` is called inside of a write and must be quick: it says which keys a change concerns, nothing else.
`reconcile` looks at one key and writes through the verbs of the model, as steps, so that whoever drives it
decides how admission webhooks are called. It finds everything in the store: what it saw before does not
count, so a key that is looked at once too often does no harm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.controllers.cluster import Cluster
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.steps import Steps

K = TypeVar("K", bound=Hashable)


class Controller(ABC, Generic[K]):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @abstractmethod
    def concerned(self, resource: GroupResource, event: Event) -> Iterable[K]:
        """The keys to look at because of this change."""

    @abstractmethod
    def reconcile(self, key: K) -> Steps[float | None]:
        """Returns in how many seconds to look again without a change; None for never.

        Raises ApiError where a write was refused: it is tried again later.
        """


AnyController = Controller[Any]
