"""Users and their rights, for the test cases about authentication and authorization."""

from __future__ import annotations

from typing import Any

from conformance_api import Answer, Api, until

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
REVIEWS = "/apis/authorization.k8s.io/v1"


def rule(verbs: str, resources: str, groups: str = "", **fields: Any) -> dict[str, Any]:
    """Returns an RBAC rule. Items are separated by spaces; the core group is the empty string."""
    return {
        "verbs": verbs.split(),
        "apiGroups": groups.split(" "),
        "resources": resources.split(),
        **fields,
    }


def urls(verbs: str, *paths: str) -> dict[str, Any]:
    return {"verbs": verbs.split(), "nonResourceURLs": list(paths)}


def role_ref(kind: str, name: str) -> dict[str, str]:
    return {"apiGroup": GROUP, "kind": kind, "name": name}


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name, "apiGroup": GROUP}


async def grant(api: Api, name: str, *rules: Any, ns: str = "", subject: Any = None) -> Api:
    """Grants the user `name` this right, in a namespace or everywhere, and returns an `Api` that acts as the user."""
    path = f"{RBAC}/namespaces/{ns}/" if ns else f"{RBAC}/cluster"
    made = await api.create(f"{path}roles", {"metadata": {"name": name}, "rules": list(rules)})
    assert made.status == 201, made.text
    binding = {
        "metadata": {"name": name},
        "roleRef": role_ref("Role" if ns else "ClusterRole", name),
        "subjects": [subject or user(name)],
    }
    made = await api.create(f"{path}rolebindings", binding)
    assert made.status == 201, made.text
    if subject is None:
        await until_held(api.acting_as(name), *rules, ns=ns)
    return api.acting_as(name)


async def until_held(acting: Api, *rules: Any, ns: str = "") -> None:
    """Waits until the rights are in force: the real server's authorizer learns of roles and bindings a moment later."""

    async def held() -> bool:
        status = (await rules_of(acting, ns or "default"))["status"]
        return all(one in status["resourceRules"] + status["nonResourceRules"] for one in rules)

    await until(held)


async def rules_of(acting: Api, ns: str) -> Answer:
    answer = await acting.create(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": ns}})
    assert answer.status == 201, answer.text
    return answer


async def may(acting: Api, **attributes: str) -> dict[str, Any]:
    """Returns the status of a SelfSubjectAccessReview."""
    spec = {"resourceAttributes": attributes}
    if "path" in attributes:
        spec = {"nonResourceAttributes": attributes}
    answer = await acting.create(f"{REVIEWS}/selfsubjectaccessreviews", {"spec": spec})
    assert answer.status == 201, answer.text
    return dict(answer["status"])


async def account(api: Api, ns: str, name: str = "robot") -> str:
    """Creates a ServiceAccount; returns its path."""
    path = f"/api/v1/namespaces/{ns}/serviceaccounts"
    made = await api.create(path, {"metadata": {"name": name}})
    assert made.status == 201, made.text
    return f"{path}/{name}"


async def token_of(api: Api, account_path: str, **spec: Any) -> str:
    answer = await api.create(f"{account_path}/token", {"spec": spec})
    assert answer.status == 201, answer.text
    return str(answer["status"]["token"])


async def told(acting: Api) -> dict[str, Any]:
    """Returns the user that the server takes the client for."""
    answer = await acting.create(WHOAMI, {})
    assert answer.status == 201, answer.text
    return dict(answer["status"]["userInfo"])
