"""PersistentVolumes, storage classes, and the objects of CSI drivers."""

import pytest
from conformance_workloads import (
    NOT_NEGATIVE,
    QUALIFIED,
    SUBDOMAIN,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)

VOLUMES = "/api/v1/persistentvolumes"
STORAGE = "/apis/storage.k8s.io/v1"
CLASSES = f"{STORAGE}/storageclasses"
DRIVERS = f"{STORAGE}/csidrivers"
NODES = f"{STORAGE}/csinodes"
ATTACHMENTS = f"{STORAGE}/volumeattachments"
SPEC = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
HOST = {"hostPath": {"path": "/x"}}
CSI = {"csi": {"driver": "a.b", "volumeHandle": "x"}}
FOR_GOOD = "field is immutable"
CASELESS = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'Example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def named(name, **fields):
    return {"metadata": {"name": name}, **fields}


def volume(name="a", **spec):
    return named(name, spec={**SPEC, **spec})


def driver_node(called, **driver):
    return named(called, spec={"drivers": [{"name": "a", "nodeID": "x", **driver}]})


def attachment(name="a", **spec):
    source = {"persistentVolumeName": "v"}
    return named(name, spec={"attacher": "a", "nodeName": "n", "source": source, **spec})


@pytest.fixture
async def path(api, name):
    """Returns the path of the test case's own volume, which does not exist yet."""
    yield f"{VOLUMES}/{name}"
    await api.merge(f"{VOLUMES}/{name}", {"metadata": {"finalizers": None}})
    await api.delete(f"{VOLUMES}/{name}")


async def test_a_minimal_volume(api, path, name):
    made = await api.create(VOLUMES, volume(name, **HOST))
    assert made["spec"] == {
        **SPEC,
        "hostPath": {"path": "/x", "type": ""},
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    }
    assert made["status"] == {"phase": "Pending", "lastPhaseTransitionTime": made.meta["creationTimestamp"]}
    assert made.meta["finalizers"] == ["kubernetes.io/pv-protection"]
    assert "generation" not in made.meta


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({}, {required("spec", "must specify a volume type")}),
        ({"hostPath": {"path": "/x"}, "accessModes": []}, {required("spec.accessModes")}),
        (
            {"hostPath": {"path": "/x"}, "accessModes": ["x"]},
            {
                unsupported(
                    "spec.accessModes",
                    '"x"',
                    "ReadOnlyMany",
                    "ReadWriteMany",
                    "ReadWriteOnce",
                    "ReadWriteOncePod",
                )
            },
        ),
        (
            {"hostPath": {"path": "/x"}, "accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]},
            {forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes")},
        ),
        (
            {"hostPath": {"path": "/x"}, "capacity": None},
            {unsupported("spec.capacity", "null", "storage"), required("spec.capacity")},
        ),
        (
            {"hostPath": {"path": "/x"}, "capacity": {"storage": "0"}},
            {invalid("spec.capacity[storage]", '"0"', "must be greater than zero")},
        ),
        (
            {"hostPath": {"path": "/x"}, "persistentVolumeReclaimPolicy": "x"},
            {unsupported("spec.persistentVolumeReclaimPolicy", '"x"', "Delete", "Recycle", "Retain")},
        ),
        (
            {"hostPath": {"path": "/x"}, "volumeMode": "x"},
            {unsupported("spec.volumeMode", '"x"', "Block", "Filesystem")},
        ),
        (
            {"hostPath": {"path": "/x"}, "storageClassName": "A_"},
            {invalid("spec.storageClassName", '"A_"', SUBDOMAIN)},
        ),
        (
            {"hostPath": {"path": "/x"}, "nodeAffinity": {}},
            {required("spec.nodeAffinity.required", "must specify required node constraints")},
        ),
        (
            {"hostPath": {"path": "/x"}, "volumeAttributesClassName": ""},
            {
                required("spec.csi", "has to be specified when using volumeAttributesClassName"),
                required("spec.volumeAttributesClassName", "an empty string is disallowed"),
            },
        ),
        (
            {"hostPath": {"path": "/x"}, "nfs": {"server": "s", "path": "/p"}},
            {forbidden("spec.nfs", "may not specify more than 1 volume type")},
        ),
        ({"hostPath": {"path": ""}}, {required("spec.hostPath.path")}),
        (
            {"hostPath": {"path": "/a/../b"}},
            {invalid("spec.hostPath.path", '"/a/../b"', "must not contain '..'")},
        ),
        (
            {"hostPath": {"path": "/", "type": "x"}},
            {
                unsupported(
                    "spec.hostPath.type",
                    '"x"',
                    "",
                    "BlockDevice",
                    "CharDevice",
                    "Directory",
                    "DirectoryOrCreate",
                    "File",
                    "FileOrCreate",
                    "Socket",
                )
            },
        ),
        (
            {"hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Recycle"},
            {
                forbidden(
                    "spec.persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'"
                )
            },
        ),
        (
            {"nfs": {"server": "", "path": "p"}},
            {invalid("spec.nfs.path", '"p"', "must be an absolute path"), required("spec.nfs.server")},
        ),
        ({"local": {"path": "/x"}}, {required("spec.nodeAffinity", "Local volume requires node affinity")}),
        (
            {"local": {"path": ""}, "nodeAffinity": {"required": {"nodeSelectorTerms": []}}},
            {
                required("spec.local.path"),
                required(
                    "spec.nodeAffinity.required.nodeSelectorTerms",
                    "must have at least one node selector term",
                ),
            },
        ),
        ({"csi": {"driver": "A_", "volumeHandle": "x"}}, {invalid("spec.csi.driver", '"A_"', SUBDOMAIN)}),
        (
            {"csi": {"driver": "a", "volumeHandle": "", "nodePublishSecretRef": {"name": "A_"}}},
            {
                invalid("spec.csi.nodePublishSecretRef.name", '"A_"', SUBDOMAIN),
                required("spec.csi.nodePublishSecretRef.namespace"),
                required("spec.csi.volumeHandle"),
            },
        ),
        ({"csi": {"driver": "", "volumeHandle": "x"}}, {required("spec.csi.driver")}),
    ],
)
async def test_an_unsound_volume(api, spec, causes):
    refused = await api.create(VOLUMES, volume(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_volume_keeps_its_source(api, path, name):
    await api.create(VOLUMES, volume(name, **CSI))
    refused = await api.merge(path, {"spec": {"csi": {"volumeHandle": "y"}}})
    ((field, reason, message),) = refused.causes
    assert (field, reason) == ("spec.persistentvolumesource", "FieldValueForbidden")
    assert message.startswith("Forbidden: spec.persistentvolumesource is immutable after creation")
    refused = await api.merge(path, {"spec": {"volumeMode": "Block"}})
    assert refused.causes == {invalid("volumeMode", '"Block"', FOR_GOOD)}


async def test_a_volume_may_grow_and_change_its_attributes(api, path, name):
    await api.create(VOLUMES, volume(name, **CSI))
    secret = {"name": "s", "namespace": "n"}
    for spec in (
        {"capacity": {"storage": "2Gi"}},
        {"volumeAttributesClassName": "x"},
        {"csi": {"controllerExpandSecretRef": secret}},
    ):
        assert (await api.merge(path, {"spec": spec})).status == 200
    refused = await api.merge(path, {"spec": {"volumeAttributesClassName": None}})
    told = "update from non-nil value to nil is forbidden"
    assert refused.causes == {forbidden("spec.volumeAttributesClassName", told)}


async def test_the_time_of_a_volumes_phase(api, path, name):
    made = await api.create(VOLUMES, volume(name, **CSI))
    since = made["status"]["lastPhaseTransitionTime"]
    told = await api.merge(f"{path}/status", {"status": {"message": "m", "lastPhaseTransitionTime": None}})
    assert told["status"] == {"phase": "Pending", "message": "m", "lastPhaseTransitionTime": since}
    earlier = "2020-01-01T00:00:00Z"
    bound = {"phase": "Available", "lastPhaseTransitionTime": earlier}
    assert (await api.merge(f"{path}/status", {"status": bound}))["status"] == {**bound, "message": "m"}
    again = await api.merge(f"{path}/status", {"status": {"phase": "Bound"}})
    assert again["status"]["lastPhaseTransitionTime"] >= since


async def test_a_minimal_class(api, name):
    made = await api.create(CLASSES, named(name, provisioner="a.b/c"))
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")
    assert made.body.keys() == {
        "apiVersion", "kind", "metadata", "provisioner", "reclaimPolicy", "volumeBindingMode",
    }  # fmt: skip
    await api.delete(f"{CLASSES}/{name}")


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        ({"provisioner": ""}, {required("provisioner")}),
        ({"provisioner": "a b"}, {invalid("provisioner", '"a b"', QUALIFIED)}),
        (
            {"provisioner": "a", "reclaimPolicy": "Recycle"},
            {unsupported("reclaimPolicy", '"Recycle"', "Delete", "Retain")},
        ),
        (
            {"provisioner": "a", "volumeBindingMode": "x"},
            {unsupported("volumeBindingMode", '"x"', "Immediate", "WaitForFirstConsumer")},
        ),
        (
            {"provisioner": "a", "parameters": {"": "x"}},
            {invalid("parameters", '""', "field can not be empty.")},
        ),
        (
            {
                "provisioner": "a",
                "allowedTopologies": [
                    {
                        "matchLabelExpressions": [
                            {"key": "a b", "values": []},
                            {"key": "x", "values": ["a", "a"]},
                            {"key": "x", "values": ["b"]},
                        ]
                    }
                ],
            },
            {
                invalid("allowedTopologies[0].matchLabelExpressions[0].key", '"a b"', QUALIFIED),
                required("allowedTopologies[0].matchLabelExpressions[0].values"),
                duplicate("allowedTopologies[0].matchLabelExpressions[1].values[1]", '"a"'),
                duplicate("allowedTopologies[0].matchLabelExpressions[2].key", '"x"'),
            },
        ),
    ],
)
async def test_an_unsound_class(api, fields, causes):
    refused = await api.create(CLASSES, named("a", **fields))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_class_is_for_good(api, name):
    await api.create(CLASSES, named(name, provisioner="a.b/c"))
    changes = {
        "provisioner": "x",
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": {"a": "b"},
    }
    refused = await api.merge(f"{CLASSES}/{name}", changes)
    assert refused.causes == {
        invalid("provisioner", "null", FOR_GOOD),
        invalid("reclaimPolicy", "null", FOR_GOOD),
        invalid("volumeBindingMode", "null", FOR_GOOD),
        invalid("parameters", "null", FOR_GOOD),
    }
    assert (await api.merge(f"{CLASSES}/{name}", {"allowVolumeExpansion": True})).status == 200
    await api.delete(f"{CLASSES}/{name}")


async def test_a_class_of_attributes(api, name):
    path = f"{STORAGE}/volumeattributesclasses"
    refused = await api.create(path, named(name))
    assert refused.causes == {
        required("driverName"),
        required("parameters", "must contain at least one key/value pair"),
    }
    made = await api.create(path, named(name, driverName="a.b", parameters={"a": "b"}))
    assert made.meta["finalizers"] == ["kubernetes.io/vac-protection"]
    refused = await api.merge(f"{path}/{name}", {"driverName": "c", "parameters": {"c": "d"}})
    assert refused.causes == {
        forbidden(field, f"updates to {field} are forbidden.") for field in ("driverName", "parameters")
    }
    await api.merge(f"{path}/{name}", {"metadata": {"finalizers": None}})
    await api.delete(f"{path}/{name}")


async def test_a_minimal_driver(api, name):
    made = await api.create(DRIVERS, named(name))
    assert made["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": False,
        "volumeLifecycleModes": ["Persistent"],
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
        "preventPodSchedulingIfMissing": False,
    }
    assert "generation" not in made.meta
    refused = await api.merge(
        f"{DRIVERS}/{name}", {"spec": {"attachRequired": False, "volumeLifecycleModes": ["Ephemeral"]}}
    )
    assert refused.causes == {
        invalid("spec.attachedRequired", "false", FOR_GOOD),
        invalid("spec.volumeLifecycleModes", '["Ephemeral"]', FOR_GOOD),
    }
    changed = await api.merge(f"{DRIVERS}/{name}", {"spec": {"podInfoOnMount": True}})
    assert changed.meta["generation"] == 1
    await api.delete(f"{DRIVERS}/{name}")


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"fsGroupPolicy": "x"},
            {unsupported("spec.fsGroupPolicy", '"x"', "File", "None", "ReadWriteOnceWithFSType")},
        ),
        (
            {"volumeLifecycleModes": ["x"]},
            {unsupported("spec.volumeLifecycleModes", '"x"', "Persistent", "Ephemeral")},
        ),
        (
            {"tokenRequests": [{"audience": "a", "expirationSeconds": 1}, {"audience": "a"}]},
            {
                invalid(
                    "spec.tokenRequests[0].expirationSeconds",
                    "1",
                    "may not specify a duration less than 10 minutes",
                ),
                duplicate("spec.tokenRequests[1].audience", '"a"'),
            },
        ),
        (
            {"tokenRequests": [{"audience": "a", "expirationSeconds": 4294967297}]},
            {
                invalid(
                    "spec.tokenRequests[0].expirationSeconds",
                    "4294967297",
                    "may not specify a duration larger than 2^32 seconds",
                )
            },
        ),
        (
            {"nodeAllocatableUpdatePeriodSeconds": 1},
            {
                invalid(
                    "spec.nodeAllocatableUpdatePeriodSeconds",
                    "1",
                    "must be greater than or equal to 10 seconds",
                )
            },
        ),
        (
            {"serviceAccountTokenInSecrets": True},
            {
                invalid(
                    "spec.serviceAccountTokenInSecrets",
                    "true",
                    "serviceAccountTokenInSecrets is set but no tokenRequests are specified",
                )
            },
        ),
    ],
)
async def test_an_unsound_driver(api, spec, causes):
    refused = await api.create(DRIVERS, named("a", spec=spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


@pytest.mark.parametrize(
    ("driver", "causes"),
    [
        ({"name": ""}, {required("spec.drivers[0].name")}),
        ({"name": "A_"}, {invalid("spec.drivers[0].name", '"A_"', SUBDOMAIN)}),
        (
            {"name": "a" * 64},
            {("spec.drivers[0].name", "FieldValueTooLong", "Too long: may not be more than 63 bytes")},
        ),
        ({"nodeID": ""}, {required("spec.drivers[0].nodeID")}),
        ({"allocatable": {"count": -1}}, {invalid("spec.drivers[0].allocatable.count", "-1", NOT_NEGATIVE)}),
        ({"topologyKeys": ["a b"]}, {invalid("spec.drivers[0]", '"a b"', QUALIFIED)}),
        ({"topologyKeys": ["a", "a"]}, {duplicate("spec.drivers[0]", '"a"')}),
    ],
)
async def test_an_unsound_driver_of_a_node(api, driver, causes):
    refused = await api.create(NODES, driver_node("a", **driver))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_driver_keeps_its_name_of_a_node(api, name):
    await api.create(NODES, driver_node(name))
    refused = await api.merge(f"{NODES}/{name}", driver_node(name, nodeID="y"))
    shown = '{"Name":"a","NodeID":"y","TopologyKeys":null,"Allocatable":null}'
    assert refused.causes == {invalid("spec.drivers", shown, FOR_GOOD)}
    assert (await api.merge(f"{NODES}/{name}", driver_node(name, allocatable={"count": 3}))).status == 200
    await api.delete(f"{NODES}/{name}")


async def test_a_capacity_keeps_what_it_is_about(api, ns):
    path = f"{STORAGE}/namespaces/{ns}/csistoragecapacities"
    refused = await api.create(path, named("a", capacity="-1"))
    assert refused.causes == {
        invalid("storageClassName", '""', SUBDOMAIN),
        invalid("capacity", '"-1"', NOT_NEGATIVE),
    }
    made = await api.create(path, named("a", storageClassName="x", capacity="1024Mi"))
    assert made["capacity"] == "1Gi"
    refused = await api.merge(f"{path}/a", {"storageClassName": "y"})
    assert refused.causes == {invalid("storageClassName", '"y"', FOR_GOOD)}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"attacher": ""}, {required("spec.attacher")}),
        ({"attacher": "A_"}, {invalid("spec.attacher", '"A_"', CASELESS)}),
        ({"nodeName": ""}, {invalid("spec.nodeName", '""', SUBDOMAIN)}),
        (
            {"source": {}},
            {
                required(
                    "spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
                )
            },
        ),
        (
            {"source": {"persistentVolumeName": ""}},
            {
                invalid("spec.source.persistentVolumeName", '""', SUBDOMAIN),
                required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName"),
            },
        ),
        (
            {"source": {"persistentVolumeName": "A_"}},
            {invalid("spec.source.persistentVolumeName", '"A_"', SUBDOMAIN)},
        ),
    ],
)
async def test_an_unsound_attachment(api, spec, causes):
    refused = await api.create(ATTACHMENTS, attachment(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_an_attachment_is_for_good(api, name):
    made = await api.create(ATTACHMENTS, attachment(name))
    assert made["status"] == {"attached": False}
    refused = await api.merge(f"{ATTACHMENTS}/{name}", {"spec": {"nodeName": "m"}})
    assert refused.causes == {invalid("spec", "null", FOR_GOOD)}
    await api.delete(f"{ATTACHMENTS}/{name}")
