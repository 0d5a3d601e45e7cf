"""Classes of flowcontrol.apiserver.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions
are those of the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from kubeshard.core.objects import KubeObject, Struct, field


class FlowDistinguisherMethod(Struct):
    """FlowDistinguisherMethod specifies the method of a flow distinguisher."""

    type: str
    """`type` is the type of flow distinguisher method The supported types are "ByUser" and "ByNamespace"."""


class PriorityLevelConfigurationReference(Struct):
    """PriorityLevelConfigurationReference contains information that points to the "request-priority" being
    used.
    """

    name: str
    """`name` is the name of the priority level configuration being referenced Required."""


class NonResourcePolicyRule(Struct):
    """NonResourcePolicyRule is a predicate that matches non-resource requests according to their verb and the
    target non-resource URL.
    """

    non_resource_urls: tuple[str, ...] = field(name="nonResourceURLs")
    """`nonResourceURLs` is a set of url prefixes that a user should have access to and may not be empty."""
    verbs: tuple[str, ...]
    """`verbs` is a list of matching verbs and may not be empty. "*" matches all verbs."""


class ResourcePolicyRule(Struct):
    """ResourcePolicyRule is a predicate that matches some resource requests, testing the request's verb and
    the target resource.
    """

    api_groups: tuple[str, ...]
    """`apiGroups` is a list of matching API groups and may not be empty. "*" matches all API groups and, if
    present, must be the only entry.
    """
    resources: tuple[str, ...]
    """`resources` is a list of matching resources (i.e., lowercase and plural) with, if desired,
    subresource.
    """
    verbs: tuple[str, ...]
    """`verbs` is a list of matching verbs and may not be empty. "*" matches all verbs and, if present, must
    be the only entry.
    """
    cluster_scope: bool | None = None
    """`clusterScope` indicates whether to match requests that do not specify a namespace (which happens
    either because the resource is not namespaced or the request targets all namespaces).
    """
    namespaces: tuple[str, ...] | None = None
    """`namespaces` is a list of target namespaces that restricts matches."""


class GroupSubject(Struct):
    """GroupSubject holds detailed information for group-kind subject."""

    name: str
    """name is the user group that matches, or "*" to match all user groups."""


class ServiceAccountSubject(Struct):
    """ServiceAccountSubject holds detailed information for service-account-kind subject."""

    name: str
    """`name` is the name of matching ServiceAccount objects, or "*" to match regardless of name."""
    namespace: str
    """`namespace` is the namespace of matching ServiceAccount objects."""


class UserSubject(Struct):
    """UserSubject holds detailed information for user-kind subject."""

    name: str
    """`name` is the username that matches, or "*" to match all usernames."""


class Subject(Struct):
    """Subject matches the originator of a request, as identified by the request authentication system."""

    kind: str
    """`kind` indicates which one of the other fields is non-empty."""
    group: GroupSubject | None = None
    """`group` matches based on user group name."""
    service_account: ServiceAccountSubject | None = None
    """`serviceAccount` matches ServiceAccounts."""
    user: UserSubject | None = None
    """`user` matches based on username."""


class PolicyRulesWithSubjects(Struct):
    """PolicyRulesWithSubjects prescribes a test that applies to a request to an apiserver."""

    subjects: tuple[Subject, ...]
    """subjects is the list of normal user, serviceaccount, or group that this rule cares about."""
    non_resource_rules: tuple[NonResourcePolicyRule, ...] | None = None
    """`nonResourceRules` is a list of NonResourcePolicyRules that identify matching requests according to
    their verb and the target non-resource URL.
    """
    resource_rules: tuple[ResourcePolicyRule, ...] | None = None
    """`resourceRules` is a slice of ResourcePolicyRules that identify matching requests according to their
    verb and the target resource.
    """


class FlowSchemaSpec(Struct):
    """FlowSchemaSpec describes how the FlowSchema's specification looks like."""

    priority_level_configuration: PriorityLevelConfigurationReference
    """`priorityLevelConfiguration` should reference a PriorityLevelConfiguration in the cluster."""
    distinguisher_method: FlowDistinguisherMethod | None = None
    """`distinguisherMethod` defines how to compute the flow distinguisher for requests that match this
    schema. `nil` specifies that the distinguisher is disabled and thus will always be the empty string.
    """
    matching_precedence: int | None = None
    """`matchingPrecedence` is used to choose among the FlowSchemas that match a given request."""
    rules: tuple[PolicyRulesWithSubjects, ...] | None = None
    """`rules` describes which requests will match this flow schema."""


class FlowSchemaCondition(Struct):
    """FlowSchemaCondition describes conditions for a FlowSchema."""

    type: str
    """`type` is the type of the condition."""
    last_transition_time: str | None = None
    """`lastTransitionTime` is the last time the condition transitioned from one status to another."""
    message: str | None = None
    """`message` is a human-readable message indicating details about last transition."""
    reason: str | None = None
    """`reason` is a unique, one-word, CamelCase reason for the condition's last transition."""
    status: str | None = None
    """`status` is the status of the condition."""


class FlowSchemaStatus(Struct):
    """FlowSchemaStatus represents the current state of a FlowSchema."""

    conditions: tuple[FlowSchemaCondition, ...] | None = None
    """`conditions` is a list of the current states of FlowSchema."""


class FlowSchema(KubeObject, group="flowcontrol.apiserver.k8s.io", version="v1", namespaced=False):
    """FlowSchema defines the schema of a group of flows."""

    spec: FlowSchemaSpec
    """`spec` is the specification of the desired behavior of a FlowSchema."""
    status: FlowSchemaStatus = field(default_factory=FlowSchemaStatus)
    """`status` is the current status of a FlowSchema."""


class ExemptPriorityLevelConfiguration(Struct):
    """ExemptPriorityLevelConfiguration describes the configurable aspects of the handling of exempt
    requests.
    """

    lendable_percent: int | None = None
    """`lendablePercent` prescribes the fraction of the level's NominalCL that can be borrowed by other
    priority levels.
    """
    nominal_concurrency_shares: int | None = None
    """`nominalConcurrencyShares` (NCS) contributes to the computation of the NominalConcurrencyLimit
    (NominalCL) of this level.
    """


class QueuingConfiguration(Struct):
    """QueuingConfiguration holds the configuration parameters for queuing"""

    hand_size: int | None = None
    """`handSize` is a small positive number that configures the shuffle sharding of requests into queues."""
    queue_length_limit: int | None = None
    """`queueLengthLimit` is the maximum number of requests allowed to be waiting in a given queue of this
    priority level at a time; excess requests are rejected.
    """
    queues: int | None = None
    """`queues` is the number of queues for this priority level."""


class LimitResponse(Struct):
    """LimitResponse defines how to handle requests that can not be executed right now."""

    type: str
    """`type` is "Queue" or "Reject". "Queue" means that requests that can not be executed upon arrival are
    held in a queue until they can be executed or a queuing limit is reached. "Reject" means that requests
    that can not be executed upon arrival are rejected.
    """
    queuing: QueuingConfiguration | None = None
    """`queuing` holds the configuration parameters for queuing."""


class LimitedPriorityLevelConfiguration(Struct):
    """LimitedPriorityLevelConfiguration specifies how to handle requests that are subject to limits."""

    limit_response: LimitResponse
    """`limitResponse` indicates what to do with requests that can not be executed right now"""
    borrowing_limit_percent: int | None = None
    """`borrowingLimitPercent`, if present, configures a limit on how many seats this priority level can
    borrow from other priority levels.
    """
    lendable_percent: int | None = None
    """`lendablePercent` prescribes the fraction of the level's NominalCL that can be borrowed by other
    priority levels.
    """
    nominal_concurrency_shares: int | None = None
    """`nominalConcurrencyShares` (NCS) contributes to the computation of the NominalConcurrencyLimit
    (NominalCL) of this level.
    """


class PriorityLevelConfigurationSpec(Struct):
    """PriorityLevelConfigurationSpec specifies the configuration of a priority level."""

    type: str
    """`type` indicates whether this priority level is subject to limitation on request execution."""
    exempt: ExemptPriorityLevelConfiguration | None = None
    """`exempt` specifies how requests are handled for an exempt priority level."""
    limited: LimitedPriorityLevelConfiguration | None = None
    """`limited` specifies how requests are handled for a Limited priority level."""


class PriorityLevelConfigurationCondition(Struct):
    """PriorityLevelConfigurationCondition defines the condition of priority level."""

    type: str
    """`type` is the type of the condition."""
    last_transition_time: str | None = None
    """`lastTransitionTime` is the last time the condition transitioned from one status to another."""
    message: str | None = None
    """`message` is a human-readable message indicating details about last transition."""
    reason: str | None = None
    """`reason` is a unique, one-word, CamelCase reason for the condition's last transition."""
    status: str | None = None
    """`status` is the status of the condition."""


class PriorityLevelConfigurationStatus(Struct):
    """PriorityLevelConfigurationStatus represents the current state of a "request-priority"."""

    conditions: tuple[PriorityLevelConfigurationCondition, ...] | None = None
    """`conditions` is the current state of "request-priority"."""


class PriorityLevelConfiguration(
    KubeObject, group="flowcontrol.apiserver.k8s.io", version="v1", namespaced=False
):
    """PriorityLevelConfiguration represents the configuration of a priority level."""

    spec: PriorityLevelConfigurationSpec
    """`spec` is the specification of the desired behavior of a "request-priority"."""
    status: PriorityLevelConfigurationStatus = field(default_factory=PriorityLevelConfigurationStatus)
    """`status` is the current status of a "request-priority"."""
