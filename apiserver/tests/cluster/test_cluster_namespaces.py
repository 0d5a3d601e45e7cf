"""The life of a namespace: its initial objects, and its deletion."""

from __future__ import annotations

from typing import Any

from cluster_api import ClusterApi, condition, config_map, template
from test_cluster_gc import GADGET, HELD, install_gadgets, release


def itself(api: ClusterApi) -> str:
    return f"/api/v1/namespaces/{api.namespace}"


async def test_a_deleted_namespace_is_emptied_and_then_gone(api: ClusterApi) -> None:
    await api.create("configmaps", config_map("a"))
    await api.create("secrets", config_map("a"))
    await api.create("pods", {"metadata": {"name": "a"}, "spec": template()["spec"]})
    await api.create(
        "deployments",
        {
            "metadata": {"name": "a"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template(app="a")},
        },
    )
    await api.delete(itself(api))
    await api.until_gone(itself(api), "configmaps/a", "secrets/a", "pods/a", "deployments/a")


async def test_custom_resources_go_with_their_namespace(api: ClusterApi) -> None:
    await install_gadgets(api)
    await api.create("gadgets", {**GADGET, "metadata": {"name": "a"}})
    await api.delete(itself(api))
    await api.until_gone(itself(api), "gadgets/a")


async def test_content_with_finalizers_is_waited_for_and_named(api: ClusterApi) -> None:
    await api.create("configmaps", config_map("a", finalizers=[HELD, "kubeshard.test/other"]))
    await api.create("configmaps", config_map("b", finalizers=[HELD]))
    await api.create("secrets", config_map("a", finalizers=[HELD]))
    await api.delete(itself(api))

    async def says_so() -> Any:
        found = await api.get(itself(api))
        held = condition(found, "NamespaceFinalizersRemaining")
        return found if held and held["status"] == "True" else None

    found = await api.until(says_so, "the namespace says what holds it")
    assert found["status"]["phase"] == "Terminating"
    said = [
        (each["type"], each["status"], each["reason"], each["message"])
        for each in found["status"]["conditions"]
    ]
    assert said == [
        (
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 2 resource instances, secrets. has 1 resource instances",
        ),
        (
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: kubeshard.test/held in 3 resource instances, "
            "kubeshard.test/other in 1 resource instances",
        ),
    ]
    for path in ("configmaps/a", "configmaps/b", "secrets/a"):
        await release(api, path)
    await api.until_gone(itself(api))


async def test_what_cannot_be_deleted_is_named_and_does_not_keep_the_rest(api: ClusterApi) -> None:
    policies, name = (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        f"keep-{api.namespace}",
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["secrets"]}
    of_others = {"expression": f"request.namespace != '{api.namespace}'", "message": "kept"}
    await api.create(
        policies,
        {
            "metadata": {"name": name},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [of_others]},
        },
    )
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    await api.create(policies.replace("policies", "policybindings"), binding)
    await api.create("secrets", config_map("kept"))
    await api.create("services", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})

    async def is_refused() -> bool:
        code, _ = await api.attempt("DELETE", "secrets/kept?dryRun=All", None)
        return code == 422

    await api.until(is_refused, "the policy is in force")
    await api.delete(itself(api))

    async def says_so() -> Any:
        failure = condition(await api.get(itself(api)), "NamespaceDeletionContentFailure")
        return failure if failure and failure["status"] == "True" else None

    failure = await api.until(says_so, "the namespace says what cannot be deleted")
    assert failure["reason"] == "ContentDeletionFailed"
    assert failure["message"].startswith("Failed to delete all resource types, 1 remaining: ")
    assert failure["message"].endswith("denied request: kept")
    await api.until_gone("services/a")
    await api.delete(f"{policies}/{name}")
    await api.until_gone(itself(api))


async def test_pods_go_before_everything_else(api: ClusterApi) -> None:
    # kwok removes all finalizers of a running pod.
    spec = {**template()["spec"], "nodeSelector": {"no": "where"}}
    await api.create("pods", {"metadata": {"name": "a", "finalizers": [HELD]}, "spec": spec})
    await api.create("configmaps", config_map("a"))
    await api.delete(itself(api))

    async def is_deleted() -> bool:
        conditions = (await api.get(itself(api)))["status"].get("conditions")
        return bool(conditions and "deletionTimestamp" in (await api.get("pods/a"))["metadata"])

    await api.until(is_deleted, "the pod is being deleted")
    assert await api.get("configmaps/a")
    # The conditions are about the objects that are deleted after the pods.
    said = condition(await api.get(itself(api)), "NamespaceContentRemaining")
    assert (said["status"], said["reason"]) == ("False", "ContentRemoved")
    await release(api, "pods/a")
    await api.until_gone(itself(api))


async def test_a_namespace_with_a_finalizer_of_its_own_is_emptied_but_stays(api: ClusterApi) -> None:
    await api.patch(itself(api), {"metadata": {"finalizers": [HELD]}})
    await api.create("configmaps", config_map("a"))
    await api.delete(itself(api))
    await api.until_gone("configmaps/a")

    async def is_finalized() -> bool:
        return "finalizers" not in (await api.get(itself(api)))["spec"]

    await api.until(is_finalized, "the namespace is finalized")
    await release(api, itself(api))
    await api.until_gone(itself(api))


async def test_every_namespace_has_a_service_account_and_the_authority(api: ClusterApi) -> None:
    async def namespace_objects() -> Any:
        account, authority = (
            await api.get("serviceaccounts/default"),
            await api.get("configmaps/kube-root-ca.crt"),
        )
        return (account, authority) if account and authority else None

    account, authority = await api.until(namespace_objects, "the namespace has its objects")
    assert list(authority["data"]) == ["ca.crt"]
    assert list(authority["metadata"]["annotations"]) == ["kubernetes.io/description"]
    await api.delete("serviceaccounts/default")
    await api.delete("configmaps/kube-root-ca.crt")

    async def given_again() -> bool:
        found = await namespace_objects()
        return bool(found and found[0]["metadata"]["uid"] != account["metadata"]["uid"])

    await api.until(given_again, "the namespace has its objects again")


async def test_the_authority_in_a_namespace_is_kept_as_it_is(api: ClusterApi) -> None:
    async def authority() -> Any:
        return await api.get("configmaps/kube-root-ca.crt")

    before = await api.until(authority, "the authority is there")
    await api.patch("configmaps/kube-root-ca.crt", {"data": {"ca.crt": "mine", "more": "b"}})

    async def restored() -> bool:
        return bool((await authority())["data"] == before["data"])

    await api.until(restored, "the authority is what it was")
