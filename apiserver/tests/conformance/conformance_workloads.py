"""Pods and workloads: bodies that test cases vary, and what the server adds to them."""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]

LABELS = {"app": "a"}
SELECTOR = {"matchLabels": LABELS}
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
NOT_NEGATIVE = "must be greater than or equal to 0"


def container(**fields: Any) -> Spec:
    return {"name": "c", "image": "nginx", **fields}


def pod(name: str = "a", **spec: Any) -> Spec:
    return {"metadata": {"name": name}, "spec": {"containers": [container()], **spec}}


def pod_of(**fields: Any) -> Spec:
    """Returns a pod with these fields in its only container."""
    return pod(containers=[container(**fields)])


def template(**spec: Any) -> Spec:
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [container()], **spec}}


def workload(name: str = "a", **spec: Any) -> Spec:
    """Returns a Deployment, ReplicaSet, StatefulSet or DaemonSet."""
    return {"metadata": {"name": name}, "spec": {"selector": SELECTOR, "template": template(), **spec}}


def job(name: str = "a", **spec: Any) -> Spec:
    return {"metadata": {"name": name}, "spec": {"template": template(restartPolicy="Never"), **spec}}


def cron_job(name: str = "a", **spec: Any) -> Spec:
    given = {"schedule": "* * * * *", "jobTemplate": {"spec": job()["spec"]}, **spec}
    return {"metadata": {"name": name}, "spec": given}


def claim(name: str = "a", **spec: Any) -> Spec:
    given = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"metadata": {"name": name}, "spec": given}


def running_container(**fields: Any) -> Spec:
    """Returns the stored form of `container()`."""
    return {
        "name": "c",
        "image": "nginx",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
        **fields,
    }


def stored_template(**spec: Any) -> Spec:
    """Returns the stored form of `template()`."""
    return {
        "metadata": {"labels": LABELS},
        "spec": {
            "containers": [running_container()],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            **spec,
        },
    }


TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{taint}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for taint in ("not-ready", "unreachable")
]
STORED_POD = {
    **stored_template()["spec"],
    "tolerations": TOLERATIONS,
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
    "enableServiceLinks": True,
}


def required(field: str, detail: str = "") -> tuple[str, str, str]:
    return field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else "")


def invalid(field: str, value: str, detail: str) -> tuple[str, str, str]:
    """Returns the cause of an invalid value; `value` is given as JSON."""
    return field, "FieldValueInvalid", f"Invalid value: {value}: {detail}"


def unsupported(field: str, value: str, *supported: str) -> tuple[str, str, str]:
    listed = ", ".join(f'"{choice}"' for choice in supported)
    return field, "FieldValueNotSupported", f"Unsupported value: {value}: supported values: {listed}"


def forbidden(field: str, detail: str) -> tuple[str, str, str]:
    return field, "FieldValueForbidden", f"Forbidden: {detail}"


def duplicate(field: str, value: str) -> tuple[str, str, str]:
    return field, "FieldValueDuplicate", f"Duplicate value: {value}"


def not_found(field: str, value: str) -> tuple[str, str, str]:
    return field, "FieldValueNotFound", f'Not found: "{value}"'
