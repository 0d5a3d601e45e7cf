"""An operator on kopf: handlers, finalizers, children, status and events, run by `kopf run` as users do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeshard.core import ConfigMap, NotFound, controller_of
from kubeshard_apiserver.testing import KubeApi
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import free_port

Eventually = Callable[..., Any]
OPERATOR = Path(__file__).with_name("kopf_operator.py")


@pytest.fixture
def operator(kube_api: KubeApi, greetings: str, kube_namespace: str, tmp_path: Path) -> Iterator[Child]:
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "--namespace", kube_namespace]
    command += ["--liveness", f"http://127.0.0.1:{free_port()}/healthz", "--verbose", str(OPERATOR)]
    environment = {**os.environ, "KUBECONFIG": str(kube_api.kubeconfig)}
    child = Child("kopf", command, tmp_path / "kopf.log", environment)
    yield child
    child.kill()


class Greetings:
    """Greetings through the kubeshard client, for a test without an event loop."""

    def __init__(self, api: KubeApi, group: str, namespace: str) -> None:
        self._api = api
        self._group = group
        self._namespace = namespace
        self.path = f"/apis/{group}/v1/namespaces/{namespace}/greetings"

    def create(self, name: str, to: str) -> None:
        self._api.install(
            {
                "apiVersion": f"{self._group}/v1",
                "kind": "Greeting",
                "metadata": {"name": name, "namespace": self._namespace},
                "spec": {"to": to},
            }
        )

    def change(self, name: str, to: str) -> None:
        body = json.dumps({"spec": {"to": to}}).encode()
        merge = "application/merge-patch+json"
        self._api.call(lambda client: client.raw("PATCH", f"{self.path}/{name}", body, content_type=merge))

    def delete(self, name: str) -> None:
        self._api.call(lambda client: client.raw("DELETE", f"{self.path}/{name}"))

    def read(self, path: str) -> Any:
        """Returns None if it does not exist."""
        try:
            return json.loads(self._api.call(lambda client: client.raw("GET", path)).body)
        except NotFound:
            return None

    def text(self, name: str) -> str:
        try:
            found = self._api.call(lambda client: client.get(ConfigMap, name, self._namespace))
        except NotFound:
            return ""
        return (found.data or {}).get("text", "")


def test_kopf_reconciles_finalizes_and_posts_events(
    kube_api: KubeApi, greetings: str, kube_namespace: str, operator: Child, eventually: Eventually
) -> None:
    mine = Greetings(kube_api, greetings, kube_namespace)

    def happens(ask: Callable[[], Any]) -> Any:
        def asked() -> Any:
            assert operator.running, operator.tail(40)
            return ask()

        try:
            return eventually(asked, 40.0)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{operator.tail(60)}") from None

    mine.create("a", "world")
    happens(lambda: mine.text("a") == "hello, world")
    happens(lambda: mine.read(f"{mine.path}/a").get("status", {}).get("said") == "hello, world")
    live = mine.read(f"{mine.path}/a")
    assert live["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    config_map = kube_api.call(lambda client: client.get(ConfigMap, "a", kube_namespace))
    owner = controller_of(config_map.metadata)
    assert owner is not None
    assert (owner.kind, owner.uid) == ("Greeting", live["metadata"]["uid"])
    mine.change("a", "moon")
    happens(lambda: mine.text("a") == "hello, moon")
    happens(lambda: mine.read(f"{mine.path}/a").get("status", {}).get("said") == "hello, moon")
    events = f"/api/v1/namespaces/{kube_namespace}/events"
    happens(
        lambda: (
            {"hello, world", "hello, moon"}
            <= {item["message"] for item in mine.read(events)["items"] if item["reason"] == "Greeted"}
        )
    )
    mine.delete("a")
    happens(lambda: mine.read(f"{mine.path}/a") is None)
    assert mine.read(f"/api/v1/namespaces/{kube_namespace}/configmaps/a-farewell")
    assert operator.stop() == 0
