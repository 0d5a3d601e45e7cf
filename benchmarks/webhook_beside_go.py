"""Measures the webhooks of two running sharders in turn, kubeshard's and the Go reference's, for
`webhook.py --go-sharder`.

Both are whole programs, started in the same control plane on one core, with the same rings and Leases; the load and
everything else run on the other core. Compare reviews per CPU second: on a busy machine, a server does not get all of
its core.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from fleet import PROJECT, Bench, Results, bench, programs, progress

from kubeshard.core import Lease, LeaseSpec, NotFound, ObjectMeta
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.times import micro_time
from kubeshard.sharding.names import RING_LABEL, webhook_config_name
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.examples.webhosting.api import GROUP

LEASES_LAST = 3600
"""Seconds: long, because nothing renews these Leases."""

Measure = Callable[[str, int], tuple[float, float, float, float]]
"""Measures a URL and a process: reviews per CPU second and per second, p50 and p99 in ms."""


async def beside_go(
    go: Path, shards: Sequence[int], rounds: int, core: int, body: bytes, measure: Measure
) -> None:
    """Measures both sharders; `body` is a review that is answered with a patch."""
    units = {"per CPU second": "1/s", "per second": "1/s", "p50": "ms", "p99": "ms"}
    with Results(units) as results:
        async with bench() as cluster:
            for number in shards:
                await _new_ring(cluster, number)
            for turn in range(rounds):
                for program in programs(go, turn):
                    progress(f"round {turn + 1}: {program.name}")
                    mine = os.sched_getaffinity(0)
                    os.sched_setaffinity(0, {core})  # the program's, from its first thread on
                    try:
                        sharder = cluster.start_sharder(program)
                    finally:
                        os.sched_setaffinity(0, mine)
                    try:
                        for number in shards:
                            url = await _ready(cluster, sharder, number, body)
                            per_cpu, rate, p50, p99 = await asyncio.to_thread(measure, url, sharder.pid)
                            figures = {"per CPU second": per_cpu, "per second": rate, "p50": p50, "p99": p99}
                            results.add(f"{number} shards", program, **figures)
                    finally:
                        sharder.kill()
                        for number in shards:  # so that a new one shows that the next program has started
                            with suppress(NotFound):
                                await cluster.client.delete(
                                    MutatingWebhookConfiguration, _configuration(number)
                                )


async def _new_ring(cluster: Bench, shards: int) -> None:
    name = _ring(shards)
    await cluster.client.apply_manifest(
        {
            "apiVersion": "sharding.timebertt.dev/v1alpha1",
            "kind": "ControllerRing",
            "metadata": {"name": name},
            "spec": {"resources": [{"group": GROUP, "resource": "websites"}], "namespaceSelector": {}},
        }
    )
    now = micro_time(time.time())
    for number in range(shards):
        shard = f"{name}-{number}"
        spec = LeaseSpec(
            holder_identity=shard, lease_duration_seconds=LEASES_LAST, acquire_time=now, renew_time=now
        )
        metadata = ObjectMeta(name=shard, namespace=PROJECT, labels={RING_LABEL: name})
        await cluster.client.create(Lease(metadata=metadata, spec=spec))


async def _ready(cluster: Bench, sharder: Child, shards: int, body: bytes) -> str:
    """Returns the URL of the ring's webhook as soon as it assigns objects."""
    async with asyncio.timeout(60):
        while True:
            if not sharder.running:
                raise RuntimeError(f"{sharder.name} ended:\n{sharder.tail()}")
            with suppress(NotFound, OSError):
                found = await cluster.client.get(MutatingWebhookConfiguration, _configuration(shards))
                url = str(found.webhooks[0]["clientConfig"]["url"])
                if await asyncio.to_thread(_assigns, url, body):
                    return url
            await asyncio.sleep(0.1)


def _assigns(url: str, body: bytes) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - https
    with urllib.request.urlopen(request, context=context, timeout=5) as answer:  # noqa: S310 - https
        return bool(json.load(answer)["response"].get("patch"))


def _ring(shards: int) -> str:
    return f"shards-{shards}"


def _configuration(shards: int) -> str:
    return webhook_config_name(_ring(shards))
