"""Roles and bindings as objects: their validation, and those that exist from the start."""

from importlib.resources import files

import msgspec
import pytest
from conformance_access import GROUP, RBAC, role_ref, rule, urls, user
from conformance_api import owned

ROLES, BINDINGS = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
BOOTSTRAP = msgspec.json.decode((files("kubeshard_apiserver.identity") / "bootstrap.json").read_bytes())
NO_VERBS = "Required value"
NO_GROUPS = "Required value: resource rules must supply at least one api group"
NO_RESOURCES = "Required value: resource rules must supply at least one resource"


def named(name, **fields):
    return {"metadata": {"name": name}, **fields}


def invalid(kind, name, *problems):
    listed = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    return f'{kind}.{GROUP} "{name}" is invalid: {listed}'


def in_namespace(ns, plural):
    return f"{RBAC}/namespaces/{ns}/{plural}"


# Roles.


@pytest.mark.parametrize("fields", [{}, {"rules": None}, {"rules": []}])
async def test_a_role_without_rules_has_null_ones(api, name, fields):
    made = await api.create(ROLES, named(name, **fields))
    assert made.status == 201
    assert made.body["rules"] is None


async def test_a_role_is_kept_as_it_is_written(api, ns):
    rules = [rule("get", "pods pods/log", resourceNames=["a"])]
    made = await api.create(in_namespace(ns, "roles"), named("a", rules=rules))
    assert made["rules"] == rules
    assert owned(made) == {("conformance", "Update", ""): {"f:rules": {}}}
    assert "generation" not in made.meta


@pytest.mark.parametrize("given", ["a:b", "A b", "system:x", "_", "a." + "b" * 300])
async def test_names_of_roles_are_free(api, ns, given):
    made = await api.create(in_namespace(ns, "roles"), named(given))
    assert made.status == 201, made.text


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("a/b", "may not contain '/'"),
        ("a%b", "may not contain '%'"),
        (".", "may not be '.'"),
        ("..", "may not be '..'"),
    ],
)
async def test_names_of_roles_can_stand_in_a_path(api, ns, given, problem):
    refused = await api.create(in_namespace(ns, "roles"), named(given))
    assert refused.refusal == (422, "Invalid")
    assert refused.message == invalid("Role", given, f'metadata.name: Invalid value: "{given}": {problem}')


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ({}, [f"apiGroups: {NO_GROUPS}", f"resources: {NO_RESOURCES}", f"verbs: {NO_VERBS}"]),
        ({"verbs": ["get"], "apiGroups": [""]}, [f"resources: {NO_RESOURCES}"]),
        ({"verbs": ["get"], "resources": ["pods"]}, [f"apiGroups: {NO_GROUPS}"]),
        ({"apiGroups": [""], "resources": ["pods"]}, [f"verbs: {NO_VERBS}"]),
        (
            {"nonResourceURLs": ["/x"], "resources": ["pods"]},
            [
                'nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource '
                "URLs",
                f"verbs: {NO_VERBS}",
            ],
        ),
    ],
)
async def test_a_rule_says_what_may_be_done_to_what(api, name, given, problems):
    refused = await api.create(ROLES, named(name, rules=[rule("get", "pods"), given]))
    assert refused.refusal == (422, "Invalid")
    assert refused.message == invalid("ClusterRole", name, *(f"rules[1].{problem}" for problem in problems))


async def test_a_rule_of_a_namespace_has_no_paths(api, ns):
    refused = await api.create(in_namespace(ns, "roles"), named("a", rules=[urls("get", "/x")]))
    assert refused.message == invalid(
        "Role",
        "a",
        'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
    )


async def test_rules_are_checked_in_updates_too(api, ns):
    path = in_namespace(ns, "roles")
    await api.create(path, named("a", rules=[rule("get", "pods")]))
    refused = await api.merge(f"{path}/a", {"rules": [{"verbs": ["get"]}]})
    assert refused.fields == {"rules[0].apiGroups", "rules[0].resources"}


async def test_a_rule_of_another_shape_is_refused(api, name):
    refused = await api.create(ROLES, named(name, rules=[{"verbs": "get"}]))
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        'ClusterRole in version "v1" cannot be handled as a ClusterRole: json: cannot unmarshal string into Go struct '
        "field PolicyRule.rules.verbs of type []string"
    )


async def test_a_role_of_others_selects_them(api, name):
    refused = await api.create(ROLES, named(name, aggregationRule={}))
    assert refused.message == invalid(
        "ClusterRole",
        name,
        "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if "
        "aggregationRule is non-nil",
    )


async def test_a_role_of_others_selects_them_by_labels_that_can_be(api, name):
    selectors = [
        {"matchLabels": {"a": "b"}},
        {"matchLabels": {"a": "b c"}},
        {"matchExpressions": [{"key": "a", "operator": "Bad"}, {"key": "a", "operator": "In"}]},
    ]
    refused = await api.create(ROLES, named(name, aggregationRule={"clusterRoleSelectors": selectors}))
    assert refused.refusal == (422, "Invalid")
    path = "aggregationRule.clusterRoleSelectors"
    assert refused.fields == {
        f"{path}[1].matchLabels",
        f"{path}[1]",
        f"{path}[2].matchExpressions[0].operator",
        f"{path}[2].matchExpressions[1].values",
        f"{path}[2]",
    }
    assert (
        f"{path}[1]",
        "FieldValueInvalid",
        "Invalid value: null: invalid label selector.",
    ) in refused.causes


# Bindings.


async def test_a_binding_is_completed(api, name):
    subjects = [
        {"kind": "User", "name": "u"},
        {"kind": "Group", "name": "g"},
        {"kind": "ServiceAccount", "name": "s", "namespace": "default"},
    ]
    given = named(name, roleRef={"kind": "ClusterRole", "name": "view"}, subjects=subjects)
    made = await api.create(BINDINGS, given)
    assert made["roleRef"] == role_ref("ClusterRole", "view")
    assert made["subjects"] == [
        user("u"),
        {"kind": "Group", "name": "g", "apiGroup": GROUP},
        {"kind": "ServiceAccount", "name": "s", "namespace": "default"},
    ]
    assert owned(made) == {("conformance", "Update", ""): {"f:roleRef": {}, "f:subjects": {}}}


@pytest.mark.parametrize("fields", [{}, {"subjects": []}, {"subjects": None}])
async def test_a_binding_needs_no_subjects(api, ns, fields):
    made = await api.create(
        in_namespace(ns, "rolebindings"), named("a", roleRef=role_ref("ClusterRole", "view"), **fields)
    )
    assert made.status == 201
    assert "subjects" not in made.body


async def test_a_binding_needs_a_role(api, ns, name):
    refused = await api.create(in_namespace(ns, "rolebindings"), named("a"))
    assert refused.message == invalid(
        "RoleBinding",
        "a",
        'roleRef.kind: Unsupported value: "": supported values: "Role", "ClusterRole"',
        "roleRef.name: Required value",
    )
    refused = await api.create(BINDINGS, named(name))
    assert refused.message == invalid(
        "ClusterRoleBinding",
        name,
        'roleRef.kind: Unsupported value: "": supported values: "ClusterRole"',
        "roleRef.name: Required value",
    )


async def test_a_cluster_role_binding_binds_cluster_roles(api, name):
    refused = await api.create(BINDINGS, named(name, roleRef=role_ref("Role", "a")))
    assert refused.message == invalid(
        "ClusterRoleBinding", name, 'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'
    )


async def test_a_role_is_named_as_roles_are(api, ns):
    given = {"kind": "Role", "name": "a/b", "apiGroup": "x"}
    refused = await api.create(in_namespace(ns, "rolebindings"), named("a", roleRef=given))
    assert refused.message == invalid(
        "RoleBinding",
        "a",
        f'roleRef.apiGroup: Unsupported value: "x": supported values: "{GROUP}"',
        "roleRef.name: Invalid value: \"a/b\": may not contain '/'",
    )


@pytest.mark.parametrize(
    ("subject", "problems"),
    [
        (
            {},
            [
                'kind: Unsupported value: "": supported values: "ServiceAccount", "User", "Group"',
                "name: Required value",
            ],
        ),
        ({"kind": "User"}, ["name: Required value"]),
        (
            {"kind": "Group", "name": "g", "apiGroup": "x"},
            [f'apiGroup: Unsupported value: "x": supported values: "{GROUP}"'],
        ),
        (
            {"kind": "ServiceAccount", "name": "a", "namespace": "b", "apiGroup": GROUP},
            [f'apiGroup: Unsupported value: "{GROUP}": supported values: ""'],
        ),
        ({"kind": "ServiceAccount", "name": "a"}, ["namespace: Required value"]),
        (
            {"kind": "Robot", "name": "a"},
            ['kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"'],
        ),
    ],
)
async def test_a_subject_says_who_it_is(api, name, subject, problems):
    given = named(name, roleRef=role_ref("ClusterRole", "view"), subjects=[user("u"), subject])
    refused = await api.create(BINDINGS, given)
    assert refused.refusal == (422, "Invalid")
    assert refused.message == invalid(
        "ClusterRoleBinding", name, *(f"subjects[1].{problem}" for problem in problems)
    )


async def test_a_service_account_is_named_as_one(api, ns):
    given = named(
        "a", roleRef=role_ref("ClusterRole", "view"), subjects=[{"kind": "ServiceAccount", "name": "A_B"}]
    )
    refused = await api.create(in_namespace(ns, "rolebindings"), given)
    assert refused.fields == {"subjects[0].name"}


async def test_the_role_of_a_binding_stays(api, ns):
    path = in_namespace(ns, "rolebindings")
    await api.create(path, named("a", roleRef=role_ref("ClusterRole", "view"), subjects=[user("u")]))
    refused = await api.merge(f"{path}/a", {"roleRef": {"name": "edit"}})
    assert refused.refusal == (422, "Invalid")
    assert refused.message == invalid(
        "RoleBinding",
        "a",
        f'roleRef: Invalid value: {{"APIGroup":"{GROUP}","Kind":"ClusterRole","Name":"edit"}}: field is immutable',
    )
    changed = await api.merge(f"{path}/a", {"subjects": None})
    assert changed.status == 200
    assert "subjects" not in changed.body


async def test_the_role_of_a_binding_stays_a_role_that_can_be(api, name):
    await api.create(BINDINGS, named(name, roleRef=role_ref("ClusterRole", "view")))
    refused = await api.merge(f"{BINDINGS}/{name}", {"roleRef": {"kind": "Role"}})
    assert refused.message == invalid(
        "ClusterRoleBinding",
        name,
        'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"',
        f'roleRef: Invalid value: {{"APIGroup":"{GROUP}","Kind":"Role","Name":"view"}}: field is immutable',
    )


# Both.


@pytest.mark.parametrize("plural", ["roles", "rolebindings"])
async def test_a_replace_creates_what_is_missing(api, ns, plural):
    body = named("new", **({"roleRef": role_ref("ClusterRole", "view")} if plural == "rolebindings" else {}))
    assert (await api.replace(f"{in_namespace(ns, plural)}/new", body)).status == 201
    assert (await api.replace(f"{in_namespace(ns, plural)}/new", body)).status == 200


async def test_an_apply_owns_rules_and_subjects_as_a_whole(api, ns):
    head = {"apiVersion": f"{GROUP}/v1"}
    role = {**head, "kind": "Role", **named("a", rules=[rule("get", "pods")])}
    assert owned(await api.apply(f"{in_namespace(ns, 'roles')}/a", role)) == {
        ("one", "Apply", ""): {"f:rules": {}}
    }
    binding = {
        **head,
        "kind": "RoleBinding",
        **named("a", roleRef=role_ref("Role", "a"), subjects=[user("u")]),
    }
    assert owned(await api.apply(f"{in_namespace(ns, 'rolebindings')}/a", binding)) == {
        ("one", "Apply", ""): {"f:roleRef": {}, "f:subjects": {}}
    }


# Initial roles and bindings.


@pytest.mark.parametrize("plural", sorted(BOOTSTRAP))
async def test_a_cluster_has_its_roles_and_bindings_from_the_beginning(api, plural):
    found = await api.get(f"{RBAC}/{plural}", labelSelector="kubernetes.io/bootstrapping=rbac-defaults")
    assert found.status == 200
    told = {}
    for item in found["items"]:
        meta = item["metadata"]
        content = {
            name: item[name] for name in ("rules", "roleRef", "subjects", "aggregationRule") if item.get(name)
        }
        if "aggregationRule" in item:
            content.pop("rules", None)  # written by a controller that does not run beside the real server
        labels = {
            name: value for name, value in meta["labels"].items() if name != "kubernetes.io/bootstrapping"
        }
        place = {"namespace": meta["namespace"]} if "namespace" in meta else {}
        told[meta.get("namespace", ""), meta["name"]] = {
            "name": meta["name"],
            **place,
            **({"labels": labels} if labels else {}),
            **content,
        }
        assert meta["annotations"] == {"rbac.authorization.kubernetes.io/autoupdate": "true"}
    assert told == {(one.get("namespace", ""), one["name"]): one for one in BOOTSTRAP[plural]}


async def test_the_first_roles_are_the_servers(api):
    found = await api.get(f"{ROLES}/system:discovery")
    assert owned(found) == {
        ("kube-apiserver", "Update", ""): {
            "f:metadata": {
                "f:annotations": {".": {}, "f:rbac.authorization.kubernetes.io/autoupdate": {}},
                "f:labels": {".": {}, "f:kubernetes.io/bootstrapping": {}},
            },
            "f:rules": {},
        }
    }
