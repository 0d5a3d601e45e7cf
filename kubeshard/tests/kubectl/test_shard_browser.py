"""The page of `kubectl shard web` follows the ring, and the browser reports no errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser, missing
from ring_cluster import RING, RingCluster, name_on

from kubeshard.client import Client
from kubeshard.core import MergePatch, Secret
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_apiserver.testing import KubeApi
from kubeshard_apiserver.testing.control_plane import free_port

pytestmark = pytest.mark.system

PROGRAM = [sys.executable, "-c", "from kubeshard.cli import shard_main; shard_main()"]
MOVING = name_on("b", "a", "b")


@pytest.fixture
def page(written: KubeApi) -> Iterator[str]:
    """The address of a page about a ring with objects on a, one of which should be on b."""

    async def fill(client: Client) -> None:
        cluster = RingCluster(client)
        for number in range(6):
            name = name_on("a", "a", "b", prefix=f"n{number}-")
            await cluster.child(f"{name}-child", await cluster.secret(name, "a"), "a")
        await cluster.secret(MOVING, "a")

    written.call(fill)
    program = subprocess.Popen(
        [*PROGRAM, "web", RING],
        env={**os.environ, "KUBECONFIG": str(written.kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        yield program.stdout.readline().strip()
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=10)
        assert (program.returncode, errors.strip()) == (130, "")
    finally:
        program.kill()
        program.wait()


@pytest.fixture
def chromium() -> Iterator[Browser]:
    if what := missing():
        pytest.skip(f"did not run: there is {what} (apt-get install chromium chromium-driver)")
    with browser(free_port()) as opened:
        yield opened


def relabel(api: KubeApi, **labels: str | None) -> None:
    keys = {"shard": shard_label(RING), "drain": drain_label(RING)}
    patch = MergePatch({"metadata": {"labels": {keys[key]: value for key, value in labels.items()}}})
    api.call(lambda client: client.patch(Secret, MOVING, "team", patch))


def shown(chromium: Browser) -> dict[str, list[str]]:
    """Returns the cells of each shard, next to its bar."""
    rows: list[list[str]] = chromium.run(
        "return [...document.querySelectorAll('#shards tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    return {name: cells[:-1] for name, *cells in rows}


def width(chromium: Browser, shard: str, part: str) -> float:
    found: float = chromium.run(
        "return [...document.querySelectorAll('#shards tr')]"
        f".find(row => row.cells[0].innerText === '{shard}').querySelector('.{part}').getBoundingClientRect().width"
    )
    return found


def test_the_page_moves_with_the_ring(written: KubeApi, page: str, chromium: Browser, tmp_path: Path) -> None:
    pictures = Path(os.environ.get("KUBESHARD_SCREENSHOTS", tmp_path))
    chromium.open(page)
    chromium.until("document.getElementById('verdict').innerText === '1 to be moved'")
    assert shown(chromium) == {"a": ["new", "7", "6", "", ""], "b": ["new", "0", "0", "", ""]}
    assert chromium.run("return document.title") == "r: 1 to be moved"
    relabel(written, drain="true")
    chromium.until("document.getElementById('verdict').innerText.includes('1 draining')")
    chromium.until("document.querySelector('#shards .draining').getBoundingClientRect().width > 0")
    relabel(written, drain=None, shard="b")
    chromium.until("document.getElementById('verdict').className === 'well'")
    assert shown(chromium) == {"a": ["new", "6", "6", "", "-1"], "b": ["new", "1", "0", "", "+1"]}
    chromium.until(
        "document.querySelectorAll('#shards .main')[1].getBoundingClientRect().width * 5"
        " < document.querySelectorAll('#shards .main')[0].getBoundingClientRect().width"
    )
    assert width(chromium, "b", "main") > 0
    chromium.until("document.getElementById('history').innerText.includes('1 object moved')")
    chromium.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
    assert chromium.run("return document.activeElement.id") == "object"
    chromium.run(
        f"document.getElementById('object').value = 'secret/{MOVING}';"
        "document.getElementById('namespace').value = 'team';"
        "document.getElementById('search').requestSubmit()"
    )
    chromium.until("document.getElementById('found').innerText.includes('Placed: b is the shard')")
    assert "undefined" not in chromium.run("return document.body.innerText")
    chromium.resize(1100, 1050)
    chromium.screenshot(pictures / "shard-web.png")
    chromium.resize(390, 1050)
    assert chromium.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    chromium.screenshot(pictures / "shard-web-narrow.png")
    chromium.run("document.getElementById('object').value = 'no-such-thing/a'; look()")
    chromium.until("document.querySelector('#found .lost') !== null")
    assert chromium.complaints() == []
