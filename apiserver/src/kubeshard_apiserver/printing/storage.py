"""Columns of volumes, claims and storage classes."""

from __future__ import annotations

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.printing.columns import AGE, NAME, Column, Printer, at, boolean, count, name_of, text

_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_ANNOTATIONS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def _modes(given: list[str]) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in given)


def _phase(obj: Object, _: float) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(at(obj, "status.phase", ""))


def _class(obj: Object, _: float) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    return str(annotations.get(_CLASS_ANNOTATION, at(obj, "spec.storageClassName", "")))


def _claim(obj: Object, _: float) -> str:
    claim = at(obj, "spec.claimRef")
    return "" if claim is None else f"{claim.get('namespace', '')}/{claim.get('name', '')}"


_STATUS = Column("Status", _phase, "Its phase")
_VOLUME_MODE = text("VolumeMode", "spec.volumeMode", "File system or block device", "<unset>", wide=True)
_ATTRIBUTES = text(
    "VolumeAttributesClass", "spec.volumeAttributesClassName", "Its volume attributes class", "<unset>"
)
PERSISTENT_VOLUMES = Printer(
    (
        NAME,
        text("Capacity", "spec.capacity.storage", "Size of the volume", "0"),
        Column(
            "Access Modes", lambda obj, _: _modes(at(obj, "spec.accessModes", [])), "Supported access modes"
        ),
        text(
            "Reclaim Policy",
            "spec.persistentVolumeReclaimPolicy",
            "What happens to it when its claim is deleted",
        ),
        _STATUS,
        Column("Claim", _claim, "Claim that it is bound to"),
        Column("StorageClass", _class, "Its storage class"),
        _ATTRIBUTES,
        text("Reason", "status.reason", "Reason for its phase"),
        AGE,
        _VOLUME_MODE,
    )
)


def _bound(obj: Object) -> bool:
    return bool(at(obj, "spec.volumeName"))


PERSISTENT_VOLUME_CLAIMS = Printer(
    (
        NAME,
        _STATUS,
        text("Volume", "spec.volumeName", "Volume that it is bound to"),
        Column(
            "Capacity",
            lambda obj, _: str(at(obj, "status.capacity.storage", "0")) if _bound(obj) else "",
            "Capacity of the volume",
        ),
        Column(
            "Access Modes",
            lambda obj, _: _modes(at(obj, "status.accessModes", [])) if _bound(obj) else "",
            "Access modes of the volume",
        ),
        Column("StorageClass", _class, "Its storage class"),
        _ATTRIBUTES,
        AGE,
        _VOLUME_MODE,
    )
)


def _class_name(obj: Object, _: float) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    default = any(annotations.get(mark) == "true" for mark in _DEFAULT_ANNOTATIONS)
    return name_of(obj) + (" (default)" if default else "")


STORAGE_CLASSES = Printer(
    (
        Column("Name", _class_name, NAME.description, format="name"),
        text("Provisioner", "provisioner", "Provisioner of its volumes"),
        text(
            "ReclaimPolicy", "reclaimPolicy", "What happens to a volume when its claim is deleted", "Delete"
        ),
        text("VolumeBindingMode", "volumeBindingMode", "When claims are bound to volumes", "Immediate"),
        boolean(
            "AllowVolumeExpansion", "allowVolumeExpansion", "Whether volumes can be expanded", type_="string"
        ),
        AGE,
    )
)
VOLUME_ATTRIBUTES_CLASSES = Printer(
    (NAME, text("DriverName", "driverName", "Driver that the attributes belong to"), AGE)
)
VOLUME_ATTACHMENTS = Printer(
    (
        NAME,
        text("Attacher", "spec.attacher", "Driver that attaches it", format="name"),
        text("PV", "spec.source.persistentVolumeName", "Attached volume"),
        text("Node", "spec.nodeName", "Where"),
        boolean("Attached", "status.attached", "Whether it is attached"),
        AGE,
    )
)
CSI_NODES = Printer((NAME, count("Drivers", "spec.drivers", "Number of drivers on the node"), AGE))


def _audiences(obj: Object, _: float) -> str:
    requests = at(obj, "spec.tokenRequests")
    return "<unset>" if requests is None else ",".join(one.get("audience", "") for one in requests)


CSI_DRIVERS = Printer(
    (
        NAME,
        boolean(
            "AttachRequired",
            "spec.attachRequired",
            "Whether volumes must be attached before use",
            default=True,
        ),
        boolean("PodInfoOnMount", "spec.podInfoOnMount", "Whether it receives information about the pod"),
        boolean("StorageCapacity", "spec.storageCapacity", "Whether it reports the remaining capacity"),
        Column("TokenRequests", _audiences, "Audiences of the tokens that it receives"),
        boolean(
            "RequiresRepublish", "spec.requiresRepublish", "Whether it is called periodically to republish"
        ),
        Column(
            "Modes",
            lambda obj, _: ",".join(at(obj, "spec.volumeLifecycleModes", ())) or "<none>",
            "Supported kinds of volumes",
        ),
        AGE,
    )
)
