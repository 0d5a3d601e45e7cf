"""Classes of batch/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of the
Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from kubeshard.core.objects import KubeObject, ObjectMeta, Struct, field
from kubeshard.core.selectors import LabelSelector
from kubeshard.kinds.generated.core_v1_pod_templates import PodTemplateSpec
from kubeshard.kinds.generated.core_v1_references import ObjectReference
from kubeshard.kinds.generated.scheduling_v1alpha3 import (
    WorkloadPodGroupDisruptionMode,
    WorkloadPodGroupResourceClaim,
    WorkloadPodGroupSchedulingConstraints,
    WorkloadPodGroupSchedulingPolicy,
)


class PodFailurePolicyOnExitCodesRequirement(Struct):
    """PodFailurePolicyOnExitCodesRequirement describes the requirement for handling a failed pod based on its
    container exit codes.
    """

    operator: str
    """Represents the relationship between the container exit code(s) and the specified values. One of In,
    NotIn.
    """
    values: tuple[int, ...]
    """Specifies the set of values."""
    container_name: str | None = None
    """Restricts the check for exit codes to the container with the specified name."""


class PodFailurePolicyOnPodConditionsPattern(Struct):
    """PodFailurePolicyOnPodConditionsPattern describes a pattern for matching an actual pod condition
    type.
    """

    type: str
    """Specifies the required Pod condition type."""
    status: str | None = None
    """Specifies the required Pod condition status."""


class PodFailurePolicyRule(Struct):
    """PodFailurePolicyRule describes how a pod failure is handled when the requirements are met."""

    action: str
    """Specifies the action taken on a pod failure when the requirements are satisfied. One of Count,
    FailIndex, FailJob, Ignore.
    """
    on_exit_codes: PodFailurePolicyOnExitCodesRequirement | None = None
    """Represents the requirement on the container exit codes."""
    on_pod_conditions: tuple[PodFailurePolicyOnPodConditionsPattern, ...] | None = None
    """Represents the requirement on the pod conditions."""


class PodFailurePolicy(Struct):
    """PodFailurePolicy describes how failed pods influence the backoffLimit."""

    rules: tuple[PodFailurePolicyRule, ...]
    """A list of pod failure policy rules."""


class JobSchedulingConfiguration(Struct):
    """JobSchedulingConfiguration composes the reusable workload-aware scheduling building blocks."""

    disruption_mode: WorkloadPodGroupDisruptionMode | None = None
    """DisruptionMode defines the mode in which the Job's pods can be disrupted."""
    resource_claims: tuple[WorkloadPodGroupResourceClaim, ...] | None = None
    """ResourceClaims defines which ResourceClaims may be shared among Pods in the Job."""
    scheduling_constraints: WorkloadPodGroupSchedulingConstraints | None = None
    """SchedulingConstraints defines scheduling constraints (e.g. topology) for the Job's pods."""
    scheduling_policy: WorkloadPodGroupSchedulingPolicy | None = None
    """SchedulingPolicy defines the scheduling policy for this Job."""


class SuccessPolicyRule(Struct):
    """SuccessPolicyRule describes rule for declaring a Job as succeeded."""

    succeeded_count: int | None = None
    """succeededCount specifies the minimal required size of the actual set of the succeeded indexes for the
    Job.
    """
    succeeded_indexes: str | None = None
    """succeededIndexes specifies the set of indexes which need to be contained in the actual set of the
    succeeded indexes for the Job.
    """


class SuccessPolicy(Struct):
    """SuccessPolicy describes when a Job can be declared as succeeded based on the success of some
    indexes.
    """

    rules: tuple[SuccessPolicyRule, ...]
    """rules represents the list of alternative rules for the declaring the Jobs as successful before
    `.status.succeeded >= .spec.completions`.
    """


class JobSpec(Struct):
    """JobSpec describes how the job execution will look like."""

    template: PodTemplateSpec
    """Describes the pod that will be created when executing a job."""
    active_deadline_seconds: int | None = None
    """Specifies the duration in seconds relative to the startTime that the job may be continuously active
    before the system tries to terminate it; value must be positive integer.
    """
    backoff_limit: int | None = None
    """Specifies the number of retries before marking this job failed."""
    backoff_limit_per_index: int | None = None
    """Specifies the limit for the number of retries within an index before marking this index as failed."""
    completion_mode: str | None = None
    """completionMode specifies how Pod completions are tracked. One of Indexed, NonIndexed."""
    completions: int | None = None
    """Specifies the desired number of successfully finished pods the job should be run with."""
    managed_by: str | None = None
    """ManagedBy field indicates the controller that manages a Job."""
    manual_selector: bool | None = None
    """manualSelector controls generation of pod labels and pod selectors."""
    max_failed_indexes: int | None = None
    """Specifies the maximal number of failed indexes before marking the Job as failed, when
    backoffLimitPerIndex is set.
    """
    parallelism: int | None = None
    """Specifies the maximum desired number of pods the job should run at any given time."""
    pod_failure_policy: PodFailurePolicy | None = None
    """Specifies the policy of handling failed pods."""
    pod_replacement_policy: str | None = None
    """podReplacementPolicy specifies when to create replacement Pods. One of Failed, TerminatingOrFailed."""
    scheduling: JobSchedulingConfiguration | None = None
    """scheduling defines the Workload-aware Scheduling configuration for this Job."""
    selector: LabelSelector | None = None
    """A label query over pods that should match the pod count."""
    success_policy: SuccessPolicy | None = None
    """successPolicy specifies the policy when the Job can be declared as succeeded."""
    suspend: bool | None = None
    """suspend specifies whether the Job controller should create Pods or not."""
    ttl_seconds_after_finished: int | None = None
    """ttlSecondsAfterFinished limits the lifetime of a Job that has finished execution (either Complete or
    Failed).
    """


class JobTemplateSpec(Struct):
    """JobTemplateSpec describes the data a Job should have when created from a template"""

    metadata: ObjectMeta | None = None
    """Standard object's metadata of the jobs created from this template."""
    spec: JobSpec | None = None
    """Specification of the desired behavior of the job."""


class CronJobSpec(Struct):
    """CronJobSpec describes how the job execution will look like and when it will actually run."""

    job_template: JobTemplateSpec
    """Specifies the job that will be created when executing a CronJob."""
    schedule: str
    """The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron."""
    concurrency_policy: str | None = None
    """Specifies how to treat concurrent executions of a Job. One of Allow, Forbid, Replace."""
    failed_jobs_history_limit: int | None = None
    """The number of failed finished jobs to retain."""
    starting_deadline_seconds: int | None = None
    """Optional deadline in seconds for starting the job if it misses scheduled time for any reason."""
    successful_jobs_history_limit: int | None = None
    """The number of successful finished jobs to retain."""
    suspend: bool | None = None
    """This flag tells the controller to suspend subsequent executions, it does not apply to already started
    executions.
    """
    time_zone: str | None = None
    """The time zone name for the given schedule, see
    https://en.wikipedia.org/wiki/List_of_tz_database_time_zones.
    """


class CronJobStatus(Struct):
    """CronJobStatus represents the current state of a cron job."""

    active: tuple[ObjectReference, ...] | None = None
    """A list of pointers to currently running jobs."""
    last_schedule_time: str | None = None
    """Information when was the last time the job was successfully scheduled."""
    last_successful_time: str | None = None
    """Information when was the last time the job successfully completed."""


class CronJob(KubeObject, group="batch", version="v1"):
    """CronJob represents the configuration of a single cron job."""

    spec: CronJobSpec
    """Specification of the desired behavior of a cron job, including the schedule."""
    status: CronJobStatus = field(default_factory=CronJobStatus)
    """Current status of a cron job."""


class JobCondition(Struct):
    """JobCondition describes current state of a job."""

    status: str
    """Status of the condition, one of True, False, Unknown."""
    type: str
    """Type of job condition, Complete or Failed."""
    last_probe_time: str | None = None
    """Last time the condition was checked."""
    last_transition_time: str | None = None
    """Last time the condition transit from one status to another."""
    message: str | None = None
    """Human readable message indicating details about last transition."""
    reason: str | None = None
    """(brief) reason for the condition's last transition."""


class UncountedTerminatedPods(Struct):
    """UncountedTerminatedPods holds UIDs of Pods that have terminated but haven't been accounted in Job
    status counters.
    """

    failed: tuple[str, ...] | None = None
    """failed holds UIDs of failed Pods."""
    succeeded: tuple[str, ...] | None = None
    """succeeded holds UIDs of succeeded Pods."""


class JobStatus(Struct):
    """JobStatus represents the current state of a Job."""

    active: int | None = None
    """The number of pending and running pods which are not terminating (without a deletionTimestamp)."""
    completed_indexes: str | None = None
    """completedIndexes holds the completed indexes when .spec.completionMode = "Indexed" in a text format."""
    completion_time: str | None = None
    """Represents time when the job was completed."""
    conditions: tuple[JobCondition, ...] | None = None
    """The latest available observations of an object's current state."""
    failed: int | None = None
    """The number of pods which reached phase Failed."""
    failed_indexes: str | None = None
    """FailedIndexes holds the failed indexes when spec.backoffLimitPerIndex is set."""
    ready: int | None = None
    """The number of active pods which have a Ready condition and are not terminating (without a
    deletionTimestamp).
    """
    start_time: str | None = None
    """Represents time when the job controller started processing a job."""
    succeeded: int | None = None
    """The number of pods which reached phase Succeeded."""
    terminating: int | None = None
    """The number of pods which are terminating (in phase Pending or Running and have a deletionTimestamp)."""
    uncounted_terminated_pods: UncountedTerminatedPods | None = None
    """uncountedTerminatedPods holds the UIDs of Pods that have terminated but the job controller hasn't yet
    accounted for in the status counters.
    """


class Job(KubeObject, group="batch", version="v1"):
    """Job represents the configuration of a single job."""

    spec: JobSpec
    """Specification of the desired behavior of a job."""
    status: JobStatus = field(default_factory=JobStatus)
    """Current status of a job."""
