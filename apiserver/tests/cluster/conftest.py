"""One suite, two clusters: `embedded` is the in-memory server with its small controllers, `real` a kube-apiserver with
kube-controller-manager, kube-scheduler and kwok.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator

import pytest
from cluster_api import ClusterApi

from kubeshard.client import load_config
from kubeshard.client.config import BearerToken
from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.http import HttpTransport
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_apiserver.controllers import Controllers
from kubeshard_apiserver.objects import private, same
from kubeshard_apiserver.testing import ControlPlane

_numbers = itertools.count(1)
_MORE = (
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "ttl-after-finished-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "cronjob-controller",
    "disruption-controller",
)


@pytest.fixture(scope="session")
def busy_cluster() -> Iterator[ControlPlane]:
    with ControlPlane(pods=True, controllers=_MORE) as kube:
        yield kube


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kube)])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[ClusterApi]:
    """The cluster, with a separate namespace for the test case."""
    namespace = f"case-{os.getpid()}-{next(_numbers)}"
    if request.param == "embedded":
        server = ApiServer()
        odd: list[object] = []
        server.store.subscribe(lambda resource: odd.extend(_not_as_decoded(server, resource)))
        async with Controllers(server):
            yield await _in_namespace(ClusterApi(InMemoryTransport(server), "", namespace))
        assert odd == [], "a patch takes what is stored as decoded, whoever wrote it"
        return
    config = await load_config(kubeconfig=str(request.getfixturevalue("busy_cluster").kubeconfig))
    assert isinstance(config.auth, BearerToken)
    transport = HttpTransport(config.server, config.tls)
    yield await _in_namespace(ClusterApi(transport, config.auth.token, namespace))
    await transport.close()


async def _in_namespace(api: ClusterApi) -> ClusterApi:
    await api.create("/api/v1/namespaces", {"metadata": {"name": api.namespace}})
    return api


def _not_as_decoded(server: ApiServer, resource: GroupResource) -> Iterator[object]:
    """The last write, if a client could not have made it."""
    for change in server.store.history(resource).after(server.store.revision - 1):
        if (written := change.event.new) is None:
            continue
        for served in server.registry:
            if served.group_resource == resource and served.kind.api_version == written["apiVersion"]:
                decoded = private(written)
                served.strategy.decode(decoded)
                if not same(decoded, written):
                    yield written, decoded
