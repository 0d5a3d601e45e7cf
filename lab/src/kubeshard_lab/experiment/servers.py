"""Where an experiment runs: an embedded API server in a process of its own, the built control plane, or a cluster."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from kubeshard.core.errors import KubeshardError
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import ControlPlane
from kubeshard_lab.experiment.setups import Watched

_READY_WITHIN = 120.0
_POLL = 0.05


class ServerFailed(KubeshardError):
    """The API server did not become ready."""


class RunningServer(NamedTuple):
    kubeconfig: Path
    processes: Sequence[Watched]
    lost: Callable[[], str]
    """Why the server has ended; `""` as long as it has not."""


@asynccontextmanager
async def embedded(
    folder: Path, environment: Mapping[str, str], latency: float = 0.0, feature_gates: Sequence[str] = ()
) -> AsyncIterator[RunningServer]:
    """`folder` exists. `latency`, in seconds, is added to each answer. Raises ServerFailed."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "kubeshard", "apiserver", "--port", "0", "--kubeconfig", str(kubeconfig)]
    command += ["--latency", f"{latency:.6f}s"]
    command += ["--feature-gates", ",".join(feature_gates)] if feature_gates else []
    child = Child("apiserver", command, folder / "apiserver.log", environment)
    try:
        async with asyncio.timeout(_READY_WITHIN):
            while not kubeconfig.exists():
                if not child.running:
                    raise ServerFailed(f"the API server did not start: {child.tail(3)}")
                await asyncio.sleep(_POLL)
        yield RunningServer(kubeconfig, [Watched("apiserver", "server", child.pid)], lambda: _lost([child]))
    except TimeoutError:
        raise ServerFailed(
            f"the API server was not ready within {_READY_WITHIN:g} s: {child.tail(3)}"
        ) from None
    finally:
        child.kill()


@asynccontextmanager
async def real(folder: Path, feature_gates: Sequence[str] = ()) -> AsyncIterator[RunningServer]:
    """With kube-controller-manager. Raises ConfigurationError if not installed, and ControlPlaneFailed."""
    kube = ControlPlane(controller_manager=True, folder=folder, feature_gates=feature_gates)
    try:
        kube.spawn()
        async with asyncio.timeout(_READY_WITHIN):
            while not kube.ready():  # noqa: ASYNC110 - another process, there is nothing to wait on
                await asyncio.sleep(_POLL)
        kube.wait_ready()  # starts the controllers
        yield RunningServer(
            kube.kubeconfig,
            [Watched(child.name, "server", child.pid) for child in kube.children],
            lambda: _lost(kube.children),
        )
    except TimeoutError:
        raise ServerFailed(f"kube-apiserver was not ready within {_READY_WITHIN:g} s; see {folder}") from None
    finally:
        kube.stop()
        shutil.rmtree(folder / "etcd", ignore_errors=True)


def _lost(children: Sequence[Child]) -> str:
    for child in children:
        if not child.running:
            last = child.tail(1).strip()
            return f"{child.name} ended with exit code {child.exit_code}{f': {last}' if last else ''}"
    return ""
