"""`kubectl shard doctor` finds each of many planted mistakes, with a command that fixes it, and nothing where all is
well.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import KubectlShard, reader_grants, typed
from installation import RING, SYSTEM, Installation, installation, real_installation, until

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Lease, LeaseSpec, MergePatch, ObjectMeta, Secret
from kubeshard.core.errors import Forbidden, Unavailable
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import form_of
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.times import micro_time
from kubeshard.inspection.diagnosis import Diagnosis, Finding, Unchecked
from kubeshard.inspection.doctor import examine, split_image
from kubeshard.inspection.field_times import RenewedLease, WrittenMeta
from kubeshard.manager.roles import roles
from kubeshard.runtime.certificate_authority import new_authority, new_server_leaf
from kubeshard.sharder.webhook_config import SECRET_NAME
from kubeshard.sharding.names import RING_LABEL, webhook_config_name
from kubeshard_apiserver.testing import ControlPlane, EmbeddedApi

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/controllerrings.sharding.timebertt.dev"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/sharder"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
SERVICE = f"/api/v1/namespaces/{SYSTEM}/services/sharder"
RING_PATH = f"/apis/sharding.timebertt.dev/v1alpha1/controllerrings/{RING}"

Plant = Callable[[Installation], Awaitable[Any]]


class Mistake(NamedTuple):
    plant: Plant
    part: str
    severity: str
    problem: str
    command: str
    """A part of it."""


async def missing_field(here: Installation) -> None:
    versions = json.loads((await here.client.raw("GET", DEFINITION)).body)["spec"]["versions"]
    del versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["namespaceSelector"]
    await here.patch(DEFINITION, {"spec": {"versions": versions}})


async def scaled_to_zero(here: Installation) -> None:
    await here.patch(DEPLOYMENT, {"spec": {"replicas": 0}})


async def silent_leader(here: Installation) -> None:
    await here.stop_sharder()
    past = micro_time(time.time() - 120)
    await here.client.patch(
        Lease,
        "sharder",
        SYSTEM,
        MergePatch({"spec": {"holderIdentity": "gone", "renewTime": past, "leaseDurationSeconds": 15}}),
    )


async def no_right_to_patch_leases(here: Installation) -> None:
    await here.stop_sharder()
    role = json.loads((await here.client.raw("GET", f"{ROLES}/sharding:sharder")).body)
    rules = [each for each in role["rules"] if "leases" not in each["resources"]]
    leases = [each for each in role["rules"] if "leases" in each["resources"]]
    kept = [{**each, "verbs": [verb for verb in each["verbs"] if verb != "patch"]} for each in leases]
    await here.patch(f"{ROLES}/sharding:sharder", {"rules": [*rules, *kept]})


async def no_right_on_the_ring(here: Installation) -> None:
    await here.delete(f"{ROLES}/sharding:controllerring:{RING}")


async def wrong_authority(here: Installation) -> None:
    await here.stop_sharder()
    other = new_authority("other", time.time(), 3600.0).certificate
    await here.webhooks(caBundle=base64.b64encode(other).decode())


async def wrong_service(here: Installation) -> None:
    await here.webhooks(
        service={
            "namespace": SYSTEM,
            "name": "shard",
            "port": 443,
            "path": f"/webhooks/sharder/controllerring/{RING}",
        }
    )


async def service_of_another_namespace(here: Installation) -> None:
    path = f"/webhooks/sharder/controllerring/{RING}"
    await here.webhooks(service={"namespace": "other", "name": "sharder", "port": 443, "path": path})


async def expired_authority(here: Installation) -> None:
    past = new_authority("sharder", time.time() - 10 * 86400, 86400.0).certificate
    await here.webhooks(caBundle=base64.b64encode(past).decode())


async def no_right_to_patch_the_controlled_objects(here: Installation) -> None:
    path = f"{ROLES}/sharding:controllerring:{RING}"
    role = json.loads((await here.client.raw("GET", path)).body)
    rules = [{**each, "verbs": [verb for verb in each["verbs"] if verb != "patch"]} for each in role["rules"]]
    await here.patch(path, {"rules": rules})


async def shard_of_a_misspelt_ring(here: Installation) -> None:
    now = micro_time(time.time())
    spec = LeaseSpec(holder_identity="x", lease_duration_seconds=60, acquire_time=now, renew_time=now)
    meta = ObjectMeta(name="x", namespace="team", labels={RING_LABEL: "rr"})
    await here.client.create(Lease(metadata=meta, spec=spec))


async def wrong_port(here: Installation) -> None:
    await here.patch(
        SERVICE, {"spec": {"ports": [{"name": "webhook", "port": 8443, "targetPort": "webhook"}]}}
    )
    await here.webhooks(
        service={
            "namespace": SYSTEM,
            "name": "sharder",
            "port": 444,
            "path": f"/webhooks/sharder/controllerring/{RING}",
        }
    )


async def expired_certificate(here: Installation) -> None:
    """It is served from a Secret that nobody renewed."""
    await here.stop_sharder()
    long_ago = time.time() - 10 * 86400
    authority = new_authority("sharder", long_ago, 365 * 86400.0)
    leaf = new_server_leaf(authority, [f"sharder.{SYSTEM}.svc"], long_ago, 86400.0)
    await here.webhooks(caBundle=base64.b64encode(authority.certificate).decode())
    data = {"tls.crt": base64.b64encode(leaf.certificate).decode()}
    await here.client.patch(Secret, SECRET_NAME, SYSTEM, MergePatch({"data": data}))


async def fast_shard(here: Installation) -> None:
    await here.client.patch(
        Lease, "b", "team", MergePatch({"spec": {"renewTime": micro_time(time.time() + 60)}})
    )


async def missing_policy(here: Installation) -> None:
    await here.delete(f"{POLICIES}/validatingadmissionpolicies/sharding-sharder-leases")


async def unbound_policy(here: Installation) -> None:
    await here.delete(f"{POLICIES}/validatingadmissionpolicybindings/sharding-sharder-webhooks")


async def old_policy(here: Installation) -> None:
    path = f"{POLICIES}/validatingadmissionpolicies/sharding-sharder-leases"
    await here.patch(path, {"spec": {"validations": [{"expression": "true"}]}})


async def audited_policy(here: Installation) -> None:
    path = f"{POLICIES}/validatingadmissionpolicybindings/sharding-sharder-webhooks"
    await here.patch(path, {"spec": {"validationActions": ["Audit"]}})


async def policy_that_is_bound_to_nothing(here: Installation) -> None:
    """A field is added that the manifests do not set."""
    path = f"{POLICIES}/validatingadmissionpolicybindings/sharding-sharder-webhooks"
    never = {"objectSelector": {"matchLabels": {"never": "x"}}}
    await here.patch(path, {"spec": {"matchResources": never}})


async def policy_with_an_exception(here: Installation) -> None:
    path = f"{POLICIES}/validatingadmissionpolicies/sharding-sharder-rings"
    exception = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": ["*"],
    }
    await here.patch(path, {"spec": {"matchConstraints": {"excludeResourceRules": [exception]}}})


async def policy_with_a_condition(here: Installation) -> None:
    path = f"{POLICIES}/validatingadmissionpolicies/sharding-sharder-leases"
    found = json.loads((await here.client.raw("GET", path)).body)["spec"]["matchConditions"]
    await here.patch(path, {"spec": {"matchConditions": [*found, {"name": "never", "expression": "false"}]}})


async def webhook_of_no_ring(here: Installation) -> None:
    """As after a deletion with --cascade=orphan, or a restore."""
    found = await here.client.get(MutatingWebhookConfiguration, webhook_config_name(RING))
    text = json.dumps([*found.webhooks]).replace(f"controllerring/{RING}", "controllerring/ghost")
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "controllerring-ghost", "labels": {RING_LABEL: RING}},
        "webhooks": json.loads(text),
    }
    await here.client.apply(body)


async def foreign_authority(here: Installation) -> None:
    """Another manager owns the field, and the sharder runs."""
    other = new_authority("other", time.time(), 3600.0).certificate
    await here.webhooks(caBundle=base64.b64encode(other).decode())


async def old_sharder(here: Installation) -> None:
    containers = [{"name": "sharder", "image": "registry.example.com/kubeshard:0.0.9"}]
    await here.patch(DEPLOYMENT, {"spec": {"template": {"spec": {"containers": containers}}}})


async def unserved_resource(here: Installation) -> None:
    resources = [{"group": "", "resource": "secrets"}, {"group": "example.com", "resource": "things"}]
    await here.patch(RING_PATH, {"spec": {"resources": resources}})


async def missing_namespace_of_shards(here: Installation) -> None:
    annotation = "alpha.sharding.timebertt.dev/shard-namespaces"
    await here.patch(RING_PATH, {"metadata": {"annotations": {annotation: "team,nowhere"}}})


async def stuck_drain(here: Installation) -> None:
    await here.stop_sharder()
    await here.cluster.conditions(
        ("Ready", "True", ""), ("DrainStuck", "True", "1 object on a has not been released for 90 s")
    )


async def unassigned_object(here: Installation) -> None:
    await here.stop_sharder()
    await here.cluster.secret("late")


async def no_shard(here: Installation) -> None:
    for name in ("a", "b"):
        await here.client.patch(Lease, name, "team", MergePatch({"spec": {"holderIdentity": ""}}))


async def deleted_ring(here: Installation) -> None:
    now = micro_time(time.time())
    spec = LeaseSpec(holder_identity="", lease_duration_seconds=15, acquire_time=now, renew_time=now)
    meta = ObjectMeta(name="x", namespace="other", labels={RING_LABEL: "forgotten"})
    await here.client.create(Lease(metadata=meta, spec=spec))


MISTAKES: Mapping[str, Mistake] = {
    "an old definition": Mistake(
        missing_field, "definition", "error", "it lacks spec.namespaceSelector", "--part crd"
    ),
    "a Deployment without pods": Mistake(
        scaled_to_zero, "deployment", "error", "is scaled to zero", "scale deployment/sharder --replicas=2"
    ),
    "a leader that is silent": Mistake(
        silent_leader, "leader", "error", "has not renewed the Lease", "rollout restart deployment/sharder"
    ),
    "a right of the sharder's that is missing": Mistake(
        no_right_to_patch_leases,
        "rights",
        "error",
        "the sharder may not patch leases.coordination.k8s.io",
        "--part rights",
    ),
    "a ring that the sharder may not assign": Mistake(
        no_right_on_the_ring,
        f"rights on ring {RING}",
        "error",
        "the sharder may not get, list, patch, watch configmaps",
        "kubeshard manifests ring -",
    ),
    "a webhook with a foreign authority": Mistake(
        wrong_authority,
        f"certificates of ring {RING}",
        "error",
        "is not that of the sharder's certificate",
        f"delete mutatingwebhookconfiguration controllerring-{RING}",
    ),
    "an authority that somebody else has set": Mistake(
        foreign_authority,
        f"certificates of ring {RING}",
        "error",
        "is not that of the sharder's certificate",
        f"kubectl delete mutatingwebhookconfiguration controllerring-{RING}",
    ),
    "a policy that only warns": Mistake(
        audited_policy,
        "policies",
        "warning",
        "sharding-sharder-webhooks is not that of",
        "kubectl replace -f -",
    ),
    "a policy that is bound to nothing": Mistake(
        policy_that_is_bound_to_nothing,
        "policies",
        "warning",
        "ValidatingAdmissionPolicyBinding sharding-sharder-webhooks is not that of",
        "kubectl replace -f -",
    ),
    "a policy with an exception": Mistake(
        policy_with_an_exception,
        "policies",
        "warning",
        "ValidatingAdmissionPolicy sharding-sharder-rings is not that of",
        "kubectl replace -f -",
    ),
    "a policy with a condition": Mistake(
        policy_with_a_condition,
        "policies",
        "warning",
        "sharding-sharder-leases is not that of",
        "kubectl replace -f -",
    ),
    "a webhook of no ring": Mistake(
        webhook_of_no_ring,
        "deleted rings",
        "warning",
        "controllerring-ghost belongs to no ring",
        "kubectl delete mutatingwebhookconfiguration controllerring-ghost",
    ),
    "a webhook at another Service": Mistake(
        wrong_service,
        f"webhook of ring {RING}",
        "error",
        f"there is no Service {SYSTEM}/shard",
        f"kubectl delete mutatingwebhookconfiguration controllerring-{RING}",
    ),
    "a Service without the port": Mistake(
        wrong_port,
        f"webhook of ring {RING}",
        "error",
        "at port 444 of the Service",
        f"kubectl delete mutatingwebhookconfiguration controllerring-{RING}",
    ),
    "a webhook at the Service of another namespace": Mistake(
        service_of_another_namespace,
        f"webhook of ring {RING}",
        "error",
        "is that of the Service other/sharder",
        f"kubectl delete mutatingwebhookconfiguration controllerring-{RING}",
    ),
    "an authority that has expired": Mistake(
        expired_authority,
        f"certificates of ring {RING}",
        "error",
        "webhook has expired 9 days ago",
        f"kubectl delete mutatingwebhookconfiguration controllerring-{RING}",
    ),
    "a role of a ring without patch": Mistake(
        no_right_to_patch_the_controlled_objects,
        f"rights on ring {RING}",
        "error",
        "the sharder may not patch configmaps",
        "kubeshard manifests ring -",
    ),
    "a shard of a ring that does not exist": Mistake(
        shard_of_a_misspelt_ring,
        "deleted rings",
        "warning",
        "shards run for the ring rr, which does not exist",
        "kubectl get leases",
    ),
    "an expired certificate": Mistake(
        expired_certificate,
        f"certificates of ring {RING}",
        "error",
        "has expired 9 days ago",
        "delete secret",
    ),
    "a shard whose clock is fast": Mistake(
        fast_shard, "clocks", "warning", "of the Lease team/b is", "get pods -o wide"
    ),
    "a policy that is missing": Mistake(
        missing_policy, "policies", "warning", "sharding-sharder-leases is missing", "--part policies"
    ),
    "a policy without a binding": Mistake(
        unbound_policy, "policies", "warning", "its policy does nothing", "--part policies"
    ),
    "a policy of another version": Mistake(
        old_policy, "policies", "warning", "sharding-sharder-leases is not that of", "--part policies"
    ),
    "a sharder of another version": Mistake(
        old_sharder,
        "deployment",
        "warning",
        "the sharder is of version 0.0.9",
        "set image deployment/sharder",
    ),
    "a resource that is not served": Mistake(
        unserved_resource,
        f"ring {RING}",
        "warning",
        "things.example.com",
        f"kubectl edit controllerring {RING}",
    ),
    "a namespace of shards that is missing": Mistake(
        missing_namespace_of_shards,
        f"ring {RING}",
        "warning",
        "the namespace nowhere",
        "create namespace nowhere",
    ),
    "a drain that is stuck": Mistake(
        stuck_drain,
        f"ring {RING}",
        "warning",
        "has not been released for 90 s",
        f"kubectl get leases --all-namespaces -l {RING_LABEL}={RING}",
    ),
    "an object without a shard": Mistake(
        unassigned_object,
        f"ring {RING}",
        "error",
        "secrets without a shard: 1 (team/late)",
        "logs deployment/sharder",
    ),
    "a ring without shards": Mistake(
        no_shard, f"ring {RING}", "error", "no shard is available", f"controllerring={RING}"
    ),
    "a ring that was deleted": Mistake(
        deleted_ring, "deleted rings", "warning", "the ring forgotten, which does not exist", "delete leases"
    ),
}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Installation]:
    async with installation(tmp_path) as made:
        yield made


async def diagnosed(here: Installation) -> Diagnosis:
    return await examine(here.client)


async def test_nothing_is_found_where_all_is_well(here: Installation) -> None:
    await here.renew()
    found = await diagnosed(here)
    assert (found.findings, found.unchecked, found.exit_code) == ([], [], 0)
    assert f"webhook of ring {RING}" in found.examined


@pytest.mark.system  # each waits for a sharder to begin
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
async def test_a_mistake_is_found_with_what_mends_it(here: Installation, mistake: Mistake) -> None:
    found = await finds(here, mistake)
    assert found.fixes or "#" not in found.command, "that it does not fix it is the only comment"


MENDED = (
    "an old definition",
    "a Deployment without pods",
    "a right of the sharder's that is missing",
    "a ring that the sharder may not assign",
    "an authority that somebody else has set",
    "a policy that is missing",
    "a policy without a binding",
    "a policy of another version",
    "a policy that only warns",
    "a policy that is bound to nothing",
    "a policy with an exception",
    "a policy with a condition",
    "a sharder of another version",
    "a namespace of shards that is missing",
    "a ring that was deleted",
    "a webhook of no ring",
    "a webhook at another Service",
    "a webhook at the Service of another namespace",
    "a Service without the port",
    "an authority that has expired",
    "a role of a ring without patch",
    "a leader that is silent",
)
"""Whose command is all that is needed. Two others, an expired certificate and an authority that is not that of the
certificate, are put right by any sharder that runs.
"""

MENDED_ALIKE = (
    "a policy without a binding",
    "a policy of another version",
    "a policy that only warns",
    "a policy with an exception",
    "a policy with a condition",
)
"""By the command that mends a policy that is missing."""

SHOWN = (
    "a shard whose clock is fast",
    "a drain that is stuck",
    "an object without a shard",
    "a ring without shards",
    "a resource that is not served",
    "a shard of a ring that does not exist",
)


@pytest.mark.kube  # for kubectl
@pytest.mark.system
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name in MENDED_ALIKE else ()) for name in MENDED],
)
async def test_the_command_of_a_finding_makes_it_go_away(
    here: Installation, name: str, tmp_path: Path
) -> None:
    await is_mended(here, MISTAKES[name], tmp_path / "kubeconfig")


@pytest.mark.system
@pytest.mark.parametrize("name", SHOWN)
async def test_a_command_that_mends_nothing_says_so(here: Installation, name: str) -> None:
    found = await finds(here, MISTAKES[name])
    assert not found.fixes


async def is_mended(here: Installation, mistake: Mistake, kubeconfig: Path) -> None:
    found = await finds(here, mistake)
    assert found.fixes
    pods = asyncio.create_task(here.start_with_new_pods())
    await typed(found.command, kubeconfig)

    async def is_gone() -> bool:
        return not any(each.problem == found.problem for each in (await diagnosed(here)).findings)

    await until(is_gone, 30.0)
    pods.cancel()


ON_A_REAL_SERVER = (
    "an old definition",
    "a ring that the sharder may not assign",
    "a webhook with a foreign authority",
    "a shard whose clock is fast",
    "a policy that is bound to nothing",
    "an object without a shard",
)
"""Where it matters how the server stores, authorizes, dates and calls."""


@pytest.fixture
def kube_control_plane(kube_options: dict[str, bool]) -> Iterator[ControlPlane]:
    """One of its own, since the doctor sees what other tests have left."""
    with ControlPlane(controller_manager=kube_options["controllers"], pods=kube_options["pods"]) as kube:
        yield kube


BESIDES = (
    Grant.on(GroupResource("apiextensions.k8s.io", "customresourcedefinitions"), "get"),
    Grant.on(GroupResource("apps", "deployments"), "get", namespace=SYSTEM),
    Grant.on(GroupResource("admissionregistration.k8s.io", "validatingadmissionpolicies"), "get"),
    Grant.on(GroupResource("admissionregistration.k8s.io", "validatingadmissionpolicybindings"), "get"),
    Grant.on(Secret, "get", namespace=SYSTEM, name=SECRET_NAME),
    Grant.on(GroupResource("authorization.k8s.io", "subjectaccessreviews"), "create"),
    Grant.on(Secret, "patch"),
    Grant.on(GroupResource("", "services"), "get", namespace=SYSTEM),
    Grant.on(GroupResource("discovery.k8s.io", "endpointslices"), "list", namespace=SYSTEM),
)
"""What the page names beside the roles of a reader."""


async def test_the_rights_that_the_page_names_are_enough_for_a_whole_examination(here: Installation) -> None:
    await is_examined_with_the_rights_of_the_page(here)


async def test_the_rights_that_the_page_names_are_enough_on_a_real_server(
    kube_control_plane: ControlPlane,
) -> None:
    async with real_installation(kube_control_plane) as here:
        await is_examined_with_the_rights_of_the_page(here)


async def is_examined_with_the_rights_of_the_page(here: Installation) -> None:
    """Where all is well, and where the webhook is not called."""
    grants = (*reader_grants(each.KIND.group_resource for each in (Secret, ConfigMap)), *BESIDES)
    async with examiner(here, grants) as client:
        await here.renew()
        found = await examine(client)
        assert [
            each for each in found.findings if each.part != "deployment"
        ] == []  # its pods may be starting
        assert found.unchecked == []
        await wrong_authority(here)
        found = await examine(client)
        assert f"webhook of ring {RING}" in {each.part for each in found.findings}
        assert found.unchecked == []


async def test_objects_that_the_user_may_not_list_are_unknown_and_not_the_rings_fault(
    here: Installation,
) -> None:
    grants = (*reader_grants([Secret.KIND.group_resource]), *BESIDES)
    async with examiner(here, grants) as client:
        await here.renew()
        found = await examine(client)
    assert (found.findings, found.exit_code) == ([], 0)
    assert found.unchecked == [
        Unchecked(f"ring {RING}", "not counted: you may not list configmaps: ask for the right to list it")
    ]


async def test_a_kind_that_the_api_server_cannot_list_is_a_warning_whose_command_shows_why(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = Client.list

    def failing(self: Client, target: Any, *where: Any, **how: Any) -> Any:
        if form_of(target).kind == ConfigMap.KIND:
            raise Unavailable("the conversion webhook does not answer")
        return lists(self, target, *where, **how)

    await here.renew()
    monkeypatch.setattr(Client, "list", failing)
    found = await diagnosed(here)
    (finding,) = found.findings
    assert (finding.severity, finding.command) == ("warning", "kubectl get configmaps --all-namespaces")
    assert "the conversion webhook does not answer" in finding.problem


@asynccontextmanager
async def examiner(here: Installation, grants: Iterable[Grant]) -> AsyncIterator[Client]:
    """The client of a user who may do no more than this."""
    for manifest in roles(grants, "examiner", account=("team", "examiner")):
        await here.client.apply_manifest(manifest)
    user = {"Impersonate-User": "system:serviceaccount:team:examiner"}
    async with Client(dataclasses.replace(here.config, impersonate=user), world=here.client.world) as client:

        async def is_authorized() -> bool:
            return await client.can_i("list", "discovery.k8s.io", "endpointslices", namespace=SYSTEM)

        await until(is_authorized)
        yield client


async def test_a_real_server_shows_the_same(kube_control_plane: ControlPlane) -> None:
    for name in ON_A_REAL_SERVER:
        async with real_installation(kube_control_plane) as here:
            await here.renew()
            found = await diagnosed(here)
            assert {each.part for each in found.findings} <= {
                "deployment"
            }  # whose pods may still be starting
            assert found.unchecked == []
            if name in MENDED:
                await is_mended(here, MISTAKES[name], kube_control_plane.kubeconfig)
            else:
                await finds(here, MISTAKES[name])


async def finds(here: Installation, mistake: Mistake) -> Finding:
    """Within seconds, since the sharder may still be about to notice."""
    await mistake.plant(here)
    seen, found = await diagnosed(here), list[Finding]()

    async def is_found() -> bool:
        nonlocal seen, found
        seen = await diagnosed(here)
        found = [
            each
            for each in seen.findings
            if each.part == mistake.part
            and mistake.problem in each.problem
            and mistake.command in each.command
            if each.severity == mistake.severity
        ]
        return bool(found)

    try:
        await until(is_found, 20.0)
    except AssertionError:
        pytest.fail("\n".join(map(str, (*seen.findings, *seen.unchecked))))
    assert seen.exit_code == (2 if any(each.severity == "error" for each in seen.findings) else 1)
    return found[0]


async def test_a_right_that_the_user_lacks_leaves_out_one_part_and_is_said(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = Client.raw

    async def refused(self: Client, method: str, path: str, *arguments: Any, **how: Any) -> Any:
        if path.endswith("subjectaccessreviews"):
            raise Forbidden("no")
        return await raw(self, method, path, *arguments, **how)

    await here.renew()
    monkeypatch.setattr(Client, "raw", refused)
    found = await diagnosed(here)
    assert (found.findings, found.exit_code) == ([], 0)
    assert [each.part for each in found.unchecked] == ["rights", f"rights on ring {RING}"]
    assert "you may not create subjectaccessreviews.authorization.k8s.io" in found.unchecked[0].reason


async def test_the_clock_of_this_machine_is_compared(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the date of an answer, which real servers send."""
    raw = Client.raw

    async def dated(self: Client, method: str, path: str, *arguments: Any, **how: Any) -> Any:
        answer = await raw(self, method, path, *arguments, **how)
        date = formatdate(time.time() - 60.0, usegmt=True)
        return answer._replace(headers={**answer.headers, "date": date}) if path == "/version" else answer

    monkeypatch.setattr(Client, "raw", dated)
    (finding,) = (each for each in (await diagnosed(here)).findings if each.part == "clocks")
    assert re.fullmatch(r"this machine's clock is 6\d s ahead of the API server's", finding.problem)
    assert (finding.severity, finding.command) == ("warning", "timedatectl set-ntp true")


@pytest.mark.parametrize(
    ("renewed", "written", "ahead"),
    [
        ("2026-01-01T00:00:00.900000Z", "2026-01-01T00:00:00Z", 0.0),
        ("2026-01-01T00:01:01.000000Z", "2026-01-01T00:00:00Z", 60.0),
        ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:01:00Z", -60.0),
        ("2026-01-01T00:00:00.000000Z", None, None),
        (None, "2026-01-01T00:01:00Z", None),
    ],
)
def test_a_clock_is_known_from_a_lease_and_when_it_was_written(
    renewed: str | None, written: str | None, ahead: float | None
) -> None:
    entry = {"time": written, "fieldsV1": {"f:spec": {"f:renewTime": {}}}}
    other = {"time": "2026-02-01T00:00:00Z", "fieldsV1": {"f:metadata": {"f:labels": {}}}}
    lease = RenewedLease(
        metadata=WrittenMeta(managed_fields=(entry, other)), spec=LeaseSpec(renew_time=renewed)
    )
    assert lease.skew == ahead


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("kubeshard:1.0", ("kubeshard", "1.0")),
        ("registry.example.com:5000/kubeshard", ("registry.example.com:5000/kubeshard", "")),
        ("a/kubeshard:v1@sha256:" + "a" * 64, ("a/kubeshard", "v1")),
    ],
)
def test_the_version_is_that_of_the_image(image: str, parts: tuple[str, str]) -> None:
    assert split_image(image) == parts


@pytest.fixture(scope="module")
def empty() -> Iterator[EmbeddedApi]:
    api = EmbeddedApi(controllers=False, pods=False)
    yield api
    api.stop()


def test_a_cluster_where_nothing_is_sharded_is_told_so_in_one_sentence(
    empty: EmbeddedApi, kubectl_shard: KubectlShard
) -> None:
    kubectl_shard.at(empty.kubeconfig)
    done = kubectl_shard("doctor")
    assert (done.code, done.err) == (1, "")
    assert "installation: nothing is sharded here: there is neither a ring nor a sharder" in done.out
    assert "kubeshard manifests sharder | kubectl apply --server-side --force-conflicts -f -\n" in done.out
    found = kubectl_shard("doctor", "-o", "json")
    assert [(each["part"], each["severity"]) for each in found.json["findings"]] == [
        ("installation", "warning")
    ]
    assert kubectl_shard("doctor", "-o", "name").out.split() == ["installation"]


def test_what_is_left_of_an_installation_has_errors(empty: EmbeddedApi, kubectl_shard: KubectlShard) -> None:
    kubectl_shard.at(empty.kubeconfig)
    lease = Lease(metadata=ObjectMeta(name="sharder", namespace="kube-system"))
    empty.call(lambda client: client.create(lease))
    done = kubectl_shard("doctor", "-n", "kube-system")
    assert done.code == 2
    assert (
        "error    definition: the CustomResourceDefinition controllerrings.sharding.timebertt.dev is missing\n"
        "           kubeshard manifests sharder --part crd --set namespace=kube-system"
    ) in done.out
    assert "there is no Deployment kube-system/sharder" in done.out
    assert set(kubectl_shard("doctor", "-n", "kube-system", "-o", "name").out.split()) == {
        "definition",
        "deployment",
        "rights",
        "policies",
    }


def test_a_cluster_that_does_not_answer_is_an_error(tmp_path: Path, kubectl_shard: KubectlShard) -> None:
    api = EmbeddedApi(controllers=False, pods=False)
    (tmp_path / "kubeconfig").write_text(api.kubeconfig.read_text())
    api.stop()
    done = kubectl_shard.at(tmp_path / "kubeconfig")("doctor")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: the cluster does not answer: ")
