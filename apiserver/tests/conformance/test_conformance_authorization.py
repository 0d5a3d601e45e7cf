"""Authorization: RBAC, its messages, and when it is consulted."""

import pytest
from conformance_access import (
    GROUP,
    RBAC,
    account,
    grant,
    may,
    role_ref,
    rule,
    token_of,
    until_held,
    urls,
    user,
)
from conformance_api import until
from conformance_kinds import config_map

APPLY_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}


def cannot(verb, resource, group="", where="at the cluster scope", who="jo"):
    return f'User "{who}" cannot {verb} resource "{resource}" in API group "{group}" {where}'


IN_DEFAULT = 'in the namespace "default"'
PODS = "/api/v1/namespaces/default/pods"

# Messages of refusals.


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/api/v1/pods", f"pods is forbidden: {cannot('list', 'pods')}"),
        ("GET", PODS, f"pods is forbidden: {cannot('list', 'pods', where=IN_DEFAULT)}"),
        ("POST", PODS, f"pods is forbidden: {cannot('create', 'pods', where=IN_DEFAULT)}"),
        ("DELETE", PODS, f"pods is forbidden: {cannot('deletecollection', 'pods', where=IN_DEFAULT)}"),
        ("GET", f"{PODS}/x", f'pods "x" is forbidden: {cannot("get", "pods", where=IN_DEFAULT)}'),
        ("PUT", f"{PODS}/x", f'pods "x" is forbidden: {cannot("update", "pods", where=IN_DEFAULT)}'),
        ("PATCH", f"{PODS}/x", f'pods "x" is forbidden: {cannot("patch", "pods", where=IN_DEFAULT)}'),
        ("DELETE", f"{PODS}/x", f'pods "x" is forbidden: {cannot("delete", "pods", where=IN_DEFAULT)}'),
        ("GET", f"{PODS}/x/log", f'pods "x" is forbidden: {cannot("get", "pods/log", where=IN_DEFAULT)}'),
        (
            "PUT",
            f"{PODS}/x/status",
            f'pods "x" is forbidden: {cannot("update", "pods/status", where=IN_DEFAULT)}',
        ),
        (
            "POST",
            f"{PODS}/x/exec",
            f'pods "x" is forbidden: {cannot("create", "pods/exec", where=IN_DEFAULT)}',
        ),
        (
            "GET",
            "/apis/apps/v1/namespaces/default/deployments/x/scale",
            f'deployments.apps "x" is forbidden: {cannot("get", "deployments/scale", "apps", IN_DEFAULT)}',
        ),
        ("GET", "/api/v1/namespaces", f"namespaces is forbidden: {cannot('list', 'namespaces')}"),
        (
            "GET",
            "/api/v1/namespaces/default",
            f'namespaces "default" is forbidden: {cannot("get", "namespaces", where=IN_DEFAULT)}',
        ),
        (
            "PUT",
            "/api/v1/namespaces/default/finalize",
            f'namespaces "default" is forbidden: {cannot("update", "namespaces/finalize", where=IN_DEFAULT)}',
        ),
        ("GET", "/api/v1/nodes/n", f'nodes "n" is forbidden: {cannot("get", "nodes")}'),
        ("GET", "/api/v1/nodes/n/proxy/a/b", f'nodes "n" is forbidden: {cannot("get", "nodes/proxy")}'),
        ("GET", "/metrics", 'forbidden: User "jo" cannot get path "/metrics"'),
        ("POST", "/nonsense", 'forbidden: User "jo" cannot post path "/nonsense"'),
        ("GET", "/a%20b?c=d", 'forbidden: User "jo" cannot get path "/a b"'),
    ],
)
async def test_a_refusal_says_who_what_and_where(api, method, path, message):
    refused = await api.acting_as("jo").call(method, path)
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == message


async def test_a_refusal_has_the_resource_and_the_name_in_its_details(api):
    acting = api.acting_as("jo")
    refused = await acting.get("/apis/apps/v1/namespaces/default/deployments/x")
    assert refused.details == {"name": "x", "group": "apps", "kind": "deployments"}
    assert (await acting.get("/metrics")).details == {}


async def test_names_in_a_refusal_are_no_markup(api):
    refused = await api.acting_as("<b>&").get("/metrics")
    assert refused.message == 'forbidden: User "&lt;b&gt;&amp;" cannot get path "/metrics"'


@pytest.mark.parametrize(
    ("query", "verb"),
    [
        ("watch=1", "watch"),
        ("watch", "watch"),
        ("watch=x", "watch"),
        ("watch=0", "list"),
        ("watch=false", "list"),
    ],
)
async def test_a_list_that_watches_is_a_watch(api, query, verb):
    refused = await api.acting_as("jo").call("GET", f"{PODS}?{query}")
    assert refused.message == f"pods is forbidden: {cannot(verb, 'pods', where=IN_DEFAULT)}"


async def test_the_old_path_of_watches_is_a_watch(api):
    refused = await api.acting_as("jo").get("/api/v1/watch/namespaces/default/pods")
    assert refused.message == f"pods is forbidden: {cannot('watch', 'pods', where=IN_DEFAULT)}"


async def test_a_get_that_watches_is_a_get(api):
    refused = await api.acting_as("jo").get(f"{PODS}/x", watch=1)
    assert refused.message == f'pods "x" is forbidden: {cannot("get", "pods", where=IN_DEFAULT)}'


@pytest.mark.parametrize(
    ("selector", "named"),
    [
        ("metadata.name=x", 'pods "x"'),
        ("status.phase=Running,metadata.name=x", 'pods "x"'),
        ("metadata.name!=x", "pods"),
        ("metadata.name=a/b", "pods"),
    ],
)
async def test_a_list_of_one_named_object_is_about_its_name(api, selector, named):
    refused = await api.acting_as("jo").get(PODS, fieldSelector=selector)
    assert refused.message == f"{named} is forbidden: {cannot('list', 'pods', where=IN_DEFAULT)}"


@pytest.mark.parametrize(
    ("path", "start"),
    [
        ("/apis/none.example.com/v1/nothings", "nothings.none.example.com is forbidden: "),
        ("/apis/apps/v1/nothings", "nothings.apps is forbidden: "),
        ("/api/v9/pods", "pods is forbidden: "),
        (f"{PODS}?limit=x", "pods is forbidden: "),
    ],
)
async def test_rights_are_asked_before_there_is_such_a_thing(api, path, start):
    refused = await api.acting_as("jo").get(path)
    assert refused.refusal == (403, "Forbidden")
    assert refused.message.startswith(start)


@pytest.mark.parametrize("path", ["/api", "/apis", "/api/v1", "/apis/apps/v1", "/version", "/healthz"])
async def test_everybody_who_is_known_may_discover(api, path):
    assert (await api.acting_as("jo").get(path)).status == 200


# Rights that rules grant.


async def test_a_role_allows_its_verbs_in_its_namespace(api, ns, name):
    jo = await grant(api, name, rule("get list create", "configmaps"), ns=ns)
    maps = f"/api/v1/namespaces/{ns}/configmaps"
    assert (await jo.create(maps, config_map())).status == 201
    assert (await jo.get(f"{maps}/a")).status == 200
    assert (await jo.get(maps)).status == 200
    where = f'in the namespace "{ns}"'
    refused = await jo.delete(f"{maps}/a")
    assert (
        refused.message
        == f'configmaps "a" is forbidden: {cannot("delete", "configmaps", where=where, who=name)}'
    )
    assert (await jo.get("/api/v1/configmaps")).refusal == (403, "Forbidden")
    assert (await jo.get("/api/v1/namespaces/default/configmaps")).refusal == (403, "Forbidden")


async def test_a_cluster_role_bound_in_a_namespace_allows_there_only(api, ns, name):
    made = await api.create(
        f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule("list", "secrets")]}
    )
    assert made.status == 201, made.text
    binding = {"metadata": {"name": name}, "roleRef": role_ref("ClusterRole", name), "subjects": [user(name)]}
    assert (await api.create(f"{RBAC}/namespaces/{ns}/rolebindings", binding)).status == 201
    jo = api.acting_as(name)
    await until_held(jo, rule("list", "secrets"), ns=ns)
    assert (await jo.get(f"/api/v1/namespaces/{ns}/secrets")).status == 200
    assert (await jo.get("/api/v1/secrets")).refusal == (403, "Forbidden")


@pytest.mark.parametrize(
    ("resources", "asked", "allowed"),
    [
        ("pods", {"resource": "pods"}, True),
        ("pods", {"resource": "pods", "subresource": "status"}, False),
        ("pods/status", {"resource": "pods", "subresource": "status"}, True),
        ("pods/status", {"resource": "pods"}, False),
        ("*/scale", {"resource": "things", "subresource": "scale"}, True),
        ("*/scale", {"resource": "things", "subresource": "status"}, False),
        ("*/scale", {"resource": "things"}, False),
        ("pods/*", {"resource": "pods", "subresource": "status"}, False),
        ("*", {"resource": "pods", "subresource": "status"}, True),
    ],
)
async def test_rules_name_resources_and_their_subresources(api, name, resources, asked, allowed):
    jo = await grant(api, name, rule("get", resources))
    assert (await may(jo, verb="get", **asked))["allowed"] is allowed


@pytest.mark.parametrize(
    ("verbs", "groups", "asked", "allowed"),
    [
        ("get", "", {"verb": "get", "group": "apps"}, False),
        ("get", "apps", {"verb": "get", "group": "apps"}, True),
        ("get", "*", {"verb": "get", "group": "apps"}, True),
        ("get", "*", {"verb": "list", "group": "apps"}, False),
        ("*", "apps", {"verb": "anything", "group": "apps"}, True),
        ("get", "apps", {"verb": "*", "group": "apps"}, False),
    ],
)
async def test_rules_name_verbs_and_groups(api, name, verbs, groups, asked, allowed):
    jo = await grant(api, name, rule(verbs, "things", groups))
    assert (await may(jo, resource="things", **asked))["allowed"] is allowed


async def test_a_rule_may_name_objects(api, ns, name):
    jo = await grant(api, name, rule("get list create", "configmaps", resourceNames=["a"]), ns=ns)
    maps = f"/api/v1/namespaces/{ns}/configmaps"
    assert (await jo.get(f"{maps}/a")).refusal == (404, "NotFound")
    assert (await jo.get(f"{maps}/b")).refusal == (403, "Forbidden")
    assert (await jo.get(maps)).refusal == (403, "Forbidden")
    assert (await jo.get(maps, fieldSelector="metadata.name=a")).status == 200
    assert (await jo.create(maps, config_map())).refusal == (403, "Forbidden")


@pytest.mark.parametrize(
    ("path", "asked", "allowed"),
    [
        ("/logs", "/logs", True),
        ("/logs", "/logs/", False),
        ("/logs", "/logs/a", False),
        ("/logs/*", "/logs/a/b", True),
        ("/logs/*", "/logs", False),
        ("/logs*", "/logsomething", True),
        ("*", "/whatever", True),
    ],
)
async def test_rules_name_paths(api, name, path, asked, allowed):
    jo = await grant(api, name, urls("get", path))
    assert (await may(jo, verb="get", path=asked))["allowed"] is allowed
    assert not (await may(jo, verb="post", path=asked))["allowed"]


async def test_a_group_is_bound(api, ns, name):
    binding = {
        "metadata": {"name": name},
        "roleRef": role_ref("ClusterRole", "system:aggregate-to-view"),
        "subjects": [{"kind": "Group", "name": name, "apiGroup": GROUP}],
    }
    assert (await api.create(f"{RBAC}/namespaces/{ns}/rolebindings", binding)).status == 201
    member = api.acting_as("jo", "other", name)

    async def listed():
        return (await member.get(f"/api/v1/namespaces/{ns}/configmaps")).status == 200

    await until(listed)
    assert (await api.acting_as("jo", "other").get(f"/api/v1/namespaces/{ns}/configmaps")).status == 403


async def test_a_service_account_is_bound_in_the_namespace_of_its_binding(api, ns, name):
    robot = api.bearing(await token_of(api, await account(api, ns)))
    await grant(
        api, name, rule("list", "configmaps"), ns=ns, subject={"kind": "ServiceAccount", "name": "robot"}
    )

    async def listed():
        return (await robot.get(f"/api/v1/namespaces/{ns}/configmaps")).status == 200

    await until(listed)


async def test_a_service_account_is_known_to_be_in_the_groups_of_all(api, ns, name):
    robot = api.bearing(await token_of(api, await account(api, ns)))
    subject = {"kind": "Group", "name": f"system:serviceaccounts:{ns}", "apiGroup": GROUP}
    await grant(api, name, rule("list", "configmaps"), ns=ns, subject=subject)

    async def listed():
        return (await robot.get(f"/api/v1/namespaces/{ns}/configmaps")).status == 200

    await until(listed)


async def test_a_right_that_is_taken_back_is_gone(api, ns, name):
    jo = await grant(api, name, rule("list", "configmaps"), ns=ns)
    maps = f"/api/v1/namespaces/{ns}/configmaps"
    assert (await jo.get(maps)).status == 200
    await api.delete(f"{RBAC}/namespaces/{ns}/rolebindings/{name}")

    async def refused():
        return (await jo.get(maps)).status == 403

    await until(refused)


async def test_a_binding_to_a_role_that_is_missing_is_told_of(api, ns, name):
    namespaced = {"metadata": {"name": name}, "roleRef": role_ref("Role", "gone"), "subjects": [user(name)]}
    cluster = {**namespaced, "roleRef": role_ref("ClusterRole", "gone")}
    assert (await api.create(f"{RBAC}/namespaces/{ns}/rolebindings", namespaced)).status == 201
    assert (await api.create(f"{RBAC}/clusterrolebindings", cluster)).status == 201
    jo = api.acting_as(name)
    in_cluster, in_namespace = f'clusterrole.{GROUP} "gone" not found', f'role.{GROUP} "gone" not found'
    at_path = f'forbidden: User "{name}" cannot get path "/metrics": rbac: RBAC: {in_cluster}'
    where = f'in the namespace "{ns}"'
    of_pods = f"pods is forbidden: {cannot('list', 'pods', where=where, who=name)}"

    async def told(path, message):
        return (await jo.get(path)).message == message

    await until(lambda: told("/metrics", at_path))
    await until(
        lambda: told(
            f"/api/v1/namespaces/{ns}/pods", f"{of_pods}: rbac: RBAC: [{in_cluster}, {in_namespace}]"
        )
    )


# Requests that create an object need the right to create.


async def test_an_apply_that_creates_needs_the_right_to_create(api, ns, name):
    jo = await grant(api, name, rule("patch update", "configmaps"), ns=ns)
    refused = await jo.apply(f"/api/v1/namespaces/{ns}/configmaps/new", APPLY_MAP)
    assert refused.refusal == (403, "Forbidden")
    where = f'in the namespace "{ns}"'
    assert (
        refused.message
        == f'configmaps "new" is forbidden: {cannot("create", "configmaps", where=where, who=name)}'
    )


async def test_a_replace_that_creates_needs_the_right_to_create(api, ns, name):
    group = "coordination.k8s.io"
    jo = await grant(api, name, rule("update", "leases", group), ns=ns)
    lease = {"metadata": {"name": "new"}, "spec": {}}
    refused = await jo.replace(f"/apis/{group}/v1/namespaces/{ns}/leases/new", lease)
    where = f'in the namespace "{ns}"'
    assert refused.message == (
        f'leases.{group} "new" is forbidden: {cannot("create", "leases", group, where, name)}'
    )


async def test_an_apply_that_changes_needs_the_right_to_patch_only(api, ns, name):
    maps = f"/api/v1/namespaces/{ns}/configmaps"
    await api.create(maps, config_map("new"))
    jo = await grant(api, name, rule("patch", "configmaps"), ns=ns)
    assert (await jo.apply(f"{maps}/new", {**APPLY_MAP, "data": {"a": "1"}})).status == 200


# Users cannot grant rights that they do not have.


@pytest.fixture
async def manager(api, ns, name):
    """Returns a user who may write roles and bindings of the namespace, and get pods."""
    return await grant(
        api,
        name,
        rule("get create update patch delete", "roles rolebindings", GROUP),
        rule("get", "pods"),
        ns=ns,
    )


def attempts(who, *missing):
    listed = "\n".join(missing)
    return (
        f'user "{who}" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        f"{listed}"
    )


async def test_a_role_may_give_what_its_author_has(manager, ns):
    role = {"metadata": {"name": "mine"}, "rules": [rule("get", "pods")]}
    assert (await manager.create(f"{RBAC}/namespaces/{ns}/roles", role)).status == 201


async def test_a_role_may_not_give_what_its_author_has_not(manager, ns, name):
    role = {"metadata": {"name": "more"}, "rules": [rule("get list", "pods"), rule("*", "*", "*")]}
    refused = await manager.create(f"{RBAC}/namespaces/{ns}/roles", role)
    assert refused.refusal == (403, "Forbidden")
    assert refused.details == {"name": "more", "group": GROUP, "kind": "roles"}
    assert refused.message == f'roles.{GROUP} "more" is forbidden: ' + attempts(
        name,
        '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}',
        '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}',
    )


async def test_what_is_missing_is_told_by_resource_and_name(manager, ns, name):
    role = {
        "metadata": {"name": "more"},
        "rules": [rule("get list", "secrets pods/log", resourceNames=["a", "b"])],
    }
    refused = await manager.create(f"{RBAC}/namespaces/{ns}/roles", role)
    both = 'Verbs:["get" "list"]}'
    assert refused.message == f'roles.{GROUP} "more" is forbidden: ' + attempts(
        name,
        *(
            f'{{APIGroups:[""], Resources:["{resource}"], ResourceNames:["{one}"], {both}'
            for resource in ("pods/log", "secrets")
            for one in ("a", "b")
        ),
    )


async def test_a_role_may_not_become_more_than_its_author_has(manager, ns, name):
    path = f"{RBAC}/namespaces/{ns}/roles"
    await manager.create(path, {"metadata": {"name": "mine"}, "rules": [rule("get", "pods")]})
    refused = await manager.merge(f"{path}/mine", {"rules": [rule("list", "pods")]})
    assert refused.message == f'roles.{GROUP} "mine" is forbidden: ' + attempts(
        name, '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}'
    )
    assert (await manager.merge(f"{path}/mine", {"metadata": {"labels": {"a": "b"}}})).status == 200


async def test_a_role_that_gives_more_may_still_be_collected(api, manager, ns):
    path = f"{RBAC}/namespaces/{ns}/roles"
    await api.create(path, {"metadata": {"name": "more"}, "rules": [rule("list", "secrets")]})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}
    assert (await manager.merge(f"{path}/more", {"metadata": {"ownerReferences": [owner]}})).status == 200
    assert (await manager.merge(f"{path}/more", {"metadata": {"labels": {"a": "b"}}})).status == 403


async def test_escalation_is_asked_before_the_name_is_taken_and_after_the_namespace_is_there(manager, ns):
    role = {"metadata": {"name": "mine"}, "rules": [rule("get", "pods")]}
    await manager.create(f"{RBAC}/namespaces/{ns}/roles", role)
    more = {"metadata": {"name": "mine"}, "rules": [rule("list", "pods")]}
    assert (await manager.create(f"{RBAC}/namespaces/{ns}/roles", more)).refusal == (403, "Forbidden")
    assert (await manager.create(f"{RBAC}/namespaces/{ns}/roles", role)).refusal == (409, "AlreadyExists")


async def test_who_may_escalate_may_give_anything(api, ns, name):
    author = await grant(api, name, rule("create escalate", "roles", GROUP), ns=ns)
    role = {"metadata": {"name": "more"}, "rules": [rule("*", "*", "*")]}
    assert (await author.create(f"{RBAC}/namespaces/{ns}/roles", role)).status == 201


async def test_a_binding_may_not_give_what_its_author_has_not(manager, ns, name):
    binding = {"metadata": {"name": "more"}, "roleRef": role_ref("ClusterRole", "system:kube-dns")}
    refused = await manager.create(f"{RBAC}/namespaces/{ns}/rolebindings", binding)
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == f'rolebindings.{GROUP} "more" is forbidden: ' + attempts(
        name,
        '{APIGroups:[""], Resources:["endpoints"], Verbs:["list" "watch"]}',
        '{APIGroups:[""], Resources:["services"], Verbs:["list" "watch"]}',
    )


async def test_a_binding_to_a_role_that_is_missing_may_not_be_written_without_the_right_to_bind(manager, ns):
    binding = {"metadata": {"name": "more"}, "roleRef": role_ref("Role", "none")}
    refused = await manager.create(f"{RBAC}/namespaces/{ns}/rolebindings", binding)
    assert refused.refusal == (404, "NotFound")
    assert refused.message == f'rolebindings.{GROUP} "none" not found'


async def test_who_may_bind_a_role_needs_not_have_its_rights(api, ns, name):
    bind = rule("bind", "clusterroles", GROUP, resourceNames=["system:kube-dns"])
    author = await grant(api, name, rule("create", "rolebindings", GROUP), bind, ns=ns)
    path = f"{RBAC}/namespaces/{ns}/rolebindings"
    dns = {"metadata": {"name": "dns"}, "roleRef": role_ref("ClusterRole", "system:kube-dns")}
    scheduler = {"metadata": {"name": "s"}, "roleRef": role_ref("ClusterRole", "system:kube-scheduler")}
    assert (await author.create(path, dns)).status == 201
    assert (await author.create(path, scheduler)).refusal == (403, "Forbidden")


async def test_only_administrators_make_roles_of_other_roles(api, name):
    author = await grant(api, name, rule("create", "clusterroles", GROUP))
    selectors = [{"matchLabels": {"a": "b"}}]
    role = {"metadata": {"name": f"{name}-made"}, "aggregationRule": {"clusterRoleSelectors": selectors}}
    refused = await author.create(f"{RBAC}/clusterroles", role)
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == (
        f'clusterroles.{GROUP} "{name}-made" is forbidden: must have cluster-admin privileges to use the '
        "aggregationRule"
    )


async def test_paths_are_given_by_who_has_them(api, name):
    author = await grant(api, name, rule("create", "clusterroles", GROUP))
    role = {"metadata": {"name": f"{name}-more"}, "rules": [urls("get post", "/version", "/y*")]}
    refused = await author.create(f"{RBAC}/clusterroles", role)
    assert refused.message == f'clusterroles.{GROUP} "{name}-more" is forbidden: ' + attempts(
        name,
        '{NonResourceURLs:["/version"], Verbs:["post"]}',
        '{NonResourceURLs:["/y*"], Verbs:["get"]}',
        '{NonResourceURLs:["/y*"], Verbs:["post"]}',
    )
