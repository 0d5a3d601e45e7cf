"""Types of Secrets, and the maximum size of Secrets, ConfigMaps and annotations."""

import base64

import pytest
from conformance_workloads import invalid, required

MEBIBYTE = 1024 * 1024
TOO_LONG = "Too long: may not be more than {} bytes"
CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def secret(type, data, **metadata):
    return {"metadata": {"name": "a", **metadata}, "type": f"{type}", "data": data}


@pytest.fixture
def secrets(ns):
    return f"/api/v1/namespaces/{ns}/secrets"


async def test_a_minimal_secret(api, secrets):
    made = await api.create(secrets, {"metadata": {"name": "a"}})
    assert made["type"] == "Opaque"
    assert made.body.keys() == {"apiVersion", "kind", "metadata", "type"}


@pytest.mark.parametrize(
    ("type", "data"),
    [
        ("kubernetes.io/tls", {"tls.crt": "", "tls.key": ""}),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": encoded("{}")}),
        ("kubernetes.io/basic-auth", {"username": ""}),
        ("kubernetes.io/ssh-auth", {"ssh-privatekey": encoded("x")}),
        ("bootstrap.kubernetes.io/token", {}),
        ("example.com/own", {"any": ""}),
    ],
)
async def test_secrets_of_a_type(api, secrets, type, data):
    assert (await api.create(secrets, secret(type, data))).status == 201


@pytest.mark.parametrize(
    ("given", "causes"),
    [
        ({"type": "kubernetes.io/tls", "data": {}}, {required("data[tls.crt]"), required("data[tls.key]")}),
        ({"type": "kubernetes.io/tls", "data": {"tls.crt": "eA=="}}, {required("data[tls.key]")}),
        ({"type": "kubernetes.io/tls", "data": {"tls.key": "eA=="}}, {required("data[tls.crt]")}),
        ({"type": "kubernetes.io/dockercfg", "data": {}}, {required("data[.dockercfg]")}),
        ({"type": "kubernetes.io/dockerconfigjson", "data": {}}, {required("data[.dockerconfigjson]")}),
        (
            {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": ""}},
            {
                invalid(
                    "data[.dockerconfigjson]", '"<secret contents redacted>"', "unexpected end of JSON input"
                )
            },
        ),
        (
            {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}},
            {
                invalid(
                    "data[.dockerconfigjson]",
                    '"<secret contents redacted>"',
                    "invalid character 'x' looking for beginning of value",
                )
            },
        ),
        (
            {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "W10="}},
            {
                invalid(
                    "data[.dockerconfigjson]",
                    '"<secret contents redacted>"',
                    "json: cannot unmarshal array into Go value of type map[string]interface {}",
                )
            },
        ),
        (
            {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eyJhIg=="}},
            {
                invalid(
                    "data[.dockerconfigjson]", '"<secret contents redacted>"', "unexpected end of JSON input"
                )
            },
        ),
        (
            {"type": "kubernetes.io/dockercfg", "data": {".dockercfg": "MQ=="}},
            {
                invalid(
                    "data[.dockercfg]",
                    '"<secret contents redacted>"',
                    "json: cannot unmarshal number into Go value of type map[string]interface {}",
                )
            },
        ),
        (
            {"type": "kubernetes.io/basic-auth", "data": {}},
            {required("data[password]"), required("data[username]")},
        ),
        ({"type": "kubernetes.io/ssh-auth", "data": {}}, {required("data[ssh-privatekey]")}),
        (
            {"type": "kubernetes.io/ssh-auth", "data": {"ssh-privatekey": ""}},
            {required("data[ssh-privatekey]")},
        ),
        (
            {"type": "kubernetes.io/service-account-token", "data": {}},
            {required("metadata.annotations[kubernetes.io/service-account.name]")},
        ),
        ({"type": "x/y", "data": {"..a": ""}}, {invalid("data[..a]", '"..a"', "must not start with '..'")}),
        ({"type": "x/y", "data": {".": ""}}, {invalid("data[.]", '"."', "must not be '.'")}),
        ({"type": "x/y", "data": {"..": ""}}, {invalid("data[..]", '".."', "must not be '..'")}),
        ({"type": "x/y", "data": {"a b": ""}}, {invalid("data[a b]", '"a b"', CONFIG_KEY)}),
        (
            {"type": "x/y", "data": {"x" * 254: ""}},
            {
                invalid(
                    "data[xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx]",
                    '"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"',
                    "must be no more than 253 characters",
                )
            },
        ),
    ],
)
async def test_a_secret_without_what_its_type_has(api, secrets, given, causes):
    refused = await api.create(secrets, secret(**given))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_token_is_for_an_account(api, secrets):
    account = {"kubernetes.io/service-account.name": "x"}
    made = await api.create(secrets, secret("kubernetes.io/service-account-token", {}, annotations=account))
    assert made.status == 201


async def test_a_secret_has_at_most_a_mebibyte(api, secrets):
    assert (await api.create(secrets, secret("Opaque", {"a": encoded("x" * MEBIBYTE)}))).status == 201
    refused = await api.create(secrets, secret("Opaque", {"a": encoded("x" * (MEBIBYTE + 1))}))
    assert refused.causes == {("data", "FieldValueTooLong", TOO_LONG.format(MEBIBYTE))}


async def test_a_config_map_has_at_most_a_mebibyte(api, maps):
    body = {
        "metadata": {"name": "a"},
        "data": {"a": "x" * (MEBIBYTE - 2)},
        "binaryData": {"b": encoded("xyz")},
    }
    refused = await api.create(maps, body)
    assert refused.causes == {("[]", "FieldValueTooLong", TOO_LONG.format(MEBIBYTE))}
    body["binaryData"]["b"] = encoded("xy")
    assert (await api.create(maps, body)).status == 201


async def test_a_key_of_a_config_map_is_text_or_binary(api, maps):
    body = {"metadata": {"name": "a"}, "data": {"a": "x"}, "binaryData": {"a": encoded("x")}}
    refused = await api.create(maps, body)
    assert refused.causes == {invalid("data[a]", '"a"', "duplicate of key present in binaryData")}


async def test_annotations_have_at_most_256_kibibytes_together(api, maps):
    most = 256 * 1024
    body = {"metadata": {"name": "a", "annotations": {"a": "x" * (most - 2), "b": ""}}}
    made = await api.create(maps, body)
    assert made.status == 201
    refused = await api.merge(f"{maps}/a", {"metadata": {"annotations": {"b": "y"}}})
    assert refused.causes == {("metadata.annotations", "FieldValueTooLong", TOO_LONG.format(most))}
