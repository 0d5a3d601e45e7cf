"""Go: an operator on controller-runtime with leader election, and an informer of client-go."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeshard.core import ConfigMap, Lease, NotFound, controller_of
from kubeshard_apiserver.testing import KubeApi
from kubeshard_apiserver.testing.child import Child

pytestmark = pytest.mark.go

Eventually = Callable[..., Any]
MODULE = Path(__file__).with_name("go")


@pytest.fixture(scope="session")
def program(built_go: Callable[[Path], Path]) -> Path:
    return built_go(MODULE)


class Operator:
    """One replica of the operator."""

    def __init__(self, program: Path, api: KubeApi, namespace: str, log: Path) -> None:
        environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig)}
        self.child = Child(log.stem, [str(program), "--namespace", namespace], log, environment)

    def said(self, event: str, name: str = "") -> int:
        """Returns how often the operator said this."""
        assert self.child.running, self.child.tail(40)
        lines = self.child.log.read_text(errors="replace").splitlines()
        events = [json.loads(line) for line in lines if line.startswith('{"event"')]
        return events.count({"event": event, "name": name})


def test_controller_runtime_leads_reconciles_finalizes_and_hands_over(
    kube_api: KubeApi,
    greetings: str,
    kube_namespace: str,
    program: Path,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    path = f"/apis/{greetings}/v1/namespaces/{kube_namespace}/greetings"

    def greet(name: str, to: str) -> None:
        kube_api.install(
            {
                "apiVersion": f"{greetings}/v1",
                "kind": "Greeting",
                "metadata": {"name": name, "namespace": kube_namespace},
                "spec": {"to": to},
            }
        )

    def read(name: str) -> Any:
        try:
            return json.loads(kube_api.call(lambda client: client.raw("GET", f"{path}/{name}")).body)
        except NotFound:
            return None

    def config_map(name: str) -> ConfigMap:
        return kube_api.call(lambda client: client.get(ConfigMap, name, kube_namespace))

    first = Operator(program, kube_api, kube_namespace, tmp_path / "first.log")
    second = None
    try:
        eventually(lambda: first.said("leading"))
        eventually(lambda: first.said("listed", "typed"))
        second = Operator(program, kube_api, kube_namespace, tmp_path / "second.log")
        greet("a", "world")
        eventually(lambda: first.said("reconciled", "a"))
        eventually(lambda: first.said("informed", "a"))
        live = read("a")
        assert live["status"] == {"said": "hello, world", "observedGeneration": 1}
        made = config_map("a")
        owner = controller_of(made.metadata)
        assert owner is not None
        assert (made.data, owner.uid) == ({"text": "hello, world"}, live["metadata"]["uid"])

        kube_api.call(lambda client: client.delete(ConfigMap, "a", kube_namespace))
        eventually(lambda: first.said("informed", "a") == 2)  # it is created again
        kube_api.forget()
        eventually(lambda: second.said("listed", "typed"))
        assert not second.said("leading")
        first.child.signal(signal.SIGTERM)
        eventually(lambda: not first.child.running)
        eventually(lambda: second.said("leading"))
        lease = kube_api.call(lambda client: client.get(Lease, "greetings", kube_namespace))
        assert lease.spec.lease_transitions == 1
        greet("b", "moon")
        eventually(lambda: second.said("reconciled", "b"))
        kube_api.call(lambda client: client.raw("DELETE", f"{path}/b"))
        eventually(lambda: second.said("farewell", "b"))
        eventually(lambda: read("b") is None)
    finally:
        for operator in (first, second):
            if operator is not None:
                operator.child.kill()
