"""Typed functions as webhooks: the responses to the API server, and the registration."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import msgspec
import pytest
from asgi_client import Answer, call
from prometheus_client import CollectorRegistry

from failing_groups import FOREVER, fail_in_a_group
from kubeshard import KubeObject, Struct, field
from kubeshard.core.selectors import LabelSelector, LabelSelectorRequirement
from kubeshard.runtime.clock import SystemClock
from kubeshard.webhook import (
    AdmissionAnswer,
    AdmissionApp,
    AdmissionRequest,
    CertificateFiles,
    Denied,
    Webhooks,
    defaults,
    validates,
)
from kubeshard.webhook.metrics import WebhookMetrics
from kubeshard_apiserver.json_patch import apply_json_patch
from kubeshard_lab.virtual_time import virtual_time


class Container(Struct):
    name: str = ""
    image: str = ""


class AppSpec(Struct):
    image: str = ""
    replicas: int = 1
    mode: str = "plain"
    containers: tuple[Container, ...] = ()


class App(KubeObject, group="example.com", version="v1"):
    spec: AppSpec = field(default_factory=AppSpec)


@validates(App)
def no_latest(app: App) -> None:
    if app.spec.image.endswith(":latest"):
        raise Denied("say which version: latest may change")


@validates(App)
async def only_grows(app: App, old: App | None) -> AdmissionAnswer | None:
    await asyncio.sleep(0)
    if old is not None and app.spec.replicas < old.spec.replicas:
        raise Denied("replicas only grow", code=422)
    return AdmissionAnswer(warnings=("large",)) if app.spec.replicas > 100 else None


@validates(App, operations=("DELETE",))
def not_by_eve(app: App, old: App | None, request: AdmissionRequest) -> None:
    assert app is old
    if request.user.username == "eve":
        raise Denied(f"{app.metadata.name} is not yours")


@defaults(App)
def pinned(app: App) -> App | None:
    if ":" in app.spec.image:
        return None
    containers = tuple(msgspec.structs.replace(c, image=c.image or "busybox") for c in app.spec.containers)
    spec = msgspec.structs.replace(app.spec, image=f"{app.spec.image}:1", containers=containers)
    return msgspec.structs.replace(app, spec=spec)


@validates(App)
def fails(app: App) -> None:
    raise RuntimeError("broken")


@validates(App, failure_policy="Ignore")
async def fails_softly(app: App) -> None:
    raise RuntimeError("broken")


@validates(App, failure_policy="Ignore")
async def awaits_what_was_cancelled(app: App) -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


@validates(App, failure_policy="Ignore", timeout=3)
async def hangs(app: App) -> None:
    await asyncio.get_running_loop().create_future()


@validates(App, failure_policy="Ignore", timeout=3)
async def hangs_after_a_failure(app: App) -> None:
    try:
        await fail_in_a_group()
    except* OSError:
        await asyncio.sleep(FOREVER)


@defaults(App)
def returns_another(app: App) -> Any:
    return app.spec


FUNCTIONS = [
    no_latest,
    only_grows,
    not_by_eve,
    pinned,
    fails,
    fails_softly,
    awaits_what_was_cancelled,
    hangs,
    hangs_after_a_failure,
    returns_another,
]


def review(
    spec: Any = None, old: Any = None, *, operation: str = "CREATE", user: str = "", kind: str = "App"
) -> bytes:
    def whole(spec: Any) -> Any:
        meta = {"name": "a", "namespace": "n"}
        return {"apiVersion": "example.com/v1", "kind": kind, "metadata": meta, "spec": spec}

    request: dict[str, Any] = {
        "uid": "u",
        "operation": operation,
        "name": "a",
        "userInfo": {"username": user},
    }
    if spec is not None:
        request["object"] = whole(spec)
    if old is not None:
        request["oldObject"] = whole(old)
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "request": request}).encode()


async def asked(path: str, body: bytes, metrics: WebhookMetrics | None = None, query: bytes = b"") -> Answer:
    app = AdmissionApp(Webhooks("apps", FUNCTIONS).routes, clock=SystemClock(), metrics=metrics)
    return await call(app, body, path=path, query=query)


async def answer(path: str, body: bytes) -> dict[str, Any]:
    found = await asked(path, body)
    assert found.status == 200
    decoded: dict[str, Any] = json.loads(found.body)["response"]
    return decoded


def test_a_decorated_function_stays_a_function() -> None:
    no_latest(App(spec=AppSpec(image="a:1")))
    with pytest.raises(Denied, match="say which version"):
        no_latest(App(spec=AppSpec(image="a:latest")))
    changed = pinned(App(spec=AppSpec(image="a")))
    assert isinstance(changed, App)
    assert changed.spec.image == "a:1"


async def test_what_a_validator_denies_is_refused_with_its_message_and_code() -> None:
    allowed = await answer("/validate/no-latest", review({"image": "a:1"}))
    assert (allowed["allowed"], "message" in allowed["status"]) == (True, False)
    denied = await answer("/validate/no-latest", review({"image": "a:latest"}))
    assert denied["allowed"] is False
    assert denied["status"] == {"code": 403, "message": "say which version: latest may change"}


async def test_an_async_validator_sees_the_old_object_and_may_warn() -> None:
    path = "/validate/only-grows"
    assert (await answer(path, review({"replicas": 1})))["allowed"]
    denied = await answer(path, review({"replicas": 1}, {"replicas": 2}, operation="UPDATE"))
    assert denied["status"] == {"code": 422, "message": "replicas only grow"}
    assert (await answer(path, review({"replicas": 101})))["warnings"] == ["large"]


async def test_on_delete_the_object_that_goes_is_the_new_one_too() -> None:
    path = "/validate/not-by-eve"
    assert (await answer(path, review(old={}, operation="DELETE", user="bob")))["allowed"]
    denied = await answer(path, review(old={}, operation="DELETE", user="eve"))
    assert denied["status"]["message"] == "a is not yours"


async def test_defaults_change_what_they_changed_and_nothing_else() -> None:
    spec = {
        "image": "a",
        "foreign": {"kept": True},
        "containers": [{"name": "x", "ports": [1]}, {"name": "y", "image": "own", "env": {}}],
    }
    found = await answer("/default/pinned", review(spec))
    patch = json.loads(base64.b64decode(found["patch"]))
    whole = json.loads(review(spec))["request"]["object"]
    assert apply_json_patch(whole, patch)["spec"] == {
        "image": "a:1",
        "foreign": {"kept": True},
        "containers": [
            {"name": "x", "ports": [1], "image": "busybox"},
            {"name": "y", "image": "own", "env": {}},
        ],
    }


async def test_defaults_that_change_nothing_send_no_patch() -> None:
    assert "patch" not in await answer("/default/pinned", review({"image": "a:1"}))


async def test_a_part_that_the_user_left_out_is_added_with_what_was_changed() -> None:
    body = json.loads(review({}))
    del body["request"]["object"]["spec"]
    found = await answer("/default/pinned", json.dumps(body).encode())
    patch = json.loads(base64.b64decode(found["patch"]))
    assert patch == [{"op": "add", "path": "/spec", "value": {"image": ":1"}}]


async def test_an_object_that_does_not_fit_the_class_is_refused_with_the_reason() -> None:
    found = await answer("/validate/no-latest", review({"image": 5}))
    assert (found["allowed"], found["status"]["code"]) == (False, 422)
    assert "Expected `str`, got `int` - at `$.spec.image`" in found["status"]["message"]
    soft = await answer("/validate/fails-softly", review({"image": 5}))
    assert soft["allowed"] is True
    assert "UnexpectedObject" in soft["warnings"][0]


async def test_an_exception_follows_the_failure_policy() -> None:
    metrics = WebhookMetrics(CollectorRegistry())
    failed = await asked("/validate/fails", review({}), metrics)
    assert (failed.status, failed.body) == (500, b"the webhook's handler failed: RuntimeError")
    ignored = json.loads((await asked("/validate/fails-softly", review({}), metrics)).body)["response"]
    assert (ignored["allowed"], "RuntimeError" in ignored["warnings"][0]) == (True, True)
    wrong = await asked("/default/returns-another", review({}), metrics)
    assert (wrong.status, wrong.body) == (500, b"the webhook's handler failed: TypeError")
    cancelled = await asked("/validate/awaits-what-was-cancelled", review({}), metrics)
    assert "CancelledWithin" in json.loads(cancelled.body)["response"]["warnings"][0]
    assert metrics.panics == 4


@pytest.mark.parametrize("name", ["hangs", "hangs-after-a-failure"])
@virtual_time
async def test_a_function_that_hangs_follows_the_failure_policy_when_the_api_server_gives_up(
    name: str,
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    response = json.loads((await asked(f"/validate/{name}", review({}), query=b"timeout=3s")).body)[
        "response"
    ]
    assert (response["allowed"], loop.time() - began) == (True, 3.0)
    assert "TimeoutError" in response["warnings"][0]


def registered(**options: Any) -> dict[str, Any]:
    manifests = Webhooks("apps", FUNCTIONS, **options).manifests("Y2E=", namespace="apps-system")
    return {manifest["kind"]: manifest for manifest in manifests}


def test_each_function_is_registered_as_it_says() -> None:
    found = registered()
    assert set(found) == {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
    validating = {webhook["name"]: webhook for webhook in found["ValidatingWebhookConfiguration"]["webhooks"]}
    assert validating["no-latest.apps.example.com"] == {
        "name": "no-latest.apps.example.com",
        "clientConfig": {
            "caBundle": "Y2E=",
            "service": {
                "namespace": "apps-system",
                "name": "apps",
                "path": "/validate/no-latest",
                "port": 443,
            },
        },
        "rules": [
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": ["example.com"],
                "apiVersions": ["v1"],
                "resources": ["apps"],
                "scope": "Namespaced",
            }
        ],
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    assert validating["hangs.apps.example.com"]["failurePolicy"] == "Ignore"
    assert validating["hangs.apps.example.com"]["timeoutSeconds"] == 3
    assert validating["not-by-eve.apps.example.com"]["rules"][0]["operations"] == ["DELETE"]


def test_what_narrows_a_function_is_registered_too() -> None:
    @validates(
        App,
        subresource="status",
        namespaces=LabelSelector(match_labels={"a": "b"}),
        objects=LabelSelector(match_labels={"c": "d"}),
        conditions={"not-mine": "request.userInfo.username != 'me'"},
    )
    def narrow(app: App) -> None: ...

    (found,) = Webhooks("apps", [narrow], url="https://example.com:8443").manifests()
    (webhook,) = found["webhooks"]
    assert webhook["clientConfig"] == {"url": "https://example.com:8443/validate/narrow"}
    assert webhook["rules"][0]["resources"] == ["apps/status"]
    assert webhook["namespaceSelector"] == {"matchLabels": {"a": "b"}}
    assert webhook["objectSelector"] == {"matchLabels": {"c": "d"}}
    assert webhook["matchConditions"] == [
        {"name": "not-mine", "expression": "request.userInfo.username != 'me'"}
    ]


@pytest.mark.parametrize(
    ("url", "called"),
    [
        ("https://example.com:8443", "https://example.com:8443/validate/no-latest"),
        ("https://example.com", "https://example.com:9443/validate/no-latest"),
        ("https://example.com/hooks/", "https://example.com:9443/hooks/validate/no-latest"),
    ],
)
def test_a_url_without_a_port_gets_that_of_the_server(url: str, called: str) -> None:
    (found,) = Webhooks("apps", [no_latest], url=url).manifests()
    assert found["webhooks"][0]["clientConfig"] == {"url": called}


@pytest.mark.parametrize(
    "url", ["127.0.0.1", "http://127.0.0.1", "https://", "https://127.0.0.1:0", "https://127.0.0.1:x"]
)
def test_a_url_that_no_api_server_can_call_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the API server cannot call url="):
        Webhooks("apps", [no_latest], url=url)


def test_a_service_and_a_url_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"either a Service or a URL: give service='a' or url='https://b', not both"
    ):
        Webhooks("apps", [no_latest], service="a", url="https://b")


@pytest.mark.parametrize(
    ("when", "says"),
    [
        (
            {"operations": ("create",)},
            r"^@validates: operations=\('create',\) are not some of CREATE, UPDATE, ",
        ),
        ({"operations": "DELETE"}, r"^@validates: operations='DELETE' are not some of CREATE, UPDATE, "),
        ({"failure_policy": "fail"}, r"^@validates: failure_policy='fail' is not Fail or Ignore$"),
        ({"operation": ("CREATE",)}, r"^@validates takes no operation$"),
        (
            {"objects": LabelSelector(match_labels={"a": "b c"})},
            r"^@validates: objects: a: 'b c' is not a valid",
        ),
        (
            {
                "namespaces": LabelSelector(
                    match_expressions=(LabelSelectorRequirement(key="a", operator="in"),)
                )
            },
            r"^@validates: namespaces: matchExpressions\[0\]\.operator: 'in' is not an operator",
        ),
    ],
)
def test_what_cannot_be_registered_is_refused_where_it_is_declared(when: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        validates(App, **when)


def test_a_decorator_without_its_kind_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"^@validates takes the kind: @validates\(App\)$"):
        validates(no_latest)  # type: ignore[arg-type] # the mistake
    with pytest.raises(TypeError, match=r"^@defaults takes the kind: @defaults\(App\)$"):
        defaults(no_latest)  # type: ignore[arg-type] # the mistake


def test_certificates_of_somebody_else_are_told_by_annotations() -> None:
    files = CertificateFiles("tls.crt", "tls.key")
    found = registered(certificates=files, annotations={"cert-manager.io/inject-ca-from": "a/b"})
    for manifest in found.values():
        assert manifest["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "a/b"}


def test_what_cannot_be_served_is_refused_where_it_is_declared() -> None:
    with pytest.raises(TypeError, match="takes other arguments"):

        @validates(App)  # type: ignore[arg-type]
        def nothing() -> None: ...

    with pytest.raises(TypeError, match="is not a kind"):
        validates(Struct)(print)  # type: ignore[type-var]

    with pytest.raises(TypeError, match="decorated twice"):
        validates(App)(no_latest)

    with pytest.raises(TypeError, match="is not decorated"):
        Webhooks("apps", [print])

    def again(app: App) -> None: ...

    again.__name__ = "no_latest"
    with pytest.raises(ValueError, match="two functions are named no_latest"):
        Webhooks("apps", [no_latest, validates(App)(again)])
