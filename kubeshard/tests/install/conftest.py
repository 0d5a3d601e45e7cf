"""A cluster whose Deployments get pods, embedded or real, with kubectl and Helm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from installed_cluster import Cluster

from kubeshard.core.errors import ConfigurationError
from kubeshard_apiserver.testing import ControlPlane
from kubeshard_apiserver.testing.assets import find_assets
from kubeshard_apiserver.testing.kube_api import EmbeddedApi


@pytest.fixture(scope="session")
def programs() -> Path:
    try:
        return find_assets(["kubectl", "helm"])
    except ConfigurationError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("embedded", marks=[pytest.mark.kube, pytest.mark.nightly]),  # with kubectl and Helm
        pytest.param("real", marks=pytest.mark.kube),
    ],
)
def cluster(request: pytest.FixtureRequest, programs: Path) -> Iterator[Cluster]:
    if request.param == "real":
        with ControlPlane(pods=True) as control_plane:
            yield Cluster(control_plane.kubeconfig, programs)
        return
    api = EmbeddedApi()
    yield Cluster(api.kubeconfig, programs)
    api.stop()
