"""kubectl, unmodified, on the embedded server and on a real control plane: each test is written once."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubectl_manifests import GIZMOS
from kubectl_program import Kubectl

from kubeshard.core.errors import ConfigurationError
from kubeshard_apiserver.testing import ControlPlane, wait_until
from kubeshard_apiserver.testing.assets import find_assets
from kubeshard_apiserver.testing.kube_api import EmbeddedApi

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def program() -> Path:
    try:
        return find_assets(["kubectl"]) / "kubectl"
    except ConfigurationError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(
    scope="session",
    params=[pytest.param(name, marks=pytest.mark.kube) for name in ("embedded", "real")],
)
def kubeconfig(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The kubeconfig of a cluster with controllers whose pods become ready."""
    if request.param == "real":
        with ControlPlane(pods=True, controllers=("job-controller",)) as control_plane:
            yield control_plane.kubeconfig
        return
    api = EmbeddedApi()
    yield api.kubeconfig
    api.stop()


@pytest.fixture
def kubectl(program: Path, kubeconfig: Path, tmp_path: Path) -> Iterator[Kubectl]:
    kubectl = Kubectl(program, kubeconfig, tmp_path, f"test-{os.getpid()}-{next(_numbers)}")
    kubectl(f"create namespace {kubectl.namespace}")
    yield kubectl
    kubectl(f"delete namespace {kubectl.namespace} --wait=false")


@pytest.fixture
def gizmos(kubectl: Kubectl) -> Kubectl:
    """Returns kubectl for a cluster that serves the kind Gizmo."""
    kubectl("apply -f -", given=GIZMOS)
    kubectl("wait --for=condition=Established crd/gizmos.kubectl.example.com")
    # The OpenAPI documents are updated a moment later.
    wait_until(lambda: "Gizmo" in kubectl.run("explain gizmo").stdout, 20, "the kind is explained")
    return kubectl
