"""What is installed is accepted as it is, runs in a restricted namespace, and is the same whichever way it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from installed_cluster import DEPLOY, Cluster

from kubeshard.manifests.kustomization import identity
from kubeshard.manifests.output import documents
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues


def versions(cluster: Cluster) -> Mapping[Any, str]:
    """Of all that was installed, by what it is."""
    text = documents(sharder_objects(SharderValues()))
    found = yaml.safe_load(cluster.kubectl("get", "-f", "-", "-o", "json", given=text))["items"]
    return {identity(each): each["metadata"]["resourceVersion"] for each in found}


def test_each_way_to_install_makes_the_same_and_a_second_time_nothing_changes(cluster: Cluster) -> None:
    folder = DEPLOY / "kustomize" / "sharder"
    cluster.apply("-k", folder)
    # Pods come into being: the API server's Pod Security admission takes them.
    cluster.kubectl("-n", "sharding-system", "rollout", "status", "deployment/sharder", "--timeout=60s")
    before = versions(cluster)
    assert len(before) == len(sharder_objects(SharderValues()))
    cluster.apply("-k", folder)
    assert versions(cluster) == before
    cluster.apply("-f", "-", given=cluster.helm())
    assert versions(cluster) == before
    cluster.apply("-f", "-", given=documents(sharder_objects(SharderValues())))
    assert versions(cluster) == before
