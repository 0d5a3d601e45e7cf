"""PodDisruptionBudgets: how many of their pods may be evicted at the moment.

Guaranteed: `expectedPods`, `currentHealthy`, `desiredHealthy`, `disruptionsAllowed` and the condition
`DisruptionAllowed` follow the pods. An evicted pod counts as gone until it is deleted, for up to two minutes. Not
implemented: removing a stale `DisruptionTarget` condition from a pod. Source: pkg/controller/disruption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.core.times import parse_time
from kubeshard_apiserver.controllers.cluster import Account, ClusterView, service_account
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.events import Recorder
from kubeshard_apiserver.controllers.ownership import Node, controller_of
from kubeshard_apiserver.controllers.pods import PODS, REPLICA_SETS, is_ready, number_of
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting, labels_of
from kubeshard_apiserver.resources.custom import CustomResources
from kubeshard_apiserver.resources.field_paths import ScalePaths, value_at
from kubeshard_apiserver.resources.priority_and_disruption import with_disruption_allowed
from kubeshard_apiserver.resources.value_rules import selects
from kubeshard_apiserver.steps import Steps

BUDGETS = GroupResource("policy", "poddisruptionbudgets")
_DELETED_WITHIN = 120.0


class DisruptionController(Controller[Key]):
    watched = (BUDGETS, PODS)

    def __init__(self, cluster: ClusterView) -> None:
        super().__init__(cluster)
        self._account = Account(cluster, service_account("disruption-controller"))
        self._recorder = Recorder(cluster, self._account, "controllermanager")

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Key]:
        if resource == BUDGETS:
            return (event.key,)
        return self._of_pod(event)

    def reconcile(self, key: Key) -> Steps[float | None]:
        node = Node(BUDGETS, key)
        budget = self.cluster.get(node)
        if budget is None or is_deleting(budget):
            return None
        pods = [pod for pod in self.cluster.in_namespace(PODS, key.namespace) if _selects(budget, pod)]
        if not pods:
            yield from self._recorder.tell(budget, "NoPods", "No matching pods found")
        former = budget.get("status") or {}
        try:
            expected, desired = self._counts(budget, pods)
        except LookupError as error:
            problem = str(error.args[0])
            message = f"Failed to calculate the number of expected pods: {problem}"
            yield from self._recorder.warn(budget, "CalculateExpectedPodCountFailed", message)
            status = {**former, "disruptionsAllowed": 0}
            status = with_disruption_allowed(status, "False", "SyncFailed", problem, self.cluster.now())
            yield from self._account.set_status(node, status)
            return None
        disrupted, again = self._disrupted(former, pods)
        healthy = sum(
            is_ready(pod) and not is_deleting(pod) and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )
        allowed = max(0, healthy - desired) if expected > 0 else 0
        status = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"].get("generation", 0),
            "conditions": former.get("conditions") or [],
            **({"disruptedPods": disrupted} if disrupted else {}),
        }
        said = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
        status = with_disruption_allowed(status, *said, "", self.cluster.now())
        yield from self._account.set_status(node, status)
        return again

    def _of_pod(self, event: Event) -> Iterator[Key]:
        if _seen_of(event.old) == _seen_of(event.new):
            return
        pods = [pod for pod in (event.old, event.new) if pod]
        for key, budget in self.cluster.server.store.objects(BUDGETS).items():
            if key.namespace == event.key.namespace and any(_selects(budget, pod) for pod in pods):
                yield key

    def _counts(self, budget: Object, pods: Sequence[Object]) -> tuple[int, int]:
        """Return the expected and the desired healthy number of pods. Raises LookupError if they are unknown."""
        spec = budget["spec"]
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if most is not None:
            expected = self._expected(pods)
            return expected, max(0, expected - number_of(most, expected, up=True))
        if isinstance(least, str):
            expected = self._expected(pods)
            return expected, number_of(least, expected, up=True)
        return (0, 0) if least is None else (len(pods), int(least))

    def _expected(self, pods: Sequence[Object]) -> int:
        """Return the sum of the sizes of the pods' controllers. Pods without a controller do not count."""
        sizes: dict[str, int] = {}
        for pod in pods:
            reference = controller_of(pod)
            if reference is not None:
                sizes.update((self._size(pod, reference),))
        return sum(sizes.values())

    def _size(self, pod: Object, reference: Mapping[str, Any]) -> tuple[str, int]:
        namespace, missing = (
            pod["metadata"]["namespace"],
            LookupError(f'found no controllers for pod "{pod["metadata"]["name"]}"'),
        )
        found = self._named(namespace, reference)
        if found is None:
            raise missing
        resource, owner = found
        if resource == REPLICA_SETS and (above := controller_of(owner)) and above["kind"] == "Deployment":
            found = self._named(namespace, above)
            if found is None:
                raise missing
            resource, owner = found
        served = self.cluster.resource(resource)
        if served is None or "scale" not in served.subresources:
            raise LookupError(f"{_dotted(resource)} does not implement the scale subresource")
        strategy = served.strategy
        paths = (strategy.scales if isinstance(strategy, CustomResources) else None) or ScalePaths()
        size = value_at(owner, paths.spec)
        return str(owner["metadata"]["uid"]), int(size if size is not None else 1)

    def _named(self, namespace: str, reference: Mapping[str, Any]) -> tuple[GroupResource, Object] | None:
        group = str(reference["apiVersion"]).rpartition("/")[0]
        for each in self.cluster.resources():
            if (each.kind.group, each.kind.kind) == (group, reference["kind"]):
                owner = self.cluster.get(Node(each.group_resource, Key(namespace, reference["name"])))
                same = owner is not None and owner["metadata"]["uid"] == reference["uid"]
                return (each.group_resource, owner) if owner is not None and same else None
        return None

    def _disrupted(self, former: Object, pods: Sequence[Object]) -> tuple[Object, float | None]:
        """Return the evicted pods that still exist, and the seconds until the first of them counts as running again."""
        said, now = former.get("disruptedPods") or {}, self.cluster.wall()
        left, waits = {}, []
        for pod in pods:
            name = pod["metadata"]["name"]
            wait = (parse_time(said.get(name)) or 0.0) + _DELETED_WITHIN - now
            if name in said and not is_deleting(pod) and wait >= 0:
                left[name] = said[name]
                waits.append(wait)
        return left, min(waits, default=None)


def _selects(budget: Object, pod: Object) -> bool:
    return selects(budget["spec"].get("selector"), labels_of(pod))


def _seen_of(pod: Object | None) -> tuple[Any, ...]:
    return () if pod is None else (labels_of(pod), is_ready(pod), is_deleting(pod), controller_of(pod))


def _dotted(resource: GroupResource) -> str:
    return f"{resource.resource}.{resource.group}" if resource.group else resource.resource
