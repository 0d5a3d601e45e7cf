"""Authentication: tokens, ServiceAccounts, anonymous requests, and impersonation."""

import base64
import json
import re

import pytest
from conformance_access import TOKEN_REVIEWS, WHOAMI, account, grant, rule, token_of, told
from conformance_api import Api, until

pytestmark = pytest.mark.wire

ISSUER = "https://kubernetes.default.svc"
ID = "authentication.kubernetes.io/credential-id"
GROUPS = ["system:serviceaccounts", "system:authenticated"]


def claims_of(token):
    payload = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


async def token_request(api, path, spec=None, **body):
    return await api.create(f"{path}/token", {"spec": spec or {}, **body})


@pytest.fixture
async def robot(api, ns):
    return await account(api, ns)


# Bearer tokens and anonymous requests.


async def test_the_administrator_is_known_by_the_token(api):
    assert await told(api) == {
        "username": "admin",
        "uid": "admin",
        "groups": ["system:masters", "system:authenticated"],
    }


@pytest.mark.parametrize(
    "path", ["/version", "/healthz", "/api/v1/pods", "/apis/none/v1/nothing", "/nonsense"]
)
async def test_a_wrong_token_is_refused_wherever_it_is_shown(api, path):
    refused = await api.bearing("wrong").get(path)
    assert refused.refusal == (401, "Unauthorized")
    assert refused.message == "Unauthorized"
    assert "details" not in refused.body


@pytest.mark.parametrize("path", ["/version", "/version/", "/healthz", "/livez", "/readyz"])
async def test_nobody_may_ask_how_the_server_is(api, path):
    assert (await api.bearing("").get(path)).status == 200


@pytest.mark.parametrize(
    "path", ["/api", "/apis", "/api/v1", "/metrics", "/openapi/v2", "/livez/ping", "/nonsense", "/"]
)
async def test_nobody_may_not_ask_for_more(api, path):
    refused = await api.bearing("").get(path)
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == f'forbidden: User "system:anonymous" cannot get path "{path}"'
    assert refused.body["details"] == {}


async def test_nobody_is_anonymous_among_resources(api):
    refused = await api.bearing("").get("/api/v1/pods")
    assert refused.message == (
        'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope'
    )


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "Bearer ", "Bearer  wrong", "Token wrong"])
async def test_what_is_no_bearer_token_is_nobody(api, header):
    nobody = api.with_headers(Authorization=header)
    assert (await nobody.get("/version")).status == 200
    assert (await nobody.get("/api")).status == 403


@pytest.mark.parametrize("path", ["/version", "/healthz", "/api"])
async def test_a_second_space_before_the_token_is_warned_of(api, path):
    answer = await api.with_headers(Authorization="Bearer  wrong").get(path)
    told = "the provided Authorization header contains extra space before the bearer token, and is ignored"
    assert answer.headers["warning"] == f'299 - "{told}"'


async def test_the_scheme_is_read_in_any_case(api):
    assert (await api.with_headers(Authorization="bEaReR wrong").get("/version")).status == 401


# Client certificates.


@pytest.fixture
async def certified(target):
    """Returns a client with a certificate of this user and these groups."""
    transports = []

    def make(user, *groups, token=""):
        transports.append(target.certified(user, *groups))
        return Api(transports[-1], token)

    yield make
    for transport in transports:
        await transport.close()


async def test_a_certificate_says_who_its_bearer_is(certified):
    info = await told(certified("jane", "dev", "ops"))
    (fingerprint,) = info.pop("extra")[ID]
    assert re.fullmatch("X509SHA256=[0-9a-f]{64}", fingerprint)
    assert info == {"username": "jane", "groups": ["dev", "ops", "system:authenticated"]}


async def test_a_certificate_comes_before_a_token(certified):
    assert (await told(certified("jane", token="wrong")))["username"] == "jane"


async def test_a_certificate_of_the_masters_opens_everything(certified):
    assert (await certified("root", "system:masters").get("/api/v1/secrets")).status == 200
    refused = await certified("jane", "dev").get("/api/v1/secrets")
    assert refused.message.startswith('secrets is forbidden: User "jane" cannot list resource "secrets"')


async def test_who_shows_a_certificate_acts_as_others_if_allowed(certified):
    acting = certified("root", "system:masters").acting_as("jo", "dev")
    assert (await told(acting))["groups"] == ["dev", "system:authenticated"]


# Tokens of ServiceAccounts.


async def test_a_service_account_is_known_by_its_token(api, ns, robot):
    token = await token_of(api, robot)
    uid = (await api.get(robot)).meta["uid"]
    assert await told(api.bearing(token)) == {
        "username": f"system:serviceaccount:{ns}:robot",
        "uid": uid,
        "groups": [GROUPS[0], f"{GROUPS[0]}:{ns}", GROUPS[1]],
        "extra": {ID: [f"JTI={claims_of(token)['jti']}"]},
    }


async def test_a_token_says_whose_it_is_for_whom_and_for_how_long(api, ns, robot):
    claims = claims_of(await token_of(api, robot))
    uid = (await api.get(robot)).meta["uid"]
    assert claims["iss"] == ISSUER
    assert claims["aud"] == [ISSUER]
    assert claims["sub"] == f"system:serviceaccount:{ns}:robot"
    assert claims["kubernetes.io"] == {"namespace": ns, "serviceaccount": {"name": "robot", "uid": uid}}
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["nbf"] == claims["iat"]
    assert set(claims) == {"aud", "exp", "iat", "iss", "jti", "kubernetes.io", "nbf", "sub"}


async def test_a_token_request_is_answered_with_what_was_asked_for(api, ns, robot):
    answer = await token_request(api, robot)
    assert answer.status == 201
    assert (answer["kind"], answer["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
    assert answer["spec"] == {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": None}
    assert set(answer["status"]) == {"token", "expirationTimestamp"}
    assert (answer.meta["name"], answer.meta["namespace"]) == ("robot", ns)
    assert answer.meta["uid"] == (await api.get(robot)).meta["uid"]
    (entry,) = answer.meta["managedFields"]
    assert entry["fieldsV1"] == {"f:spec": {"f:expirationSeconds": {}}}
    assert (entry["subresource"], entry["manager"]) == ("token", "conformance")


async def test_a_token_request_needs_no_body_of_its_own(api, robot):
    assert (await api.create(f"{robot}/token", {})).status == 201


@pytest.mark.parametrize(
    ("seconds", "problem"),
    [
        (599, "may not specify a duration less than 10 minutes"),
        (0, "may not specify a duration less than 10 minutes"),
        (2**32 + 1, "may not specify a duration larger than 2^32 seconds"),
    ],
)
async def test_a_token_lasts_ten_minutes_at_least_and_not_forever(api, robot, seconds, problem):
    refused = await token_request(api, robot, {"expirationSeconds": seconds})
    assert refused.refusal == (422, "Invalid")
    assert refused.message == (
        'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: '
        f"{seconds}: {problem}"
    )


async def test_a_token_lasts_as_long_as_asked_for(api, robot):
    claims = claims_of(await token_of(api, robot, expirationSeconds=600))
    assert claims["exp"] - claims["iat"] == 600


async def test_a_token_for_somebody_else_is_refused_here(api, robot):
    token = await token_of(api, robot, audiences=["x", "y"])
    assert claims_of(token)["aud"] == ["x", "y"]
    assert (await api.bearing(token).get("/api")).refusal == (401, "Unauthorized")


async def test_a_token_that_was_tampered_with_is_refused(api, robot):
    head, payload, signature = (await token_of(api, robot)).split(".")
    claims = {**claims_of(f"{head}.{payload}."), "sub": "system:serviceaccount:kube-system:admin"}
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    assert (await api.bearing(f"{head}.{forged}.{signature}").get("/version")).status == 401


async def test_an_unsigned_token_is_refused(api, robot):
    _, payload, _ = (await token_of(api, robot)).split(".")
    head = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    assert (await api.bearing(f"{head}.{payload}.").get("/version")).status == 401


async def test_a_token_ends_with_its_account(api, robot):
    token = await token_of(api, robot)
    await api.delete(robot)
    await until(lambda: is_refused(api, token))


async def test_a_token_ends_with_its_account_even_if_another_takes_the_name(api, ns, robot):
    token = await token_of(api, robot)
    await api.delete(robot)
    await account(api, ns)
    await until(lambda: is_refused(api, token))


async def test_a_token_ends_with_the_secret_that_it_is_bound_to(api, ns, robot):
    secrets = f"/api/v1/namespaces/{ns}/secrets"
    made = await api.create(secrets, {"metadata": {"name": "s"}})
    token = await token_of(api, robot, boundObjectRef={"kind": "Secret", "apiVersion": "v1", "name": "s"})
    assert claims_of(token)["kubernetes.io"]["secret"] == {"name": "s", "uid": made.meta["uid"]}
    await api.delete(f"{secrets}/s")
    await until(lambda: is_refused(api, token))


async def test_a_token_says_which_pod_it_is_bound_to(api, ns, robot):
    pod = {
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]},
    }
    made = await api.create(f"/api/v1/namespaces/{ns}/pods", pod)
    assert made.status == 201, made.text
    token = await token_of(api, robot, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
    extra = (await told(api.bearing(token)))["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [made.meta["uid"]]


async def test_a_token_is_not_bound_to_a_pod_of_another_account(api, ns, robot):
    pod = {
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "other", "containers": [{"name": "c", "image": "i"}]},
    }
    assert (await api.create(f"/api/v1/namespaces/{ns}/pods", pod)).status == 201
    refused = await token_request(
        api, robot, {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}
    )
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        'cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.'
    )


@pytest.mark.parametrize(("kind", "plural"), [("Pod", "pods"), ("Secret", "secrets"), ("Node", "nodes")])
async def test_a_token_is_not_bound_to_what_is_not_there(api, robot, kind, plural):
    refused = await token_request(
        api, robot, {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": "none"}}
    )
    assert refused.refusal == (404, "NotFound")
    assert refused.message == f'{plural} "none" not found'


async def test_a_token_is_not_bound_to_what_has_another_uid(api, ns, robot):
    await api.create(f"/api/v1/namespaces/{ns}/secrets", {"metadata": {"name": "s"}})
    reference = {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "other"}
    refused = await token_request(api, robot, {"boundObjectRef": reference})
    assert refused.refusal == (409, "Conflict")
    assert refused.message == (
        'Operation cannot be fulfilled on Secret "s": the UID in the bound object reference (other) does not match '
        "the UID in record. The object might have been deleted and then recreated"
    )


async def test_a_token_is_not_bound_to_just_anything(api, robot):
    refused = await token_request(
        api, robot, {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "a"}}
    )
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "cannot bind token to object of type /v1, Kind=ConfigMap"


async def test_a_token_request_names_its_own_account_if_any(api, robot):
    refused = await token_request(api, robot, metadata={"name": "other"})
    assert refused.refusal == (422, "Invalid")
    assert refused.message == (
        'TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "other": must match '
        "the service account name if specified"
    )


async def test_there_is_no_token_for_an_account_that_is_not_there(api, ns):
    refused = await token_request(api, f"/api/v1/namespaces/{ns}/serviceaccounts/none")
    assert refused.refusal == (404, "NotFound")
    assert refused.message == 'serviceaccounts "none" not found'


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_tokens_are_only_created(api, robot, method):
    assert (await api.call(method, f"{robot}/token")).refusal == (405, "MethodNotAllowed")


async def is_refused(api, token):
    return (await api.bearing(token).get("/version")).status == 401


# TokenReview.


async def reviewed(api, **spec):
    answer = await api.create(TOKEN_REVIEWS, {"spec": spec})
    assert answer.status == 201, answer.text
    return answer["status"]


async def test_a_good_token_is_reviewed_with_its_user(api, ns, robot):
    token = await token_of(api, robot)
    status = await reviewed(api, token=token)
    assert status["authenticated"] is True
    assert status["audiences"] == [ISSUER]
    assert status["user"] == await told(api.bearing(token))


async def test_a_wrong_token_is_reviewed_as_one(api):
    assert await reviewed(api, token="wrong") == {"user": {}, "error": "invalid bearer token"}


async def test_a_token_is_reviewed_for_the_audiences_that_it_shares(api, robot):
    token = await token_of(api, robot, audiences=["x", "y"])
    status = await reviewed(api, token=token, audiences=["y", "z"])
    assert (status["authenticated"], status["audiences"]) == (True, ["y"])


async def test_a_token_for_others_is_reviewed_with_the_reason(api, robot):
    token = await token_of(api, robot, audiences=["x", "y"])
    assert await reviewed(api, token=token) == {
        "user": {},
        "error": f'[invalid bearer token, token audiences ["x" "y"] is invalid for the target audiences ["{ISSUER}"]]',
    }


async def test_a_review_needs_a_token(api):
    refused = await api.create(TOKEN_REVIEWS, {"spec": {}})
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "token is required for TokenReview in authentication"


# Impersonation.


async def test_an_administrator_may_act_as_anybody(api):
    assert await told(api.acting_as("jo")) == {"username": "jo", "groups": ["system:authenticated"]}
    assert (await told(api.acting_as("Jürgen 日本")))["username"] == "Jürgen 日本"
    assert await told(api.acting_as("jo", "a", "b", Uid="u", Extra_Scopes="s")) == {
        "username": "jo",
        "uid": "u",
        "groups": ["a", "b", "system:authenticated"],
        "extra": {"scopes": ["s"]},
    }


async def test_the_name_of_an_extra_may_be_escaped(api):
    acting = api.acting_as("jo", **{"Extra-Acme.com%2fproject": "p"})
    assert (await told(acting))["extra"] == {"acme.com/project": ["p"]}


async def test_who_acts_as_a_service_account_is_in_its_groups(api):
    assert (await told(api.acting_as("system:serviceaccount:default:a")))["groups"] == [
        GROUPS[0], f"{GROUPS[0]}:default", GROUPS[1],
    ]  # fmt: skip
    assert (await told(api.acting_as("system:serviceaccount:default:a", "x")))["groups"] == ["x", GROUPS[1]]


async def test_who_acts_as_nobody_may_do_what_nobody_may(api):
    assert (await api.acting_as("system:anonymous").get("/version")).status == 200
    refused = await api.acting_as("system:anonymous").create(WHOAMI, {})
    assert refused.message.startswith(
        'selfsubjectreviews.authentication.k8s.io is forbidden: User "system:anonymous" '
    )


async def test_groups_need_a_user(api):
    refused = await api.acting_as("", "dev").get("/version")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"dev"}, Extra:map[string][]string(nil)} without '
        "impersonating a user name"
    )


async def test_who_has_no_right_to_it_acts_as_nobody_else(api, ns, robot):
    acting = api.bearing(await token_of(api, robot))
    refused = await acting.acting_as("jo").get("/api/v1/pods")
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == (
        f'pods is forbidden: User "system:serviceaccount:{ns}:robot" cannot impersonate-on:user-info:list resource '
        '"pods" in API group "" at the cluster scope'
    )


async def test_the_right_to_impersonate_may_name_whom(api, ns, name, robot):
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": ns}
    await grant(api, name, rule("impersonate", "users", resourceNames=["jo"]), subject=subject)
    acting = api.bearing(await token_of(api, robot))
    await until(lambda: works(acting, "jo"))
    for acted, what in (
        (acting.acting_as("jane"), 'users "jane"'),
        (acting.acting_as("jo", "dev"), 'groups "dev"'),
        (acting.acting_as("jo", Uid="u"), 'uids.authentication.k8s.io "u"'),
        (acting.acting_as("jo", Extra_Scopes="s"), 'userextras.authentication.k8s.io "s"'),
    ):
        refused = await acted.get("/version")
        assert refused.refusal == (403, "Forbidden")
        assert refused.message.startswith(
            f'{what} is forbidden: User "system:serviceaccount:{ns}:robot" cannot impersonate resource "'
        )


async def test_rights_are_those_of_whom_one_acts_as(api, ns, name, robot):
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": ns}
    await grant(api, name, rule("impersonate", "users"), rule("list", "pods"), subject=subject)
    acting = api.bearing(await token_of(api, robot))
    await until(lambda: works(acting, "jo"))
    refused = await acting.acting_as("jo").get("/api/v1/pods")
    assert refused.message.startswith('pods is forbidden: User "jo" cannot list resource "pods"')


async def test_impersonation_can_be_allowed_for_some_requests_only(api, ns, name, robot):
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": ns}
    jo = f"jo-{name}"
    await grant(api, jo, rule("list", "pods configmaps"))
    await grant(
        api,
        name,
        rule("impersonate:user-info", "users", "authentication.k8s.io", resourceNames=[jo]),
        rule("impersonate-on:user-info:list", "pods"),
        subject=subject,
    )
    acting = api.bearing(await token_of(api, robot)).acting_as(jo)

    async def listed():
        return (await acting.get("/api/v1/pods")).status == 200

    await until(listed)
    refused = await acting.get("/api/v1/configmaps")
    assert refused.refusal == (403, "Forbidden")
    assert "cannot impersonate-on:user-info:list resource" in refused.message


async def test_a_wrong_token_comes_before_impersonation(api):
    assert (await api.bearing("wrong").acting_as("jo").get("/version")).refusal == (401, "Unauthorized")


async def works(acting, name):
    return (await acting.acting_as(name).get("/version")).status == 200
