"""The right that only an admission plugin asks for: to own what blocks the deletion of a ring (on in OpenShift)."""

from __future__ import annotations

import json

import msgspec
import pytest

from kubeshard.manifests.output import documents, listed
from kubeshard.manifests.ring import ring_objects
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues
from kubeshard.sharder.config import WebhookConfig
from kubeshard.sharder.webhook_config import webhook_configuration
from kubeshard.sharding import ControllerRing
from kubeshard.testing import ControlPlane
from kubeshard.testing.control_plane import ControlPlaneFailed

pytestmark = pytest.mark.kube

PLUGIN = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
SHARDER = "--as=system:serviceaccount:sharding-system:sharder"
RING = {
    "apiVersion": "sharding.timebertt.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": "r"},
    "spec": {"resources": [{"group": "", "resource": "configmaps"}]},
}


def test_a_ring_owns_its_webhook_configuration_by_the_right_to_its_finalizers() -> None:
    with ControlPlane(arguments=[PLUGIN]) as kube:
        objects = sharder_objects(SharderValues())
        kube.kubectl("apply", "--server-side", "-f", "-", input=documents(objects))
        kube.kubectl("wait", "--for=condition=Established", "crd", "--all")
        ring = documents(ring_objects(RING, ("sharding-system", "sharder")))
        kube.kubectl("apply", "--server-side", "-f", "-", input=ring)
        uid = kube.kubectl("get", "controllerring", "r", "-o", "jsonpath={.metadata.uid}")
        metadata = {"name": "r", "uid": uid}
        found = msgspec.convert({**RING, "metadata": metadata}, ControllerRing)
        webhook = listed([webhook_configuration(found, WebhookConfig())])
        apply = (SHARDER, "apply", "--server-side", "--dry-run=server", "-f", "-")
        kube.kubectl(*apply, input=webhook)
        role = next(each for each in objects if each["metadata"]["name"] == "sharding:sharder")
        left = [{**rule, "resources": _without_finalizers(rule["resources"])} for rule in role["rules"]]
        patch = json.dumps({"rules": [rule for rule in left if rule["resources"]]})
        kube.kubectl("patch", "clusterrole", "sharding:sharder", "--type=merge", "-p", patch)
        with pytest.raises(ControlPlaneFailed, match="cannot set blockOwnerDeletion"):
            kube.kubectl(*apply, input=webhook)


def _without_finalizers(resources: list[str]) -> list[str]:
    return [each for each in resources if not each.endswith("/finalizers")]
