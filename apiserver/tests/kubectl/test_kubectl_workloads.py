"""kubectl on workloads: rollout, scale, set, run, expose, autoscale, auth."""

from __future__ import annotations

import json
import re

from kubectl_manifests import gizmo


def test_a_deployment_rolls_out(kubectl):
    kubectl("create deployment a --image=i:1 --replicas=2")
    assert "successfully rolled out" in kubectl("rollout status deployment/a --timeout=40s")
    assert kubectl.rows("get deployment a -o wide")[1] == ["a", "2/2", "2", "2", "AGE", "i", "i:1", "app=a"]
    assert [row[1:4] for row in kubectl.rows("get pods -l app=a")[1:]] == [["1/1", "Running", "0"]] * 2
    kubectl("set image deployment/a i=i:2")
    kubectl("rollout status deployment/a --timeout=40s")
    assert kubectl("rollout history deployment/a").split()[-4:] == ["1", "<none>", "2", "<none>"]
    kubectl("rollout undo deployment/a")
    kubectl("rollout status deployment/a --timeout=40s")
    assert kubectl("get deployment a -o jsonpath={..image}") == "i:1"
    assert kubectl("rollout restart deployment/a") == "deployment.apps/a restarted\n"
    kubectl("rollout status deployment/a --timeout=40s")
    assert kubectl("rollout pause deployment/a") == "deployment.apps/a paused\n"
    assert kubectl("rollout resume deployment/a") == "deployment.apps/a resumed\n"
    described = kubectl("describe deployment a")
    assert (
        "Replicas:               2 desired | 2 updated | 2 total | 2 available | 0 unavailable" in described
    )
    assert "StrategyType:           RollingUpdate" in described


def test_scale(kubectl):
    kubectl("create deployment a --image=i --replicas=1")
    kubectl("rollout status deployment/a --timeout=40s")
    assert kubectl("scale deployment a --replicas=3") == "deployment.apps/a scaled\n"
    kubectl("wait --for=jsonpath={.status.readyReplicas}=3 deployment/a --timeout=40s")
    assert (
        "expected replicas to be 7"
        in kubectl.refused("scale deployment a --current-replicas=7 --replicas=1").lower()
    )


def test_scale_of_a_custom_resource(gizmos):
    gizmos("create -f -", given=gizmo(replicas=1))
    assert gizmos("scale gizmo a --replicas=3") == "gizmo.kubectl.example.com/a scaled\n"
    assert gizmos("get gizmo a -o jsonpath={.spec.replicas}") == "3"
    scale = gizmos.json("get gizmo a --subresource=scale")
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 3})
    assert gizmos("get gizmo a --subresource=scale").split()[:4] == ["NAME", "DESIRED", "AVAILABLE", "AGE"]


def test_run_and_expose(kubectl):
    assert kubectl("run a --image=i --labels=app=a --port=80") == "pod/a created\n"
    kubectl("wait --for=condition=Ready pod/a --timeout=40s")
    assert kubectl("expose pod a --port=80 --target-port=8080") == "service/a exposed\n"
    service = kubectl.json("get service a")["spec"]
    assert (service["selector"], service["ports"]) == (
        {"app": "a"},
        [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
    )
    assert re.search(r"^Status: +Running$", kubectl("describe pod a"), re.MULTILINE)


def test_set(kubectl):
    kubectl("create deployment a --image=i --replicas=0")
    assert kubectl("set env deployment/a A=1") == "deployment.apps/a env updated\n"
    assert kubectl("set resources deployment/a --limits=cpu=100m") == (
        "deployment.apps/a resource requirements updated\n"
    )
    assert kubectl("set serviceaccount deployment/a sa") == "deployment.apps/a serviceaccount updated\n"
    spec = kubectl.json("get deployment a")["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "sa"
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "100m"}}
    assert spec["containers"][0]["env"] == [{"name": "A", "value": "1"}]


def test_autoscale(kubectl):
    kubectl("create deployment a --image=i --replicas=1")
    assert kubectl("autoscale deployment a --min=1 --max=3 --cpu=80%") == (
        "horizontalpodautoscaler.autoscaling/a autoscaled\n"
    )
    assert kubectl.rows("get hpa a")[1][:3] == ["a", "Deployment/a", "cpu: <unknown>/80%"]


def test_a_job_completes(kubectl):
    kubectl("create job a --image=i -- true")
    kubectl("wait --for=condition=Complete job/a --timeout=40s")
    assert kubectl.rows("get job a")[1][:3] == ["a", "Complete", "1/1"]


def test_a_node_is_cordoned(kubectl):
    (node, *_) = kubectl("get nodes -o name").split()
    assert "cordoned" in kubectl(f"cordon {node}")
    assert "SchedulingDisabled" in kubectl(f"get {node}")
    assert "uncordoned" in kubectl(f"uncordon {node}")
    assert "tainted" in kubectl("taint nodes --all k=v:PreferNoSchedule")
    assert "untainted" in kubectl("taint nodes --all k-")


def test_auth(kubectl):
    assert kubectl("auth can-i create pods") == "yes\n"
    user = "--as=someone --as-group=system:authenticated"
    assert kubectl.run(f"auth can-i create pods {user}").stdout == "no\n"
    kubectl("create role r --verb=get,list --resource=pods")
    kubectl("create rolebinding r --role=r --user=someone")
    assert kubectl(f"auth can-i list pods {user}") == "yes\n"
    assert "pods" in kubectl(f"auth can-i --list {user}")
    assert kubectl.refused(f"get secrets {user}") == (
        'Error from server (Forbidden): secrets is forbidden: User "someone" cannot list resource "secrets" in API '
        f'group "" in the namespace "{kubectl.namespace}"'
    )
    assert "Username" in kubectl("auth whoami")


def test_a_token_of_a_service_account(kubectl):
    kubectl("create serviceaccount s")
    token = kubectl("create token s").strip()
    assert token.count(".") == 2
    who = json.loads(kubectl("auth whoami -o json", f"--token={token}"))
    assert who["status"]["userInfo"]["username"] in (
        f"system:serviceaccount:{kubectl.namespace}:s",
        "admin",
    )


def test_an_eviction(kubectl):
    kubectl("run a --image=i")
    kubectl("wait --for=condition=Ready pod/a --timeout=40s")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "a", "namespace": kubectl.namespace},
    }
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/a/eviction"
    assert json.loads(kubectl(f"create --raw {path} -f -", given=eviction))["status"] == "Success"
    kubectl("wait --for=delete pod/a --timeout=40s")
