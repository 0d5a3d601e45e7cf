"""The store's cost per object: filling, reading, updating, memory. Run: python benchmarks/store.py [--objects 20000]

The peer is what a script would do without kubeshard: `json.loads` of each object into a dict by key. Times depend on
the machine; the ratio in the last column hardly does.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kubeshard.cache import Store
from kubeshard.core.encoding import decode
from kubeshard.core.objects import Key, KubeObject, Struct, field, form_of
from kubeshard.kinds import Deployment as WholeDeployment


class TemplateSpec(Struct):
    service_account_name: str = ""


class Template(Struct):
    spec: TemplateSpec = field(default_factory=TemplateSpec)


class DeploymentSpec(Struct):
    replicas: int = 1
    template: Template = field(default_factory=Template)


class Deployment(KubeObject, group="apps", version="v1"):
    """The class that a controller which scales Deployments would declare."""

    spec: DeploymentSpec = field(default_factory=DeploymentSpec)


class Measured(NamedTuple):
    seconds: float
    result: Any


def deployment(number: int, version: int = 1) -> bytes:
    """Returns a Deployment as the server sends it: 4 KB, a quarter of which is managedFields."""
    labels = {"app": f"app-{number % 500}", "shard.alpha.sharding.timebertt.dev/ring": f"shard-{number % 3}"}
    container = {
        "name": "app",
        "image": "registry.example.com/team/application:v1.2.3",
        "env": [{"name": f"VARIABLE_{i}", "value": f"value-{i}"} for i in range(20)],
        "resources": {
            "limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "100m", "memory": "128Mi"},
        },
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    fields = {f"f:variable-{i}": {".": dict[str, str](), "f:value": dict[str, str]()} for i in range(30)}
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": f"deployment-{number}",
                "namespace": f"namespace-{number % 100}",
                "uid": f"00000000-0000-4000-8000-{number:012}",
                "resourceVersion": str(1000 + version * 1_000_000 + number),
                "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": labels,
                "annotations": {"deployment.kubernetes.io/revision": "3"},
                "managedFields": [
                    {
                        "manager": "controller",
                        "operation": "Update",
                        "apiVersion": "apps/v1",
                        "fieldsV1": fields,
                    }
                ],
            },
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container, container]}},
            },
            "status": {
                "replicas": 3,
                "readyReplicas": 3,
                "conditions": [{"type": "Available", "status": "True"}],
            },
        },
        separators=(",", ":"),
    ).encode()


def measured(work: Callable[[], Any]) -> Measured:
    gc.collect()
    started = time.perf_counter()
    result = work()
    return Measured(time.perf_counter() - started, result)


def memory_of(work: Callable[[], Any]) -> float:
    """Returns the number of bytes that the result keeps allocated."""
    gc.collect()
    tracemalloc.start()
    kept = work()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size


def by_app(obj: KubeObject) -> Iterable[str]:
    return [obj.metadata.label("app")]


def fill_store(
    wire: list[bytes], type_: type[KubeObject] = Deployment, *, indexed: bool = True
) -> Store[KubeObject]:
    store: Store[KubeObject] = Store()
    if indexed:
        store.add_index("app", by_app)
    form = form_of(type_)
    store.replace({obj.key: obj for obj in (decode(form, data) for data in wire)}, "1")
    return store


def fill_dict(wire: list[bytes]) -> dict[tuple[str, str], Any]:
    peer = {}
    for data in wire:
        obj = json.loads(data)
        peer[obj["metadata"]["namespace"], obj["metadata"]["name"]] = obj
    return peer


def list_by_index(store: Store[Deployment]) -> None:
    for number in range(500):
        store.by_index("app", f"app-{number}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=int, default=20_000)
    count = parser.parse_args().objects
    wire = [deployment(number) for number in range(count)]
    newer = [deployment(number, 2) for number in range(count)]
    keys = [Key(f"namespace-{number % 100}", f"deployment-{number}") for number in range(count)]
    form = form_of(Deployment)

    peer = measured(lambda: fill_dict(wire)).seconds
    filled = measured(lambda: fill_store(wire))
    store: Store[Deployment] = filled.result
    decoded = [decode(form, data) for data in newer]
    snapshot = {obj.key: obj for obj in decoded}
    other = fill_store(wire)
    rows = [
        ("decode and fill, one index", filled.seconds, peer),
        ("get by key", measured(lambda: [store.get(key) for key in keys]).seconds, None),
        ("list all", measured(store.list).seconds, None),
        ("list by index, in 500 parts", measured(lambda: list_by_index(store)).seconds, None),
        ("apply an update, one index", measured(lambda: [store.apply(obj) for obj in decoded]).seconds, None),
        ("full read that changes all", measured(lambda: other.replace(snapshot, "2")).seconds, None),
        ("full garbage collection", measured(gc.collect).seconds, None),
    ]
    print(f"{count} Deployments of {len(wire[0])} bytes")
    print(f"{'':32}{'µs/object':>10}{'total ms':>10}{'json.loads':>12}{'ratio':>7}")
    for name, seconds, theirs in rows:
        compared = f"{theirs / count * 1e6:12.2f}{seconds / theirs:7.2f}" if theirs else ""
        print(f"{name:32}{seconds / count * 1e6:10.2f}{seconds * 1e3:10.1f}{compared}")
    sample = wire[: min(count, 5000)]
    kept, dicts = memory_of(lambda: fill_store(sample)), memory_of(lambda: fill_dict(sample))
    compared = f"{dicts / len(sample):12.0f}{kept / dicts:7.2f}"
    print(f"{'memory, bytes/object':32}{kept / len(sample):10.0f}{'':10}{compared}")
    whole = memory_of(lambda: fill_store(sample, WholeDeployment))
    compared = f"{dicts / len(sample):12.0f}{whole / dicts:7.2f}"
    print(f"{'with all fields (kinds)':32}{whole / len(sample):10.0f}{'':10}{compared}")


if __name__ == "__main__":
    main()
