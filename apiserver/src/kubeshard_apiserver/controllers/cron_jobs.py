"""CronJobs: a Job at each scheduled time.

Guaranteed: each scheduled time gets one Job, named after that time; if several were missed, only the last one does.
`concurrencyPolicy`, `startingDeadlineSeconds`, `suspend`, `timeZone` and the history limits are implemented. The only
timer is the one for the next scheduled time. Source: pkg/controller/cronjob.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from email.utils import format_datetime
from typing import Any

from kubeshard.core.errors import AlreadyExists, ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.core.times import parse_time, second_time
from kubeshard_apiserver.controllers.cluster import Account, ClusterView, service_account
from kubeshard_apiserver.controllers.conditions import condition_of
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.events import Recorder
from kubeshard_apiserver.controllers.jobs import JOBS
from kubeshard_apiserver.controllers.ownership import Node, controller_of, owners_key
from kubeshard_apiserver.controllers.pods import controller_reference
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting
from kubeshard_apiserver.resources.cron_schedule import Schedule, parse_schedule, zone_named
from kubeshard_apiserver.steps import Steps

CRON_JOBS = GroupResource("batch", "cronjobs")
_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_LATER = 0.1
"""How many seconds after a scheduled time to wake up, since clocks differ a little."""
_MANY = 100


class _Pointless(Exception):
    """The schedule has no further time."""


class CronJobController(Controller[Key]):
    watched = (CRON_JOBS, JOBS)

    def __init__(self, cluster: ClusterView) -> None:
        super().__init__(cluster)
        self._account = Account(cluster, service_account("cronjob-controller"))
        self._recorder = Recorder(cluster, self._account, "cronjob-controller")

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Key]:
        if resource == CRON_JOBS:
            return (event.key,)
        return owners_key(event, "CronJob")

    def reconcile(self, key: Key) -> Steps[float | None]:
        node = Node(CRON_JOBS, key)
        found = self.cluster.get(node)
        if found is None:
            return None
        jobs, status = self.cluster.controlled(found, JOBS), dict(found.get("status") or {})
        yield from self._look_at(found, jobs, status)
        again = None
        if not is_deleting(found) and not found["spec"].get("suspend"):
            try:
                again = yield from self._start(found, status)
            except ApiError:
                # Keep what was learned about existing Jobs even though the next one could not be created.
                yield from self._account.set_status(node, _without_nothing(status))
                raise
        yield from self._forget(found, jobs, status)
        yield from self._account.set_status(node, _without_nothing(status))
        return again

    def _look_at(self, cron_job: Object, jobs: Sequence[Object], status: Object) -> Steps[None]:
        """Work out which Jobs are running and which have finished."""
        known = {each["uid"] for each in status.get("active") or ()}
        for job in jobs:
            name, uid = job["metadata"]["name"], job["metadata"]["uid"]
            outcome = _outcome(job)
            if not outcome and uid not in known:
                message = f"Saw a job that the controller did not create or forgot: {name}"
                yield from self._recorder.warn(cron_job, "UnexpectedJob", message)
            elif outcome and uid in known:
                _drop(status, uid)
                message = f"Saw completed job: {name}, condition: {outcome}"
                yield from self._recorder.tell(cron_job, "SawCompletedJob", message)
            ended = (job.get("status") or {}).get("completionTime")
            if outcome == "Complete" and ended:
                status["lastSuccessfulTime"] = max(status.get("lastSuccessfulTime") or ended, ended)
        there = {job["metadata"]["uid"] for job in jobs}
        for each in list(status.get("active") or ()):
            if each["uid"] not in there:
                _drop(status, each["uid"])
                message = f"Active job went missing: {each['name']}"
                yield from self._recorder.tell(cron_job, "MissingJob", message)

    def _start(self, cron_job: Object, status: Object) -> Steps[float | None]:
        """Create the Job that is due, if the policy allows it. Return the seconds until the next scheduled time."""
        spec, now, name = cron_job["spec"], self.cluster.wall(), cron_job["metadata"]["name"]
        times = _Times(cron_job, status, now)
        try:
            due, again = times.due(), times.until_next(status)
        except _Pointless:
            problem = "time difference between two schedules is less than 1 second"
            message = f"invalid schedule: {spec['schedule']} : {problem}"
            yield from self._recorder.warn(cron_job, "InvalidSchedule", message)
            return None
        if due is None:
            return again
        if times.missed > _MANY:
            message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            yield from self._recorder.warn(cron_job, "TooManyMissedTimes", message)
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and due + deadline < now:
            when = format_datetime(datetime.fromtimestamp(due, UTC))
            message = f"Missed scheduled time to start a job: {when}"
            yield from self._recorder.warn(cron_job, "MissSchedule", message)
            return again
        job_name, active = f"{name}-{int(due // 60)}", list(status.get("active") or ())
        if (
            any(each["name"] == job_name for each in active)
            or parse_time(status.get("lastScheduleTime")) == due
        ):
            return again
        policy = spec.get("concurrencyPolicy", "Allow")
        if policy == "Forbid" and active:
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            yield from self._recorder.tell(cron_job, "JobAlreadyActive", message)
            return again
        for each in active if policy == "Replace" else ():
            if job := self.cluster.get(Node(JOBS, Key(each["namespace"], each["name"]))):
                yield from self._delete(cron_job, job, status)
        yield from self._create(cron_job, _job(cron_job, job_name, due, times.zone), due, status)
        return times.until_next(status)

    def _create(self, cron_job: Object, body: Object, due: float, status: Object) -> Steps[None]:
        try:
            job = yield from self._account.create(JOBS, body)
        except AlreadyExists:
            found = self.cluster.get(Node(JOBS, Key(body["metadata"]["namespace"], body["metadata"]["name"])))
            if found is None or (controller_of(found) or {}).get("uid") != cron_job["metadata"]["uid"]:
                return
            job = found
        except ApiError as error:
            message = f"Error creating job: {error.message}"
            yield from self._recorder.warn(cron_job, "FailedCreate", message)
            raise
        else:
            message = f"Created job {job['metadata']['name']}"
            yield from self._recorder.tell(cron_job, "SuccessfulCreate", message)
        status["active"] = [*(status.get("active") or ()), _reference(job)]
        status["lastScheduleTime"] = second_time(due)

    def _forget(self, cron_job: Object, jobs: Sequence[Object], status: Object) -> Steps[None]:
        for outcome, limit in (
            ("Complete", "successfulJobsHistoryLimit"),
            ("Failed", "failedJobsHistoryLimit"),
        ):
            most = cron_job["spec"].get(limit)
            ended = sorted((job for job in jobs if _outcome(job) == outcome), key=_age)
            for job in ended[: max(0, len(ended) - most)] if most is not None else ():
                yield from self._delete(cron_job, job, status)

    def _delete(self, cron_job: Object, job: Object, status: Object) -> Steps[None]:
        yield from self._account.delete(job, JOBS)
        _drop(status, job["metadata"]["uid"])
        message = f"Deleted job {job['metadata']['name']}"
        yield from self._recorder.tell(cron_job, "SuccessfulDelete", message)


@dataclass
class _Times:
    """The scheduled times as seen at one moment. The methods raise _Pointless."""

    cron_job: Object
    status: Object
    now: float
    schedule: Schedule = field(init=False)
    zone: tzinfo = field(init=False)
    missed: int = 0

    def __post_init__(self) -> None:
        spec = self.cron_job["spec"]
        self.schedule = parse_schedule(spec["schedule"])
        self.zone = zone_named(spec.get("timeZone") or "UTC") or UTC

    def due(self) -> float | None:
        """Return the latest scheduled time since the last Job."""
        earliest, deadline = self._since(self.status), self.cron_job["spec"].get("startingDeadlineSeconds")
        if deadline is not None:
            earliest = max(earliest, self.now - deadline)
        return self._latest(earliest)

    def until_next(self, status: Object) -> float:
        """Return the seconds until the first scheduled time that the status does not cover yet."""
        since = self._since(status)
        latest = self._latest(since)
        following = self.schedule.next(since if latest is None else latest, self.zone)
        if following is None:
            raise _Pointless
        return max(0.0, following - self.now) + _LATER

    def _since(self, status: Object) -> float:
        last = status.get("lastScheduleTime") or self.cron_job["metadata"]["creationTimestamp"]
        return parse_time(last) or 0.0

    def _latest(self, earliest: float) -> float | None:
        first = self.schedule.next(earliest, self.zone)
        second = None if first is None else self.schedule.next(first, self.zone)
        if first is None or second is None:
            raise _Pointless
        if self.now < first:
            return None
        if self.now < second:
            return first
        between = second - first
        self.missed = int((self.now - first) // between) + 1
        # Do not search from the first missed time, which may be years ago, but from one interval before the estimated
        # latest one: intervals may differ.
        latest, time = None, self.schedule.next(first + (self.missed - 2) * between, self.zone)
        while time is not None and time <= self.now:
            latest, time = time, self.schedule.next(time, self.zone)
        return latest


def _outcome(job: Object) -> str:
    """Return `Complete`, `Failed`, or an empty string for an unfinished Job."""
    for type_ in ("Complete", "Failed"):
        found = condition_of((job.get("status") or {}).get("conditions") or (), type_)
        if found is not None and found["status"] == "True":
            return type_
    return ""


def _age(job: Object) -> tuple[bool, str, str]:
    """Sort key: the oldest first, Jobs that have not started last."""
    begun = (job.get("status") or {}).get("startTime") or ""
    return not begun, begun, job["metadata"]["name"]


def _drop(status: Object, uid: str) -> None:
    status["active"] = [each for each in status.get("active") or () if each["uid"] != uid]


def _without_nothing(status: Object) -> Object:
    return {name: value for name, value in status.items() if value}


def _reference(job: Object) -> Object:
    meta = job["metadata"]
    fields = ("name", "namespace", "resourceVersion", "uid")
    return {"apiVersion": job["apiVersion"], "kind": job["kind"], **{name: meta[name] for name in fields}}


def _job(cron_job: Object, name: str, due: float, zone: tzinfo) -> Object:
    template: dict[str, Any] = cron_job["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    time = datetime.fromtimestamp(due, zone).isoformat(timespec="seconds").replace("+00:00", "Z")
    meta = {
        "name": name,
        "namespace": cron_job["metadata"]["namespace"],
        "labels": dict(given.get("labels") or {}),
        "annotations": {**(given.get("annotations") or {}), _SCHEDULED: time},
        "ownerReferences": [controller_reference(cron_job)],
    }
    return {"metadata": meta, "spec": template.get("spec") or {}}
