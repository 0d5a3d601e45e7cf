"""The Job of an experiment: it fits into a restricted namespace, ends, and may do what its scenario needs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError
from kubeshard_lab.cli.experiment import experiment
from kubeshard_lab.experiment.cluster import REMOVED_WITHIN

Object = dict[str, Any]


def printed(*arguments: str) -> list[Object]:
    command = ["manifests", "experiment", *arguments, "-o", "json"]
    found: list[Object] = json.loads(CliRunner().invoke(cli, command, catch_exceptions=False).stdout)["items"]
    return found


def job(*arguments: str) -> Object:
    (found,) = (obj for obj in printed(*arguments) if obj["kind"] == "Job")
    spec: Object = found["spec"]
    return spec


def rights(*arguments: str) -> dict[str, set[str]]:
    """Verbs by kind of role and resource."""
    found: dict[str, set[str]] = {}
    for obj in printed(*arguments):
        for rule in obj.get("rules", ()):
            for resource in rule["resources"]:
                where = f"{obj['kind']} {resource} {' '.join(rule.get('resourceNames', ()))}".strip()
                found.setdefault(where, set()).update(rule["verbs"])
    return found


def test_the_pod_fits_into_a_restricted_namespace_and_writes_to_its_volume_only() -> None:
    pod = job()["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["workingDir"] == container["volumeMounts"][0]["mountPath"]
    assert pod["volumes"] == [{"name": "recordings", "emptyDir": {}}]
    (claimed,) = job("--claim", "mine")["template"]["spec"]["volumes"]
    assert claimed == {"name": "recordings", "persistentVolumeClaim": {"claimName": "mine"}}


def test_the_job_ends_is_not_repeated_and_has_the_time_to_remove_what_it_created() -> None:
    for minutes in (5, 15):
        spec = job("chaos", "--duration", f"{minutes}m")
        assert spec["activeDeadlineSeconds"] >= minutes * 60 + REMOVED_WITHIN
        assert spec["activeDeadlineSeconds"] <= (minutes + 15) * 60
        assert spec["backoffLimit"] == 0
        assert spec["ttlSecondsAfterFinished"] > 0
        assert spec["template"]["spec"]["restartPolicy"] == "Never"
        assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > REMOVED_WITHIN


def test_the_job_runs_a_command_line_that_there_is_with_the_options_that_were_given() -> None:
    options = ("--scale", "0.5", "--seed", "7", "--duration", "90s", "--ring", "mine", "--image", "a/b:c")
    (container,) = job("storm", *options)["template"]["spec"]["containers"]
    assert (container["image"], container["command"], container["args"][0]) == (
        "a/b:c", ["kubeshard"], "experiment",
    )  # fmt: skip
    given = experiment.make_context("experiment", container["args"][1:]).params
    wanted = {
        "scenario": "storm",
        "server": "cluster",
        "scale": 0.5,
        "seed": 7,
        "duration": 90.0,
        "ring": "mine",
    }
    assert wanted.items() <= given.items()


def test_each_scenario_has_the_rights_that_it_needs_and_no_others() -> None:
    basic = {
        "ClusterRole namespaces": {"list", "create", "delete"},
        "ClusterRole namespaces default": {"get"},
        "ClusterRole themes": {"list", "create", "delete"},
        "ClusterRole websites": {"list", "watch", "create", "patch", "delete"},
        "ClusterRole leases": {"list"},
        "ClusterRole controllerrings webhosting-operator": {"get"},
    }
    assert rights() == basic
    assert rights("base") == {**basic, "ClusterRole themes": {"list", "create", "delete", "patch"}}
    without = {**basic, "ClusterRole websites": {"list", "watch", "create", "patch"}}
    assert rights("chaos") == {**without, "Role pods": {"get", "delete"}}
    assert rights("rolling-update") == {**basic, "Role deployments webhosting-operator": {"get", "patch"}}


def test_everything_is_bound_to_the_account_of_the_pod() -> None:
    found = printed("chaos", "--namespace", "load")
    bindings = [obj for obj in found if obj["kind"].endswith("Binding")]
    assert len(bindings) == 2
    for binding in bindings:
        assert binding["subjects"] == [{"kind": "ServiceAccount", "namespace": "load", "name": "experiment"}]
    assert job("chaos", "--namespace", "load")["template"]["spec"]["serviceAccountName"] == "experiment"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cold-start",), "cold-start starts and stops"),
        (("basic", "--image", "two words"), "value image: expected an image"),
        (("basic", "--namespace", "My_Load"), "--namespace 'My_Load'"),
        (("basic", "--claim", "My_Claim"), "--claim 'My_Claim'"),
        (("basic", "--ring", "My_Ring"), "invalid ControllerRing name 'My_Ring'"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        printed(*arguments)
    assert says in str(error.value)
