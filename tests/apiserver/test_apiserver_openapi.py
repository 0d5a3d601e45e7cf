"""What holds of OpenAPI documents beside what the conformance cases ask: caching, and hashes of the past."""

from __future__ import annotations

import msgspec

from kubeshard.apiserver import ApiServer, Front
from kubeshard.apiserver.front.openapi import OpenApi
from kubeshard.runtime.transport import HttpRequest

APPS = "/openapi/v3/apis/apps/v1"


async def test_an_old_hash_leads_to_the_document_of_today():
    front = Front(ApiServer())
    moved = await front.reply(HttpRequest("GET", f"{APPS}?hash=OLD", {}, None))
    assert moved.status == 301
    found = await front.reply(HttpRequest("GET", moved.headers["location"], {}, None))
    assert found.status == 200
    assert found.headers["cache-control"] == "public, immutable"
    assert msgspec.json.decode(found.body)["openapi"] == "3.0.0"


async def test_protobuf_is_refused():
    accept = {"accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    for path in APPS, "/openapi/v2":
        assert (await Front(ApiServer()).reply(HttpRequest("GET", path, accept, None))).status == 406


def test_a_document_is_built_once():
    openapi = OpenApi(ApiServer().registry)
    assert openapi.document("apis/apps/v1")[1] is openapi.document("apis/apps/v1")[1]
    assert openapi.version_2()[1] is openapi.version_2()[1]
