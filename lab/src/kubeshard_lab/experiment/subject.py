"""What the objects of a load are, as far as the experiment has to know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from kubeshard.client.client import Client
from kubeshard.core.objects import Form, KubeObject, ObjectMeta
from kubeshard.core.selectors import Selector
from kubeshard_lab.experiment.plan import Due, LoadPlan

RUN_LABEL = "run-id"
REQUESTED = "experiment-reconcile"
"""The annotation whose change causes a reconcile, but no new generation."""


class Seen(NamedTuple):
    uid: str
    generation: int
    """The one that its status says is ready; 0 if none is."""
    shard: str


class Subject(Protocol):
    """The kind that is loaded."""

    ring: str
    """`""` without one."""
    controller: str
    """The name of the controller whose latencies count."""
    selector: Selector
    """Selects the objects of this run."""

    async def form(self, client: Client) -> Form[Any]:
        """How to watch the objects. Raises KindNotServed."""
        ...

    def installation(self, *, ring: bool) -> Iterator[Mapping[str, Any]]:
        """What an empty cluster needs; `ring`: for a sharder service too."""
        ...

    def foundation(self, plan: LoadPlan) -> Iterator[Mapping[str, Any]]: ...

    async def send(self, client: Client, due: Due) -> ObjectMeta | None:
        """Returns the metadata of an object that was created or patched. Raises ApiError."""
        ...

    def seen(self, obj: KubeObject) -> Seen: ...


def labels_of(run: str, scenario: str) -> Mapping[str, str]:
    """The labels of everything that a run creates."""
    return {"generated-by": "experiment", "scenario": scenario, RUN_LABEL: run}
