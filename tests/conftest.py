"""Fixtures of kubeshard's own tests: a namespace for each test, CRDs, and the programs of the Go reference."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Namespace, ObjectMeta
from kubeshard_apiserver.testing.kube_api import KubeApi

_numbers = itertools.count(1)


@pytest.fixture
def authors_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory of the test, in which an author's modules are. Those that are imported from it go with it,
    and modules that were imported before are what they were.
    """
    monkeypatch.chdir(tmp_path)
    before, path = dict(sys.modules), [*sys.path]
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - set(before):
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture(scope="session")
def kubeconfig(kube_api: KubeApi) -> Path:
    return kube_api.kubeconfig


@pytest.fixture
async def namespace(kube_client: Client) -> AsyncIterator[str]:
    """A namespace for one test. It is deleted afterwards but stays Terminating, because no namespace controller runs
    here.
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


@pytest.fixture(scope="session")
def go_measure() -> Path:
    return _reference_program("KUBESHARD_GO_MEASURE", "measure")


@pytest.fixture(scope="session")
def go_manifests() -> Path:
    """The output of `kubectl kustomize config/default` in the Go reference, in a file."""
    named = os.environ.get("KUBESHARD_GO_MANIFESTS")
    if not named:
        pytest.skip(
            "did not run: set KUBESHARD_GO_MANIFESTS to a file with the Go reference's rendered manifests"
        )
    return Path(named)


def _reference_program(variable: str, name: str) -> Path:
    """Returns a program of the Go reference. A variable that is set but wrong is a failure, not a reason to skip."""
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"did not run: set {variable} to the Go reference's {name} binary")
    if not os.access(named, os.X_OK):
        pytest.fail(f"{variable}={named} is not an executable file", pytrace=False)
    return Path(named)
