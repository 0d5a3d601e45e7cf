"""The parts that the system benchmarks share: a cluster, the programs under measurement, their cost, and tables.

The cost of a program is what the kernel has counted for its process: CPU seconds of all threads, and peak resident
memory (/proc/PID/status). Wall time includes the API server and etcd, which share the machine, so only ratios within
one run are meaningful.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from kubeshard import ALL
from kubeshard.client import Bookmark, Changed, Client, load_config
from kubeshard.core import Kind, KubeObject, Namespace, NotFound, ObjectMeta, Selector, metadata_only
from kubeshard.sharder import config as sharder_config
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import SYSTEM_NAMESPACE
from kubeshard.webhook.selfsigned import renewed
from kubeshard_apiserver.testing import ControlPlane
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import free_port
from kubeshard_lab.examples.webhosting import config as operator_config
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import (
    PROJECT_LABEL,
    SKIP_WORKLOAD_LABEL,
    Theme,
    Website,
    WebsiteSpec,
)

PROJECT = "project-bench"
THEME = "exciting"
GO_WEBHOOK_PORT = 9443
"""The reference's port is fixed."""
ADMINISTRATOR = "admin"
"""The user of the control plane's kubeconfig, as whom all programs work."""
FIGURES = "BENCHMARK_FIGURES"
"""The environment variable that names a file for figures, which is there if a program has started a benchmark to read
them: one JSON object on each line.
"""
_CREATORS = 16
_CPU_CLOCK = 2
"""The kernel's number of the exact one of a process (CPUCLOCK_SCHED)."""


class Cost(NamedTuple):
    """The cost of a process since its start."""

    cpu: float
    peak_mib: float


def cost_of(child: Child) -> Cost:
    status = Path("/proc", str(child.pid), "status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return Cost(time.clock_gettime((~child.pid << 3) | _CPU_CLOCK), int(peak.split()[1]) / 1024)


@dataclass(frozen=True)
class Program:
    """One implementation of a program: kubeshard's, or the Go reference's at a path."""

    name: str
    go: Path | None = None


class Bench:
    """A control plane without controllers, a project namespace, a theme, and child processes that end with it."""

    def __init__(self, kube: ControlPlane, client: Client) -> None:
        self.kube = kube
        self.client = client

    def start_sharder(self, program: Program) -> Child:
        """Starts a sharder that leads and has a webhook that the API server can reach."""
        document = sharder_document(self.kube.folder, GO_WEBHOOK_PORT if program.go else free_port())
        if not program.go:  # as in an installation: no webhook is called for the sharder's own moves
            document["sharders"] = [ADMINISTRATOR]
        command = [str(program.go)] if program.go else [*_KUBESHARD, "sharder"]
        return self._start("sharder", command, document)

    def start_operator(self, program: Program, workers: int) -> Child:
        """Starts the only instance of the operator, which works at once."""
        document = {
            "apiVersion": operator_config.API_VERSION,
            "kind": operator_config.KIND,
            **_addresses(),
        }
        command = [str(program.go)] if program.go else [*_WEBHOSTING, "operator"]
        return self._start("operator", command, document, WEBSITE_CONCURRENT_SYNCS=str(workers))

    def start_instance(self, name: str, mode: str, delivery: str = "labels") -> Child:
        """Starts one of several instances of kubeshard's operator; `mode` is the value of `--sharding`."""
        document = {
            "apiVersion": operator_config.API_VERSION,
            "kind": operator_config.KIND,
            **_addresses(),
        }
        command = [*_WEBHOSTING, "operator", "--sharding", mode, "--delivery", delivery]
        return self._start(name, [*command, "--shard-name", name, "--namespace", SYSTEM_NAMESPACE], document)

    def _start(
        self, name: str, command: Sequence[str], document: Mapping[str, Any], **environment: str
    ) -> Child:
        config = self.kube.folder / f"{name}.json"
        config.write_text(json.dumps(document))
        return Child(
            name,
            [*command, "--config", str(config)],
            self.kube.folder / f"{name}.log",
            {
                **_ENVIRONMENT,
                "KUBECONFIG": str(self.kube.kubeconfig),
                "LEADER_ELECT": "false",
                "DISABLE_HTTP2": "true",
                **environment,
            },
        )

    async def create_websites(self, count: int) -> None:
        """Creates Websites without a workload, with 16 concurrent clients."""
        numbers = iter(range(count))

        async def create() -> None:
            for number in numbers:
                await self.create_website(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(_CREATORS):
                group.create_task(create())

    async def create_website(self, number: int) -> None:
        metadata = ObjectMeta(
            name=f"site-{number:05}", namespace=PROJECT, labels={SKIP_WORKLOAD_LABEL: "true"}
        )
        await self.client.create(Website(metadata=metadata, spec=WebsiteSpec(theme=THEME)))

    async def position(self, kind: type[KubeObject] | Kind) -> str:
        """Returns the version from which a watch on the kind sees all later changes."""
        key = "benchmark"
        nothing = Selector.exists(key) & Selector.absent(key)
        stream = self.client.list(metadata_only(kind), ALL, label_selector=nothing)
        async for _ in stream:
            pass
        return stream.resource_version

    async def appear(self, selector: Selector, count: int, since: str) -> float:
        """Waits until the given number of Websites match the selector; returns the time of the last one."""
        form = metadata_only(Website)
        while True:  # the API server ends a watch whose reader falls behind
            async with self.client.watch(
                form, ALL, label_selector=selector, resource_version=since
            ) as events:
                async for event in events:
                    match event:
                        case Bookmark(since):
                            pass
                        case Changed(type_, obj):
                            since = obj.metadata.resource_version
                            count -= type_ == "ADDED"
                    if count <= 0:
                        return time.monotonic()


@asynccontextmanager
async def bench(feature_gates: Sequence[str] = ()) -> AsyncIterator[Bench]:
    """Yields a bench, and stops and removes everything at the end."""
    with ControlPlane(feature_gates=feature_gates) as kube:
        async with Client(await load_config(kubeconfig=kube.kubeconfig)) as client:
            for crd in (controller_ring_crd(), *manifests.crds()):
                await client.apply_manifest(crd)
            for served in (ControllerRing, Theme, Website):
                await _served(client, served)
            for name, labels in ((SYSTEM_NAMESPACE, {}), (PROJECT, {PROJECT_LABEL: "true"})):
                await client.create(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
            await client.apply_manifest(manifests.theme(THEME, "darkcyan", "Futura"))
            yield Bench(kube, client)


async def _served(client: Client, kind: type[KubeObject]) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await client.list_all(kind, ALL)
                return
            except NotFound:
                await asyncio.sleep(0.1)


def sharder_document(folder: Path, port: int) -> dict[str, Any]:
    """The configuration of a sharder whose webhook is at that port; its certificates are written to the folder."""
    identity = renewed(None, ["127.0.0.1"], time.time())
    certificates = folder / f"certificates-{port}"
    certificates.mkdir(exist_ok=True)
    (certificates / "tls.crt").write_bytes(identity.serving.certificate)
    (certificates / "tls.key").write_bytes(identity.serving.private_key)
    return {
        "apiVersion": sharder_config.API_VERSION,
        "kind": sharder_config.KIND,
        **_addresses(),
        "webhook": {
            "server": {"certDir": str(certificates), "bindAddress": f"127.0.0.1:{port}"},
            "config": {
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}/",
                    "caBundle": _base64(identity.bundle),
                }
            },
        },
    }


def programs(go: Path | None, number: int) -> tuple[Program, ...]:
    """Returns the programs in the order of this round: each goes first in every other round."""
    ours = Program("kubeshard")
    if go is None:
        return (ours,)
    return (ours, Program("go", go)) if number % 2 else (Program("go", go), ours)


def add_go_option(parser: ArgumentParser, flag: str, variable: str) -> None:
    given = os.environ.get(variable)
    parser.add_argument(
        flag,
        metavar="PATH",
        type=Path,
        default=Path(given) if given else None,
        help=f"the Go reference's program to measure beside (default: ${variable}; without it only kubeshard)",
    )


class Results:
    """The figures of several rounds: medians, their spread, and the ratio to the reference. As a context manager, it
    prints them at the end of the block, even if the block fails.
    """

    def __init__(self, units: Mapping[str, str]) -> None:
        self._units = units
        self._values: dict[tuple[str, str], dict[str, list[float]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.show()

    def add(self, what: str, program: Program, **figures: float) -> None:
        values = self._values.setdefault((what, program.name), {})
        for name, figure in figures.items():
            values.setdefault(name, []).append(figure)

    def show(self) -> None:
        names = [f"{name} [{unit}]" if unit else name for name, unit in self._units.items()]
        rows = [["what", "program", *names]]
        for (what, program), values in self._values.items():
            rows.append([what, program, *(self._cell(values.get(name, ())) for name in self._units)])
            reference = self._values.get((what, "go"))
            if reference and program != "go":
                ratios = (self._ratio(values.get(name), reference.get(name)) for name in self._units)
                rows.append(["", f"{program} / go", *ratios])
            medians = {name: statistics.median(each) for name, each in values.items()}
            hand_over(what, program, **medians)
        _print_table(rows)

    def _cell(self, values: Sequence[float]) -> str:
        if not values:
            return ""
        if len(values) == 1:
            return _number(values[0])
        return f"{_number(statistics.median(values))} ({_number(min(values))}-{_number(max(values))})"

    def _ratio(self, ours: Sequence[float] | None, theirs: Sequence[float] | None) -> str:
        if not ours or not theirs or not statistics.median(theirs):
            return ""
        return f"{statistics.median(ours) / statistics.median(theirs):.2f}"


async def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(0.05)


def hand_over(what: str, program: str, **figures: float) -> None:
    """To the program that has started this one, if it reads figures."""
    if path := os.environ.get(FIGURES):
        with Path(path).open("a", encoding="utf-8") as file:
            print(json.dumps({"what": what, "program": program, "figures": figures}), file=file)


def progress(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


_KUBESHARD = (sys.executable, "-m", "kubeshard")
_WEBHOSTING = (sys.executable, "-m", "kubeshard_lab.examples.webhosting")


def _addresses() -> dict[str, Any]:
    # To the reference, "0" would not mean no metrics, but port 8080 on all interfaces.
    return {"health": {"bindAddress": "0"}, "metrics": {"bindAddress": f"127.0.0.1:{free_port()}"}}


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _print_table(rows: Iterable[Sequence[str]]) -> None:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Like an installed program, it must not compile its modules at every start."""
