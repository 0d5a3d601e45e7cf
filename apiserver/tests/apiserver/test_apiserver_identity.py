"""Guarantees of the embedded server's identity beyond those that the conformance suite checks on both servers."""

import dataclasses
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.client import Client, ClusterConfig
from kubeshard.client.config import BearerToken
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.errors import Forbidden
from kubeshard.core.objects import Key
from kubeshard.runtime.certificate_authority import new_authority, new_client_leaf
from kubeshard.runtime.tls import CertificatePair
from kubeshard.runtime.transport import HttpRequest
from kubeshard.runtime.world import REAL_WORLD
from kubeshard_apiserver import ADMINISTRATOR, ApiServer, Front, Identity, InMemoryTransport, User
from kubeshard_apiserver.access import Attributes
from kubeshard_apiserver.front.gate import UNKNOWN, Peer
from kubeshard_apiserver.identity import rbac
from kubeshard_apiserver.identity.rbac import CLUSTER_ROLES

RBAC = "/apis/rbac.authorization.k8s.io/v1"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKENS = {"admin": ADMINISTRATOR, "jo": User("jo", groups=("dev",))}
EPOCH = 1_767_225_600.0


class SetClock:
    def __init__(self) -> None:
        self.now = EPOCH

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class Asked:
    """Sends requests to a front, as one of `TOKENS` or with a certificate."""

    def __init__(self, server: ApiServer | None = None, **options) -> None:
        self.server = server or ApiServer()
        self.gate = Identity(self.server, tokens=TOKENS, **options)
        self.front = Front(self.server, gate=self.gate)

    async def __call__(self, method, path, body=None, *, token="admin", peer=UNKNOWN):
        headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {token}"} if token else {}
        )
        data = None if body is None else json.dumps(body).encode()
        reply = await self.front.reply(HttpRequest(method, path, headers, data), peer)
        document = (
            json.loads(reply.body) if reply.headers["content-type"] == "application/json" else reply.body
        )
        return reply.status, document

    async def must(self, path, body):
        status, document = await self("POST", path, body)
        assert status == 201, document
        return document

    async def token(self, **spec):
        await self("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
        path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
        return (await self.must(path, {"spec": spec}))["status"]["token"]

    async def rules(self, role):
        _, document = await self("GET", f"{RBAC}/clusterroles/{role}")
        return document["rules"]


# Authentication.


async def test_an_rbac_mistake_of_an_operator_shows_in_its_unit_test():
    asked = Asked()
    await asked.must(
        f"{RBAC}/clusterroles",
        {
            "metadata": {"name": "op"},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}],
        },
    )
    await asked.must(
        f"{RBAC}/clusterrolebindings",
        {
            "metadata": {"name": "op"},
            "roleRef": {"kind": "ClusterRole", "name": "op"},
            "subjects": [{"kind": "User", "name": "jo"}],
        },
    )
    config = ClusterConfig("http://in-memory", auth=BearerToken("jo"))
    async with Client(config, transport=InMemoryTransport(asked.front)) as client:
        with pytest.raises(Forbidden, match='User "jo" cannot create resource "configmaps"'):
            await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))


@pytest.mark.regression
async def test_without_rbac_who_is_known_may_do_everything_and_nobody_is_administrator_without_credentials():
    asked = Asked(rbac=False)
    assert (await asked("GET", "/api/v1/pods", token="jo"))[0] == 200
    for token in ("", "wrong"):
        for method, path in (("GET", "/api/v1/secrets"), ("POST", "/api/v1/namespaces"), ("GET", "/healthz")):
            assert (await asked(method, path, token=token))[0] == 401
    acting = {"impersonate-user": "admin", "impersonate-group": "system:masters"}
    reply = await asked.front.reply(HttpRequest("GET", "/api/v1/secrets", acting))
    assert reply.status == 401
    assert not asked.server.store.objects(CLUSTER_ROLES)


async def test_nobody_can_be_kept_out():
    asked = Asked(anonymous=False)
    assert (await asked("GET", "/healthz", token=""))[0] == 401
    assert (await asked("GET", "/healthz", token="jo"))[0] == 200


def test_an_empty_token_is_nobodys():
    server = ApiServer()
    gate = Identity(server, tokens={"": ADMINISTRATOR})
    assert gate.authentication.user_of("Bearer ", b"").name == "system:anonymous"


# Client certificates.


def certificate(user, *groups):
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    leaf: CertificatePair = new_client_leaf(new_authority("test", EPOCH, 3600.0), user, groups, EPOCH, 3600.0)
    return Peer(x509.load_pem_x509_certificate(leaf.certificate).public_bytes(Encoding.DER))


async def test_a_client_certificate_says_who_its_bearer_is():
    asked, peer = Asked(), certificate("jane", "dev", "ops")
    _, review = await asked("POST", WHOAMI, {}, token="", peer=peer)
    info = review["status"]["userInfo"]
    assert info["username"] == "jane"
    assert info["groups"] == ["dev", "ops", "system:authenticated"]
    (fingerprint,) = info["extra"]["authentication.kubernetes.io/credential-id"]
    assert fingerprint.startswith("X509SHA256=")


async def test_a_client_certificate_comes_before_a_token():
    asked, peer = Asked(), certificate("jane")
    for token in ("admin", "wrong"):
        _, review = await asked("POST", WHOAMI, {}, token=token, peer=peer)
        assert review["status"]["userInfo"]["username"] == "jane"


async def test_a_client_certificate_of_the_masters_may_do_everything():
    status, _ = await Asked()("GET", "/api/v1/secrets", token="", peer=certificate("root", "system:masters"))
    assert status == 200


# Tokens of ServiceAccounts.


async def test_a_token_ends_with_its_time_by_the_servers_clock():
    clock = SetClock()
    asked = Asked(ApiServer(world=replace(REAL_WORLD, clock=clock)))
    token = await asked.token(expirationSeconds=600)
    clock.now += 600
    assert (await asked("GET", "/version", token=token))[0] == 200, "there is a minute of leeway"
    clock.now += 61
    assert (await asked("GET", "/version", token=token))[0] == 401
    verdict = asked.gate.authentication.verdict(token)
    assert verdict.problem == "[invalid bearer token, service account token has expired]"


async def test_a_token_is_not_valid_before_its_time():
    clock = SetClock()
    asked = Asked(ApiServer(world=replace(REAL_WORLD, clock=clock)))
    token = await asked.token()
    clock.now -= 61
    verdict = asked.gate.authentication.verdict(token)
    assert verdict.problem == "[invalid bearer token, service account token is not valid yet]"


async def test_a_token_outlives_its_server_if_the_key_does():
    asked = Asked()
    token = await asked.token()
    key = asked.gate.authentication.account_tokens.signing_key
    later = Asked(asked.server, signing_key=key)
    assert (await later("GET", "/version", token=token))[0] == 200
    assert (await Asked(asked.server)("GET", "/version", token=token))[0] == 401


async def test_a_token_of_an_account_that_was_made_anew_says_why():
    asked = Asked()
    token = await asked.token()
    path = "/api/v1/namespaces/default/serviceaccounts"
    await asked("DELETE", f"{path}/robot")
    verdict = asked.gate.authentication.verdict(token)
    assert verdict.problem == '[invalid bearer token, serviceaccounts "robot" not found]'
    await asked.must(path, {"metadata": {"name": "robot"}})
    assert "does not match claim" in asked.gate.authentication.verdict(token).problem


async def test_tokens_that_are_none_are_refused_in_peace():
    asked = Asked()
    head, payload, signature = (await asked.token()).split(".")
    for wrong in (
        "..", f"{head}..", f"{head}.{payload}.", f"{head}.{payload}.AAAA", f"{head}.{payload}.{signature}A",
        f"{head}.{payload}.{signature}.", f"x.{payload}.{signature}", f"{head}.{signature}.{signature}",
        "\xff.\xff.\xff",
    ):  # fmt: skip
        assert (await asked("GET", "/version", token=wrong))[0] == 401, wrong


async def test_an_open_front_answers_reviews_too():
    front = Front(ApiServer())

    async def ask(path, body):
        reply = await front.reply(HttpRequest("POST", path, {}, json.dumps(body).encode()))
        assert reply.status == 201, reply.body
        return json.loads(reply.body)["status"]

    assert (await ask(WHOAMI, {}))["userInfo"]["username"] == ADMINISTRATOR.name
    spec = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    reviews = "/apis/authorization.k8s.io/v1"
    assert await ask(f"{reviews}/selfsubjectaccessreviews", spec) == {"allowed": True}
    assert (await ask(f"{reviews}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}))[
        "resourceRules"
    ]
    token = {"spec": {"token": "x"}}
    assert await ask("/apis/authentication.k8s.io/v1/tokenreviews", token) == {
        "user": {},
        "error": "invalid bearer token",
    }


# Roles.


def cluster_role(name, *verbs, **labels):
    rule = {"verbs": list(verbs), "apiGroups": ["x"], "resources": ["things"]}
    return {"metadata": {"name": name, "labels": labels}, "rules": [rule]}


async def test_aggregated_roles_are_there_from_the_beginning_and_follow_what_they_are_made_of():
    asked = Asked()
    view = await asked.rules("system:aggregate-to-view")
    assert [rule for rule in await asked.rules("view") if rule in view] == view
    admin = await asked.rules("admin")
    assert [rule for rule in await asked.rules("edit") if rule not in admin] == []
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    role = cluster_role("things", "get", **label)
    await asked.must(f"{RBAC}/clusterroles", role)
    for name in ("view", "edit", "admin"):
        assert role["rules"][0] in await asked.rules(name), name
    await asked("DELETE", f"{RBAC}/clusterroles/things")
    for name in ("view", "edit", "admin"):
        assert role["rules"][0] not in await asked.rules(name), name


async def test_an_aggregated_role_is_made_and_keeps_only_what_it_selects():
    asked = Asked()
    await asked.must(f"{RBAC}/clusterroles", cluster_role("a", "get", part="x"))
    await asked.must(f"{RBAC}/clusterroles", cluster_role("b", "list", part="y"))
    selectors = [{"matchExpressions": [{"key": "part", "operator": "In", "values": ["x", "z"]}]}]
    made = {**cluster_role("made", "delete"), "aggregationRule": {"clusterRoleSelectors": selectors}}
    await asked.must(f"{RBAC}/clusterroles", made)
    assert [rule["verbs"] for rule in await asked.rules("made")] == [["get"]]


async def test_roles_that_are_made_of_each_other_come_to_rest():
    asked = Asked()
    await asked.must(f"{RBAC}/clusterroles", cluster_role("part", "get", in_a="1", in_b="1"))
    for name, other in (("a", "b"), ("b", "a")):
        selectors = [{"matchLabels": {f"in_{name}": "1"}}]
        role = {
            "metadata": {"name": name, "labels": {f"in_{other}": "1"}},
            "aggregationRule": {"clusterRoleSelectors": selectors},
        }
        await asked.must(f"{RBAC}/clusterroles", role)
    assert await asked.rules("a") == await asked.rules("b") != []


async def test_what_somebody_made_of_the_first_roles_stays():
    asked = Asked()
    await asked("DELETE", f"{RBAC}/clusterroles/system:heapster")
    body = {"metadata": {"name": "system:discovery"}, "rules": []}
    assert (await asked("PUT", f"{RBAC}/clusterroles/system:discovery", body))[0] == 200
    revision = asked.server.store.revision
    again = Asked(asked.server)
    assert again.server.store.revision == revision + 1, "only what is missing is put back"
    assert await again.rules("system:heapster")
    assert await again.rules("system:discovery") is None


async def test_a_decision_rests_on_the_roles_of_the_moment():
    asked = Asked()
    attributes = Attributes("get", group="x", resource="things")
    jo = TOKENS["jo"]
    assert not asked.gate.authorizer.decide(jo, attributes).allowed
    await asked.must(f"{RBAC}/clusterroles", cluster_role("a", "get"))
    binding = {
        "metadata": {"name": "a"},
        "roleRef": {"kind": "ClusterRole", "name": "a"},
        "subjects": [{"kind": "Group", "name": "dev"}],
    }
    await asked.must(f"{RBAC}/clusterrolebindings", binding)
    assert asked.gate.authorizer.decide(jo, attributes).allowed
    assert not asked.gate.authorizer.decide(dataclasses.replace(jo, groups=()), attributes).allowed
    role = asked.server.store.get(CLUSTER_ROLES, Key("", "a"))
    await asked("PUT", f"{RBAC}/clusterroles/a", {**role, "rules": None})
    assert not asked.gate.authorizer.decide(jo, attributes).allowed


# Coverage of rules, compared with what they allow.

WORDS = {
    "verbs": ["get", "list", "*"],
    "apiGroups": ["", "apps", "*"],
    "resources": ["pods", "pods/status", "*/status", "*"],
    "resourceNames": ["a", "b"],
}
RULE = st.fixed_dictionaries(
    {
        name: st.lists(st.sampled_from(words), min_size=name != "resourceNames", max_size=2)
        for name, words in WORDS.items()
    }
)
ATTRIBUTES = st.builds(
    Attributes,
    st.sampled_from(["get", "list", "delete"]),
    group=st.sampled_from(["", "apps", "batch"]),
    resource=st.sampled_from(["pods", "jobs"]),
    subresource=st.sampled_from(["", "status", "log"]),
    name=st.sampled_from(["", "a", "b", "c"]),
)


@given(st.lists(RULE, max_size=3), st.lists(RULE, max_size=3), ATTRIBUTES)
def test_nobody_gives_more_than_they_have(held, given_away, attributes):
    if rbac.missing(held, given_away):
        return
    if any(rbac.allows(rule, attributes) for rule in given_away):
        assert any(rbac.allows(rule, attributes) for rule in held)


@given(st.lists(RULE, max_size=3))
def test_everybody_has_what_they_have(held):
    assert not rbac.missing(held, held)
    assert not rbac.missing(rbac.EVERYTHING, held)
