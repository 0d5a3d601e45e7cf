"""Fixtures on a real control plane. It is started by the first test that needs it and serves the whole
session.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubeshard.client import Client, load_config
from kubeshard.core import ConfigMap, Namespace, ObjectMeta
from kubeshard.core.errors import ConfigurationError
from kubeshard.testing.control_plane import ControlPlane, wait_until

_numbers = itertools.count(1)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so, and the programs under test would inherit it and be deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


_logs_kept = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, without controllers: nothing is garbage-collected, no pod runs. The logs stay
    when a test failed.
    """
    try:
        kube = ControlPlane()
    except ConfigurationError as error:
        pytest.fail(str(error), pytrace=False)
    with kube:
        yield kube
        if request.session.testsfailed:
            kube.keep_logs = True
            request.config.stash[_logs_kept] = kube.folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if folder := config.stash.get(_logs_kept, None):
        terminalreporter.write_line(f"logs of the control plane: {folder}")


@pytest.fixture(scope="session")
def kubeconfig(control_plane: ControlPlane) -> Path:
    return control_plane.kubeconfig


@pytest.fixture
async def kube_client(kubeconfig: Path) -> AsyncIterator[Client]:
    """A cluster administrator's client."""
    async with Client(await load_config(kubeconfig=str(kubeconfig))) as client:
        yield client


@pytest.fixture
async def namespace(kube_client: Client) -> AsyncIterator[str]:
    """A namespace of the test's own. It is deleted afterwards, but stays Terminating: nobody here finalizes
    it.
    """
    name = f"test-{os.getpid()}-{next(_numbers)}"
    await kube_client.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    await kube_client.delete_collection(ConfigMap, name)
    await kube_client.delete(Namespace, name)


InstallCrd = Callable[[Mapping[str, Any]], None]


@pytest.fixture(scope="session")
def install_crd(control_plane: ControlPlane) -> InstallCrd:
    """Applies a CustomResourceDefinition manifest and waits until its kind is served."""

    def install(manifest: Mapping[str, Any]) -> None:
        control_plane.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(manifest)
        )
        name = manifest["metadata"]["name"]
        control_plane.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=20s")
        plural, _, group = name.partition(".")
        version = manifest["spec"]["versions"][0]["name"]
        path = f"/apis/{group}/{version}/{plural}"
        wait_until(
            lambda: '"items"' in control_plane.kubectl("get", "--raw", path, check=False),
            20,
            f"{path} served",
        )

    return install


@pytest.fixture(scope="session")
def go_sharder() -> Path:
    return _reference_program("KUBESHARD_GO_SHARDER", "sharder")


@pytest.fixture(scope="session")
def go_operator() -> Path:
    return _reference_program("KUBESHARD_GO_OPERATOR", "webhosting-operator")


@pytest.fixture(scope="session")
def go_checksum() -> Path:
    return _reference_program("KUBESHARD_GO_CHECKSUM", "checksum-controller")


def _reference_program(variable: str, name: str) -> Path:
    """A program of the Go reference. A variable that is set but wrong is a failure, not a reason to skip."""
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"did not run: set {variable} to the Go reference's {name} binary")
    if not os.access(named, os.X_OK):
        pytest.fail(f"{variable}={named} is not an executable file", pytrace=False)
    return Path(named)
