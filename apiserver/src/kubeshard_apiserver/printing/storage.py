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
    "VolumeAttributesClass", "spec.volumeAttributesClassName", "Its class of attributes", "<unset>"
)
PERSISTENT_VOLUMES = Printer(
    (
        NAME,
        text("Capacity", "spec.capacity.storage", "How much it holds", "0"),
        Column(
            "Access Modes", lambda obj, _: _modes(at(obj, "spec.accessModes", [])), "How it may be mounted"
        ),
        text("Reclaim Policy", "spec.persistentVolumeReclaimPolicy", "What happens to it after its claim"),
        _STATUS,
        Column("Claim", _claim, "Whose it is"),
        Column("StorageClass", _class, "Its storage class"),
        _ATTRIBUTES,
        text("Reason", "status.reason", "Why it is in its phase"),
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
        text("Volume", "spec.volumeName", "The volume that it got"),
        Column(
            "Capacity",
            lambda obj, _: str(at(obj, "status.capacity.storage", "0")) if _bound(obj) else "",
            "Capacity of the volume",
        ),
        Column(
            "Access Modes",
            lambda obj, _: _modes(at(obj, "status.accessModes", [])) if _bound(obj) else "",
            "Ways in which the volume can be mounted",
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
        text("Provisioner", "provisioner", "Who makes its volumes"),
        text("ReclaimPolicy", "reclaimPolicy", "What happens to a volume after its claim", "Delete"),
        text("VolumeBindingMode", "volumeBindingMode", "When claims get volumes", "Immediate"),
        boolean("AllowVolumeExpansion", "allowVolumeExpansion", "Whether volumes may grow", type_="string"),
        AGE,
    )
)
VOLUME_ATTRIBUTES_CLASSES = Printer(
    (NAME, text("DriverName", "driverName", "Whose attributes they are"), AGE)
)
VOLUME_ATTACHMENTS = Printer(
    (
        NAME,
        text("Attacher", "spec.attacher", "Who attaches it", format="name"),
        text("PV", "spec.source.persistentVolumeName", "What is attached"),
        text("Node", "spec.nodeName", "Where"),
        boolean("Attached", "status.attached", "Whether it is"),
        AGE,
    )
)
CSI_NODES = Printer((NAME, count("Drivers", "spec.drivers", "Drivers on the node"), AGE))


def _audiences(obj: Object, _: float) -> str:
    requests = at(obj, "spec.tokenRequests")
    return "<unset>" if requests is None else ",".join(one.get("audience", "") for one in requests)


CSI_DRIVERS = Printer(
    (
        NAME,
        boolean("AttachRequired", "spec.attachRequired", "Whether volumes are attached first", default=True),
        boolean("PodInfoOnMount", "spec.podInfoOnMount", "Whether it is told of the pod"),
        boolean("StorageCapacity", "spec.storageCapacity", "Whether it tells how much is left"),
        Column("TokenRequests", _audiences, "Audiences of the tokens that it receives"),
        boolean("RequiresRepublish", "spec.requiresRepublish", "Whether it is called again and again"),
        Column(
            "Modes",
            lambda obj, _: ",".join(at(obj, "spec.volumeLifecycleModes", ())) or "<none>",
            "Kinds of volumes that it supports",
        ),
        AGE,
    )
)
