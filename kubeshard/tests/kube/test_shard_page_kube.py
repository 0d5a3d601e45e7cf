"""The commands and the program in `docs/shard-in-any-language.md` are run unchanged; those about labels need `kubectl`,
and those about ranges an API server that selects them.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Lease, NotFound, ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_apiserver.testing.control_plane import ControlPlane
from kubeshard_apiserver.testing.kube_api import EmbeddedApi
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH

PAGE = (Path(__file__).parents[3] / "docs" / "shard-in-any-language.md").read_text()
BY_LABELS, BY_RANGES = PAGE.split("\n## By ranges\n")


def blocks(language: str, page: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


async def until(client: Client, condition: Callable[[ObjectMeta], bool]) -> None:
    while True:
        if condition((await client.get(ConfigMap, "page", "default")).metadata):
            return
        await asyncio.sleep(0.05)


async def test_the_pages_commands_run_in_order_and_leave_nothing(
    control_plane: ControlPlane, kube_client: Client
) -> None:
    script = "\n".join(blocks("bash", BY_LABELS))
    shell = await asyncio.create_subprocess_exec(
        "bash",
        "-euo",
        "pipefail",
        "-c",
        script,
        env={
            "HOME": str(control_plane.folder),  # the directory of kubectl's cache
            "PATH": f"{control_plane.kubectl_path.parent}:/usr/bin:/bin",
            "KUBECONFIG": str(control_plane.kubeconfig),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(shell.communicate(), 60)
    text = output.decode()
    assert shell.returncode == 0, text
    assert '"type":"ADDED"' in text
    assert "doc-object" in text
    with pytest.raises(NotFound):
        await kube_client.get(Lease, "shard-0", "default")


async def test_the_pages_commands_about_ranges_do_what_it_says() -> None:
    api = await asyncio.to_thread(EmbeddedApi, feature_gates=[SHARDED_LIST_AND_WATCH])
    try:
        (cluster,), (user,) = (yaml.safe_load(api.kubeconfig.read_text())[of] for of in ("clusters", "users"))
        ca = api.kubeconfig.with_name("ca.crt")
        ca.write_bytes(b64decode(cluster["cluster"]["certificate-authority-data"]))
        shell = await asyncio.create_subprocess_exec(
            "bash",
            "-euo",
            "pipefail",
            "-c",
            "\n".join(blocks("bash", BY_RANGES)),
            env={
                "PATH": os.environ["PATH"],
                "server": cluster["cluster"]["server"],
                "ca": str(ca),
                "token": user["user"]["token"],
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(shell.communicate(), 60)
    finally:
        await asyncio.to_thread(api.stop)
    text = output.decode()
    assert shell.returncode == 0, text
    said = re.search(r"bucket (\d+), listed (\d)", text)
    uid = re.search(r'"name": "doc-object".*?"uid": "([^"]+)"', text, re.DOTALL)
    assert said, text
    assert uid, text
    bucket = Buckets().of(ObjectMeta(uid=uid[1]))
    assert (int(said[1]), int(said[2])) == (bucket, bucket < 512)
    assert '"0256-0511": "shard-1@4"' in text
    assert '"code": 409' in text


async def test_the_pages_program_is_a_shard(
    control_plane: ControlPlane, kube_client: Client, tmp_path: Path
) -> None:
    (program,) = blocks("python", BY_RANGES)
    path = tmp_path / "shard.py"
    path.write_text(program)
    label, drain = shard_label("demo"), drain_label("demo")
    await kube_client.create(
        ConfigMap(metadata=ObjectMeta(name="page", namespace="default", labels={label: "shard-py"}))
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(path),
        env={"KUBECONFIG": str(control_plane.kubeconfig), "PYTHONPATH": os.environ["PYTHONPATH"]},
    )
    try:
        async with asyncio.timeout(20):
            await until(kube_client, lambda meta: meta.annotation("seen-by") == "shard-py")
            assert (await kube_client.get(Lease, "shard-py", "default")).spec.holder_identity == "shard-py"
            patch = MergePatch({"metadata": {"labels": {drain: "true"}}})
            await kube_client.patch(ConfigMap, "page", "default", patch)
            await until(kube_client, lambda meta: not meta.labels)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        released = (await kube_client.get(Lease, "shard-py", "default")).spec
        assert (released.holder_identity, released.lease_duration_seconds) == ("", 1)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await kube_client.delete(ConfigMap, "page", "default")
        await kube_client.delete(Lease, "shard-py", "default")
