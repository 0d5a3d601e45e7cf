"""The manifests are accepted unchanged, run in a restricted namespace, and are the same from every source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from installed_cluster import DEPLOY, Cluster

from kubeshard.core.yaml_output import documents
from kubeshard.manifests.kustomization import identity
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues, chosen


def versions(cluster: Cluster, objects: Iterable[Any]) -> Mapping[Any, str]:
    """By what each is."""
    text = documents(objects)
    found = yaml.safe_load(cluster.kubectl("get", "-f", "-", "-o", "json", given=text))["items"]
    return {identity(each): each["metadata"]["resourceVersion"] for each in found}


def test_each_way_to_install_makes_the_same_and_a_second_time_nothing_changes(cluster: Cluster) -> None:
    folder = DEPLOY / "kustomize" / "sharder"
    cluster.apply("-k", folder)
    # Pods are created, so the API server's Pod Security admission accepts them.
    cluster.kubectl("-n", "sharding-system", "rollout", "status", "deployment/sharder", "--timeout=60s")
    objects = sharder_objects(SharderValues())
    before = versions(cluster, objects)
    assert len(before) == len(objects)
    cluster.apply("-k", folder)
    assert versions(cluster, objects) == before
    cluster.apply("-f", "-", given=cluster.helm())
    assert versions(cluster, objects) == before
    cluster.apply("-f", "-", given=documents(objects))
    assert versions(cluster, objects) == before


def test_a_network_policy_is_taken_as_it_is_and_a_second_time_nothing_changes(cluster: Cluster) -> None:
    objects = sharder_objects(chosen(SharderValues, None, ["networkPolicy.enabled=true"]))
    (policy,) = (each for each in objects if each["kind"] == "NetworkPolicy")
    cluster.apply("-f", "-", given=documents(objects))
    before = versions(cluster, [policy])
    cluster.apply("-f", "-", given=documents(objects))
    assert versions(cluster, [policy]) == before
    cluster.remove([policy])
