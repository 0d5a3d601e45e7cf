import asyncio
import json
from dataclasses import replace

import pytest
from aiohttp import web
from multidict import CIMultiDict

from kubeshard import ALL
from kubeshard.client import Client, ClusterConfig, KindNotServed, TokenBucketLimiter, retry_on_conflict
from kubeshard.client.config import ExecPlugin, TokenFile
from kubeshard.client.requests import query, server_timeout
from kubeshard.client.retry import RetryPolicy
from kubeshard.client.write_records import WriteRecord
from kubeshard.core import (
    AlreadyExists,
    ApiError,
    ConfigMap,
    ConfigurationError,
    Conflict,
    FieldSelector,
    Forbidden,
    Gone,
    Invalid,
    JsonPatch,
    Key,
    KubeObject,
    Lease,
    MergePatch,
    Namespace,
    NotFound,
    NotOurs,
    ObjectMeta,
    PartialObject,
    PatchTestFailed,
    SchemaMismatch,
    Selector,
    Throttled,
    Timeout,
    TooLarge,
    Unauthorized,
    Unavailable,
    UndecodableObject,
    UnexpectedResponse,
    WrongNamespace,
    metadata_only,
)
from kubeshard.runtime.world import REAL_WORLD
from kubeshard_lab.virtual_time import VirtualClock, virtual_time


class Gadget(KubeObject, group="example.com", version="v1"):
    pass


def config_map(name="a", **metadata):
    meta = {"name": name, "namespace": "n", "resourceVersion": "1", "uid": "u", **metadata}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta}


def page(names, token="", version="5"):
    return web.json_response(
        {
            "kind": "ConfigMapList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version, "continue": token},
            "items": [config_map(name) for name in names],
        }
    )


async def watched(client, **options):
    """Returns all events of a watch."""
    async with client.watch(ConfigMap, "n", **options) as events:
        return [event async for event in events]


HTML = web.Response(text="<html>Bad</html>", content_type="text/html")


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", Throttled),
        (500, "InternalError", Unavailable),
        (503, "ServiceUnavailable", Unavailable),
        (504, "Timeout", Timeout),
        (405, "MethodNotAllowed", ApiError),
    ],
)
async def test_an_error_is_a_class_by_its_cause(server, client, status, code, reason, error):
    server.answer(status(code, reason, message="sorry", details={"causes": [{"field": "spec"}]}))
    with pytest.raises(ApiError, match="GET /api/v1/namespaces/n/configmaps/a: sorry") as caught:
        await client.get(ConfigMap, "a", "n")
    assert type(caught.value) is error
    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert caught.value.causes == [{"field": "spec"}]


@pytest.mark.parametrize(
    ("problems", "causes"),
    [
        (".spec.sise: field not declared in schema", {"spec.sise": "field not declared in schema"}),
        (
            "errors:\n  .spec.a: field not declared in schema\n  .status.url: expected string, got &value{5}",
            {"spec.a": "field not declared in schema", "status.url": "expected string, got &value{5}"},
        ),
        ("expected map, got &[]", {"": "expected map, got &[]"}),
    ],
)
async def test_an_apply_that_does_not_fit_the_schema_is_no_outage(server, client, status, problems, causes):
    head = "failed to create typed patch object (n/a; v1, Kind=ConfigMap): "
    server.answer(status(500, "", message=head + problems))
    with pytest.raises(SchemaMismatch) as caught:
        await client.apply(ConfigMap(metadata=ObjectMeta(name="a", namespace="n")))
    assert {each["field"]: each["message"] for each in caught.value.causes} == causes
    assert all(
        f"{field}: {words}" if field else words in str(caught.value) for field, words in causes.items()
    )
    assert "\n" not in str(caught.value)


async def test_an_apply_of_a_value_that_does_not_fit_its_type_is_no_outage(server, client, status):
    head = "failed to convert new object (n/s; v1, Kind=Secret) to proper version: "
    problem = "unable to convert unstructured object to v1, Kind=Secret: illegal base64 data at input byte 6"
    server.answer(status(500, "", message=head + problem))
    with pytest.raises(SchemaMismatch, match="illegal base64 data") as caught:
        await client.apply(ConfigMap(metadata=ObjectMeta(name="a", namespace="n")))
    assert caught.value.causes == [{"field": "", "message": problem}]


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
        (500, "", "etcdserver: request is too large"),
        (
            500,
            "",
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)",
        ),
    ],
)
async def test_an_object_that_is_too_large_is_no_outage(server, client, status, code, reason, message):
    server.answer(status(code, reason, message=message))
    with pytest.raises(TooLarge, match=message.partition("(")[0]):
        await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="n")))
    server.answer(status(code, reason, message=message))
    with pytest.raises(TooLarge):  # not that the test failed
        await client.patch(ConfigMap, "a", "n", JsonPatch([{"op": "test", "path": "/data/a", "value": "1"}]))


@pytest.mark.parametrize(
    ("code", "reason", "fields", "is_test"),
    [
        (422, "Invalid", {"details": {}}, True),
        (422, "Invalid", {"details": {"causes": [{"message": "policy 'p' denied request"}]}}, False),
        (422, "Invalid", {}, False),  # a webhook with this code
        (400, "", {}, False),  # a webhook without a code
    ],
)
async def test_what_a_webhook_or_a_policy_refuses_is_no_failed_test(
    server, client, status, code, reason, fields, is_test
):
    server.answer(status(code, reason, message='admission webhook "w" denied the request: no', **fields))
    with pytest.raises(Invalid, match="denied the request: no") as caught:
        await client.patch(ConfigMap, "a", "n", JsonPatch([{"op": "test", "path": "/data/a", "value": "1"}]))
    assert isinstance(caught.value, PatchTestFailed) is is_test


@pytest.mark.parametrize("causes", [None, "spec", 3, {"field": "spec"}, ["spec", None, 3]])
async def test_causes_of_an_error_that_are_none_are_left_out(server, client, status, causes):
    server.answer(status(422, "Invalid", details={"causes": causes}))
    with pytest.raises(Invalid) as caught:
        await client.get(ConfigMap, "a", "default")
    assert not caught.value.causes
    assert caught.value.details["causes"] == causes


@pytest.mark.parametrize(
    "answer",
    [
        HTML,
        web.Response(status=404, text="<html>", content_type="text/html"),
        web.Response(status=409, text="busy"),
        web.Response(status=301, headers={"Location": "https://login"}),
        web.Response(status=200, content_type="application/json"),
        web.Response(status=204),
        web.json_response([]),
        web.json_response({"kind": "Secret", "apiVersion": "v1", "items": []}),
        web.json_response({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
    ],
)
async def test_an_answer_that_no_api_server_gives_is_an_error_and_never_an_empty_list(server, client, answer):
    server.answer(answer)
    with pytest.raises(UnexpectedResponse):
        await client.get(ConfigMap, "a", "n")
    for page_size in (500, None):
        with pytest.raises(UnexpectedResponse):
            await client.list_all(ConfigMap, ALL, page_size=page_size)
    if answer.status == 200 and not answer.body:
        return  # a watch during which nothing happened
    with pytest.raises(UnexpectedResponse):
        await watched(client)


async def test_a_load_balancer_without_servers_is_unavailable(server, client):
    server.answer(web.Response(status=502, text="<html>Bad gateway</html>", content_type="text/html"))
    with pytest.raises(Unavailable, match="status 502: '<html>Bad gateway</html>'"):
        await client.get(ConfigMap, "a", "n")


@pytest.mark.parametrize("release", ["1.37", "1.38"])
async def test_a_path_that_is_not_served_is_not_found(server, client, status, release):
    page = web.Response(status=404, text="404 page not found\n")
    server.answer(page if release == "1.37" else status(404, "NotFound", message="404 page not found"))
    with pytest.raises(NotFound, match="does not serve this path"):
        await client.get(Gadget, "a", "n")


async def test_the_server_says_when_to_come_back(server, client, status):
    throttled = status(429, "TooManyRequests", headers={"Retry-After": "0"})
    busy = web.Response(status=503, text="starting", headers={"Retry-After": "0"})
    server.answer(throttled, busy, web.json_response(config_map()))
    assert (await client.patch(ConfigMap, "a", "n", MergePatch({"data": {}}))).metadata.name == "a"
    assert server.bodies == [{"data": {}}] * 3


async def test_after_ten_tries_the_throttling_is_an_error(server, client, status):
    server.answer(status(429, "TooManyRequests", headers={"Retry-After": "0"}))
    with pytest.raises(Throttled) as caught:
        await client.get(ConfigMap, "a", "n")
    assert caught.value.retry_after == 0
    assert len(server.requests) == 10


async def test_a_view_that_tries_once_hands_out_the_throttling_at_once(server, client, status):
    once = client.with_retry(RetryPolicy(tries=1))
    server.answer(status(429, "TooManyRequests", headers={"Retry-After": "5"}))
    with pytest.raises(Throttled) as caught:
        await once.current_version(ConfigMap, ALL)
    assert caught.value.retry_after == 5
    with pytest.raises(Throttled):
        async with once.watch(ConfigMap, ALL, resource_version="7"):
            pass
    assert len(server.requests) == 2


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "3600"}])
async def test_nothing_is_repeated_unless_the_server_asks_for_it_in_bearable_time(
    server, client, status, headers
):
    server.answer(status(429, "TooManyRequests", headers=headers))
    with pytest.raises(Throttled):
        await client.get(ConfigMap, "a", "n")
    assert len(server.requests) == 1


@pytest.mark.regression
@pytest.mark.parametrize("code", [429, 503])
async def test_an_impatient_view_hands_out_the_throttling_at_once(server, client, status, code):
    server.answer(status(code, "TooManyRequests", headers={"Retry-After": "7"}))
    with pytest.raises(Throttled) as caught:
        await client.impatient().patch(ConfigMap, "a", "n", MergePatch({}))
    assert caught.value.retry_after == 7
    assert len(server.requests) == 1


@pytest.mark.regression
async def test_an_impatient_view_renews_credentials_and_leaves_the_next_attempt_to_its_user(
    server, status, tmp_path
):
    token = tmp_path / "token"
    token.write_text("old")
    server.answer(status(401, "Unauthorized"), web.json_response(config_map()))
    async with Client(ClusterConfig(server.url, auth=TokenFile(token))) as client:
        impatient = client.impatient()
        await impatient.turn()
        token.write_text("new")
        with pytest.raises(Unauthorized):
            await impatient.patch(ConfigMap, "a", "n", MergePatch({}))
        assert len(server.requests) == 1
        await impatient.patch(ConfigMap, "a", "n", MergePatch({}))
    assert server.header("Authorization") == ["Bearer old", "Bearer new"]


@pytest.mark.regression
async def test_the_rate_limit_of_an_impatient_view_is_kept_by_turns_and_never_inside_a_request(server, rng):
    class Turns:
        taken = 0

        async def acquire(self):
            self.taken += 1

    turns = Turns()
    server.answer(web.json_response(config_map()))
    async with Client(ClusterConfig(server.url), world=replace(REAL_WORLD, rng=rng), limiter=turns) as client:
        impatient = client.impatient()
        await impatient.patch(ConfigMap, "a", "n", MergePatch({}))
        assert turns.taken == 0
        await impatient.turn()
        assert turns.taken == 1
        await client.get(ConfigMap, "a", "n")
        assert turns.taken == 2


@pytest.mark.regression
async def test_a_check_is_asked_before_every_attempt_of_a_write_and_stops_it(server, client, status):
    class Over(Exception):
        pass

    asked = []

    def check():
        asked.append(len(server.requests))
        if server.requests:
            raise Over

    server.answer(status(429, "TooManyRequests", headers={"Retry-After": "0"}))
    with pytest.raises(Over):
        await client.checked(check).patch(ConfigMap, "a", "n", MergePatch({}))
    assert asked == [0, 1]


async def test_each_check_of_a_view_stops_its_writes_also_raw_and_unfenced_ones_and_no_reads(
    server, client, status
):
    class Over(Exception):
        pass

    def over():
        raise Over

    for checked in client.checked(over).checked(lambda: None), client.checked(lambda: None).checked(over):
        with pytest.raises(Over):
            await checked.delete(ConfigMap, "a", "n", unfenced=True)
        with pytest.raises(Over):
            await checked.raw("POST", "/x", b"{}")
    assert server.requests == []
    server.answer(status(200, ""))
    await checked.raw("GET", "/version")


async def test_a_broken_write_is_not_sent_again(server, client):
    async def cut(request):
        request.transport.abort()
        return web.Response()

    server.answer(cut)
    with pytest.raises(Unavailable):
        await client.patch(ConfigMap, "a", "n", MergePatch({}))
    assert len(server.requests) == 1


async def test_a_broken_read_is_tried_once_more(server, client):
    async def cut(request):
        request.transport.abort()
        return web.Response()

    server.answer(cut, web.json_response(config_map()))
    assert (await client.get(ConfigMap, "a", "n")).metadata.name == "a"
    server.answer(cut)
    with pytest.raises(Unavailable):
        await client.get(ConfigMap, "a", "n")
    assert len(server.requests) == 4


async def test_a_read_change_write_is_done_again_on_conflict_and_given_up_on_not_ours(rng):
    met = iter([Conflict("1"), Conflict("2"), None, NotOurs("3")])
    attempts = []

    async def attempt():
        attempts.append(1)
        if error := next(met):
            raise error
        return "written"

    assert await retry_on_conflict(attempt, rng) == "written"
    with pytest.raises(NotOurs):
        await retry_on_conflict(attempt, rng)
    assert len(attempts) == 4


async def test_no_answer_within_the_deadline_is_a_timeout(server, client):
    server.answer(server.stall)
    with pytest.raises(Timeout):
        await client.with_timeout(0.05).get(ConfigMap, "a", "n")


async def test_a_refused_token_is_renewed_once(server, status, tmp_path):
    path = tmp_path / "token"
    path.write_text("old")

    async def rotate(_request):
        path.write_text("new")
        return status(401, "Unauthorized")

    server.answer(rotate, web.json_response(config_map()))
    async with Client(ClusterConfig(server.url, auth=TokenFile(path))) as client:
        await client.get(ConfigMap, "a", "n")
        assert server.header("Authorization") == ["Bearer old", "Bearer new"]
        server.answer(status(401, "Unauthorized"))
        with pytest.raises(Unauthorized):
            await client.get(ConfigMap, "a", "n")


@pytest.mark.system
async def test_a_plugin_that_fails_is_the_users_mistake_at_first_and_a_passing_failure_later(
    server, status, tmp_path
):
    script = tmp_path / "plugin"
    config = ClusterConfig(server.url, auth=ExecPlugin(command="sh", args=(str(script),)))
    server.answer(web.json_response(config_map()))
    async with Client(config) as client:
        script.write_text("exit 1")
        with pytest.raises(ConfigurationError, match="exec plugin sh: exit code 1"):
            await client.get(ConfigMap, "a", "n")
        credential = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": "t"},
        }
        script.write_text(f"echo '{json.dumps(credential)}'")
        await client.get(ConfigMap, "a", "n")
        script.write_text("exit 1")
        server.answer(status(401, "Unauthorized"))
        with pytest.raises(Unauthorized, match="exec plugin sh: exit code 1"):
            await client.get(ConfigMap, "a", "n")


async def test_the_metadata_form_is_asked_for_by_accept(server, client):
    partial = {**config_map(), "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    server.answer(web.json_response(partial))
    form = metadata_only(ConfigMap)
    assert isinstance(await client.get(form, "a", "n"), PartialObject)
    assert isinstance(await client.patch(form, "a", "n", MergePatch({})), PartialObject)
    server.answer(
        web.json_response(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {},
                "items": [partial],
            }
        )
    )
    assert len(await client.list_all(form, ALL)) == 1
    single = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    assert server.header("Accept") == [single, single, single.replace("Metadata;", "MetadataList;")]


async def test_what_a_write_sends(server, client):
    server.answer(web.json_response(config_map()))
    view = client.with_field_manager("me").with_user_agent("shard-lease").with_timeout(4.5)
    obj = ConfigMap(metadata=ObjectMeta(name="a", namespace="n"), data={"k": "v"})
    await view.create(obj, dry_run=True)
    await view.replace(obj, subresource="status")
    await view.apply(
        ConfigMap(metadata=ObjectMeta(name="a", namespace="n", uid="u", resource_version="1")), force=True
    )
    await client.patch(
        ConfigMap, "a", "n", JsonPatch([{"op": "remove", "path": "/data"}]), field_manager="other"
    )
    sent = [(request.method, request.path, dict(request.query)) for request, _ in server.requests]
    assert sent == [
        ("POST", "/api/v1/namespaces/n/configmaps", {"fieldManager": "me", "dryRun": "All", "timeout": "5s"}),
        ("PUT", "/api/v1/namespaces/n/configmaps/a/status", {"fieldManager": "me", "timeout": "5s"}),
        (
            "PATCH",
            "/api/v1/namespaces/n/configmaps/a",
            {"fieldManager": "me", "force": "true", "timeout": "5s"},
        ),
        ("PATCH", "/api/v1/namespaces/n/configmaps/a", {"fieldManager": "other", "timeout": "10s"}),
    ]
    assert server.header("Content-Type")[-2:] == [
        "application/apply-patch+yaml",
        "application/json-patch+json",
    ]
    assert [agent.endswith("/shard-lease") for agent in server.header("User-Agent")] == [
        True,
        True,
        True,
        False,
    ]
    assert server.bodies[2] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "n"},
    }


async def test_a_delete_carries_its_preconditions(server, client):
    server.answer(
        web.json_response(
            {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"uid": "u"}}
        )
    )
    await client.delete(
        ConfigMap, "a", "n", uid="u", resource_version="7", propagation="Foreground", grace_period=0
    )
    assert server.bodies == [
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u", "resourceVersion": "7"},
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": 0,
        }
    ]


async def test_every_write_that_took_effect_is_told(server, client):
    told = []
    view = client.on_write(told.append)
    server.answer(web.json_response(config_map(labels={"l": "v"})))
    await view.patch(ConfigMap, "a", "n", MergePatch({}))
    await view.patch(ConfigMap, "a", "n", MergePatch({}), dry_run=True)
    await client.patch(ConfigMap, "a", "n", MergePatch({}))
    server.answer(web.json_response(config_map(finalizers=["f"], resourceVersion="2")))
    await view.delete(ConfigMap, "a", "n")
    server.answer(
        web.json_response(
            {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"uid": "u"}}
        )
    )
    await view.delete(ConfigMap, "a", "n")
    key = Key("n", "a")
    assert told == [
        WriteRecord(ConfigMap.KIND, key, "u", "1", {"l": "v"}, deleted=False),
        WriteRecord(ConfigMap.KIND, key, "u", "2", None, deleted=False),
        WriteRecord(ConfigMap.KIND, key, "u", "", None, deleted=True),
    ]


async def test_mistakes_are_refused_before_anything_is_sent(client):
    with pytest.raises(TypeError, match="Gadget does not declare every field"):
        await client.replace(Gadget(metadata=ObjectMeta(name="a", namespace="n")))
    with pytest.raises(WrongNamespace, match="say in which one 'a' is"):
        await client.get(ConfigMap, "a")
    with pytest.raises(WrongNamespace, match="has no namespaces"):
        await client.get(Namespace, "a", "n")
    with pytest.raises(ValueError, match="an object's name is missing"):
        await client.get(ConfigMap, "", "n")
    with pytest.raises(ValueError, match="was read from the server"):
        await client.create(Lease(metadata=ObjectMeta(name="a", namespace="n", resource_version="1")))
    with pytest.raises(TypeError, match="a patch is a MergePatch, a JsonPatch or an ApplyPatch, not dict"):
        await client.patch(ConfigMap, "a", "n", {"data": {}})
    with pytest.raises(ValueError, match="needs apiVersion, kind and metadata"):
        await client.apply_manifest({"apiVersion": "v1", "kind": "ConfigMap"})
    for field, wrong in (("name", 5), ("namespace", {"name": "n"})):
        metadata = {"name": "a", "namespace": "n", field: wrong}
        with pytest.raises(ValueError, match=rf"metadata\.{field} of a manifest is text, and this is "):
            await client.apply_manifest({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


@pytest.mark.parametrize("method", ["list", "watch"])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"label_selector": "a in b"}, r"label_selector='a in b': give Selector\.parse\('a in b'\)"),
        ({"field_selector": "a=b"}, r"field_selector='a=b': give FieldSelector\.parse\('a=b'\)"),
    ],
)
async def test_selectors_that_are_text_are_not_sent(server, client, method, given, says):
    with pytest.raises(TypeError, match=says):
        getattr(client, method)(ConfigMap, "n", **given)
    assert not server.requests


async def test_pages_follow_each_other_without_naming_a_version(server, client):
    server.answer(page("ab", "more"), page("c"))
    stream = client.list(
        ConfigMap,
        "n",
        label_selector=Selector.parse("a=b,!c"),
        field_selector=FieldSelector.equals("metadata.name", "x"),
        page_size=2,
        resource_version="3",
    )
    assert [obj.metadata.name async for obj in stream] == ["a", "b", "c"]
    assert stream.resource_version == "5"
    first, second = (dict(request.query) for request, _ in server.requests)
    selected = {"labelSelector": "a=b,!c", "fieldSelector": "metadata.name=x", "limit": "2"}
    assert first == {**selected, "resourceVersion": "3"}
    assert second == {**selected, "continue": "more"}


async def test_an_expired_page_restarts_as_one_response_and_never_mixes_snapshots(server, client, status):
    server.answer(page("ab", "more"), status(410, "Expired"), page("bc", version="9"))
    kept = []
    stream = client.list(ConfigMap, ALL, page_size=2, on_restart=kept.clear)
    async for obj in stream:
        kept.append(obj.metadata.name)  # noqa: PERF401
    assert (kept, stream.resource_version) == (["b", "c"], "9")
    assert "limit" not in server.requests[2][0].query
    server.answer(page("ab", "more"), status(410, "Expired"))
    with pytest.raises(Gone):
        await anext(obj async for obj in client.list(ConfigMap, ALL, page_size=2) if obj is None)


@pytest.mark.parametrize("page_size", [500, None])
async def test_an_object_that_does_not_fit_is_set_aside(server, client, page_size):
    body = {**json.loads(page("ab").body)}
    body["items"][0]["data"] = 5
    server.answer(web.json_response(body))
    stream = client.list(ConfigMap, ALL, page_size=page_size)
    assert [obj.metadata.name async for obj in stream] == ["b"]
    assert [problem.key for problem in stream.undecodable] == [("n", "a")]
    server.answer(web.json_response(body["items"][0]))
    with pytest.raises(UndecodableObject):
        await client.get(ConfigMap, "a", "n")


async def test_a_watch_asks_for_bookmarks_and_ends_at_different_times(server, client):
    async def answer(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for text in (json.dumps({"type": "ADDED", "object": config_map()}), "\n"):
            await response.write(text.encode())
        return response

    server.answer(answer)
    events = await watched(client, resource_version="4", send_initial_events=True)
    assert [event.object.metadata.name for event in events] == ["a"]
    assert dict(server.requests[0][0].query) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "4",
        "timeoutSeconds": "240",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }


async def test_a_silent_watch_is_a_timeout(server, client):
    server.answer(server.stall_within)
    with pytest.raises(Timeout):
        await watched(client, idle_timeout=0.05)


async def test_a_refused_watch_is_an_error_by_cause(server, client, status):
    server.answer(status(410, "Expired"))
    with pytest.raises(Gone):
        await watched(client, resource_version="1")


async def test_attempts_are_observed_and_warnings_logged_once(server, client, status, caplog):
    seen = []
    client.observers.append(
        lambda method, host, code, seconds: seen.append((method, host, code, seconds >= 0))
    )
    server.answer(
        status(429, "TooManyRequests", headers={"Retry-After": "0"}),
        web.json_response(config_map(), headers={"Warning": '299 - "v1 Old is deprecated"'}),
    )
    await client.get(ConfigMap, "a", "n")
    await client.get(ConfigMap, "a", "n")
    host = server.url.removeprefix("http://")
    assert seen == [("GET", host, 429, True), ("GET", host, 200, True), ("GET", host, 200, True)]
    assert [record.fields for record in caplog.records] == [{"warning": "v1 Old is deprecated"}]


async def test_every_warning_of_a_response_is_logged_whether_in_one_line_or_several(server, client, caplog):
    lines = ['299 - "v1 Old is deprecated"', '299 - "unknown field \\"a, b\\"", 299 - "größer – 日本"']
    headers = CIMultiDict([("Warning", line) for line in lines])
    server.answer(web.json_response(config_map(), headers=headers))
    await client.get(ConfigMap, "a", "n")
    assert [record.fields["warning"] for record in caplog.records] == [
        "v1 Old is deprecated",
        'unknown field "a, b"',
        "größer – 日本",
    ]


async def test_discovery_prefers_the_groups_version_and_asks_again_before_it_says_no(server, client):
    resources = [
        {"name": "gadgets", "kind": "Gadget", "namespaced": True},
        {"name": "gadgets/status", "kind": "Gadget"},
    ]
    served = []

    async def answer(request):
        if request.path == "/apis/example.com":
            versions = [{"version": "v1beta1"}, {"version": "v1"}]
            return web.json_response(
                {"kind": "APIGroup", "versions": versions, "preferredVersion": {"version": "v1"}}
            )
        if request.path == "/apis/example.com/v1":
            return web.json_response({"kind": "APIResourceList", "resources": served})
        if request.path == "/apis/example.com/v1beta1":
            old = {"name": "relics", "kind": "Relic", "namespaced": False}
            return web.json_response({"kind": "APIResourceList", "resources": [old]})
        return web.Response(status=404, text="404 page not found\n")

    server.answer(answer)
    with pytest.raises(KindNotServed, match=r"does not serve Gadget\.example\.com: is its CRD installed"):
        await client.discovery.kind("example.com", kind="Gadget")
    served.extend(resources)
    assert await client.discovery.kind("example.com", kind="Gadget") == Gadget.KIND
    asked = len(server.requests)
    assert await client.discovery.kind("example.com", resource="gadgets") == Gadget.KIND
    assert len(server.requests) == asked
    relic = await client.discovery.kind("example.com", kind="Relic")
    assert (relic.version, relic.namespaced) == ("v1beta1", False)
    with pytest.raises(KindNotServed):
        await client.discovery.kind("other.com", resource="things")
    with pytest.raises(TypeError):
        await client.discovery.kind("example.com")


async def test_a_limiter_spreads_requests_and_allows_a_burst():
    class HandClock:
        now = 5.0

        def monotonic(self):
            return self.now

    clock, waits = HandClock(), []
    limiter = TokenBucketLimiter(qps=10, burst=2, clock=clock)

    async def sleep(seconds):
        waits.append(round(seconds, 3))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        for _ in range(4):
            await limiter.acquire()
        clock.now += 60
        for _ in range(3):
            await limiter.acquire()
    assert waits == [0.1, 0.2, 0.1]


@pytest.mark.regression
@virtual_time
async def test_requests_that_were_given_up_while_they_waited_for_the_rate_limit_delay_nobody():
    clock = VirtualClock()
    limiter = TokenBucketLimiter(qps=1, burst=1, clock=clock)
    await limiter.acquire()
    waiting = [asyncio.create_task(limiter.acquire()) for _ in range(100)]
    await asyncio.sleep(0.5)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await limiter.acquire()
    assert clock.monotonic() == 1.0


def test_queries_leave_out_what_is_not_given():
    assert (
        query({"a": "x y/=", "b": None, "c": "", "d": True, "e": False, "f": 0})
        == "?a=x%20y%2F%3D&d=true&f=0"
    )
    assert query({}) == ""
    assert (server_timeout(4.5), server_timeout(0.1), server_timeout(None)) == ("5s", "1s", None)


async def test_requests_go_through_the_proxy(server):
    server.answer(web.json_response(config_map()))
    async with Client(ClusterConfig("http://api.example.com:8080", proxy=server.url)) as client:
        await client.get(ConfigMap, "a", "n")
    assert server.header("Host") == ["api.example.com:8080"]


async def test_a_path_before_the_api_is_kept(server):
    server.answer(web.json_response(config_map()))
    async with Client(ClusterConfig(f"{server.url}/k8s/clusters/c-1/")) as client:
        await client.get(ConfigMap, "a", "n")
    assert server.requests[0][0].path == "/k8s/clusters/c-1/api/v1/namespaces/n/configmaps/a"


async def test_impersonation_is_sent_with_every_request(server):
    server.answer(web.json_response(config_map()))
    async with Client(ClusterConfig(server.url, impersonate={"Impersonate-User": "alice"})) as client:
        await client.get(ConfigMap, "a", "n")
    assert server.header("Impersonate-User") == ["alice"]


async def test_a_closed_client_sends_nothing(server, client):
    await client.close()
    with pytest.raises(Unavailable, match="closed"):
        await client.get(ConfigMap, "a", "n")
    assert not server.requests


async def test_a_json_patch_is_written_as_api_servers_write_what_they_store(client, server):
    server.answer(web.json_response({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}))
    operation = {"op": "test", "path": "/data/a", "value": "a>b <&> \u2028\u2029 é"}
    await client.patch(ConfigMap, "a", "n", JsonPatch([operation]))
    assert server.bodies == [[operation]]
    assert r'"a\u003eb \u003c\u0026\u003e \u2028\u2029 é"'.encode() in server.requests[0][1]
