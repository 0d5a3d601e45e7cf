"""Aggregated roles are the same as those of kube-controller-manager."""

import json

import pytest

from kubeshard.core.objects import Key
from kubeshard_apiserver import ADMINISTRATOR, ApiServer, Identity
from kubeshard_apiserver.identity.rbac import CLUSTER_ROLES, GROUP
from kubeshard_apiserver.model import Target, WriteOptions
from kubeshard_apiserver.testing import ControlPlane
from kubeshard_apiserver.testing.control_plane import wait_until

PARTS = {
    "part-b": ({"in-made": "yes"}, ["list"]),
    "part-a": ({"in-made": "yes", "also": "1"}, ["get"]),
    "part-c": ({"in-made": "no"}, ["delete"]),
    "part-d": ({"also": "1"}, ["get"]),
}
MADE = {
    "clusterRoleSelectors": [
        {"matchLabels": {"in-made": "yes"}},
        {"matchExpressions": [{"key": "also", "operator": "Exists"}]},
    ]
}
NAMES = ("admin", "edit", "view", "made")


def roles():
    for name, (labels, verbs) in PARTS.items():
        rule = {"verbs": verbs, "apiGroups": ["x"], "resources": ["things"]}
        yield {"metadata": {"name": name, "labels": labels}, "rules": [rule]}
    yield {"metadata": {"name": "made"}, "aggregationRule": MADE, "rules": None}


def told(role):
    """The parts on which both servers must agree."""
    managers = {(m["manager"], m["operation"]): m["fieldsV1"] for m in role["metadata"]["managedFields"]}
    return role["rules"], managers.get(("clusterrole-aggregation-controller", "Apply"))


@pytest.mark.kube
def test_aggregated_roles_are_those_of_the_real_controller():
    server = ApiServer()
    Identity(server, tokens={"admin": ADMINISTRATOR})
    resource = server.registry.find(GROUP, "v1", "clusterroles")
    with ControlPlane(controllers=["clusterrole-aggregation-controller"]) as kube:
        for role in roles():
            head = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole"}
            kube.kubectl("create", "-f", "-", input=json.dumps(head | role))
            server.create(Target(resource), head | role, WriteOptions(manager="kubectl-create"))
        ours = {name: told(server.store.get(CLUSTER_ROLES, Key("", name))) for name in NAMES}

        def theirs():
            listed = json.loads(
                kube.kubectl("get", "clusterroles", "-o", "json", "--show-managed-fields", *NAMES)
            )
            return {role["metadata"]["name"]: told(role) for role in listed["items"]}

        assert all(rules for rules, _ in ours.values())
        wait_until(lambda: theirs() == ours, 30, "the rules of ours")
