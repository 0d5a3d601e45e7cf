"""OpenAPI documents beyond the conformance cases: caching, and the hashes of earlier documents."""

from __future__ import annotations

import msgspec
import pytest

from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver import ApiServer, Front
from kubeshard_apiserver.front.openapi import OpenApi

APPS = "/openapi/v3/apis/apps/v1"


async def test_an_old_hash_leads_to_the_document_of_today():
    front = Front(ApiServer())
    moved = await front.reply(HttpRequest("GET", f"{APPS}?hash=OLD", {}, None))
    assert moved.status == 301
    found = await front.reply(HttpRequest("GET", moved.headers["location"], {}, None))
    assert found.status == 200
    assert found.headers["cache-control"] == "public, immutable"
    assert msgspec.json.decode(found.body)["openapi"] == "3.0.0"


def fields(message):
    """Yields (number, bytes) of each field that is a string or a message."""
    found, position = [], 0

    def varint():
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        key = varint()
        match key & 7:
            case 2:
                size = varint()
                found.append((key >> 3, message[position : position + size]))
                position += size
            case 0:
                varint()
            case 1:
                position += 8
            case other:
                raise AssertionError(other)
    return found


def named(message, number):
    """Returns messages by their names."""
    pairs = [dict(fields(pair)) for at, pair in fields(message) if at == number]
    return {pair[1].decode(): pair[2] for pair in pairs}


@pytest.mark.regression
async def test_the_older_form_says_the_same_in_protobuf():
    front = Front(ApiServer())
    accept = {"accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    told = await front.reply(HttpRequest("GET", "/openapi/v2", accept, None))
    assert told.headers["content-type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    plain = msgspec.json.decode((await front.reply(HttpRequest("GET", "/openapi/v2", {}, None))).body)
    document = dict(fields(told.body))
    definitions = named(document[9], 1)
    assert list(definitions) == list(plain["definitions"])
    assert list(named(document[8], 2)) == list(plain["paths"])
    for name, schema in plain["definitions"].items():
        said = definitions[name]
        properties = dict(fields(said)).get(25, b"")
        assert list(named(properties, 1)) == list(schema.get("properties", {}))
        extensions = {
            key: msgspec.json.decode(dict(fields(value))[2]) for key, value in named(said, 31).items()
        }
        assert extensions == {key: value for key, value in schema.items() if key.startswith("x-")}


async def test_the_newer_form_in_protobuf_is_refused():
    accept = {"accept": "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"}
    assert (await Front(ApiServer()).reply(HttpRequest("GET", APPS, accept, None))).status == 406


def test_a_document_is_built_once():
    openapi = OpenApi(ApiServer().registry)
    assert openapi.document("apis/apps/v1")[1] is openapi.document("apis/apps/v1")[1]
    assert openapi.version_2()[1] is openapi.version_2()[1]
