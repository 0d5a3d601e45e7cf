"""The progress of a Job: which pods have been counted, and which are still to be counted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeshard.core.times import parse_time
from kubeshard_apiserver.controllers.conditions import with_condition, without_condition
from kubeshard_apiserver.controllers.pods import has_ended, is_ready, phase_of, without_zeros
from kubeshard_apiserver.objects import Object, is_deleting

INDEX = "batch.kubernetes.io/job-completion-index"
FINALIZER = "batch.kubernetes.io/job-tracking"
_PROBED = ("lastProbeTime",)


def is_tracked(pod: Object) -> bool:
    """Report whether the pod still has the tracking finalizer, that is, has not been counted yet."""
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def index_of(pod: Object) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdecimal() else None


def finished_at(job: Object) -> float | None:
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
            elif is_tracked(pod):
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
        taken = self.indexes | {index_of(pod) for pod in self.active}
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
        elif (index := index_of(pod)) is not None:
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
