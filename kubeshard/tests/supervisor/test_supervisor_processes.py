"""An operator as several processes, each a shard: as a user starts it, kills its processes, and stops it."""

from __future__ import annotations

import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from kubeshard import Client, ConfigMap, ObjectMeta
from kubeshard_apiserver.testing import KubeApi, wait_until
from kubeshard_apiserver.testing.child import Child, is_running
from kubeshard_apiserver.testing.control_plane import free_port

pytestmark = [pytest.mark.system, pytest.mark.real_at_night]

OPERATOR = """
    import os, sys
    from pathlib import Path
    from kubeshard import CacheSettings, ConfigMap, Controller, Manager, MergePatch, Scope, Sharding, StatusPages
    from kubeshard import Watch, run
    from kubeshard.core.selectors import LabelSelector
    from kubeshard.shard import DeclaredRing

    process, _, _ = os.environ.get("KUBESHARD_PROCESS", "").partition(",")
    if process == "1" and Path("crash").exists():
        sys.exit(3)

    async def reconcile(ctx, obj):
        if obj.key.name.startswith("map-") and (obj.data or {{}}).get("by") != str(os.getpid()):
            change = {{"data": {{"by": str(os.getpid()), "number": process}}}}
            await ctx.client.patch(ConfigMap, obj.key.name, obj.key.namespace, MergePatch(change), base=obj)

    here = LabelSelector(match_labels={{"kubernetes.io/metadata.name": "{namespace}"}})
    delivery = "{delivery}"
    manager = Manager(
        [Controller(name="maps", reconciler=reconcile, primary=Watch(ConfigMap, sharded=True))],
        cache=CacheSettings(default_scope=Scope(frozenset({{"{namespace}"}}))),
        sharding=Sharding(
            DeclaredRing("{namespace}", namespace_selector=here if delivery == "labels" else None), "op",
            "{namespace}", mode="both", delivery=delivery,
        ),
        status_pages=StatusPages(metrics_address="127.0.0.1:{metrics}", health_address="127.0.0.1:{health}"),
        processes=2,
    )
    run(manager)
"""


class Operator:
    def __init__(self, child: Child, api: KubeApi, namespace: str, health: int, metrics: int) -> None:
        self.child = child
        self._api = api
        self._namespace = namespace
        self._ports = health, metrics

    def page(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self._ports[path == "/metrics"], timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(condition, 60, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.child.tail(25)}") from None

    def until_ready(self) -> None:
        self.until(lambda: self.page("/readyz")[0] == 200, "readiness")

    @property
    def processes(self) -> dict[int, int]:
        """The last ID of each process."""
        found = re.findall(r"Started a process process=(\d+) pid=(\d+)", self.child.log.read_text())
        return {int(number): int(pid) for number, pid in found}

    def create(self, count: int) -> None:
        async def work(client: Client) -> None:
            for _ in range(count):
                meta = ObjectMeta(generate_name="map-", namespace=self._namespace)
                await client.create(ConfigMap(metadata=meta))

        self._api.call(work)

    def reconciled(self) -> dict[str, tuple[int, str]]:
        """By which process each object was reconciled: its ID, 0 for none yet, and its number."""

        async def read(client: Client) -> dict[str, tuple[int, str]]:
            maps = await client.list_all(ConfigMap, self._namespace)
            ours = {
                each.metadata.name: each.data or {} for each in maps if each.metadata.name.startswith("map-")
            }
            return {name: (int(data.get("by", 0)), data.get("number", "")) for name, data in ours.items()}

        return self._api.call(read)

    def until_reconciled(self) -> dict[str, tuple[int, str]]:
        """By the processes that run, by each some."""
        running = set(self.processes.values())
        self.until(
            lambda: {pid for pid, _ in self.reconciled().values()} == running, "reconciles by both processes"
        )
        return self.reconciled()


@contextmanager
def operator(api: KubeApi, namespace: str, folder: Path, delivery: str = "ranges") -> Iterator[Operator]:
    health, metrics = free_port(), free_port()
    code = OPERATOR.format(namespace=namespace, delivery=delivery, health=health, metrics=metrics)
    (folder / "op.py").write_text(textwrap.dedent(code))
    command = f"cd {folder} && exec {sys.executable} op.py"
    environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig)}
    child = Child("operator", ["sh", "-c", command], folder / "log", environment)
    try:
        yield Operator(child, api, namespace, health, metrics)
    finally:
        child.kill()


@pytest.fixture(params=["ranges", "labels"])
def running(
    kube_api: KubeApi, kube_namespace: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Operator]:
    with operator(kube_api, kube_namespace, tmp_path, request.param) as started:
        started.until_ready()
        yield started


def test_processes_share_the_work_and_look_like_one_until_they_stop_together(running: Operator) -> None:
    running.create(40)
    running.until_reconciled()
    status, text = running.page("/metrics")
    assert status == 200
    runs = re.findall(r'reconcile_total\{controller="maps",process="(\d)",result="success"\} (\d+)', text)
    assert {process for process, count in runs if int(count)} == {"0", "1"}
    assert text.count("# TYPE controller_runtime_reconcile_total counter\n") == 1
    assert running.page("/healthz") == (200, "ok")
    assert running.child.stop(60) == 0
    assert not any(is_running(pid) for pid in running.processes.values())
    log = running.child.log.read_text()
    assert "Traceback" not in log
    assert all(" process=" in line for line in log.splitlines() if "kubeshard.leases" in line)


def test_a_process_that_is_killed_comes_back_to_its_own_objects_while_the_others_work_on(
    running: Operator,
) -> None:
    running.create(40)
    joined = running.until_reconciled()
    running.create(40)  # nothing that moved when the second one joined
    before = {name: who for name, who in running.until_reconciled().items() if name not in joined}
    former = running.processes
    os.kill(former[1], signal.SIGKILL)
    running.until(lambda: running.page("/readyz")[0] == 500, "a pod that is not ready")
    running.until(lambda: running.processes[1] != former[1], "a restart")
    after = running.until_reconciled()
    assert running.processes[0] == former[0]
    assert {name: after[name][1] for name in before} == {name: number for name, (_, number) in before.items()}
    running.until_ready()
    assert 'kubeshard_process_restarts_total{process="1"} 1.0' in running.page("/metrics")[1]
    os.kill(running.child.pid, signal.SIGKILL)
    running.until(lambda: not any(map(is_running, running.processes.values())), "the end of all processes")


def test_a_process_that_cannot_start_is_tried_ever_more_rarely_and_the_pod_is_not_ready(
    kube_api: KubeApi, kube_namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "crash").touch()
    with operator(kube_api, kube_namespace, tmp_path) as started:
        started.until(lambda: "code=3 seconds=2" in started.child.log.read_text(), "a second attempt")
        started.until(lambda: started.page("/readyz/process-0")[0] == 200, "readiness of the other")
        assert started.page("/readyz")[0] == 500
        assert started.page("/healthz")[0] == 200
        (tmp_path / "crash").unlink()
        started.until_ready()
        started.child.signal(signal.SIGTERM)
        started.child.signal(signal.SIGTERM)
        started.until(lambda: not started.child.running, "an end at once")
        assert not any(map(is_running, started.processes.values()))
