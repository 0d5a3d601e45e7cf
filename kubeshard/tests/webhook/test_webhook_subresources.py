"""Webhooks of subresources get what the API server sends; what it never sends is refused where it is declared."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import kubeshard.kinds as k
from kubeshard import KubeObject, Struct, field
from kubeshard.webhook import (
    AdmissionRequest,
    Binding,
    Denied,
    Eviction,
    NodeProxyOptions,
    PodAttachOptions,
    PodExecOptions,
    PodPortForwardOptions,
    PodProxyOptions,
    Scale,
    ServiceProxyOptions,
    TokenRequest,
    validates,
)
from kubeshard.webhook.review import decode_review
from kubeshard.webhook.typed import says_of, webhook_of


class AppSpec(Struct):
    replicas: int = 1


class App(KubeObject, group="example.com", version="v1"):
    spec: AppSpec = field(default_factory=AppSpec)


TABLE: list[tuple[type[KubeObject], str, type[KubeObject], str]] = [
    (App, "scale", Scale, "UPDATE"),
    (App, "status", App, "UPDATE"),
    (k.Deployment, "scale", Scale, "UPDATE"),
    (k.StatefulSet, "scale", Scale, "UPDATE"),
    (k.Pod, "eviction", Eviction, "CREATE"),
    (k.Pod, "binding", Binding, "CREATE"),
    (k.Pod, "exec", PodExecOptions, "CONNECT"),
    (k.Pod, "attach", PodAttachOptions, "CONNECT"),
    (k.Pod, "portforward", PodPortForwardOptions, "CONNECT"),
    (k.Pod, "proxy", PodProxyOptions, "CONNECT"),
    (k.Pod, "resize", k.Pod, "UPDATE"),
    (k.Pod, "ephemeralcontainers", k.Pod, "UPDATE"),
    (k.Service, "proxy", ServiceProxyOptions, "CONNECT"),
    (k.Node, "proxy", NodeProxyOptions, "CONNECT"),
    (k.ServiceAccount, "token", TokenRequest, "CREATE"),
    (k.Namespace, "finalize", k.Namespace, "UPDATE"),
]


@pytest.mark.parametrize(("kind", "subresource", "reviews", "operation"), TABLE)
def test_a_function_is_declared_for_what_a_subresource_sends(
    kind: Any, subresource: str, reviews: Any, operation: str
) -> None:
    def look(obj: Any) -> None: ...

    says: Any = says_of(validates(kind, subresource=subresource)(look))
    assert says.reviewed is reviews
    assert says.operations == (operation,)

    def look_again(obj: Any) -> None: ...

    assert says_of(validates(kind, reviews=reviews, subresource=subresource)(look_again)) == says


MISTAKES: list[tuple[Any, dict[str, Any], str]] = [
    (App, {"subresource": "exec"}, "App has no subresource 'exec' that is reviewed: give one of scale, status"),
    (k.ConfigMap, {"subresource": "scale"}, "ConfigMap has no subresource 'scale'"),
    (k.Pod, {"subresource": "log"}, "Pod has no subresource 'log'"),
    (k.Pod, {"subresource": "pods/exec"}, "Pod has no subresource 'pods/exec'"),
    (App, {"subresource": "scale", "operations": ("CREATE",)}, 'the only operation on apps/scale is UPDATE'),
    (k.Pod, {"subresource": "exec", "operations": ("CREATE",)}, 'leave operations out, or give ("CONNECT",)'),
    (k.Pod, {"subresource": "eviction", "operations": ("DELETE",)}, "the only operation on pods/eviction is CREATE"),
    (k.Pod, {"operations": ("CONNECT",)}, 'objects are not connected to: give subresource="exec"'),
    (App, {"subresource": "scale", "reviews": App}, "sends a Scale.v1.autoscaling for review, not a App"),
    (App, {"reviews": Scale}, "sends a App.v1.example.com for review"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "when", "told"), MISTAKES)
def test_what_the_api_server_never_calls_is_refused_where_it_is_declared(
    kind: Any, when: dict[str, Any], told: str
) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        validates(kind, **when)
    assert told in str(refused.value)


def review(obj: dict[str, Any], old: dict[str, Any] | None = None) -> AdmissionRequest:
    kind = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    request = {
        "uid": "u",
        "kind": kind,
        "resource": {"group": "example.com", "version": "v1", "resource": "apps"},
        "subResource": "scale",
        "name": "web",
        "namespace": "default",
        "operation": "UPDATE",
        "object": obj,
        "oldObject": old,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return decode_review(msgspec.json.encode(body)).request


def test_a_scale_is_reviewed_as_a_scale() -> None:
    seen: list[tuple[int, int]] = []

    @validates(App, subresource="scale", reviews=Scale)
    def at_most_five(scale: Scale, old: Scale | None) -> None:
        seen.append((scale.spec.replicas, old.spec.replicas if old else 0))
        if scale.spec.replicas > 5:
            raise Denied("at most 5 replicas")

    def scaled(replicas: int) -> dict[str, Any]:
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": replicas},
            "status": {"replicas": 1},
        }

    handler: Any = webhook_of(at_most_five).handler
    assert handler(review(scaled(3), scaled(1))).allowed
    assert handler(review(scaled(6), scaled(3))).message == "at most 5 replicas"
    assert seen == [(3, 1), (6, 3)]
