"""ReplicaSets: keep the desired number of pods running. Source: pkg/controller/replicaset."""

from __future__ import annotations

from collections.abc import Iterable

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, ClusterView, service_account
from kubeshard_apiserver.controllers.conditions import with_condition, without_condition
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.controller_refs import claim_dependents, claimants
from kubeshard_apiserver.controllers.events import PodControl, Recorder
from kubeshard_apiserver.controllers.ownership import Node, owners_key
from kubeshard_apiserver.controllers.pods import (
    PODS,
    REPLICA_SETS,
    dispensable,
    from_template,
    has_ended,
    is_active,
    is_ready,
    split_available,
    without_zeros,
)
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting
from kubeshard_apiserver.steps import Steps


class ReplicaSetController(Controller[Key]):
    watched = (REPLICA_SETS, PODS)

    def __init__(self, cluster: ClusterView) -> None:
        super().__init__(cluster)
        self._account = Account(cluster, service_account("replicaset-controller"))
        recorder = Recorder(cluster, self._account, "replicaset-controller")
        self._pods = PodControl(self._account, recorder)

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Key]:
        if resource == REPLICA_SETS:
            return (event.key,)
        return (*owners_key(event, "ReplicaSet"), *claimants(self.cluster, REPLICA_SETS, event))

    def repeats(self, resource: GroupResource, event: Event) -> bool:
        return False  # the status tells of the pods that there are after everything else

    def reconcile(self, key: Key) -> Steps[float | None]:
        found = self.cluster.get(Node(REPLICA_SETS, key))
        if found is None:
            return None
        problem = None
        if not is_deleting(found):
            try:
                yield from self._scale(found)
            except ApiError as error:
                problem = error
        live = self.cluster.get(Node(REPLICA_SETS, key))
        if live is None:
            return None
        status, again = self._status(live, problem)
        yield from self._account.set_status(Node(REPLICA_SETS, key), status)
        if problem is not None:
            raise problem
        return again

    def _scale(self, replica_set: Object) -> Steps[None]:
        spec = replica_set["spec"]
        yield from claim_dependents(self.cluster, self._account, replica_set, PODS, suits=is_active)
        pods = [pod for pod in self.cluster.controlled(replica_set, PODS) if is_active(pod)]
        missing = spec.get("replicas", 1) - len(pods)
        for _ in range(missing):
            yield from self._pods.create(replica_set, from_template(replica_set, spec["template"]))
        for pod in sorted(pods, key=dispensable)[: max(0, -missing)]:
            yield from self._pods.delete(replica_set, pod)

    def _status(self, replica_set: Object, problem: ApiError | None) -> tuple[Object, float | None]:
        spec = replica_set["spec"]
        pods = self.cluster.controlled(replica_set, PODS)
        active = [pod for pod in pods if is_active(pod)]
        available, again = split_available(active, spec.get("minReadySeconds", 0), self.cluster.wall())
        labels = (spec["template"].get("metadata") or {}).get("labels") or {}
        conditions = (replica_set.get("status") or {}).get("conditions") or []
        if problem is None:
            conditions = without_condition(conditions, "ReplicaFailure")
        else:
            conditions = with_condition(
                conditions, "ReplicaFailure", "True", "FailedCreate", problem.message, self.cluster.now()
            )
        status = {
            "replicas": len(active),
            "fullyLabeledReplicas": sum(
                labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active
            ),
            "readyReplicas": sum(map(is_ready, active)),
            "availableReplicas": len(available),
            "terminatingReplicas": sum(is_deleting(pod) and not has_ended(pod) for pod in pods),
            "observedGeneration": replica_set["metadata"].get("generation", 0),
            "conditions": conditions,
        }
        return without_zeros(status, "replicas", "terminatingReplicas"), again
