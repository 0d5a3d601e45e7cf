"""PersistentVolumeClaims and ServiceAccounts."""

import pytest
from conformance_api import until
from conformance_workloads import QUALIFIED, SUBDOMAIN, claim, forbidden, invalid, required, unsupported

FIXED = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


@pytest.fixture
def claims(ns):
    return f"/api/v1/namespaces/{ns}/persistentvolumeclaims"


async def test_a_minimal_claim(api, claims):
    made = await api.create(claims, claim())
    assert made["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeMode": "Filesystem",
    }
    assert made["status"] == {"phase": "Pending"}
    assert made.meta["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert "generation" not in made.meta


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"accessModes": []}, {required("spec.accessModes", "at least 1 access mode is required")}),
        (
            {"accessModes": ["x"]},
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
            {"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]},
            {forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes")},
        ),
        ({"resources": {}}, {required("spec.resources[storage]")}),
        (
            {"resources": {"requests": {"storage": "0"}}},
            {invalid("spec.resources[storage]", '"0"', "must be greater than zero")},
        ),
        ({"storageClassName": "A"}, {invalid("spec.storageClassName", '"A"', SUBDOMAIN)}),
        ({"volumeMode": "x"}, {unsupported("spec.volumeMode", '"x"', "Block", "Filesystem")}),
        (
            {"selector": {"matchLabels": {"a b": "c"}}},
            {invalid("spec.selector.matchLabels", '"a b"', QUALIFIED)},
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_a_claim_must_be(api, claims, spec, causes):
    refused = await api.create(claims, claim(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


@pytest.mark.parametrize(
    "spec",
    [{"accessModes": ["ReadOnlyMany"]}, {"resources": {"requests": {"storage": "2Gi"}}}],
    ids=["modes", "size"],
)
async def test_a_claim_that_is_not_bound_cannot_be_changed(api, claims, spec):
    await api.create(claims, claim())
    refused = await api.merge(f"{claims}/a", {"spec": spec})
    # The server appends a diff of its internal types.
    told = {(field, reason, message.partition("\n")[0]) for field, reason, message in refused.causes}
    assert told == {forbidden("spec", FIXED)}


async def test_class_and_volume_of_a_claim_can_be_said_once(api, claims):
    await api.create(claims, claim())
    for field in ("storageClassName", "volumeName"):
        assert (await api.merge(f"{claims}/a", {"spec": {field: "x"}})).status == 200
        assert (await api.merge(f"{claims}/a", {"spec": {field: "y"}})).refusal == (422, "Invalid")


async def test_a_bound_claim_without_class_cannot_grow(api, claims):
    await api.create(claims, claim())
    await api.merge(f"{claims}/a/status", {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
    refused = await api.merge(f"{claims}/a", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
    assert refused.refusal == (403, "Forbidden")
    assert refused.message.endswith(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support "
        "resize"
    )


async def test_a_bound_claim_does_not_shrink(api, claims):
    await api.create(claims, claim())
    await api.merge(f"{claims}/a/status", {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
    refused = await api.merge(f"{claims}/a", {"spec": {"resources": {"requests": {"storage": "500Mi"}}}})
    problem = "field can not be less than status.capacity"
    assert refused.causes == {forbidden("spec.resources.requests.storage", problem)}


async def test_a_source_of_data_is_named_in_both_fields(api, claims):
    source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
    made = await api.create(claims, claim(dataSource=source))
    assert made["spec"]["dataSource"] == made["spec"]["dataSourceRef"] == source


async def test_another_source_of_data_is_dropped(api, claims):
    made = await api.create(claims, claim(dataSource={"apiGroup": "a.b", "kind": "X", "name": "s"}))
    assert "dataSource" not in made["spec"]
    assert "dataSourceRef" not in made["spec"]


async def test_protection_keeps_a_deleted_claim(api, claims):
    await api.create(claims, claim())
    waiting = await api.delete(f"{claims}/a")
    assert waiting["kind"] == "PersistentVolumeClaim"
    assert waiting.meta["deletionTimestamp"]
    assert (await api.merge(f"{claims}/a", {"metadata": {"finalizers": None}})).status == 200
    assert (await api.get(f"{claims}/a")).status == 404


async def test_a_service_account_keeps_the_names_of_its_secrets(api, ns):
    path = f"/api/v1/namespaces/{ns}/serviceaccounts"
    body = {
        "metadata": {"name": "a"},
        "secrets": [{"name": "x", "kind": "y"}],
        "imagePullSecrets": [{"name": "z"}],
    }
    made = await api.create(path, body)
    assert made["secrets"] == [{"name": "x"}]
    assert made["imagePullSecrets"] == [{"name": "z"}]
    assert "generation" not in made.meta


async def test_the_name_of_a_service_account_is_a_subdomain(api, ns):
    refused = await api.create(f"/api/v1/namespaces/{ns}/serviceaccounts", {"metadata": {"name": "A"}})
    assert refused.causes == {invalid("metadata.name", '"A"', SUBDOMAIN)}


async def test_a_deleted_service_account_is_the_answer(api, ns):
    path = f"/api/v1/namespaces/{ns}/serviceaccounts"
    made = await api.create(path, {"metadata": {"name": "a"}})
    gone = await api.delete(f"{path}/a")
    assert (gone.status, gone["kind"], gone.meta["uid"]) == (200, "ServiceAccount", made.meta["uid"])
    assert (await api.get(f"{path}/a")).status == 404


CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


async def test_a_bound_claim_grows_if_its_class_lets_it(api, claims, name):
    for expands, code in ((True, 200), (False, 403)):
        storage_class = f"{name}-{code}"
        body = {
            "metadata": {"name": storage_class},
            "provisioner": "x",
            "allowVolumeExpansion": expands,
        }
        assert (await api.create(CLASSES, body)).status == 201
        path = f"{claims}/{storage_class}"
        await api.create(claims, claim(storage_class, storageClassName=storage_class))
        await api.merge(f"{path}/status", {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
        await until_grown(api, path, code)


async def until_grown(api, path, code):
    """Retries, because the server's admission learns of new classes a moment later."""

    async def holds():
        answer = await api.merge(path, {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
        return answer.status == code

    await until(holds)
