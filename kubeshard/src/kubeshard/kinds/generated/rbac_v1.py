"""Classes of rbac.authorization.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are
those of the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from kubeshard.core.objects import KubeObject, Struct, field
from kubeshard.core.selectors import LabelSelector


class RoleRef(Struct):
    """RoleRef contains information that points to the role being used"""

    kind: str
    """kind is the type of resource being referenced"""
    name: str
    """name is the name of resource being referenced"""
    api_group: str | None = None
    """apiGroup is the group for the resource being referenced"""


class Subject(Struct):
    """Subject contains a reference to the object or user identities a role binding applies to."""

    kind: str
    """kind of object being referenced."""
    name: str
    """name of the object being referenced."""
    api_group: str | None = None
    """apiGroup holds the API group of the referenced subject."""
    namespace: str | None = None
    """namespace of the referenced object."""


class ClusterRoleBinding(KubeObject, group="rbac.authorization.k8s.io", version="v1", namespaced=False):
    """ClusterRoleBinding references a ClusterRole, but not contain it."""

    role_ref: RoleRef
    """roleRef can only reference a ClusterRole in the global namespace."""
    subjects: tuple[Subject, ...] | None = None
    """subjects holds references to the objects the role applies to."""


class AggregationRule(Struct):
    """AggregationRule describes how to locate ClusterRoles to aggregate into the ClusterRole"""

    cluster_role_selectors: tuple[LabelSelector, ...] | None = None
    """clusterRoleSelectors holds a list of selectors which will be used to find ClusterRoles and create the
    rules.
    """


class PolicyRule(Struct):
    """PolicyRule holds information that describes a policy rule, but does not contain information about who
    the rule applies to or which namespace the rule applies to.
    """

    verbs: tuple[str, ...]
    """verbs is a list of Verbs that apply to ALL the ResourceKinds contained in this rule. '*' represents all
    verbs.
    """
    api_groups: tuple[str, ...] | None = None
    """apiGroups is the name of the APIGroup that contains the resources."""
    non_resource_urls: tuple[str, ...] | None = field(default=None, name="nonResourceURLs")
    """nonResourceURLs is a set of partial urls that a user should have access to. *s are allowed, but only as
    the full, final step in the path Since non-resource URLs are not namespaced, this field is only applicable
    for ClusterRoles referenced from a ClusterRoleBinding.
    """
    resource_names: tuple[str, ...] | None = None
    """resourceNames is an optional white list of names that the rule applies to."""
    resources: tuple[str, ...] | None = None
    """resources is a list of resources this rule applies to. '*' represents all resources."""


class ClusterRole(KubeObject, group="rbac.authorization.k8s.io", version="v1", namespaced=False):
    """ClusterRole is a cluster level, logical grouping of PolicyRules that can be referenced as a unit by a
    RoleBinding or ClusterRoleBinding.
    """

    aggregation_rule: AggregationRule | None = None
    """aggregationRule is an optional field that describes how to build the Rules for this ClusterRole."""
    rules: tuple[PolicyRule, ...] | None = None
    """rules holds all the PolicyRules for this ClusterRole"""


class RoleBinding(KubeObject, group="rbac.authorization.k8s.io", version="v1"):
    """RoleBinding references a role, but does not contain it."""

    role_ref: RoleRef
    """roleRef can reference a Role in the current namespace or a ClusterRole in the global namespace."""
    subjects: tuple[Subject, ...] | None = None
    """subjects holds references to the objects the role applies to."""


class Role(KubeObject, group="rbac.authorization.k8s.io", version="v1"):
    """Role is a namespaced, logical grouping of PolicyRules that can be referenced as a unit by a
    RoleBinding.
    """

    rules: tuple[PolicyRule, ...] | None = None
    """rules holds all the PolicyRules for this Role"""
