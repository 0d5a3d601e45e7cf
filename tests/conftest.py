"""Fixtures on the API servers of the plugin (`kubeshard.testing.plugin`): every test that uses them runs on the
embedded one, and, marked `kube`, on a real one. Each is started by the first test that needs it and serves
the whole session.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Namespace, ObjectMeta
from kubeshard.core.errors import ConfigurationError
from kubeshard.testing.control_plane import ControlPlane
from kubeshard.testing.kube_api import KubeApi

_numbers = itertools.count(1)

# A slow machine is no mistake of the code under test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so, and the programs under test would inherit it and be deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


_logs_kept = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def kube_control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
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
def control_plane(kube_control_plane: ControlPlane) -> ControlPlane:
    return kube_control_plane


@pytest.fixture(scope="session")
def kube_options() -> dict[str, bool]:
    """The embedded server like the real one here: nothing beside it."""
    return {"controllers": False, "pods": False}


@pytest.fixture(scope="session")
def kubeconfig(kube_api: KubeApi) -> Path:
    return kube_api.kubeconfig


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
def install_crd(kube_api: KubeApi) -> InstallCrd:
    """Applies a CustomResourceDefinition manifest and waits until its kind is served."""
    return kube_api.install


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
