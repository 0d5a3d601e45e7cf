"""Classes of admissionregistration.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions
are those of the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from kubeshard.core.conditions import Condition
from kubeshard.core.objects import KubeObject, Struct, field
from kubeshard.core.selectors import LabelSelector


class MatchCondition(Struct):
    """MatchCondition represents a condition which must by fulfilled for a request to be sent to a webhook."""

    expression: str
    """expression represents the expression which will be evaluated by CEL."""
    name: str
    """name is an identifier for this match condition, used for strategic merging of MatchConditions, as well
    as providing an identifier for logging purposes.
    """


class NamedRuleWithOperations(Struct):
    """NamedRuleWithOperations is a tuple of Operations and Resources with ResourceNames."""

    api_groups: tuple[str, ...] | None = None
    """apiGroups is the API groups the resources belong to. '*' is all groups."""
    api_versions: tuple[str, ...] | None = None
    """apiVersions is the API versions the resources belong to. '*' is all versions."""
    operations: tuple[str, ...] | None = None
    """operations is the operations the admission hook cares about - CREATE, UPDATE, DELETE, CONNECT or * for
    all of those operations and any future admission operations that are added.
    """
    resource_names: tuple[str, ...] | None = None
    """resourceNames is an optional white list of names that the rule applies to."""
    resources: tuple[str, ...] | None = None
    """resources is a list of resources this rule applies to."""
    scope: str | None = None
    """scope specifies the scope of this rule. One of *, Cluster, Namespaced."""


class MatchResources(Struct):
    """MatchResources decides whether to run the admission control policy on an object based on whether it
    meets the match criteria.
    """

    exclude_resource_rules: tuple[NamedRuleWithOperations, ...] | None = None
    """excludeResourceRules describes what operations on what resources/subresources the
    ValidatingAdmissionPolicy should not care about.
    """
    match_policy: str | None = None
    """matchPolicy defines how the "MatchResources" list is used to match incoming requests. One of
    Equivalent, Exact.
    """
    namespace_selector: LabelSelector | None = None
    """namespaceSelector decides whether to run the admission control policy on an object based on whether the
    namespace for that object matches the selector.
    """
    object_selector: LabelSelector | None = None
    """objectSelector decides whether to run the validation based on if the object has matching labels.
    objectSelector is evaluated against both the oldObject and newObject that would be sent to the cel
    validation, and is considered to match if either object matches the selector.
    """
    resource_rules: tuple[NamedRuleWithOperations, ...] | None = None
    """resourceRules describes what operations on what resources/subresources the ValidatingAdmissionPolicy
    matches.
    """


class ApplyConfiguration(Struct):
    """ApplyConfiguration defines the desired configuration values of an object."""

    expression: str | None = None
    """expression will be evaluated by CEL to create an apply configuration. ref:
    https://github.com/google/cel-spec Apply configurations are declared in CEL using object initialization.
    """


class JSONPatch(Struct):
    """JSONPatch defines a JSON Patch."""

    expression: str | None = None
    """expression will be evaluated by CEL to create a [JSON patch](https://jsonpatch.com/). ref:
    https://github.com/google/cel-spec expression must return an array of JSONPatch values.
    """


class Mutation(Struct):
    """Mutation specifies the CEL expression which is used to apply the Mutation."""

    patch_type: str
    """patchType indicates the patch strategy used. One of ApplyConfiguration, JSONPatch."""
    apply_configuration: ApplyConfiguration | None = None
    """applyConfiguration defines the desired configuration values of an object."""
    json_patch: JSONPatch | None = None
    """jsonPatch defines a [JSON patch](https://jsonpatch.com/) operation to perform a mutation to the
    object.
    """


class ParamKind(Struct):
    """ParamKind is a tuple of Group Kind and Version."""

    api_version: str | None = None
    """apiVersion is the API group version the resources belong to."""
    kind: str | None = None
    """kind is the API kind the resources belong to."""


class Variable(Struct):
    """Variable is the definition of a variable that is used for composition."""

    expression: str
    """expression is the expression that will be evaluated as the value of the variable."""
    name: str
    """name is the name of the variable."""


class MutatingAdmissionPolicySpec(Struct):
    """MutatingAdmissionPolicySpec defines the desired behavior of the admission policy."""

    failure_policy: str | None = None
    """failurePolicy defines how to handle failures for the admission policy. One of Fail, Ignore."""
    match_conditions: tuple[MatchCondition, ...] | None = None
    """matchConditions is a list of conditions that must be met for a request to be validated."""
    match_constraints: MatchResources | None = None
    """matchConstraints specifies what resources this policy is designed to validate."""
    mutations: tuple[Mutation, ...] | None = None
    """mutations contain operations to perform on matching objects. mutations may not be empty; a minimum of
    one mutation is required. mutations are evaluated in order, and are reinvoked according to the
    reinvocationPolicy.
    """
    param_kind: ParamKind | None = None
    """paramKind specifies the kind of resources used to parameterize this policy."""
    reinvocation_policy: str | None = None
    """reinvocationPolicy indicates whether mutations may be called multiple times per
    MutatingAdmissionPolicyBinding as part of a single admission evaluation. One of IfNeeded, Never.
    """
    variables: tuple[Variable, ...] | None = None
    """variables contain definitions of variables that can be used in composition of other expressions."""


class MutatingAdmissionPolicy(
    KubeObject, group="admissionregistration.k8s.io", version="v1", namespaced=False
):
    """MutatingAdmissionPolicy describes the definition of an admission mutation policy that mutates the
    object coming into admission chain.
    """

    spec: MutatingAdmissionPolicySpec = field(default_factory=MutatingAdmissionPolicySpec)
    """spec defines the desired behavior of the MutatingAdmissionPolicy."""


class ParamRef(Struct):
    """ParamRef describes how to locate the params to be used as input to expressions of rules applied by a
    policy binding.
    """

    name: str | None = None
    """name is the name of the resource being referenced."""
    namespace: str | None = None
    """namespace is the namespace of the referenced resource."""
    parameter_not_found_action: str | None = None
    """parameterNotFoundAction controls the behavior of the binding when the resource exists, and name or
    selector is valid, but there are no parameters matched by the binding.
    """
    selector: LabelSelector | None = None
    """selector can be used to match multiple param objects based on their labels."""


class MutatingAdmissionPolicyBindingSpec(Struct):
    """MutatingAdmissionPolicyBindingSpec defines the specification of the MutatingAdmissionPolicyBinding."""

    match_resources: MatchResources | None = None
    """matchResources limits what resources match this binding and may be mutated by it."""
    param_ref: ParamRef | None = None
    """paramRef specifies the parameter resource used to configure the admission control policy."""
    policy_name: str | None = None
    """policyName references a MutatingAdmissionPolicy name which the MutatingAdmissionPolicyBinding binds
    to.
    """


class MutatingAdmissionPolicyBinding(
    KubeObject, group="admissionregistration.k8s.io", version="v1", namespaced=False
):
    """MutatingAdmissionPolicyBinding binds the MutatingAdmissionPolicy with parametrized resources."""

    spec: MutatingAdmissionPolicyBindingSpec = field(default_factory=MutatingAdmissionPolicyBindingSpec)
    """spec defines the desired behavior of the MutatingAdmissionPolicyBinding."""


class ServiceReference(Struct):
    """ServiceReference holds a reference to Service.legacy.k8s.io"""

    name: str
    """name is the name of the service."""
    namespace: str
    """namespace is the namespace of the service."""
    path: str | None = None
    """path is an optional URL path which will be sent in any request to this service."""
    port: int | None = None
    """port is the port on the service that hosts the webhook."""


class WebhookClientConfig(Struct):
    """WebhookClientConfig contains the information to make a TLS connection with the webhook"""

    ca_bundle: str | None = None
    """caBundle is a PEM encoded CA bundle which will be used to validate the webhook's server certificate."""
    service: ServiceReference | None = None
    """service is a reference to the service for this webhook."""
    url: str | None = None
    """url gives the location of the webhook, in standard URL form (`scheme://host:port/path`)."""


class RuleWithOperations(Struct):
    """RuleWithOperations is a tuple of Operations and Resources."""

    api_groups: tuple[str, ...] | None = None
    """apiGroups is the API groups the resources belong to. '*' is all groups."""
    api_versions: tuple[str, ...] | None = None
    """apiVersions is the API versions the resources belong to. '*' is all versions."""
    operations: tuple[str, ...] | None = None
    """operations is the operations the admission hook cares about - CREATE, UPDATE, DELETE, CONNECT or * for
    all of those operations and any future admission operations that are added.
    """
    resources: tuple[str, ...] | None = None
    """resources is a list of resources this rule applies to."""
    scope: str | None = None
    """scope specifies the scope of this rule. One of *, Cluster, Namespaced."""


class MutatingWebhook(Struct):
    """MutatingWebhook describes an admission webhook and the resources and operations it applies to."""

    admission_review_versions: tuple[str, ...]
    """admissionReviewVersions is an ordered list of preferred `AdmissionReview` versions the Webhook
    expects.
    """
    client_config: WebhookClientConfig
    """clientConfig defines how to communicate with the hook."""
    name: str
    """name is the name of the admission webhook."""
    side_effects: str
    """sideEffects states whether this webhook has side effects. One of None, NoneOnDryRun, Some, Unknown."""
    failure_policy: str | None = None
    """failurePolicy defines how unrecognized errors from the admission endpoint are handled - allowed values
    are Ignore or Fail. One of Fail, Ignore.
    """
    match_conditions: tuple[MatchCondition, ...] | None = None
    """matchConditions is a list of conditions that must be met for a request to be sent to this webhook."""
    match_policy: str | None = None
    """matchPolicy defines how the "rules" list is used to match incoming requests. One of Equivalent,
    Exact.
    """
    namespace_selector: LabelSelector | None = None
    """namespaceSelector decides whether to run the webhook on an object based on whether the namespace for
    that object matches the selector.
    """
    object_selector: LabelSelector | None = None
    """objectSelector decides whether to run the webhook based on if the object has matching labels.
    objectSelector is evaluated against both the oldObject and newObject that would be sent to the webhook,
    and is considered to match if either object matches the selector.
    """
    reinvocation_policy: str | None = None
    """reinvocationPolicy indicates whether this webhook should be called multiple times as part of a single
    admission evaluation. One of IfNeeded, Never.
    """
    rules: tuple[RuleWithOperations, ...] | None = None
    """rules describes what operations on what resources/subresources the webhook cares about."""
    timeout_seconds: int | None = None
    """timeoutSeconds specifies the timeout for this webhook."""


class MutatingWebhookConfiguration(
    KubeObject, group="admissionregistration.k8s.io", version="v1", namespaced=False
):
    """MutatingWebhookConfiguration describes the configuration of and admission webhook that accept or reject
    and may change the object.
    """

    webhooks: tuple[MutatingWebhook, ...] | None = None
    """webhooks is a list of webhooks and the affected resources and operations."""


class AuditAnnotation(Struct):
    """AuditAnnotation describes how to produce an audit annotation for an API request."""

    key: str
    """key specifies the audit annotation key."""
    value_expression: str
    """valueExpression represents the expression which is evaluated by CEL to produce an audit annotation
    value.
    """


class Validation(Struct):
    """Validation specifies the CEL expression which is used to apply the validation."""

    expression: str
    """expression represents the expression which will be evaluated by CEL. ref:
    https://github.com/google/cel-spec CEL expressions have access to the contents of the API
    request/response, organized into CEL variables as well as some other useful variables: - 'object' - The
    object from the incoming request.
    """
    message: str | None = None
    """message represents the message displayed when validation fails."""
    message_expression: str | None = None
    """messageExpression declares a CEL expression that evaluates to the validation failure message that is
    returned when this rule fails.
    """
    reason: str | None = None
    """reason represents a machine-readable description of why this validation failed."""


class ValidatingAdmissionPolicySpec(Struct):
    """ValidatingAdmissionPolicySpec is the specification of the desired behavior of the AdmissionPolicy."""

    audit_annotations: tuple[AuditAnnotation, ...] | None = None
    """auditAnnotations contains CEL expressions which are used to produce audit annotations for the audit
    event of the API request. validations and auditAnnotations may not both be empty; a least one of
    validations or auditAnnotations is required.
    """
    failure_policy: str | None = None
    """failurePolicy defines how to handle failures for the admission policy. One of Fail, Ignore."""
    match_conditions: tuple[MatchCondition, ...] | None = None
    """matchConditions is a list of conditions that must be met for a request to be validated."""
    match_constraints: MatchResources | None = None
    """matchConstraints specifies what resources this policy is designed to validate."""
    param_kind: ParamKind | None = None
    """paramKind specifies the kind of resources used to parameterize this policy."""
    validations: tuple[Validation, ...] | None = None
    """validations contain CEL expressions which is used to apply the validation."""
    variables: tuple[Variable, ...] | None = None
    """variables contain definitions of variables that can be used in composition of other expressions."""


class ExpressionWarning(Struct):
    """ExpressionWarning is a warning information that targets a specific expression."""

    field_ref: str
    """fieldRef is the path to the field that refers to the expression."""
    warning: str
    """warning contains the content of type checking information in a human-readable form."""


class TypeChecking(Struct):
    """TypeChecking contains results of type checking the expressions in the ValidatingAdmissionPolicy"""

    expression_warnings: tuple[ExpressionWarning, ...] | None = None
    """expressionWarnings contains the type checking warnings for each expression."""


class ValidatingAdmissionPolicyStatus(Struct):
    """ValidatingAdmissionPolicyStatus represents the status of an admission validation policy."""

    conditions: tuple[Condition, ...] | None = None
    """conditions represent the latest available observations of a policy's current state."""
    observed_generation: int | None = None
    """observedGeneration is the generation observed by the controller."""
    type_checking: TypeChecking | None = None
    """typeChecking contains the results of type checking for each expression."""


class ValidatingAdmissionPolicy(
    KubeObject, group="admissionregistration.k8s.io", version="v1", namespaced=False
):
    """ValidatingAdmissionPolicy describes the definition of an admission validation policy that accepts or
    rejects an object without changing it.
    """

    spec: ValidatingAdmissionPolicySpec = field(default_factory=ValidatingAdmissionPolicySpec)
    """spec defines the desired behavior of the ValidatingAdmissionPolicy."""
    status: ValidatingAdmissionPolicyStatus = field(default_factory=ValidatingAdmissionPolicyStatus)
    """status represents the current status of the ValidatingAdmissionPolicy, including warnings that are
    useful to determine if the policy behaves in the expected way.
    """


class ValidatingAdmissionPolicyBindingSpec(Struct):
    """ValidatingAdmissionPolicyBindingSpec is the specification of the ValidatingAdmissionPolicyBinding."""

    policy_name: str
    """policyName references a ValidatingAdmissionPolicy name which the ValidatingAdmissionPolicyBinding binds
    to.
    """
    validation_actions: tuple[str, ...]
    """validationActions declares how Validations of the referenced ValidatingAdmissionPolicy are enforced."""
    match_resources: MatchResources | None = None
    """matchResources declares what resources match this binding and will be validated by it."""
    param_ref: ParamRef | None = None
    """paramRef specifies the parameter resource used to configure the admission control policy."""


class ValidatingAdmissionPolicyBinding(
    KubeObject, group="admissionregistration.k8s.io", version="v1", namespaced=False
):
    """ValidatingAdmissionPolicyBinding binds the ValidatingAdmissionPolicy with paramerized resources."""

    spec: ValidatingAdmissionPolicyBindingSpec
    """spec defines the desired behavior of the ValidatingAdmissionPolicyBinding."""


class ValidatingWebhook(Struct):
    """ValidatingWebhook describes an admission webhook and the resources and operations it applies to."""

    admission_review_versions: tuple[str, ...]
    """admissionReviewVersions is an ordered list of preferred `AdmissionReview` versions the Webhook
    expects.
    """
    client_config: WebhookClientConfig
    """clientConfig defines how to communicate with the hook."""
    name: str
    """name is the name of the admission webhook."""
    side_effects: str
    """sideEffects states whether this webhook has side effects. One of None, NoneOnDryRun, Some, Unknown."""
    failure_policy: str | None = None
    """failurePolicy defines how unrecognized errors from the admission endpoint are handled - allowed values
    are Ignore or Fail. One of Fail, Ignore.
    """
    match_conditions: tuple[MatchCondition, ...] | None = None
    """matchConditions is a list of conditions that must be met for a request to be sent to this webhook."""
    match_policy: str | None = None
    """matchPolicy defines how the "rules" list is used to match incoming requests. One of Equivalent,
    Exact.
    """
    namespace_selector: LabelSelector | None = None
    """namespaceSelector decides whether to run the webhook on an object based on whether the namespace for
    that object matches the selector.
    """
    object_selector: LabelSelector | None = None
    """objectSelector decides whether to run the webhook based on if the object has matching labels.
    objectSelector is evaluated against both the oldObject and newObject that would be sent to the webhook,
    and is considered to match if either object matches the selector.
    """
    rules: tuple[RuleWithOperations, ...] | None = None
    """rules describes what operations on what resources/subresources the webhook cares about."""
    timeout_seconds: int | None = None
    """timeoutSeconds specifies the timeout for this webhook."""


class ValidatingWebhookConfiguration(
    KubeObject, group="admissionregistration.k8s.io", version="v1", namespaced=False
):
    """ValidatingWebhookConfiguration describes the configuration of and admission webhook that accept or
    reject and object without changing it.
    """

    webhooks: tuple[ValidatingWebhook, ...] | None = None
    """webhooks is a list of webhooks and the affected resources and operations."""
