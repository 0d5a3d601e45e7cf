"""Classes of v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of the Kubernetes
authors (Apache License 2.0).
"""

from __future__ import annotations

from kubeshard.core.objects import Struct


class EventSource(Struct):
    """EventSource contains information for an event."""

    component: str | None = None
    """Component from which the event is generated."""
    host: str | None = None
    """Node name on which the event is generated."""


class LocalObjectReference(Struct):
    """LocalObjectReference contains enough information to let you locate the referenced object inside the
    same namespace.
    """

    name: str | None = None
    """Name of the referent."""


class NodeSelectorRequirement(Struct):
    """A node selector requirement is a selector that contains values, a key, and an operator that relates the
    key and values.
    """

    key: str
    """The label key that the selector applies to."""
    operator: str
    """Represents a key's relationship to a set of values. One of DoesNotExist, Exists, Gt, In, Lt, NotIn."""
    values: tuple[str, ...] | None = None
    """An array of string values."""


class NodeSelectorTerm(Struct):
    """A null or empty node selector term matches no objects."""

    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    """A list of node selector requirements by node's labels."""
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None
    """A list of node selector requirements by node's fields."""


class NodeSelector(Struct):
    """A node selector represents the union of the results of one or more label queries over a set of nodes;
    that is, it represents the OR of the selectors represented by the node selector terms.
    """

    node_selector_terms: tuple[NodeSelectorTerm, ...]
    """Required."""


class ObjectReference(Struct):
    """ObjectReference contains enough information to let you inspect or modify the referred object."""

    api_version: str | None = None
    """API version of the referent."""
    field_path: str | None = None
    """If referring to a piece of an object instead of an entire object, this string should contain a valid
    JSON/Go field access statement, such as desiredState.manifest.containers[2].
    """
    kind: str | None = None
    """Kind of the referent."""
    name: str | None = None
    """Name of the referent."""
    namespace: str | None = None
    """Namespace of the referent."""
    resource_version: str | None = None
    """Specific resourceVersion to which this reference is made, if any."""
    uid: str | None = None
    """UID of the referent."""


class Toleration(Struct):
    """The pod this Toleration is attached to tolerates any taint that matches the triple <key,value,effect>
    using the matching operator <operator>.
    """

    effect: str | None = None
    """Effect indicates the taint effect to match. One of NoExecute, NoSchedule, PreferNoSchedule."""
    key: str | None = None
    """Key is the taint key that the toleration applies to."""
    operator: str | None = None
    """Operator represents a key's relationship to the value. One of Equal, Exists, Gt, Lt."""
    toleration_seconds: int | None = None
    """TolerationSeconds represents the period of time the toleration (which must be of effect NoExecute,
    otherwise this field is ignored) tolerates the taint.
    """
    value: str | None = None
    """Value is the taint value the toleration matches to."""


class TypedLocalObjectReference(Struct):
    """TypedLocalObjectReference contains enough information to let you locate the typed referenced object
    inside the same namespace.
    """

    kind: str
    """Kind is the type of resource being referenced"""
    name: str
    """Name is the name of resource being referenced"""
    api_group: str | None = None
    """APIGroup is the group for the resource being referenced."""
