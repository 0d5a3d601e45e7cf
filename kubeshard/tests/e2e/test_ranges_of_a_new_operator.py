"""The operator of docs/sharding-tutorial.md as three processes that die, roll and are scaled to zero. Each run is in a
journal that all processes append to, so the order of its lines is that of what happened.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kubeshard import Client, ConfigMap, KubeObject, ObjectMeta
from kubeshard.core import MergePatch
from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.kube_api import EmbeddedApi
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH

PAGE = (Path(__file__).parents[3] / "docs" / "sharding-tutorial.md").read_text()
LEASE = 4
OBJECTS = 12
BOUND = 2 * LEASE + 6
"""Seconds within which others have the objects of a shard that was killed: two Lease durations, and the time that these
processes take on a busy machine. Whatever ends in order is faster.
"""
JOURNALLED = """

class Journalled(GreetingReconciler):
    async def reconcile(self, ctx: Context, obj: Greeting) -> None:
        def note(word: str) -> None:
            os.write(JOURNAL, f"{word} {os.environ['SHARD_NAME']} {obj.metadata.name}\\n".encode())

        note("begin")
        try:
            await asyncio.sleep(0.1)
            await super().reconcile(ctx, obj)
        finally:
            note("end")


JOURNAL = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND)
"""


class Greeting(KubeObject, group="example.com", version="v1alpha1"):
    pass


class Replicas:
    def __init__(self, project: Path, api: EmbeddedApi, client: Client) -> None:
        self._project = project
        self._api = api
        self._client = client
        self._journal = project / "journal"
        self._journal.touch()
        self._running: dict[str, Child] = {}
        self._texts = 0
        self._starts = itertools.count()

    async def start(self, *names: str) -> None:
        """Returns when they are ready, as a roll-out waits for that: before, a signal would end them at once."""
        for name in names:
            self._begin(name)
        logs = [self._running[name].log for name in names]

        def ready() -> bool:
            return all("Starting workers" in log.read_text() for log in logs)

        await asyncio.to_thread(wait_until, ready, 40, "each replica is ready")

    def _begin(self, name: str) -> None:
        environment = {"KUBECONFIG": str(self._api.kubeconfig), "JOURNAL": str(self._journal)}
        command = [sys.executable, "-m", "kubeshard", "run", "hello_operator.main"]
        self._running[name] = Child(
            name,
            [*command, "--metrics-address", "0", "--health-address", "0"],
            self._project / f"{name}-{next(self._starts)}.log",
            {**os.environ, **environment, "SHARD_NAME": name, "PYTHONPATH": str(self._project)},
        )

    async def stop(self, name: str) -> None:
        """In order, as a pod is stopped."""
        child = self._running.pop(name)
        assert await asyncio.to_thread(child.stop, 20) == 0, child.tail(20)
        self._has_ended(name)

    def kill(self, name: str) -> None:
        self._running.pop(name).kill()
        self._has_ended(name)

    def _has_ended(self, name: str) -> None:
        with self._journal.open("a") as journal:
            journal.write(f"ended {name} -\n")

    async def works(self, within: float) -> None:
        """Changes all objects, and waits until that has been dealt with."""
        self._texts += 1
        text = f"number {self._texts}"
        for number in range(OBJECTS):
            change = MergePatch({"spec": {"greeting": text}})
            await self._client.patch(Greeting, f"number-{number}", "default", change)
        try:
            async with asyncio.timeout(within):
                while True:
                    found = await self._client.list_all(ConfigMap, "default")
                    if sum((each.data or {}).get("greeting", "") == text for each in found) == OBJECTS:
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            tails = [child.tail(20) for child in self._running.values()]
            raise AssertionError("\n".join([f"not within {within} s", *tails])) from None

    def overlaps(self) -> list[str]:
        """The runs of an object that began while another process was at work on it."""
        at_work: dict[str, str] = {}
        found = []
        for line in self._journal.read_text().splitlines():
            word, shard, name = line.split()
            match word:
                case "begin":
                    if name in at_work:
                        found.append(f"{name}: {at_work[name]} and {shard}")
                    at_work[name] = shard
                case "end":
                    at_work.pop(name, None)
                case _:
                    at_work = {each: by for each, by in at_work.items() if by != shard}
        return found

    def kill_all(self) -> None:
        for child in self._running.values():
            child.kill()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What `kubeshard init` makes, with the change that the page shows, a short Lease, and the journal."""
    folder = tmp_path / "hello-operator"
    subprocess.run([sys.executable, "-m", "kubeshard", "init", str(folder)], check=True, capture_output=True)
    main = folder / "hello_operator" / "main.py"
    text = main.read_text()
    (difference,) = re.findall(r"^```diff .*?\n(.*?)^```", PAGE, re.M | re.S)
    lines = difference.splitlines()
    for before, after in zip(lines[::2], lines[1::2], strict=True):
        text = text.replace(before[1:], after[1:])
    text = text.replace('delivery="ranges"', f'delivery="ranges", lease=LeaseTerms(scaled({LEASE}))')
    text = text.replace("GreetingReconciler", "Journalled")
    main.write_text(f"from kubeshard.shard import LeaseTerms, scaled\n{text}")
    reconciler = folder / "hello_operator" / "reconciler.py"
    body = reconciler.read_text()
    reconciler.write_text(f"import asyncio\nimport os\n{body}{JOURNALLED}")
    return folder


@pytest.fixture
def api() -> Iterator[EmbeddedApi]:
    api = EmbeddedApi(feature_gates=[SHARDED_LIST_AND_WATCH])
    yield api
    api.stop()


async def test_objects_are_owned_again_in_time_and_never_by_two_when_replicas_die_roll_and_are_gone(
    project: Path, api: EmbeddedApi
) -> None:
    await asyncio.to_thread(api.install, yaml.safe_load((project / "manifests" / "crd.yaml").read_text()))
    async with await Client.connect(api.kubeconfig) as client:
        for number in range(OBJECTS):
            await client.create(Greeting(metadata=ObjectMeta(name=f"number-{number}", namespace="default")))
        replicas = Replicas(project, api, client)
        try:
            await replicas.start(*"abc")
            await replicas.works(within=BOUND)
            for name in "abc":
                replicas.kill(name)
                await replicas.works(within=BOUND)
                await replicas.start(name)
                await replicas.works(within=BOUND)
            for name in "abc":
                await replicas.stop(name)
                await replicas.start(name)
                await replicas.works(within=BOUND)
            for name in "abc":
                await replicas.stop(name)
            await client.create(Greeting(metadata=ObjectMeta(name="meanwhile", namespace="default")))
            await replicas.start("a")
            await replicas.works(within=BOUND)
        finally:
            replicas.kill_all()
        assert await client.get(ConfigMap, "meanwhile", "default")
    assert replicas.overlaps() == []
