"""Names that cannot work are rejected before anything is written (A13b in docs/defects.md)."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.pod import Pod, boot_id, this_pod
from kubeshard.runtime.world import REAL_WORLD, World
from kubeshard.shard.identity import identify
from kubeshard_lab.virtual_world import VirtualHost


def world(host: VirtualHost) -> World:
    return replace(REAL_WORLD, host=host)


IN_POD = world(VirtualHost("node-1", Pod("op-7", "uid-7"), "op-system"))
OUTSIDE = world(VirtualHost("laptop"))


def test_in_a_pod_the_pods_name_uid_and_namespace_are_taken_not_the_nodes() -> None:
    shard = identify("ring", world=IN_POD)
    assert (shard.name, shard.namespace, shard.incarnation.pod_uid) == ("op-7", "op-system", "uid-7")
    assert shard.label == "shard.alpha.sharding.timebertt.dev/ring"
    assert shard.drain == "drain.alpha.sharding.timebertt.dev/ring"


def test_outside_of_a_pod_the_host_names_the_shard_and_the_caller_or_the_kubeconfig_the_namespace() -> None:
    assert identify("ring", world=OUTSIDE, outside="dev").namespace == "dev"
    assert identify("ring", namespace="ns", world=OUTSIDE, outside="dev").namespace == "ns"
    assert identify("ring", world=IN_POD, outside="dev").namespace == "op-system"
    assert identify("ring", namespace="ns", world=OUTSIDE).name == "laptop"
    with pytest.raises(ConfigurationError) as refusal:
        identify("ring", world=OUTSIDE)
    assert (
        str(refusal.value)
        == "outside a pod the namespace of the shard's Lease is unknown: set Sharding(..., namespace=...)"
    )


def test_each_of_several_processes_of_a_pod_is_a_shard_with_its_number_which_it_has_again_after_a_restart() -> (
    None
):
    names = [identify("ring", world=IN_POD, number=str(number)).name for number in (0, 1, 10, 0)]
    assert names == ["op-7-0", "op-7-1", "op-7-10", "op-7-0"]
    assert identify("ring", "named", "ns", world=OUTSIDE, number="1").name == "named-1"
    long = world(VirtualHost("node", Pod("p" * 63, "uid"), "ns"))
    shortened = {identify("ring", world=long, number=str(number)).name for number in range(20)}
    assert len(shortened) == 20
    assert {len(name) for name in shortened} == {63}
    first, again = (identify("ring", world=IN_POD, number="0").incarnation for _ in range(2))
    assert again.outlived(str(first))


def test_two_processes_of_one_name_are_two_incarnations() -> None:
    first, second = (identify("r", "a", "ns", world=OUTSIDE).incarnation for _ in range(2))
    assert first != second


@pytest.mark.parametrize(
    ("ring", "name", "namespace", "message"),
    [
        ("", "a", "ns", "^the name of the ControllerRing is required$"),
        ("Ring", "a", "ns", "invalid ControllerRing name 'Ring'"),
        ("r" * 64, "a", "ns", "invalid ControllerRing name"),
        ("a/b", "a", "ns", "invalid ControllerRing name"),
        ("ring", "a" * 64, "ns", "invalid shard name"),
        ("ring", "Host_1", "ns", "invalid shard name 'Host_1'.*pass another name"),
        ("ring", "-a", "ns", "invalid shard name"),
        ("ring", "a", "a.b", "invalid shard lease namespace"),
    ],
)
def test_names_that_the_wire_cannot_carry_are_refused(
    ring: str, name: str, namespace: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        identify(ring, name, namespace, world=OUTSIDE)


def test_with_admission_policies_a_name_that_is_not_the_pods_fails_fast() -> None:
    assert identify("ring", world=IN_POD, pod_name_required=True).name == "op-7"
    with pytest.raises(ConfigurationError, match=r"'other' is not the name of this pod \(op-7\)"):
        identify("ring", "other", world=IN_POD, pod_name_required=True)


def token(claims: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"head.{payload}.signature"


@pytest.mark.parametrize(
    ("content", "pod"),
    [
        (token({"kubernetes.io": {"pod": {"name": "op-0", "uid": "u"}}}), Pod("op-0", "u")),
        (token({"kubernetes.io": {"namespace": "x"}}), None),
        (token({"sub": "legacy"}), None),
        (token([1]), None),
        ("no token", None),
        ("a.###.c", None),
        (None, None),
    ],
)
def test_the_pod_is_read_from_its_token_or_not_known(
    tmp_path: Path, content: str | None, pod: Pod | None
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    assert this_pod(tmp_path) == pod


def test_a_system_without_boot_ids_has_an_empty_one(tmp_path: Path) -> None:
    assert boot_id(tmp_path / "none") == ""
