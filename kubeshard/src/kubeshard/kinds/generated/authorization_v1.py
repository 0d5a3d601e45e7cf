"""Classes of authorization.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those
of the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.objects import KubeObject, Struct, field
from kubeshard.core.selectors import LabelSelectorRequirement


class NonResourceAttributes(Struct):
    """NonResourceAttributes includes the authorization attributes available for non-resource requests to the
    Authorizer interface
    """

    path: str | None = None
    """path is the URL path of the request"""
    verb: str | None = None
    """verb is the standard HTTP verb"""


class FieldSelectorRequirement(Struct):
    """FieldSelectorRequirement is a selector that contains values, a key, and an operator that relates the
    key and values.
    """

    key: str
    """key is the field selector key that the requirement applies to."""
    operator: str
    """operator represents a key's relationship to a set of values."""
    values: tuple[str, ...] | None = None
    """values is an array of string values."""


class FieldSelectorAttributes(Struct):
    """FieldSelectorAttributes indicates a field limited access."""

    raw_selector: str | None = None
    """rawSelector is the serialization of a field selector that would be included in a query parameter."""
    requirements: tuple[FieldSelectorRequirement, ...] | None = None
    """requirements is the parsed interpretation of a field selector."""


class LabelSelectorAttributes(Struct):
    """LabelSelectorAttributes indicates a label limited access."""

    raw_selector: str | None = None
    """rawSelector is the serialization of a field selector that would be included in a query parameter."""
    requirements: tuple[LabelSelectorRequirement, ...] | None = None
    """requirements is the parsed interpretation of a label selector."""


class ResourceAttributes(Struct):
    """ResourceAttributes includes the authorization attributes available for resource requests to the
    Authorizer interface
    """

    field_selector: FieldSelectorAttributes | None = None
    """fieldSelector describes the limitation on access based on field."""
    group: str | None = None
    """group is the API Group of the Resource. "*" means all."""
    label_selector: LabelSelectorAttributes | None = None
    """labelSelector describes the limitation on access based on labels."""
    name: str | None = None
    """name is the name of the resource being requested for a "get" or deleted for a "delete". "" (empty)
    means all.
    """
    namespace: str | None = None
    """namespace is the namespace of the action being requested."""
    resource: str | None = None
    """resource is one of the existing resource types. "*" means all."""
    subresource: str | None = None
    """subresource is one of the existing resource types. "" means none."""
    verb: str | None = None
    """verb is a kubernetes resource API verb, like: get, list, watch, create, update, delete, proxy. "*"
    means all.
    """
    version: str | None = None
    """version is the API Version of the Resource. "*" means all."""


class SubjectAccessReviewSpec(Struct):
    """SubjectAccessReviewSpec is a description of the access request."""

    extra: Mapping[str, tuple[str, ...]] | None = None
    """extra corresponds to the user.Info.GetExtra() method from the authenticator."""
    groups: tuple[str, ...] | None = None
    """groups is the groups you're testing for."""
    non_resource_attributes: NonResourceAttributes | None = None
    """nonResourceAttributes describes information for a non-resource access request"""
    resource_attributes: ResourceAttributes | None = None
    """resourceAttributes describes information for a resource access request"""
    uid: str | None = None
    """uid information about the requesting user."""
    user: str | None = None
    """user is the user you're testing for."""


class SubjectAccessReviewStatus(Struct):
    """SubjectAccessReviewStatus"""

    allowed: bool = False
    """allowed is required."""
    denied: bool | None = None
    """denied is optional."""
    evaluation_error: str | None = None
    """evaluationError is an indication that some error occurred during the authorization check."""
    reason: str | None = None
    """reason is optional."""


class LocalSubjectAccessReview(KubeObject, group="authorization.k8s.io", version="v1"):
    """LocalSubjectAccessReview checks whether or not a user or group can perform an action in a given
    namespace.
    """

    spec: SubjectAccessReviewSpec
    """spec holds information about the request being evaluated. spec.namespace must be equal to the namespace
    you made the request against.
    """
    status: SubjectAccessReviewStatus = field(default_factory=SubjectAccessReviewStatus)
    """status is filled in by the server and indicates whether the request is allowed or not"""


class SelfSubjectAccessReviewSpec(Struct):
    """SelfSubjectAccessReviewSpec is a description of the access request."""

    non_resource_attributes: NonResourceAttributes | None = None
    """nonResourceAttributes describes information for a non-resource access request"""
    resource_attributes: ResourceAttributes | None = None
    """resourceAttributes describes information for a resource access request"""


class SelfSubjectAccessReview(KubeObject, group="authorization.k8s.io", version="v1", namespaced=False):
    """SelfSubjectAccessReview checks whether or the current user can perform an action."""

    spec: SelfSubjectAccessReviewSpec
    """spec holds information about the request being evaluated. user and groups must be empty"""
    status: SubjectAccessReviewStatus = field(default_factory=SubjectAccessReviewStatus)
    """status is filled in by the server and indicates whether the request is allowed or not"""


class SelfSubjectRulesReviewSpec(Struct):
    """SelfSubjectRulesReviewSpec defines the specification for SelfSubjectRulesReview."""

    namespace: str | None = None
    """namespace to evaluate rules for."""


class NonResourceRule(Struct):
    """NonResourceRule holds information that describes a rule for the non-resource"""

    verbs: tuple[str, ...]
    """verbs is a list of kubernetes non-resource API verbs, like: get, post, put, delete, patch, head,
    options. "*" means all.
    """
    non_resource_urls: tuple[str, ...] | None = field(default=None, name="nonResourceURLs")
    """nonResourceURLs is a set of partial urls that a user should have access to. *s are allowed, but only as
    the full, final step in the path. "*" means all.
    """


class ResourceRule(Struct):
    """ResourceRule is the list of actions the subject is allowed to perform on resources."""

    verbs: tuple[str, ...]
    """verbs is a list of kubernetes resource API verbs, like: get, list, watch, create, update, delete,
    proxy. "*" means all.
    """
    api_groups: tuple[str, ...] | None = None
    """apiGroups is the name of the APIGroup that contains the resources."""
    resource_names: tuple[str, ...] | None = None
    """resourceNames is an optional white list of names that the rule applies to."""
    resources: tuple[str, ...] | None = None
    """resources is a list of resources this rule applies to. "*" means all in the specified apiGroups.
    "*/foo" represents the subresource 'foo' for all resources in the specified apiGroups.
    """


class SubjectRulesReviewStatus(Struct):
    """SubjectRulesReviewStatus contains the result of a rules check."""

    evaluation_error: str | None = None
    """evaluationError can appear in combination with Rules."""
    incomplete: bool = False
    """incomplete is true when the rules returned by this call are incomplete."""
    non_resource_rules: tuple[NonResourceRule, ...] = ()
    """nonResourceRules is the list of actions the subject is allowed to perform on non-resources."""
    resource_rules: tuple[ResourceRule, ...] = ()
    """resourceRules is the list of actions the subject is allowed to perform on resources."""


class SelfSubjectRulesReview(KubeObject, group="authorization.k8s.io", version="v1", namespaced=False):
    """SelfSubjectRulesReview enumerates the set of actions the current user can perform within a
    namespace.
    """

    spec: SelfSubjectRulesReviewSpec
    """spec holds information about the request being evaluated."""
    status: SubjectRulesReviewStatus = field(default_factory=SubjectRulesReviewStatus)
    """status is filled in by the server and indicates the set of actions a user can perform."""


class SubjectAccessReview(KubeObject, group="authorization.k8s.io", version="v1", namespaced=False):
    """SubjectAccessReview checks whether or not a user or group can perform an action."""

    spec: SubjectAccessReviewSpec
    """spec holds information about the request being evaluated"""
    status: SubjectAccessReviewStatus = field(default_factory=SubjectAccessReviewStatus)
    """status is filled in by the server and indicates whether the request is allowed or not"""
