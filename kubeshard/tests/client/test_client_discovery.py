"""The requests for a server's kinds, and the handling of odd responses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeshard.client.discovery import Discovery
from kubeshard.core import NotFound
from kubeshard.core.errors import ApiError, Unavailable, UnexpectedResponse
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver.testing.memory import MemoryApi


class Api:
    """Fetches from the embedded API server, in the plain form only unless `aggregated` is set."""

    def __init__(self, *, aggregated: bool) -> None:
        self._aggregated = aggregated
        self._transport = MemoryApi().transport()
        self.paths: list[str] = []
        self.instead: dict[str, Any] = {}
        """Documents or errors by path."""

    async def fetch(self, path: str, accept: str) -> bytes:
        self.paths.append(path)
        if not self._aggregated:
            accept = "application/json"
        request = HttpRequest("GET", path, {"Accept": accept}, None, 10)
        body = (await self._transport.request(request)).body
        match self.instead.get(path):
            case ApiError() as error:
                raise error
            case None:
                return body
            case change:
                return json.dumps(change(json.loads(body))).encode()


async def test_all_kinds_are_had_with_two_requests_or_one_for_each_version_and_are_the_same() -> None:
    new, old = Api(aggregated=True), Api(aggregated=False)
    aggregated, plain = [await Discovery(api.fetch).all_kinds("list", "watch") for api in (new, old)]
    assert new.paths == ["/apis", "/api"]
    assert {"/apis", "/api/v1", "/apis/apps/v1"} <= {*old.paths}
    assert "/api" not in old.paths
    assert {kind.plural for kind in aggregated[0]} > {"configmaps", "deployments", "namespaces"}
    assert aggregated == plain
    assert aggregated[1] == {}


async def test_only_kinds_with_all_the_verbs_are_told() -> None:
    every, _ = await Discovery(Api(aggregated=True).fetch).all_kinds()
    listed, _ = await Discovery(Api(aggregated=True).fetch).all_kinds("list")
    assert {kind.plural for kind in every} - {kind.plural for kind in listed} >= {"subjectaccessreviews"}
    assert not any("/" in kind.plural for kind in every)


async def test_what_a_stale_version_of_a_group_says_does_not_count() -> None:
    def stale(document: dict[str, Any]) -> dict[str, Any]:
        apps = next(item for item in document["items"] if item["metadata"]["name"] == "apps")
        apps["versions"][0]["freshness"] = "Stale"
        return document

    api = Api(aggregated=True)
    api.instead["/apis"] = stale
    kinds, silent = await Discovery(api.fetch).all_kinds()
    assert {place: type(error) for place, error in silent.items()} == {"apps/v1": Unavailable}
    assert not [kind for kind in kinds if kind.group == "apps"]


async def test_a_resource_with_nothing_but_subresources_is_no_kind() -> None:
    def without(document: dict[str, Any]) -> dict[str, Any]:
        for resource in document["items"][0]["versions"][0]["resources"]:
            if resource["resource"] == "pods":
                resource["responseKind"] = None
        return document

    api = Api(aggregated=True)
    api.instead["/api"] = without
    kinds, silent = await Discovery(api.fetch).all_kinds()
    assert "pods" not in {kind.plural for kind in kinds}
    assert not silent


async def test_a_core_group_that_cannot_be_read_is_silent_and_the_others_are_told() -> None:
    api = Api(aggregated=True)
    api.instead["/api"] = Unavailable("try again later")
    kinds, silent = await Discovery(api.fetch).all_kinds("list")
    assert [*silent] == ["/v1"]
    assert {"deployments"} < {kind.plural for kind in kinds}
    assert "" not in {kind.group for kind in kinds}


async def test_a_core_group_in_the_plain_form_is_read_in_that_form() -> None:
    api = Api(aggregated=True)
    api.instead["/api"] = lambda _: {"kind": "APIVersions", "versions": ["v1"]}
    kinds, silent = await Discovery(api.fetch).all_kinds()
    assert api.paths == ["/apis", "/api", "/api/v1"]
    assert {"pods", "deployments"} < {kind.plural for kind in kinds}
    assert not silent


async def test_a_server_without_groups_is_no_api_server_and_not_one_without_kinds() -> None:
    async def fetch(path: str, accept: str) -> bytes:
        raise NotFound(f"{path}: no page here", code=404, reason="NotFound")

    with pytest.raises(UnexpectedResponse, match="there are no groups"):
        await Discovery(fetch).all_kinds("list")
