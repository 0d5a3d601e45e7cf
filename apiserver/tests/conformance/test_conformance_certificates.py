"""CertificateSigningRequests: what is requested, decided and issued, and who may do which."""

import base64

import pytest
from conformance_api import until
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

pytestmark = pytest.mark.regression

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SIGNER = "example.com/signer"
INVALID_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def pem(kind, content=b"a"):
    text = base64.b64encode(content).decode()
    return base64.b64encode(f"-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n".encode()).decode()


def made(*organizations):
    """Returns a request for a certificate."""
    named = [x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")]
    named += [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, name) for name in organizations]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(named))
    signed = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


def body(name, **spec):
    spec = {"request": made(), "signerName": SIGNER, "usages": ["client auth"], **spec}
    return {"metadata": {"name": name}, "spec": spec}


def condition(kind, status="True", **fields):
    return {"type": kind, "status": status, "reason": "Why", "message": "so", **fields}


@pytest.fixture
async def asked(api, name):
    answer = await api.create(REQUESTS, body(name))
    assert answer.status == 201, answer.text
    yield f"{REQUESTS}/{name}"
    await api.delete(f"{REQUESTS}/{name}")


async def put(api, path, subresource, conditions=None, **status):
    """Replaces the status."""
    obj = (await api.get(path)).body
    obj["status"] |= status | ({} if conditions is None else {"conditions": conditions})
    return await api.replace(f"{path}/{subresource}".rstrip("/"), obj)


def kinds(answer):
    assert answer.status == 200, answer.text
    return [each["type"] for each in answer["status"].get("conditions", [])]


async def test_the_server_says_who_asks(api, name):
    given = {"username": "x", "uid": "y", "groups": ["z"], "extra": {"a": ["b"]}}
    acting = api.acting_as("admin", "system:masters", Uid="1", Extra_scopes="view")
    answer = await acting.create(REQUESTS, body(name, **given))
    assert answer.status == 201, answer.text
    assert {field: answer["spec"].get(field) for field in given} == {
        "username": "admin",
        "uid": "1",
        "groups": ["system:masters", "system:authenticated"],
        "extra": {"scopes": ["view"]},
    }
    assert answer["status"] == {}
    await api.delete(f"{REQUESTS}/{name}")


@pytest.mark.parametrize(
    ("spec", "field", "problem"),
    [
        ({"usages": []}, "usages", "Required value"),
        ({"usages": ["signing", "signing"]}, "usages[1]", 'Duplicate value: "signing"'),
        ({"signerName": ""}, "signerName", "Required value"),
        (
            {"signerName": "x"},
            "signerName",
            """Invalid value: "x": must be a fully qualified domain and path of the form 'example.com/signer-name'""",
        ),
        (
            {"signerName": "kubernetes.io/legacy-unknown"},
            "signerName",
            'Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version',
        ),
        (
            {"signerName": "A.com/x"},
            "signerName",
            f'Invalid value: "A.com": validating label "A": {INVALID_LABEL}',
        ),
        (
            {"signerName": "local/x"},
            "signerName",
            'Invalid value: "local": should be a domain with at least two segments separated by dots',
        ),
        (
            {"expirationSeconds": 599},
            "expirationSeconds",
            "Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
        ),
        (
            {"request": pem("CERTIFICATE")},
            "request",
            f'Invalid value: "{pem("CERTIFICATE")}": PEM block type must be CERTIFICATE REQUEST',
        ),
        (
            {"request": pem("CERTIFICATE REQUEST")},
            "request",
            f'Invalid value: "{pem("CERTIFICATE REQUEST")}": asn1: syntax error: truncated tag or length',
        ),
    ],
)
async def test_what_is_asked_for_is_checked(api, name, spec, field, problem):
    refused = await api.create(REQUESTS, body(name, **spec))
    assert refused.refusal == (422, "Invalid")
    assert [(at, message) for at, _, message in refused.causes] == [(f"spec.{field}", problem)]


async def test_an_unknown_usage_is_refused(api, name):
    refused = await api.create(REQUESTS, body(name, usages=["flying"]))
    (cause,) = refused.causes
    assert cause[0] == "spec.usages[0]"
    assert cause[2].startswith('Unsupported value: "flying": supported values: "any", "cert sign", ')


async def test_nobody_gets_a_client_certificate_for_the_masters(api, name):
    refused = await api.create(
        REQUESTS, body(name, request=made("system:masters"), signerName="kubernetes.io/kube-apiserver-client")
    )
    assert refused.refusal == (403, "Forbidden")
    assert refused.message.endswith(
        "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    )


async def test_a_replace_changes_neither_what_is_asked_nor_what_is_decided(api, asked):
    obj = (await api.get(asked)).body
    changed = {
        **obj,
        "spec": {**obj["spec"], "usages": ["signing"]},
        "status": {"conditions": [condition("Approved")]},
    }
    answer = await api.replace(asked, changed)
    assert answer.status == 200
    assert (answer["spec"], answer["status"]) == (obj["spec"], obj["status"])


async def test_an_approval_is_dated_and_stays(api, asked):
    approved = await put(api, asked, "approval", [condition("Approved")], certificate=pem("CERTIFICATE"))
    assert kinds(approved) == ["Approved"]
    assert set(approved["status"]["conditions"][0]) == {
        "type", "status", "reason", "message", "lastUpdateTime", "lastTransitionTime",
    }  # fmt: skip
    assert "certificate" not in approved["status"]
    refused = await put(api, asked, "approval", [])
    assert refused.causes == {
        (
            "status.conditions",
            "FieldValueForbidden",
            'Forbidden: updates may not remove a condition of type "Approved"',
        )
    }
    refused = await put(api, asked, "approval", [condition("Approved"), condition("Denied")])
    assert refused.causes == {
        (
            "status.conditions",
            "FieldValueInvalid",
            r'Invalid value: "{conditions[{\"type\": \"Approved\"}], conditions[{\"type\": \"Denied\"}]}": must '
            'specify at most one of: `conditions[{"type": "Approved"}]`, `conditions[{"type": "Denied"}]`',
        )
    }


@pytest.mark.parametrize(
    ("conditions", "at", "problem"),
    [
        (
            [condition("Denied", "False")],
            "[0].status",
            'Unsupported value: "False": supported values: "True"',
        ),
        ([condition("")], "[0].type", "Required value"),
        ([condition("X", "")], "[0].status", "Required value"),
        (
            [condition("X", "maybe")],
            "[0].status",
            'Unsupported value: "maybe": supported values: "False", "True", "Unknown"',
        ),
        ([condition("X"), condition("X")], "[1].type", 'Duplicate value: "X"'),
    ],
)
async def test_conditions_are_checked(api, asked, conditions, at, problem):
    refused = await put(api, asked, "approval", conditions)
    assert refused.refusal == (422, "Invalid")
    assert [(field, message) for field, _, message in refused.causes] == [(f"status.conditions{at}", problem)]


async def test_a_status_decides_nothing_and_keeps_what_is_decided(api, asked):
    refused = await put(api, asked, "status", [condition("Approved")])
    assert refused.causes == {
        (
            "status.conditions",
            "FieldValueForbidden",
            'Forbidden: updates may not add a condition of type "Approved"',
        )
    }
    await put(api, asked, "approval", [condition("Denied")])
    answer = await put(api, asked, "status", [condition("Denied", reason="Other"), condition("Failed")])
    assert kinds(answer) == ["Denied", "Failed"]
    assert answer["status"]["conditions"][0]["reason"] == "Why"


@pytest.mark.parametrize(
    ("certificate", "problem"),
    [
        (base64.b64encode(b"x").decode(), "must contain at least one CERTIFICATE PEM block"),
        (pem("CERTIFICATE"), "x509: malformed certificate"),
    ],
)
async def test_an_issued_certificate_is_one(api, asked, certificate, problem):
    refused = await put(api, asked, "status", certificate=certificate)
    assert refused.causes == {
        ("status.certificate", "FieldValueInvalid", f'Invalid value: "<certificate data>": {problem}')
    }


async def test_approving_and_signing_need_rights_on_the_signer(api, asked, name):
    mine = f"signers-{name}"

    async def allow(role, rules):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": mine}
        for plural, made in (
            ("clusterroles", {"metadata": {"name": role}, "rules": rules}),
            (
                "clusterrolebindings",
                {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]},
            ),
        ):
            assert (await api.create(f"{RBAC}/{plural}", made)).status == 201

    async def may(verb, resource):
        attributes = {"group": "certificates.k8s.io", "resource": resource, "verb": verb, "name": SIGNER}
        review = {"spec": {"user": mine, "resourceAttributes": attributes}}
        answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return answer["status"]["allowed"]

    jo = api.acting_as(mine)
    group = {"apiGroups": ["certificates.k8s.io"]}
    resources = [f"certificatesigningrequests{part}" for part in ("", "/approval", "/status")]
    await allow(mine, [{**group, "resources": resources, "verbs": ["get", "update"]}])
    await until(lambda: may("update", "certificatesigningrequests"))
    for subresource, kind, verb in (("approval", "Approved", "approve"), ("status", "Failed", "sign")):
        refused = await put(jo, asked, subresource, [condition(kind)])
        assert refused.refusal == (403, "Forbidden")
        assert refused.message.endswith(f'user not permitted to {verb} requests with signerName "{SIGNER}"')
    signers = {**group, "resources": ["signers"], "resourceNames": ["example.com/*"], "verbs": ["approve"]}
    await allow(f"{mine}-2", [signers, {**signers, "resourceNames": [SIGNER], "verbs": ["sign"]}])
    await until(lambda: may("sign", "signers"))
    assert kinds(await put(jo, asked, "approval", [condition("Approved")])) == ["Approved"]
    assert kinds(await put(jo, asked, "status", [condition("Approved"), condition("Failed")])) == [
        "Approved",
        "Failed",
    ]
    for role in (mine, f"{mine}-2"):
        await api.delete(f"{RBAC}/clusterrolebindings/{role}")
        await api.delete(f"{RBAC}/clusterroles/{role}")


async def test_requests_are_selected_by_their_signer(api, asked, name):
    found = await api.get(REQUESTS, fieldSelector=f"spec.signerName={SIGNER}")
    assert name in [each["metadata"]["name"] for each in found["items"]]
    assert not (await api.get(REQUESTS, fieldSelector="spec.signerName=example.com/other"))["items"]
    refused = await api.get(REQUESTS, fieldSelector="spec.username=admin")
    assert refused.message == "field label not supported: spec.username"


async def test_a_table_shows_what_is_decided(api, asked):
    await put(api, asked, "approval", [condition("Approved")])
    table = await api.get(asked, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns == ["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"]
    assert table["rows"][0]["cells"][2:] == [SIGNER, "admin", "<none>", "Approved"]
