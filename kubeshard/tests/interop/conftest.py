"""Shared by the interop tests: CRDs, a namespace per test, programs that end with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from programs import Programs
from ring import Ring

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Secret
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard_lab.examples.webhosting import manifests


@pytest.fixture
def programs(
    kubeconfig: Path, tmp_path: Path, install_crd: object, request: pytest.FixtureRequest
) -> Iterator[Programs]:
    for crd in (controller_ring_crd(), *manifests.crds()):
        install_crd(crd)  # type: ignore[operator] # conftest.py: InstallCrd
    made = Programs(kubeconfig, tmp_path)
    try:
        yield made
        made.check()
    finally:
        made.stop()


@pytest.fixture
async def ring(kube_client: Client, namespace: str) -> AsyncIterator[Ring]:
    """A ring of Secrets, which control ConfigMaps."""
    ring = Ring(kube_client, f"secrets-{namespace}", namespace, Secret, (ConfigMap,))
    try:
        yield ring
    finally:
        await ring.remove()
