"""The manifests of a Job that runs an experiment in the cluster that it loads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from kubeshard.manager.roles import roles
from kubeshard.manifests.template import resolved
from kubeshard.manifests.values import OperatorValues, plain
from kubeshard.manifests.workload import pod_spec, system_namespace
from kubeshard.sharding.names import APP_LABEL, APP_NAME
from kubeshard_lab.experiment.cluster import REMOVED_WITHIN, check_scenario, grants
from kubeshard_lab.experiment.scenarios import Scenario

Manifest = dict[str, Any]

NAME = "experiment"
RECORDINGS = "/recordings"
_SLACK = 600.0
"""Seconds beyond the load: for the image, the existing objects, and settling."""
_KEPT = 24 * 3600
"""Seconds after its end for which the Job, and so its log, is kept."""


def job_objects(
    scenario: Scenario, arguments: Sequence[str], ring: str, image: str, namespace: str, claim: str
) -> Iterator[Manifest]:
    """Without `claim`, for the recording, only the log says how it went. Raises ConfigurationError."""
    check_scenario(scenario)
    labels = {APP_LABEL: APP_NAME, "app.kubernetes.io/component": NAME}
    metadata = {"name": NAME, "namespace": namespace, "labels": labels}
    yield system_namespace(namespace, {APP_LABEL: APP_NAME})
    yield {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata,
        "automountServiceAccountToken": False,
    }
    needed = grants(scenario, ring)
    for role in roles(needed, f"kubeshard-{NAME}", namespace=namespace, account=(namespace, NAME)):
        yield {**role, "metadata": {**role["metadata"], "labels": labels}}
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": math.ceil(scenario.duration + _SLACK + REMOVED_WITHIN),
            "ttlSecondsAfterFinished": _KEPT,
            "template": {"metadata": {"labels": labels}, "spec": _pod(arguments, image, claim)},
        },
    }


def _pod(arguments: Sequence[str], image: str, claim: str) -> Manifest:
    mount = {"name": "recordings", "mountPath": RECORDINGS}
    volume = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    command = ["experiment", *arguments, "--on", "cluster"]
    volumes = [{"name": "recordings", **volume}]
    spec = pod_spec(NAME, NAME, image, command, ports={}, mounts=[mount], volumes=volumes)
    made: Manifest = resolved(spec, plain(OperatorValues(image=image)))
    made["containers"][0] |= {"args": command, "workingDir": RECORDINGS}
    made["securityContext"] |= {"fsGroup": made["securityContext"]["runAsUser"]}
    return made | {"restartPolicy": "Never", "terminationGracePeriodSeconds": math.ceil(REMOVED_WITHIN) + 60}
