"""`kubeshard experiment` as its users run it: a whole run, and runs in which something is killed."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.child import Child, is_running
from kubeshard_lab.experiment.recording import Event, Gauge, Generation, Request, Usage, read, read_run
from kubeshard_lab.experiment.scrapes import read_scrapes

pytestmark = pytest.mark.system

WITHIN = 120.0


class Tool:
    """The command in a process of its own; its folder is new."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder / "run"
        command = [sys.executable, "-m", "kubeshard", "experiment", *options, "--output", str(self.folder)]
        self.child = Child("experiment", command, folder / "tool.log", dict(os.environ))

    def ended(self) -> int:
        wait_until(lambda: not self.child.running, WITHIN, "the run: ended")
        assert self.child.exit_code is not None
        return self.child.exit_code

    def wait_for_load(self) -> None:
        def loaded() -> bool:
            assert self.child.running, self.child.tail()
            file = self.folder / "generations.csv"
            return file.exists() and sum(1 for _ in read(self.folder, Generation)) >= 3

        wait_until(loaded, WITHIN, "three generations: ready")

    def process(self, *words: str) -> psutil.Process:
        """Its child whose command line has these words."""
        (found,) = (
            child
            for child in psutil.Process(self.child.pid).children()
            if all(word in child.cmdline() for word in words)
        )
        return found

    def happened(self, kind: str, subject: str) -> bool:
        return any(event.kind == kind and event.subject == subject for event in read(self.folder, Event))


Start = Callable[..., Tool]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    tools: list[Tool] = []

    def started(*options: str) -> Tool:
        tools.append(Tool(tmp_path, *options))
        return tools[-1]

    yield started
    for tool in tools:
        tool.child.kill()


def test_a_run_ends_by_itself_and_its_exit_code_says_what_is_recorded(start: Start) -> None:
    tool = start("basic", "--scale", "0.05", "--duration", "20s")
    code = tool.ended()
    run = read_run(tool.folder)
    assert run.finished, tool.child.tail()
    assert code == (3 if run.invalid else 1 if any(not level.kept for level in run.levels) else 0)
    assert run.ended - run.began == pytest.approx(20, abs=2)
    requests, generations = list(read(tool.folder, Request)), list(read(tool.folder, Generation))
    assert len(requests) in (14, 15)  # 0.6 creates and 0.1 deletes a second
    assert {request.outcome for request in requests} <= {"ok", "404"}
    assert len(generations) >= 12
    assert all(each.gone or each.ready >= each.due for each in generations)
    assert {usage.role for usage in read(tool.folder, Usage)} == {"tool", "server", "sharder", "operator"}
    assert {scrape.role for scrape in read_scrapes(tool.folder)} == {"server", "sharder", "operator"}
    assert {gauge.name for gauge in read(tool.folder, Gauge)} >= {"rate-wanted", "rate-reached", "probe"}
    owners = {
        gauge.subject
        for gauge in read(tool.folder, Gauge)
        if gauge.name == "objects-of-shard" and gauge.value
    }
    assert owners >= {"operator-1", "operator-2", "operator-3"}


def test_a_run_that_loses_its_server_keeps_what_was_measured_and_says_so(start: Start) -> None:
    tool = start("basic", "--duration", "10m")
    tool.wait_for_load()
    tool.process("apiserver").kill()
    assert tool.ended() == 1
    assert "the API server was lost" in tool.child.tail()
    run = read_run(tool.folder)
    assert not run.finished
    assert not math.isnan(run.ended)
    assert any("the API server was lost" in sentence for sentence in run.invalid)
    assert run.levels
    assert tool.happened("server-lost", "")
    assert sum(not math.isnan(each.ready) for each in read(tool.folder, Generation)) >= 3


def test_an_instance_that_is_killed_is_started_again_and_the_run_is_not_valid(start: Start) -> None:
    tool = start("basic", "--duration", "40s")
    tool.wait_for_load()
    tool.process("kubeshard_lab.examples.webhosting", "operator-2").kill()
    wait_until(lambda: tool.happened("restarted", "operator-2"), WITHIN, "operator-2: restarted")
    assert tool.ended() == 3
    run = read_run(tool.folder)
    assert run.finished
    assert any("operator-2, SIGKILL" in sentence for sentence in run.invalid)


def test_a_tool_that_is_killed_leaves_its_measurements_and_no_process(start: Start) -> None:
    tool = start("basic", "--duration", "10m")
    tool.wait_for_load()
    children = [child.pid for child in psutil.Process(tool.child.pid).children()]
    assert len(children) >= 6
    tool.child.kill()
    wait_until(lambda: not any(map(is_running, children)), WITHIN, "its children: gone")
    run = read_run(tool.folder)
    assert not run.finished
    assert not math.isnan(run.began)
    assert sum(1 for _ in read(tool.folder, Generation)) >= 3
    assert sum(1 for _ in read(tool.folder, Request)) >= 3


@pytest.mark.parametrize("where", ["embedded", "simulation"])
def test_the_first_interrupt_ends_the_load_and_the_run_is_recorded(start: Start, where: str) -> None:
    tool = start("basic", "--duration", "10m", "--setup", "singleton", "--on", where)
    tool.wait_for_load()
    tool.child.signal(signal.SIGINT)
    assert tool.ended() == 130
    run = read_run(tool.folder)
    assert not run.finished
    assert run.levels
    assert "stopping the load" in tool.child.log.read_text()
    assert "recorded in" in tool.child.tail()


OPERATOR = """
from kubeshard import ConfigMap, Context, Controller, KubeObject, Manager, ObjectMeta, Sharding, Struct
from kubeshard import Watch, ensure, field, when


class Spec(Struct):
    text: str = ""


class Status(Struct):
    observed_generation: int = 0
    phase: str = ""


class Greeting(KubeObject, group="example.com", version="v1"):
    spec: Spec = field(default_factory=Spec)
    status: Status = field(default_factory=Status)


async def reconcile(ctx: Context, greeting: Greeting) -> None:
    meta = greeting.metadata
    card = ConfigMap(metadata=ObjectMeta(name=meta.name, namespace=meta.namespace), data={"t": greeting.spec.text})
    await ensure(ctx, card, owner=greeting)
    await ctx.status(greeting, Status(observed_generation=meta.generation, phase="Said"))


def manager() -> Manager:
    controller = Controller(
        name="greeting",
        reconciler=reconcile,
        primary=Watch(Greeting, when=when.generation_changed, sharded=True),
        owns=[Watch(ConfigMap, sharded=True)],
        workers=5,
    )
    return Manager([controller], sharding=Sharding("greetings", mode="both"))
"""
TEMPLATE = """
apiVersion: example.com/v1
kind: Greeting
metadata: {name: $name}
spec: {text: hello $random}
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None, reason="did not run: no unshare(1) to name the instances"
)
def test_an_authors_own_operator_is_loaded_in_several_instances(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "greetings.py").write_text(OPERATOR)
    (tmp_path / "greeting.yaml").write_text(TEMPLATE)
    definition = subprocess.run(
        [sys.executable, "-m", "kubeshard", "crd", "greetings:Greeting"], check=True, capture_output=True
    )
    (tmp_path / "crd.yaml").write_bytes(definition.stdout)
    own = ("--operator", "greetings:manager", "--template", "greeting.yaml", "--apply", "crd.yaml")
    ring = (
        "--setup",
        "in-manager",
        "--ring",
        "greetings",
        "--instances",
        "2",
        "--ready",
        "status.phase=Said",
    )
    tool = start("basic", *own, *ring, "--duration", "20s")
    code = tool.ended()
    run = read_run(tool.folder)
    assert run.finished, tool.child.tail()
    assert code == (3 if run.invalid else 1 if any(not level.kept for level in run.levels) else 0)
    assert (run.program, run.instances, run.workers) == ("greetings:manager", 2, 5)
    generations = list(read(tool.folder, Generation))
    assert len(generations) >= 20
    assert all(each.gone or each.ready >= each.due for each in generations)
    owners = {
        gauge.subject
        for gauge in read(tool.folder, Gauge)
        if gauge.name == "objects-of-shard" and gauge.value
    }
    assert owners >= {"operator-1", "operator-2"}
    (queue,) = (level for level in run.levels if level.name == "queue p99")
    assert queue.worst is not None, "the instances' metrics were read"
    assert run.invalid or "2 instances of 5 workers" in tool.child.tail()


def test_a_program_that_ends_again_and_again_ends_the_run_with_what_it_said(
    start: Start, tmp_path: Path
) -> None:
    broken = tmp_path / "operator"
    broken.write_text("#!/bin/sh\necho I am broken\nexit 3\n")
    broken.chmod(0o755)
    tool = start("basic", "--setup", "singleton", "--program", "go", "--go-operator", str(broken))
    assert tool.ended() == 1
    assert "Error: operator-1 ended 2 times before it was at work" in tool.child.tail()
    assert "I am broken" in tool.child.tail()
    assert read_run(tool.folder).invalid == ["the load did not begin"]
