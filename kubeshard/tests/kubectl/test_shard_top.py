"""`kubectl shard top`: one line if the output is not a terminal, a picture on a terminal, and a clean exit."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from typing import Any

import pytest
from commands import KubectlShard
from rich.console import Console, RenderableType
from ring_cluster import RING, TEAM, RingCluster, name_on

from kubeshard.cli.kubectl import screen
from kubeshard.cli.kubectl.asking import first_of
from kubeshard.client import Client
from kubeshard.core import Lease, MergePatch
from kubeshard.core.errors import Forbidden
from kubeshard.core.objects import form_of
from kubeshard.inspection.stats import RingSnapshot, ShardRow
from kubeshard.version import how_to_install
from kubeshard_apiserver.testing import KubeApi

PROGRAM = [sys.executable, "-c", "from kubeshard.cli import shard_main; shard_main()"]

OTHER = {
    "apiVersion": "sharding.timebertt.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": "other"},
    "spec": {"resources": [{"group": "apps", "resource": "daemonsets"}], "namespaceSelector": TEAM},
}
"""A ring without shards and objects: other tests have DaemonSets, but not in this namespace."""


@pytest.fixture
def filled(written: KubeApi) -> KubeApi:
    async def fill(client: Client) -> None:
        cluster = RingCluster(client)
        name = name_on("a", "a", "b")
        await cluster.child("child", await cluster.secret(name, "a"), "a")

    written.call(fill)
    return written


def test_one_picture_in_a_pipe_is_a_line(filled: KubeApi, kubectl_shard: KubectlShard) -> None:
    done = kubectl_shard("top", RING, "--once")
    assert (done.code, done.err) == (0, "")
    assert done.out == "a new 1+1, b new 0+0; every object is where it belongs\n"


def test_one_picture_of_several_rings_has_a_line_for_each(
    filled: KubeApi, kubectl_shard: KubectlShard
) -> None:
    filled.install(OTHER)
    done = kubectl_shard("top", "--once")
    assert (done.code, done.out.splitlines()) == (
        0,
        [
            "other: no shards; no shard is available",
            f"{RING}: a new 1+1, b new 0+0; every object is where it belongs",
        ],
    )


def test_one_picture_that_is_incomplete_is_a_failure(
    filled: KubeApi, kubectl_shard: KubectlShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Client.watch

    def refused(self: Client, target: Any, *arguments: Any, **how: Any) -> Any:
        if form_of(target).kind.plural == "secrets":
            raise Forbidden("no")
        return watch(self, target, *arguments, **how)

    monkeypatch.setattr(Client, "watch", refused)
    done = kubectl_shard("top", RING, "--once")
    assert done.code == 1
    assert "the picture is incomplete: secrets: you may not list and watch them" in done.out


def test_one_picture_without_shards_says_so(written: KubeApi, kubectl_shard: KubectlShard) -> None:
    async def leave(client: Client) -> None:
        for name in ("a", "b"):
            await client.patch(Lease, name, "team", MergePatch({"spec": {"holderIdentity": ""}}))

    written.call(leave)
    done = kubectl_shard("top", RING, "--once")
    assert (done.code, done.out) == (0, "a new 0+0, b new 0+0; no shard is available\n")


def test_one_picture_on_a_terminal_says_nothing_of_what_it_has_not_seen() -> None:
    row = ShardRow("a", "ready", True, 2, 0, 1, draining_for=3.0)
    once, live = (_text(screen.ring(RingSnapshot(rows=(row,)), history=history)) for history in (False, True))
    assert "0 moves" in live
    assert "1 for 3s" in live
    assert "move" not in once
    assert "for 3s" not in once


def _text(picture: RenderableType) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(picture)
    return console.export_text()


def test_a_ring_that_does_not_exist(written: KubeApi, kubectl_shard: KubectlShard) -> None:
    done = kubectl_shard("top", "rr", "--once")
    assert (done.code, done.err) == (1, "Error: there is no ring rr; did you mean r?\n")


def test_without_rich_it_says_what_to_install(
    written: KubeApi, kubectl_shard: KubectlShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    done = kubectl_shard("top", RING)
    assert (done.code, done.err) == (
        2,
        f"Error: top needs the package rich: {how_to_install('kubectl')}\n",
    )


async def test_of_two_works_that_fail_at_once_one_error_is_raised_and_none_is_left_behind() -> None:
    unasked: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unasked.append(context))

    async def fails(error: Exception) -> None:
        raise error

    with pytest.raises(ValueError, match="first"):
        await first_of(one=fails(ValueError("first")), other=fails(KeyError("second")))
    gc.collect(1)  # they are young
    await asyncio.sleep(0)
    assert unasked == []


@pytest.mark.system
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_picture_on_a_terminal_until_it_is_interrupted(filled: KubeApi, stop: signal.Signals) -> None:
    master, terminal = pty.openpty()
    environment = {**os.environ, "KUBECONFIG": str(filled.kubeconfig), "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(
        [*PROGRAM, "top", RING], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    try:
        seen = read_until(master, "every object is where it belongs")
        assert "█" in seen
        process.send_signal(stop)
        rest = read_until(master, "\x1b[?1049l")  # the previous screen
        assert process.wait(timeout=10) == 130
        assert "Traceback" not in seen + rest
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.mark.system
def test_the_keyboard_shows_other_rings_and_finds_an_object(filled: KubeApi) -> None:
    filled.install(OTHER)
    secret = name_on("a", "a", "b")
    master, terminal = pty.openpty()
    environment = {**os.environ, "KUBECONFIG": str(filled.kubeconfig), "TERM": "xterm", "COLUMNS": "120"}
    before = termios.tcgetattr(terminal)
    process = subprocess.Popen(
        [*PROGRAM, "top"], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    try:
        seen = read_until(master, "ring other, Ctrl-C ends")
        assert "no shard is available" in seen
        os.write(master, b"\x1b[C")
        read_until(master, f"ring {RING}, Ctrl-C ends")
        os.write(master, f"/secret/{secret} team\r".encode())
        read_until(master, "hash key: ")
        os.write(master, b"q")
        read_until(master, "\x1b[?1049l")
        assert process.wait(timeout=10) == 0
        assert termios.tcgetattr(terminal) == before
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(terminal)


def read_until(master: int, text: str) -> str:
    seen, deadline = "", time.monotonic() + 20
    while text not in seen:
        assert select.select([master], [], [], max(0.0, deadline - time.monotonic()))[0], seen
        seen += os.read(master, 65536).decode(errors="replace")
    return seen
