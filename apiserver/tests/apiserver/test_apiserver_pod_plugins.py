"""Admission plugins that change pods. (The real server of the conformance suite runs without ServiceAccount.)"""

from __future__ import annotations

from typing import Any

import pytest

from kubeshard.core.errors import Forbidden
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.model import Target

Object = dict[str, Any]
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


def created(server: ApiServer, plural: str, body: Object) -> Object:
    resource = server.registry.find("", "v1", plural)
    assert resource is not None
    return server.create(Target(resource, "default"), body).object


def pod(**spec: Any) -> Object:
    return {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "b"}], **spec}}


def test_a_pod_runs_as_the_default_account_with_its_token() -> None:
    spec = created(ApiServer(), "pods", pod(initContainers=[{"name": "i", "image": "b"}]))["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    mount = {"name": volume["name"], "readOnly": True, "mountPath": TOKEN}
    assert [one["volumeMounts"] for one in spec["containers"] + spec["initContainers"]] == [[mount]] * 2


@pytest.mark.parametrize(
    ("account", "of_pod", "mounted"),
    [
        ({}, {}, True),
        ({"automountServiceAccountToken": False}, {}, False),
        ({"automountServiceAccountToken": False}, {"automountServiceAccountToken": True}, True),
        ({}, {"automountServiceAccountToken": False}, False),
    ],
)
def test_the_pod_and_then_its_account_say_whether_the_token_is_mounted(
    account: Object, of_pod: Object, mounted: bool
) -> None:
    server = ApiServer()
    created(
        server, "serviceaccounts", {"metadata": {"name": "s"}, **account, "imagePullSecrets": [{"name": "p"}]}
    )
    spec = created(server, "pods", pod(serviceAccountName="s", **of_pod))["spec"]
    assert bool(spec.get("volumes")) is mounted
    assert spec["imagePullSecrets"] == [{"name": "p"}]


def test_a_mount_at_the_place_of_the_token_stays() -> None:
    mine = {"name": "c", "image": "b", "volumeMounts": [{"name": "v", "mountPath": TOKEN}]}
    volumes = [{"name": "v", "emptyDir": {}}]
    spec = created(ApiServer(), "pods", pod(containers=[mine], volumes=volumes))["spec"]
    assert spec["volumes"] == volumes


def test_a_pod_whose_account_is_missing_is_refused() -> None:
    with pytest.raises(Forbidden, match='looking up service account default/s: serviceaccount "s" not found'):
        created(ApiServer(), "pods", pod(serviceAccountName="s"))


def test_without_plugins_a_pod_is_as_it_was_sent() -> None:
    server = ApiServer(admission_plugins=())
    spec = created(server, "pods", pod(serviceAccountName="s"))["spec"]
    assert spec.keys().isdisjoint({"volumes", "tolerations", "priority"})
