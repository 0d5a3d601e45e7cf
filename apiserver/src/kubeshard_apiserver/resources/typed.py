"""Built-in kinds: their Go types determine what a body may contain, and this class implements their common rules.

A kind with rules of its own is a subclass with one line in `builtin._RULES`; a kind without any is `Typed` itself. A
subclass may define:

* `name_rule` and `selectable`, as class attributes. The lists below determine whether generations are counted
  and what a replace may do.
* `set_defaults(obj)`: runs after every decode (of creates, replaces and patch results) and works in place on the fields
  of the object and on those directly in them; what is deeper it copies first (`own`), because stored objects may have
  the same part. Fields of struct type and those without `omitempty` are already there with their zero values
  (`spec: {}`, `containers: None`). Empty fields that may be omitted are not, so `setdefault` corresponds to Go's
  `if x == nil`.
* `prepare_create(obj)` and `prepare_update(new, old, subresource)`: set what a request cannot change, in the same way.
  Call `super()`: it drops the status, counts generations, and keeps subresources from writing each other's fields.
* `validate(obj)` and `validate_update(new, old, subresource)`: return lists of `FieldError`. `validate` checks the
  `field_rules` of the kind's type, if there are any; `validate_update` calls `validate`.
* `is_held`, `prepare_delete`, `fields_for_selection`: see `Strategy`.

The constructor takes the kind, and access to the stored objects of other kinds (`self.stored`). `self.type` is the
kind's `schema.decoding.Struct`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from kubeshard.core.kinds import GroupKind, Kind
from kubeshard_apiserver.apply.shape import Shape, shape_of_type
from kubeshard_apiserver.objects import Object, draft, share
from kubeshard_apiserver.resources.field_rules import field_rule_errors, field_rules
from kubeshard_apiserver.resources.metadata import as_given
from kubeshard_apiserver.resources.strategy import Stored, Strategy
from kubeshard_apiserver.schema.catalog import served, served_kinds, type_name, type_of
from kubeshard_apiserver.schema.decoding import DecodeState, Struct
from kubeshard_apiserver.status import FieldError, bad_request


def _kinds(text: str) -> frozenset[GroupKind]:
    found = set()
    for line in text.split("\n"):
        if line:
            group, *kinds = line.split()
            found |= {GroupKind("" if group == "core" else group, kind) for kind in kinds}
    return frozenset(found)


CREATED_BY_REPLACE = _kinds("""
core Endpoints Event LimitRange Service
events.k8s.io Event
rbac.authorization.k8s.io Role RoleBinding ClusterRole ClusterRoleBinding
coordination.k8s.io Lease
node.k8s.io RuntimeClass
""")
"""A PUT creates a missing object."""

VERSION_NEEDED = _kinds("""
policy PodDisruptionBudget
storage.k8s.io CSIDriver CSINode CSIStorageCapacity VolumeAttachment
admissionregistration.k8s.io ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
admissionregistration.k8s.io MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
admissionregistration.k8s.io ValidatingWebhookConfiguration MutatingWebhookConfiguration
node.k8s.io RuntimeClass
coordination.k8s.io Lease
apiextensions.k8s.io CustomResourceDefinition
""")
"""A PUT must specify the resourceVersion that it replaces."""

COUNTED = _kinds("""
core Pod PodTemplate ReplicationController
apps Deployment ReplicaSet DaemonSet StatefulSet
autoscaling HorizontalPodAutoscaler
batch Job CronJob
policy PodDisruptionBudget
discovery.k8s.io EndpointSlice
networking.k8s.io Ingress NetworkPolicy IngressClass
admissionregistration.k8s.io ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
admissionregistration.k8s.io MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
admissionregistration.k8s.io ValidatingWebhookConfiguration MutatingWebhookConfiguration
scheduling.k8s.io PriorityClass
apiextensions.k8s.io CustomResourceDefinition
""")
"""Kinds with a generation."""

FREE_FINALIZERS = _kinds("""
core Event
coordination.k8s.io Lease LeaseCandidate
policy PodDisruptionBudget
node.k8s.io RuntimeClass
admissionregistration.k8s.io ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
admissionregistration.k8s.io MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
admissionregistration.k8s.io ValidatingWebhookConfiguration MutatingWebhookConfiguration
apiextensions.k8s.io CustomResourceDefinition
""")
"""Finalizers need no domain."""

STATUS_ALONE = _kinds("""
storage.k8s.io VolumeAttachment
admissionregistration.k8s.io ValidatingAdmissionPolicy
networking.k8s.io ServiceCIDR
resource.k8s.io ResourceClaim
""")
"""The subresource `status` leaves the metadata as they are."""

SHOWN_WHEN_DELETED = _kinds("""
core Pod Service ServiceAccount ResourceQuota PersistentVolumeClaim PersistentVolume PodTemplate
storage.k8s.io StorageClass CSIDriver CSINode VolumeAttachment VolumeAttributesClass
""")
"""A DELETE that removes the object returns it instead of a Status."""

DEFAULT_PROPAGATION: dict[GroupKind, str | None] = {
    **dict.fromkeys(_kinds("batch Job\ncore ReplicationController"), "Orphan"),
    **dict.fromkeys(_kinds("core Event\nevents.k8s.io Event")),
}
"""The default of all other kinds is Background. None: the kind takes no part in garbage collection."""


class Typed(Strategy):
    """A built-in kind. Its types are built on first use, so that a server starts without them."""

    def __init__(self, kind: Kind, stored: Stored) -> None:
        self.stored = stored
        super().__init__(kind, {}, subresources=frozenset(served(kind).subresources))
        group_kind = kind.group_kind
        self.create_on_update = group_kind in CREATED_BY_REPLACE
        self.unconditional_update = group_kind not in VERSION_NEEDED
        self.counts_generations = group_kind in COUNTED
        self.qualified_finalizers = self.qualified_finalizers and group_kind not in FREE_FINALIZERS
        self.status_alone = group_kind in STATUS_ALONE
        self.shown_when_deleted = group_kind in SHOWN_WHEN_DELETED
        self.default_propagation = DEFAULT_PROPAGATION.get(group_kind, "Background")

    @cached_property
    def type(self) -> Struct:
        return type_of(self.kind)

    def validate(self, obj: Object) -> list[FieldError]:
        name = type_name(self.kind)
        return field_rule_errors(name, "", obj) if name in field_rules() else []

    @cached_property
    def shape(self) -> Shape:
        return shape_of_type(self.type)

    @cached_property
    def zero(self) -> dict[str, Any]:
        zero = self.type.zero()
        del zero["metadata"]
        return zero

    def decode(self, obj: Object, former: Object | None = None) -> list[str]:
        kind = self.kind
        given = (obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind)
        if given != (kind.api_version, kind.kind):
            problem = f"converting ({given[0]}.{given[1]}) to ({kind.kind}): unknown conversion"
            if not any((one.kind.api_version, one.kind.kind) == given for one in served_kinds()):
                told = f'no kind "{given[1]}" is registered for version "{given[0]}"'
                problem = f'{told} in scheme "pkg/runtime/scheme.go:111"'
            version = given[0].rpartition("/")[2]
            raise bad_request(
                f'{given[1]} in version "{version}" cannot be handled as a {kind.kind}: {problem}'
            )
        state = DecodeState(kind.kind, kind.version)
        decoded, body = self.type.decode(obj, None, state, former), obj.get("metadata")
        meta = as_given(decoded.pop("metadata"), body)
        if not kind.namespaced:
            meta.pop("namespace", None)
        obj.clear()
        obj.update(draft(decoded), apiVersion=kind.api_version, kind=kind.kind, metadata=meta)
        self.set_defaults(obj)
        if former is not None:
            for name, value in obj.items():
                if type(value) is dict and type(was := former.get(name)) is dict and name != "metadata":
                    share(value, was)
        return state.dropped

    def settle(self, obj: Object, live: Object) -> None:
        fields = {name: value for name, value in obj.items() if name != "metadata"}
        if b":[]" in msgspec.json.encode([_changed(value, live.get(name)) for name, value in fields.items()]):
            obj.update(self.type.settled(fields))


def _changed(new: Any, old: Any) -> Any:
    """Returns what is not the very same in both."""
    if type(new) is not dict or type(old) is not dict:
        return None if new is old else {"": new}
    return {name: value for name, value in new.items() if value is not old.get(name)}
