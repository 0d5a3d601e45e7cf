"""The same table of rights on a real kube-apiserver: each is used there, and without it something is refused, and
said.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from real_life import AuditedCluster, live_really
from sharder_life import (
    FINALIZERS,
    OLD_EVENTS,
    OWN_REVIEW,
    Life,
    Right,
    granted,
    manifests,
    refusals,
    without,
)

from kubeshard.manifests.values import SharderValues, chosen
from kubeshard.sharding import shard_states
from kubeshard_apiserver.testing.control_plane import free_port

pytestmark = pytest.mark.kube

ASKED = {
    Right("admissionregistration.k8s.io", "mutatingwebhookconfigurations", verb) for verb in ("list", "watch")
}
"""The sharder asks first whether it has them, and does without."""

RIGHTS = sorted(granted(manifests()))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedCluster]:
    address = f"127.0.0.1:{free_port()}"
    webhook = {
        "server": {"bindAddress": address},
        "config": {"clientConfig": {"url": f"https://{address}/"}},
    }
    nowhere = {"bindAddress": "0"}
    config = {"webhook": webhook, "health": nowhere, "metrics": nowhere}
    # The policies are about the Service, which nobody routes to here.
    values = chosen(SharderValues, {"policies": {"enabled": False}, "config": config})
    with AuditedCluster(tmp_path_factory.mktemp("rights"), manifests(values)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards are given up in seconds."""
    monkeypatch.setattr(shard_states, "MIN_DURATION", 0.5)
    monkeypatch.setattr(shard_states, "ORPHANED_AFTER", 1.0)


async def test_in_its_life_the_sharder_asks_for_what_its_roles_allow_and_for_nothing_else(
    cluster: AuditedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = set(RIGHTS) - {FINALIZERS}
    life = await live_really(cluster, manifests(), None, lambda life: life.allowed >= wanted)
    assert not life.refused
    assert life.allowed - {OWN_REVIEW} == wanted
    assert not [*refusals(caplog.records), *life.said]


@pytest.mark.parametrize("right", RIGHTS, ids=str)
async def test_without_any_one_right_the_sharder_says_what_it_is_refused(
    right: Right, cluster: AuditedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def noticed(life: Life) -> list[str]:
        said = [*life.said, *refusals(caplog.records)]
        return said if life.refused or right in ASKED else []

    life = await live_really(cluster, without(manifests(), right), right, noticed)
    assert right not in life.allowed
    assert life.refused - OLD_EVENTS == {right} - ASKED
    assert noticed(life)
