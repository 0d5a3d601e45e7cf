"""Jobs: run pods to completion until enough have succeeded.

Guaranteed: `completions` (indexed or not), `parallelism`, `backoffLimit` with the real delays between attempts,
`activeDeadlineSeconds`, `suspend` and `ttlSecondsAfterFinished` are implemented. A pod is counted once, and keeps the
finalizer `batch.kubernetes.io/job-tracking` until then. Not implemented: `backoffLimitPerIndex`, `podFailurePolicy`,
`successPolicy`, `podReplacementPolicy: Failed`, `managedBy`. Source: pkg/controller/job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.core.times import parse_time
from kubeshard_apiserver.controllers.cluster import Account, ClusterView, service_account
from kubeshard_apiserver.controllers.conditions import condition_of, with_condition, without_condition
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.controller_refs import claim_dependents, claimants
from kubeshard_apiserver.controllers.events import PodControl, Recorder
from kubeshard_apiserver.controllers.ownership import Node, controller_of, owners_key
from kubeshard_apiserver.controllers.pods import (
    PODS,
    dispensable,
    from_template,
    has_ended,
    is_ready,
    phase_of,
    without_zeros,
)
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting, key_of, without_finalizer
from kubeshard_apiserver.steps import Steps

INDEX = "batch.kubernetes.io/job-completion-index"
FINALIZER = "batch.kubernetes.io/job-tracking"
_PROBED = ("lastProbeTime",)


def _is_tracked(pod: Object) -> bool:
    """Report whether the pod still has the tracking finalizer, that is, has not been counted yet."""
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def _index_of(pod: Object) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdecimal() else None


def _finished_at(job: Object) -> float | None:
    """Return when the Job finished, in seconds since the epoch."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return parse_time(condition["lastTransitionTime"])
    return None


@dataclass
class Progress:
    """A Job and its pods at one moment. A pod deleted before it succeeded counts as failed."""

    job: Object
    pods: Sequence[Object]
    active: list[Object] = field(default_factory=list)
    counted: list[Object] = field(default_factory=list)
    """The pods that are counted for the first time."""

    def __post_init__(self) -> None:
        status = self.job.get("status") or {}
        self.succeeded = int(status.get("succeeded", 0))
        self.failed = int(status.get("failed", 0))
        self.indexes = _parsed(status.get("completedIndexes", ""))
        for pod in self.pods:
            if not has_ended(pod) and not is_deleting(pod):
                self.active.append(pod)
            elif _is_tracked(pod):
                self.counted.append(pod)
                self._count(pod)

    @property
    def indexed(self) -> bool:
        return bool(self.job["spec"].get("completionMode") == "Indexed")

    @property
    def parallelism(self) -> int:
        return int(self.job["spec"].get("parallelism", 1))

    @property
    def completions(self) -> int | None:
        spec = self.job["spec"]
        if "parallelism" not in spec and "completions" not in spec:
            return 1
        found = spec.get("completions")
        return None if found is None else int(found)

    @property
    def complete(self) -> bool:
        if self.completions is None:
            return self.succeeded > 0 and not self.active
        return self.succeeded >= self.completions

    def failure(self, wall: float) -> tuple[str, str] | None:
        """Return the reason and message of a failure, or None."""
        spec, started = self.job["spec"], parse_time((self.job.get("status") or {}).get("startTime"))
        if self.failed > spec.get("backoffLimit", 6):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        limit = spec.get("activeDeadlineSeconds")
        if limit is not None and started is not None and wall - started >= limit:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    def missing(self) -> int:
        """Return how many more pods should run; negative if there are too many."""
        if self.completions is None:
            wanted = len(self.active) if self.succeeded else self.parallelism
        else:
            wanted = min(self.parallelism, self.completions - self.succeeded)
        return wanted - len(self.active)

    def free_indexes(self) -> list[int]:
        taken = self.indexes | {_index_of(pod) for pod in self.active}
        return [index for index in range(self.completions or 0) if index not in taken]

    def status(self, now: str, *, ended: tuple[str, str, str, str] | None, suspended: bool) -> Object:
        """Return the Job's status. `ended`: two condition types, a reason and a message."""
        former = self.job.get("status") or {}
        conditions = former.get("conditions") or []
        if suspended:
            conditions = with_condition(
                conditions, "Suspended", "True", "JobSuspended", "Job suspended", now, times=_PROBED
            )
        elif any(each["type"] == "Suspended" for each in conditions):
            conditions = with_condition(
                conditions, "Suspended", "False", "JobResumed", "Job resumed", now, times=_PROBED
            )
        terminating = sum(is_deleting(pod) and not has_ended(pod) for pod in self.pods)
        status: dict[str, Any] = {
            "startTime": None if suspended else former.get("startTime", now),
            "active": len(self.active),
            "ready": sum(map(is_ready, self.active)),
            "terminating": terminating,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "completedIndexes": _written(self.indexes),
            "completionTime": former.get("completionTime"),
            "uncountedTerminatedPods": {},
        }
        if ended is not None:
            criterion, outcome, reason, message = ended
            conditions = with_condition(conditions, criterion, "True", reason, message, now, times=_PROBED)
            if not self.active and not terminating:
                conditions = with_condition(conditions, outcome, "True", reason, message, now, times=_PROBED)
                if outcome == "Complete":
                    status["completionTime"] = now
        else:
            conditions = without_condition(conditions, "FailureTarget")
        status["conditions"] = conditions
        return without_zeros(status, "ready", "terminating", "uncountedTerminatedPods")

    def _count(self, pod: Object) -> None:
        if phase_of(pod) != "Succeeded":
            self.failed += 1
        elif not self.indexed:
            self.succeeded += 1
        elif (index := _index_of(pod)) is not None:
            self.indexes.add(index)
            self.succeeded = len(self.indexes)


def _parsed(text: str) -> set[int]:
    """`1,3-5` -> {1, 3, 4, 5}"""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _written(indexes: set[int]) -> str:
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1] = [runs[-1][0], index]
        else:
            runs.append([index])
    # Two adjacent indexes are written one by one, not as a range.
    return ",".join(f"{run[0]}-{run[1]}" if run[-1] - run[0] > 1 else ",".join(map(str, run)) for run in runs)


JOBS = GroupResource("batch", "jobs")
_FIRST_DELAY, _LAST_DELAY = 10.0, 600.0


class JobController(Controller[Node]):
    watched = (JOBS, PODS)

    def __init__(self, cluster: ClusterView) -> None:
        super().__init__(cluster)
        self._account = Account(cluster, service_account("job-controller"))
        self._recorder = Recorder(cluster, self._account, "job-controller")
        self._pods = PodControl(self._account, self._recorder)
        self._ttl = Account(cluster, service_account("ttl-after-finished-controller"))
        # The earliest time of the next attempt, by uid.
        self._not_before: dict[str, float] = {}

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Node]:
        if resource == JOBS:
            if event.new is None and event.old:
                uid = event.old["metadata"]["uid"]
                self._not_before.pop(uid, None)
                yield from (node for node in self.cluster.ownership.dependents(uid) if node.resource == PODS)
            yield Node(JOBS, event.key)
        elif resource == PODS:
            pod = event.new
            if pod and _is_tracked(pod) and (is_deleting(pod) or controller_of(pod) is None):
                yield Node(PODS, event.key)
            keys = (*owners_key(event, "Job"), *claimants(self.cluster, JOBS, event))
            yield from (Node(JOBS, key) for key in keys)

    def reconcile(self, key: Node) -> Steps[float | None]:
        obj = self.cluster.get(key)
        if obj is None:
            return None
        if key.resource == PODS:
            yield from self._release_orphan(key, obj)
            return None
        if (finished := _finished_at(obj)) is not None:
            return (yield from self._keep_finished(key, obj, finished))
        return (yield from self._go_on(key, obj))

    def _release_orphan(self, node: Node, pod: Object) -> Steps[None]:
        """Remove the finalizer from a pod whose Job is gone: nothing will ever count that pod."""
        owner = controller_of(pod)
        if not _is_tracked(pod) or (owner and owner["kind"] != "Job"):
            return
        job = self.cluster.get(Node(JOBS, Key(node.key.namespace, owner["name"]))) if owner else None
        if job is None or (owner and job["metadata"]["uid"] != owner["uid"]):
            yield from self._account.update(node, _counted)

    def _keep_finished(self, node: Node, job: Object, finished: float) -> Steps[float | None]:
        for pod in self.cluster.controlled(job, PODS):
            if _is_tracked(pod):
                yield from self._account.update(Node(PODS, key_of(pod)), _counted)
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or is_deleting(job):
            return None
        left = finished + float(ttl) - self.cluster.wall()
        if left > 0:
            return left
        yield from self._ttl.delete(job, JOBS, "Foreground")
        return None

    def _go_on(self, node: Node, job: Object) -> Steps[float | None]:
        yield from claim_dependents(self.cluster, self._account, job, PODS, finalizer=FINALIZER)
        progress = Progress(job, self.cluster.controlled(job, PODS))
        suspended = bool(job["spec"].get("suspend"))
        problem = progress.failure(self.cluster.wall())
        ended: tuple[str, str, str, str] | None = None
        again: float | None = None
        self._note_failures(progress)
        if progress.complete:
            ended = (
                "SuccessCriteriaMet",
                "Complete",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            )
        elif problem is not None:
            ended = ("FailureTarget", "Failed", *problem)
        if ended is not None:
            for pod in progress.active:
                yield from self._pods.delete(job, pod)
        elif suspended:
            yield from self._dismiss(job, progress.active)
        elif not is_deleting(job):
            again = yield from self._adjust(job, progress)
        # Read the pods again after the writes above. The pods counted before are counted again in the same way.
        progress = Progress(job, self.cluster.controlled(job, PODS))
        status = progress.status(self.cluster.now(), ended=ended, suspended=suspended)
        yield from self._account.set_status(node, status)
        yield from self._tell(job, status.get("conditions") or ())
        for pod in progress.counted:
            yield from self._account.update(Node(PODS, key_of(pod)), _counted)
        return _earlier(again, self._until_deadline(job, status))

    def _adjust(self, job: Object, progress: Progress) -> Steps[float | None]:
        missing = progress.missing()
        if missing < 0:
            yield from self._dismiss(job, sorted(progress.active, key=dispensable)[:-missing])
        if missing <= 0:
            return None
        clock = self.cluster.server.clock
        wait = self._not_before.get(job["metadata"]["uid"], 0.0) - clock.monotonic()
        if wait > 0:
            return wait
        if progress.indexed:
            for index in progress.free_indexes()[:missing]:
                yield from self._pods.create(job, _pod(job, index))
        else:
            for _ in range(missing):
                yield from self._pods.create(job, _pod(job, None))
        return None

    def _dismiss(self, job: Object, pods: Iterable[Object]) -> Steps[None]:
        """Delete pods without counting them as failed."""
        for pod in pods:
            yield from self._account.update(Node(PODS, key_of(pod)), _counted)
            yield from self._pods.delete(job, pod)

    def _tell(self, job: Object, conditions: Sequence[Object]) -> Steps[None]:
        """Emit Events for new conditions."""
        former = (job.get("status") or {}).get("conditions") or []
        for condition in conditions:
            before = condition_of(former, condition["type"]) or {}
            if condition["status"] == before.get("status"):
                continue
            if condition["type"] == "Complete":
                yield from self._recorder.tell(job, "Completed", "Job completed")
            elif condition["type"] == "Failed":
                yield from self._recorder.warn(job, condition["reason"], condition["message"])
            elif condition["type"] == "Suspended":
                reason = "Suspended" if condition["status"] == "True" else "Resumed"
                yield from self._recorder.tell(job, reason, condition["message"])

    def _note_failures(self, progress: Progress) -> None:
        before = int((progress.job.get("status") or {}).get("failed", 0))
        if progress.failed > before:
            delay = min(_FIRST_DELAY * 2 ** min(progress.failed - 1, 20), _LAST_DELAY)
            now = self.cluster.server.clock.monotonic()
            self._not_before[progress.job["metadata"]["uid"]] = now + delay

    def _until_deadline(self, job: Object, status: Object) -> float | None:
        limit, started = job["spec"].get("activeDeadlineSeconds"), parse_time(status.get("startTime"))
        if limit is None or started is None:
            return None
        return max(0.0, started + float(limit) - self.cluster.wall())


def _earlier(a: float | None, b: float | None) -> float | None:
    return min((each for each in (a, b) if each is not None), default=None)


def _counted(live: Object) -> Object:
    return without_finalizer(live, FINALIZER)


def _pod(job: Object, index: int | None) -> Object:
    meta, spec = job["metadata"], job["spec"]
    labels = {f"{prefix}job-name": meta["name"] for prefix in ("batch.kubernetes.io/", "")}
    if not spec.get("manualSelector"):
        labels |= {f"{prefix}controller-uid": meta["uid"] for prefix in ("batch.kubernetes.io/", "")}
    if index is not None:
        labels[INDEX] = str(index)
    body = from_template(job, spec["template"], labels=labels)
    body["metadata"]["finalizers"].append(FINALIZER)
    if index is not None:
        body["metadata"]["annotations"][INDEX] = str(index)
        body["metadata"]["generateName"] = f"{meta['name']}-{index}-"
        body["spec"]["hostname"] = f"{meta['name']}-{index}"
        for field in ("containers", "initContainers"):
            if field in body["spec"]:
                body["spec"][field] = [_knowing_index(container) for container in body["spec"][field]]
    return body


def _knowing_index(container: Object) -> Object:
    path = f"metadata.labels['{INDEX}']"
    variable: dict[str, Any] = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": path}},
    }
    return {**container, "env": [*(container.get("env") or ()), variable]}
