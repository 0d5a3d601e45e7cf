"""StatefulSets: pods with stable names and claims, managed in order.

Guaranteed: pods are named `name-0`, `name-1`, ... (`ordinals.start`). Unless the policy is `Parallel`, each pod is
created once those before it are ready, and the last is deleted first. A new template replaces pods from the last down
to `partition`, as many at once as `maxUnavailable` leaves room for. Claims from `volumeClaimTemplates` are created
before their pod and are kept unless `persistentVolumeClaimRetentionPolicy.whenScaled` says otherwise. Not implemented:
`whenDeleted: Delete`. Source: pkg/controller/statefulset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.controllers.pods import (
    CLAIMS,
    PODS,
    from_template,
    has_ended,
    is_ready,
    number_of,
    split_available,
    without_zeros,
)
from kubeshard_apiserver.controllers.revisions import RevisionController, RolloutState, template_of
from kubeshard_apiserver.objects import Object, is_deleting, labels_of
from kubeshard_apiserver.steps import Steps

STATEFUL_SETS = GroupResource("apps", "statefulsets")
REVISION = "controller-revision-hash"
_POD_NAME, _POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
_HASH = "controller.kubernetes.io/hash"


class StatefulSetController(RevisionController):
    resource, kind, hash_label = STATEFUL_SETS, "StatefulSet", _HASH
    account_name = component = "statefulset-controller"

    def suits(self, owner: Object, pod: Object) -> bool:
        return _ordinal(owner, pod) is not None

    def work(
        self, found: Object, newest: Object, known: Sequence[Object]
    ) -> Steps[Callable[[Object], RolloutState]]:
        update = newest["metadata"]["name"]
        names = {each["metadata"]["name"]: each for each in known}
        current = (found.get("status") or {}).get("currentRevision", "")
        current = current if current in names else update
        yield from self._step(found, names[current], newest)
        return lambda live: self._judged(live, current, update)

    def _pods(self, stateful_set: Object) -> dict[int, Object]:
        """Return the pods by ordinal, in ascending order."""
        found = {}
        for pod in self.cluster.controlled(stateful_set, PODS):
            ordinal = _ordinal(stateful_set, pod)
            if ordinal is not None:
                found[ordinal] = pod
        return dict(sorted(found.items()))

    def _step(self, stateful_set: Object, current: Object, update: Object) -> Steps[None]:
        """Proceed until it has to wait for a pod."""
        spec, pods = stateful_set["spec"], self._pods(stateful_set)
        first = (spec.get("ordinals") or {}).get("start", 0)
        wanted = range(first, first + spec.get("replicas", 1))
        parallel = spec.get("podManagementPolicy") == "Parallel"
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is None:
                revision = update if ordinal >= _partition(spec) + first else current
                yield from self._create(stateful_set, ordinal, revision)
            elif has_ended(pod) and not is_deleting(pod):
                yield from self._delete(stateful_set, pod)
            if not parallel and not (pod and self.is_available(stateful_set, pod)):
                return
        for ordinal, pod in reversed(pods.items()):
            if ordinal in wanted:
                continue
            if not is_deleting(pod):
                yield from self._delete(stateful_set, pod)
            if not parallel:
                return
        yield from self._release_claims(stateful_set, wanted)
        if (spec.get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate":
            yield from self._replace(stateful_set, pods, wanted, update["metadata"]["name"])

    def _replace(
        self, stateful_set: Object, pods: Mapping[int, Object], wanted: range, update: str
    ) -> Steps[None]:
        """Delete pods with an old template, the last ones first, while enough others are available. In parallel, those
        that are not available go in any case.
        """
        spec = stateful_set["spec"]
        available = [each for each in wanted if each in pods and self.is_available(stateful_set, pods[each])]
        old = [
            ordinal
            for ordinal in reversed(wanted[_partition(spec) :])
            if ordinal in pods
            and labels_of(pods[ordinal]).get(REVISION) != update
            and not is_deleting(pods[ordinal])
        ]
        room = max(0, _max_unavailable(spec, len(wanted)) - (len(wanted) - len(available)))
        if spec.get("podManagementPolicy") == "Parallel":
            broken = [ordinal for ordinal in old if ordinal not in available]
            old = broken + [ordinal for ordinal in old if ordinal in available][:room]
        else:
            old = old[:room]
        for ordinal in old:
            yield from self._delete(stateful_set, pods[ordinal])

    def _create(self, stateful_set: Object, ordinal: int, revision: Object) -> Steps[None]:
        meta, spec = stateful_set["metadata"], stateful_set["spec"]
        name = f"{meta['name']}-{ordinal}"
        claims = {
            template["metadata"]["name"]: f"{template['metadata']['name']}-{name}"
            for template in spec.get("volumeClaimTemplates") or ()
        }
        for template in spec.get("volumeClaimTemplates") or ():
            claim = claims[template["metadata"]["name"]]
            if self.cluster.get(Node(CLAIMS, Key(meta["namespace"], claim))) is None:
                yield from self._account.create(CLAIMS, _claim(stateful_set, template, claim))
                message = f"Create Claim {claim} Pod {name} in StatefulSet {meta['name']} success"
                yield from self._recorder.tell(stateful_set, "SuccessfulCreate", message)
        own = {_POD_NAME: name, _POD_INDEX: str(ordinal), REVISION: revision["metadata"]["name"]}
        body = from_template(stateful_set, template_of(revision), name=name, labels=own)
        volumes = [volume for volume in body["spec"].get("volumes") or () if volume["name"] not in claims]
        volumes += [
            {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
            for volume, claim in claims.items()
        ]
        body["spec"] |= {"hostname": name}
        if spec.get("serviceName"):
            body["spec"]["subdomain"] = spec["serviceName"]
        if volumes:
            body["spec"]["volumes"] = volumes
        told = f"Create Pod {name} in StatefulSet {meta['name']}"
        try:
            yield from self._account.create(PODS, body)
        except ApiError as error:
            message = f"{told} failed error: {error.message}"
            yield from self._recorder.warn(stateful_set, "FailedCreate", message)
            raise
        yield from self._recorder.tell(stateful_set, "SuccessfulCreate", f"{told} successful")

    def _delete(self, stateful_set: Object, pod: Object) -> Steps[None]:
        yield from self._account.delete(pod, PODS)
        names = f"Pod {pod['metadata']['name']} in StatefulSet {stateful_set['metadata']['name']}"
        yield from self._recorder.tell(stateful_set, "SuccessfulDelete", f"Delete {names} successful")

    def _release_claims(self, stateful_set: Object, wanted: range) -> Steps[None]:
        """Delete the claims of pods that are gone, if the StatefulSet requests it."""
        meta, spec = stateful_set["metadata"], stateful_set["spec"]
        policy = spec.get("persistentVolumeClaimRetentionPolicy") or {}
        if policy.get("whenScaled") != "Delete":
            return
        for template in spec.get("volumeClaimTemplates") or ():
            prefix = f"{template['metadata']['name']}-{meta['name']}-"
            for claim in self.cluster.in_namespace(CLAIMS, meta["namespace"]):
                ordinal = str(claim["metadata"]["name"]).removeprefix(prefix)
                if ordinal.isdecimal() and int(ordinal) not in wanted and not is_deleting(claim):
                    yield from self._account.delete(claim, CLAIMS)

    def _judged(self, stateful_set: Object, current: str, update: str) -> RolloutState:
        spec = stateful_set["spec"]
        pods = [*self._pods(stateful_set).values()]  # also one that has ended: it is there until it is gone
        running = [pod for pod in pods if not is_deleting(pod)]
        available, again = split_available(running, spec.get("minReadySeconds", 0), self.cluster.wall())
        updated = [pod for pod in running if labels_of(pod).get(REVISION) == update]
        size = spec.get("replicas", 1)
        if len(updated) == len(pods) == size and sum(map(is_ready, updated)) == size:
            current = update
        status: dict[str, Any] = {
            "replicas": len(pods),
            "readyReplicas": sum(map(is_ready, running)),
            "availableReplicas": len(available),
            "currentReplicas": sum(labels_of(pod).get(REVISION) == current for pod in running),
            "updatedReplicas": len(updated),
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": 0,
            "observedGeneration": stateful_set["metadata"].get("generation", 0),
        }
        shown = without_zeros(status, "replicas", "availableReplicas", "collisionCount")
        return shown, again, [update, current]


def _ordinal(stateful_set: Object, pod: Object) -> int | None:
    """Return the pod's ordinal, or None if its name does not belong to the StatefulSet."""
    head, _, tail = str(pod["metadata"]["name"]).rpartition("-")
    return int(tail) if head == stateful_set["metadata"]["name"] and tail.isdecimal() else None


def _rolling(spec: Object) -> Object:
    return (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}


def _partition(spec: Object) -> int:
    return int(_rolling(spec).get("partition", 0))


def _max_unavailable(spec: Object, size: int) -> int:
    return max(1, number_of(_rolling(spec).get("maxUnavailable") or 1, size, up=False))


def _claim(stateful_set: Object, template: Object, name: str) -> Object:
    given, spec = template["metadata"], stateful_set["spec"]
    selected = (spec.get("selector") or {}).get("matchLabels") or {}
    meta = {
        "name": name,
        "namespace": stateful_set["metadata"]["namespace"],
        "labels": {**(given.get("labels") or {}), **selected},
        "annotations": dict(given.get("annotations") or {}),
    }
    return {"metadata": meta, "spec": template["spec"]}
