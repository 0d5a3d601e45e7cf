"""`kubeshard demo` as users run it: it finishes, can be stopped at any moment, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubeshard.client import Client, load_config
from kubeshard.core import Lease
from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.assets import find_assets
from kubeshard_apiserver.testing.child import is_running

MARK = "KUBESHARD_TEST_RUN"


class Demo:
    """A running demo. All its processes carry a mark in their environment."""

    def __init__(self, *arguments: str, temporary: Path) -> None:
        self._mark = f"{MARK}={uuid.uuid4()}".encode()
        name, value = self._mark.decode().split("=")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kubeshard", "demo", *arguments],
            env={**os.environ, name: value, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: list[str] = []

    def until(self, pattern: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if re.search(pattern, line):
                return line
        pytest.fail(f"{pattern!r} did not come:\n{''.join(self.said)}")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self, within: float) -> int:
        output, _ = self.process.communicate(timeout=within)
        self.said.append(output)
        return self.process.returncode

    def processes(self) -> list[int]:
        """Returns all processes of this demo."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                marked = self._mark in (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if marked and is_running(int(folder.name)):
                found.append(int(folder.name))
        return found


@contextmanager
def demo(temporary: Path, *arguments: str) -> Iterator[Demo]:
    run = Demo(*arguments, temporary=temporary)
    try:
        yield run
        assert run.processes() == []
        assert [path.name for path in temporary.iterdir() if path.name.startswith("kubeshard")] == []
    finally:
        run.process.kill()
        run.process.communicate()


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kube)])
def target(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Arguments of the demo."""
    if request.param == "embedded":
        return ()
    find_assets(["etcd", "kube-apiserver"])
    return ("--real",)


@pytest.mark.parametrize(
    "sharder",
    [
        pytest.param((), id="service"),
        pytest.param(("--in-manager",), id="in-manager", marks=pytest.mark.real_at_night),
    ],
)
def test_it_shows_every_step_sums_up_and_leaves_nothing_behind(
    tmp_path: Path, target: tuple[str, ...], sharder: tuple[str, ...]
) -> None:
    with demo(tmp_path, *target, *sharder, "--websites", "12") as run:
        assert run.end(within=240) == 0, "".join(run.said)
        said = "".join(run.said)
        titles = re.findall(r"^✓ (.*): ([\d.]+) s$", said, re.M)
        assert len(titles) == 6
        assert "time until every object was owned by the right live shard" in said
        for title, seconds in titles:
            assert re.search(rf"^\s+{re.escape(title)}\s+{re.escape(seconds)}\s+\d+\s+\d+\s*$", said, re.M)
        last = re.findall(r"^  shard-\d [a-z]+ \d+\+\d+, .*", said, re.M)[-1]
        assert " dead 0+0" in last
        assert last.endswith("every object is where it belongs")
        assert sum(int(count) for count in re.findall(r" (\d+)\+", last)) == 12


@pytest.mark.kube
def test_it_can_be_stopped_while_the_control_plane_starts(tmp_path: Path) -> None:
    find_assets(["etcd", "kube-apiserver"])
    with demo(tmp_path, "--real") as run:
        wait_until(lambda: len(run.processes()) > 1, 30, "etcd runs")
        run.interrupt()
        assert run.end(within=15) == 130
        assert run.said[-1].endswith("stopped; nothing is left running\n")


@pytest.mark.real_at_night
def test_it_can_be_stopped_in_the_middle(tmp_path: Path, target: tuple[str, ...]) -> None:
    with demo(tmp_path, *target, "--websites", "5") as run:
        run.until(r"^✓ two sharders and three shards start")
        assert len(run.processes()) == (8 if target else 6)
        run.interrupt()
        assert run.end(within=15) == 130


@pytest.mark.real_at_night
def test_it_stays_when_asked_and_says_how_to_look_around(tmp_path: Path, target: tuple[str, ...]) -> None:
    logs = tmp_path / "logs"
    with demo(tmp_path, *target, "--websites", "3", "--keep", "--logs", str(logs)) as run:
        kubeconfig = Path(run.until(r"export KUBECONFIG=").split("=", 1)[1].strip())
        run.until("samples generate")
        assert _leader(kubeconfig).startswith("sharder-")
        run.interrupt()
        assert run.end(within=15) == 0
        assert (logs / "sharder-1.log").exists()


@pytest.mark.real_at_night
def test_the_kernel_ends_the_children_of_a_demo_that_is_killed(
    tmp_path: Path, target: tuple[str, ...]
) -> None:
    run = Demo(*target, temporary=tmp_path)
    try:
        run.until("^✓ two sharders and three shards start")
        assert len(run.processes()) > 5
        run.process.kill()
        run.process.communicate()
        wait_until(lambda: run.processes() == [], 10, "no process is left")
    finally:
        run.process.kill()


def _leader(kubeconfig: Path) -> str:
    import asyncio

    async def read() -> str:
        async with Client(await load_config(kubeconfig=kubeconfig)) as client:
            lease = await client.get(Lease, "sharder", "sharding-system")
            return lease.spec.holder_identity or ""

    return asyncio.run(read())
