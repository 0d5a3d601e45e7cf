"""Namespaces: their lifecycle, and its effect on writes into them."""

from __future__ import annotations

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.metadata import finalizer_errors, label_name
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.status import FieldError, forbidden, invalid_value, not_found

NAMESPACES = GroupResource("", "namespaces")
NAME_LABEL = "kubernetes.io/metadata.name"
_FINALIZER = "kubernetes"
_IMMORTAL = ("default", "kube-system", "kube-public")


class Namespaces(Typed):
    """Namespaces. Deletion waits until a controller empties `spec.finalizers` through the subresource `finalize`."""

    name_rule = staticmethod(label_name)
    selectable = ("metadata.name", "metadata.namespace", "status.phase")

    def set_defaults(self, obj: Object) -> None:
        meta = obj["metadata"]
        if name := meta.get("name"):
            meta["labels"] = {**(meta.get("labels") or {}), NAME_LABEL: name}
        obj["status"].setdefault("phase", "Active")

    def prepare_create(self, obj: Object) -> None:
        self.set_defaults(obj)  # the name may have been generated
        finalizers = obj["spec"].get("finalizers") or []
        obj["spec"] = {"finalizers": finalizers if _FINALIZER in finalizers else [*finalizers, _FINALIZER]}
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        if subresource != "finalize":
            new["spec"] = old["spec"]
        if subresource != "status":
            new["status"] = old["status"]

    def is_held(self, obj: Object) -> bool:
        return bool(obj["metadata"].get("finalizers") or obj["spec"].get("finalizers"))

    def validate(self, obj: Object) -> list[FieldError]:
        return super().validate(obj) + [
            error
            for finalizer in obj["spec"].get("finalizers") or ()
            for error in finalizer_errors("spec.finalizers", finalizer)
        ]

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        match subresource:
            case "status":
                return _phase_errors(new)
            case "finalize":
                return [
                    error
                    for index, finalizer in enumerate(new["spec"].get("finalizers") or ())
                    for error in finalizer_errors(f"spec.finalizers[{index}]", finalizer)
                ]
        return self.validate(new)

    def prepare_delete(self, obj: Object) -> None:
        if (name := obj["metadata"]["name"]) in _IMMORTAL:
            raise forbidden(NAMESPACES, name, "this namespace may not be deleted")
        obj["metadata"].pop("deletionGracePeriodSeconds", None)
        obj["status"] = {**obj["status"], "phase": "Terminating"}


def _phase_errors(namespace: Object) -> list[FieldError]:
    phase = namespace["status"].get("phase", "")
    if namespace["metadata"].get("deletionTimestamp"):
        expected, when = "Terminating", "is not empty"
    else:
        expected, when = "Active", "is empty"
    problem = f"may only be '{expected}' if `deletionTimestamp` {when}"
    return [] if phase == expected else [invalid_value("status.Phase", phase, problem)]


def check_accepts_new(namespace: Object | None, name: str, resource: GroupResource, object_name: str) -> None:
    """Raises NotFound if the namespace does not exist, Forbidden if it is being deleted."""
    if namespace is None:
        raise not_found(NAMESPACES, name)
    if namespace["metadata"].get("deletionTimestamp"):
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
        problem = f"unable to create new content in namespace {name} because it is being terminated"
        raise forbidden(resource, object_name, problem, [cause])
