"""Everything that is not about objects: probes, headers of every response, methods that documents accept, metrics."""

import re

import pytest
from conformance_api import WITHIN

from kubeshard.runtime.transport import HttpRequest

pytestmark = pytest.mark.wire

PROBES = ["/livez", "/readyz", "/healthz"]
TEXT = "text/plain; charset=utf-8"


@pytest.mark.parametrize("probe", PROBES)
async def test_a_probe_says_ok(api, probe):
    answer = await api.get(probe)
    assert (answer.status, answer.text, answer.headers["content-type"]) == (200, "ok", TEXT)
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("probe", PROBES)
async def test_a_probe_with_words_says_each_check(api, probe):
    *checks, end = (await api.get(probe, verbose="")).text.splitlines()
    assert {"[+]ping ok", "[+]log ok", "[+]etcd ok", "[+]poststarthook/rbac/bootstrap-roles ok"} <= set(
        checks
    )
    assert end == f"{probe[1:]} check passed"


@pytest.mark.parametrize("check", ["ping", "etcd", "poststarthook/start-system-namespaces-controller"])
async def test_a_check_can_be_asked_alone(api, check):
    answer = await api.get(f"/readyz/{check}")
    assert (answer.status, answer.text) == (200, "ok")


@pytest.mark.parametrize("path", ["/readyz/nope", "/readyz/", "/readyz/ping/x", "/readyzz", "/metrics/nope"])
async def test_a_check_that_is_not_there(api, path):
    answer = await api.get(path)
    assert (answer.status, answer.text) == (404, "404 page not found\n")
    assert answer.headers["content-type"] == TEXT
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_checks_can_be_excluded(api):
    text = (await api.get("/livez", verbose="", exclude="etcd")).text
    assert "[+]etcd excluded: ok\n" in text
    assert text.endswith("livez check passed\n")
    *_, warning, end = (await api.get("/livez", verbose="", exclude="nope")).text.splitlines()
    assert warning == 'warn: some health checks cannot be excluded: no matches for "nope"'
    assert end == "livez check passed"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_a_probe_takes_any_method(api, method):
    answer = await api.call(method, "/livez")
    assert (answer.status, answer.text) == (200, "ok")


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("path", ["/apis", "/api", "/apis/apps", "/api/v1", "/apis/apps/v1"])
async def test_discovery_takes_the_methods_it_takes(api, method, path):
    answer = await api.call(method, path)
    if path in ("/apis", "/apis/apps"):
        assert answer.status == 200
    else:
        assert answer.refusal == (405, "MethodNotAllowed")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_the_version_is_only_read(api, method):
    answer = await api.call(method, "/version")
    assert answer.refusal == (405, "MethodNotAllowed")


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/api/v1/namespaces", "/api/v1/namespaces/default"])
async def test_a_method_that_resources_do_not_know(api, method, path):
    assert (await api.call(method, path)).refusal == (405, "MethodNotAllowed")


@pytest.mark.parametrize("path", ["/api/v1/namespaces", "/api/v1/namespaces/default", "/version"])
async def test_the_head_alone_is_not_served(api, path):
    assert await head(api, path) == (405, b"")


@pytest.mark.parametrize("path", ["/livez", "/apis"])
async def test_the_head_alone_of_what_takes_any_method(api, path):
    assert await head(api, path) == (200, b"")


async def head(api, path):
    answer = await api.transport.request(HttpRequest("HEAD", path, api._headers, None, WITHIN))
    return answer.status, answer.body


@pytest.mark.parametrize(
    "path", ["/livez", "/version", "/apis", "/nope", "/api/v1/namespaces", "/api/v1/namespaces/nope"]
)
async def test_every_reply_has_a_number_and_is_not_to_be_kept(api, path):
    answers = [await api.get(path) for _ in range(2)]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-cache, private"}
    numbers = {answer.headers["audit-id"] for answer in answers}
    assert len(numbers) == 2
    assert all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", number) for number in numbers)


async def test_requests_are_counted(api, maps, name):
    async def count():
        text = (await api.get("/metrics")).text
        wanted = [
            'code="201"',
            'dry_run=""',
            'group=""',
            'resource="configmaps"',
            'scope="resource"',
            'verb="POST"',
        ]
        lines = [line for line in text.splitlines() if line.startswith("apiserver_request_total{")]
        (line,) = [line for line in lines if all(part in line for part in wanted)] or ["{} 0"]
        return float(line.rpartition(" ")[2])

    before = await count()
    await api.create(maps, {"metadata": {"name": name}})
    assert await count() >= before + 1


async def test_the_numbers_have_the_names_that_dashboards_know(api, maps):
    text = (await api.get("/metrics")).text
    for metric in (
        'apiserver_request_duration_seconds_bucket{.*le="0.005".*}',
        "apiserver_request_duration_seconds_count{.*}",
        'apiserver_resource_objects{group="",resource="namespaces"}',
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
    ):
        assert re.search(f"^{metric} ", text, re.M), metric
