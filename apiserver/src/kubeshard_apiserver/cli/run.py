"""Runs `kubeshard apiserver` from startup to shutdown."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import shlex
import signal
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import click
import yaml

from kubeshard.client.kubeconfig import load_config
from kubeshard.core.errors import ConfigurationError, KubeshardError
from kubeshard.runtime.environ import home
from kubeshard.runtime.garbage_collection import MIDDLE, YOUNG
from kubeshard.runtime.http_server import ListenError
from kubeshard.runtime.loop import loop_factory
from kubeshard.runtime.open_files import raise_limit
from kubeshard.runtime.transport import HttpRequest, TransportError
from kubeshard.runtime.world import REAL_WORLD
from kubeshard_apiserver.serving.credentials import CLUSTER
from kubeshard_apiserver.serving.embedded import EmbeddedServer

_ANSWERS_WITHIN = 3.0
"""The seconds within which a running server on this machine responds."""


class Options(NamedTuple):
    """The command-line options."""

    kubeconfig: Path | None
    host: str
    port: int
    data: Path | None
    controllers: bool
    pods: bool
    ready_after: float
    rbac: bool
    latency: float
    admission_plugins: Collection[str]
    feature_gates: Collection[str]


def run(options: Options) -> None:
    """Runs the server until the first Ctrl-C or SIGTERM; the second one ends the process immediately. Raises
    ConfigurationError.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(options))


async def _run(options: Options) -> None:
    stopping = asyncio.Event()
    _on_signals(stopping)
    path = options.kubeconfig or _default_kubeconfig(options.data)
    if _is_written(path) and (options.kubeconfig or options.data is None):
        await _refuse_to_lead_away(path)  # a data folder has its own lock
    async with AsyncExitStack() as stack:
        served = await _listening(options, stack)
        served.write_kubeconfig(path)
        if options.controllers:
            from kubeshard_apiserver.serving.cluster import controllers_of

            await stack.enter_async_context(
                controllers_of(served, pods=options.pods, ready_after=options.ready_after)
            )
        _spare_the_collector()
        raise_limit()
        click.echo(_welcome(served.url, path, options))
        ending = [
            asyncio.create_task(stopping.wait(), name="stop"),
            asyncio.create_task(served.failed(), name="failure"),
        ]
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        for wait in ending:
            wait.cancel()
    if not stopping.is_set():
        raise KubeshardError(await served.failed())


async def _listening(options: Options, stack: AsyncExitStack) -> EmbeddedServer:
    server = EmbeddedServer(
        data=options.data,
        host=options.host,
        port=options.port,
        rbac=options.rbac,
        latency=options.latency,
        admission_plugins=options.admission_plugins,
        feature_gates=options.feature_gates,
    )
    try:
        return await stack.enter_async_context(server)
    except ConfigurationError as error:
        cause = error.__cause__
        if isinstance(cause, ListenError) and cause.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"{error}; choose another port with --port (0 picks a free one)"
            ) from error
        raise


_RARELY = 12_000
"""Middle runs of the collector before a full one, which then comes after 120 million new objects."""


def _spare_the_collector() -> None:
    """Keeps Python's garbage collector from looking at all API objects, which stops everybody for a second where there
    are tens of thousands. They have no reference cycles; what has, such as a request, is young when it ends.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, _RARELY)


def _welcome(url: str, path: Path, options: Options) -> str:
    kept = f"Its data is kept in {options.data}." if options.data else "Its data is lost when it stops."
    return (
        f"The API server is listening on {url}. {kept} Press Ctrl-C to stop it.\n\n"
        f"    export KUBECONFIG={shlex.quote(str(path.absolute()))}\n"
        "    kubectl get namespaces\n"
    )


def _is_written(path: Path) -> bool:
    """Whether this command has written the file. Raises ConfigurationError if it belongs to somebody else: a user who
    passes `--kubeconfig ~/.kube/config` would lose access to their clusters.
    """
    if not path.is_file() or not path.stat().st_size:
        return False
    try:
        clusters = yaml.safe_load(path.read_text())["clusters"]
        ours = [cluster["name"] for cluster in clusters] == [CLUSTER]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, LookupError, TypeError):
        ours = False
    if not ours:
        raise ConfigurationError(
            f"{path} was not written by this command and is not overwritten; choose another file with --kubeconfig"
        )
    return True


async def _refuse_to_lead_away(path: Path) -> None:
    """Raises ConfigurationError if the server of an existing kubeconfig is still running, because shells that use the
    file would suddenly talk to another server. Only the server that wrote the file has a certificate signed by its
    authority; a different server on that port does not matter.
    """
    try:
        config = await load_config(path)
        transport = REAL_WORLD.connect(config.server, config.tls)
    except ConfigurationError:
        return
    try:
        await transport.request(HttpRequest("GET", "/version", {}, timeout=_ANSWERS_WITHIN))
    except TransportError:
        return
    finally:
        await transport.close()
    raise ConfigurationError(
        f"{path} belongs to the server at {config.server}, which is running; choose another file with --kubeconfig "
        "(and another port with --port)"
    )


def _default_kubeconfig(data: Path | None) -> Path:
    if data is not None:
        return data / "kubeconfig"
    folder = home()
    if folder is None:
        raise ConfigurationError("there is no home directory to write a kubeconfig to; use --kubeconfig FILE")
    path = folder / ".kube" / "kubeshard"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"cannot create {path.parent}: {error.strerror}; use --kubeconfig FILE"
        ) from error
    return path


def _on_signals(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def handle() -> None:
        if stopping.is_set():
            os._exit(1)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, handle)
