"""Defaults of pods and pod templates. Everything here sets fields of its argument, and copies what is deeper before it
changes it: stored objects may have the same parts.

Source: k8s.io/kubernetes `pkg/apis/core/v1` (defaults and conversion), and the admission plugin
DefaultTolerationSeconds. Not implemented: pod-level resource requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubeshard_apiserver.objects import Object, own, own_items

_MODE = 0o644
_TOKEN_SECONDS = 3600
_TOLERATED_SECONDS = 300
_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The priority classes that every cluster has."""


def default_pod(pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in _containers(spec):
        if limits := container["resources"].get("limits"):
            resources = own(container, "resources")
            resources["requests"] = {**limits, **(resources.get("requests") or {})}
        for port in own_items(container, "ports") if spec.get("hostNetwork") else ():
            if not port.get("hostPort"):
                port["hostPort"] = port.get("containerPort", 0)
    _same_addresses(pod.setdefault("status", {}))


def default_template(template: Object) -> None:
    """The template is the caller's own."""
    template.setdefault("metadata", {})
    template.setdefault("spec", {})
    default_pod_spec(own(template, "spec"))


def default_pod_spec(spec: Object) -> None:
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    grace = spec.setdefault("terminationGracePeriodSeconds", 30)
    if grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for volume in own_items(spec, "volumes"):
        _default_volume(volume)
    for container in _containers(spec):
        _default_container(container)


def tolerate_outages(spec: Object) -> None:
    """Add the tolerations of the admission plugin DefaultTolerationSeconds."""
    tolerations = list(spec.get("tolerations") or ())
    for taint in _TAINTS:
        if not any(
            toleration.get("key", "") in ("", taint) and toleration.get("effect", "") in ("", "NoExecute")
            for toleration in tolerations
        ):
            tolerations.append(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATED_SECONDS,
                }
            )
    spec["tolerations"] = tolerations


def default_claim_spec(spec: Object) -> None:
    spec.setdefault("resources", {})
    spec.setdefault("volumeMode", "Filesystem")


_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_REFERENCE = re.compile(
    rf"(?P<name>(?:(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
"""Source: github.com/distribution/reference."""
_DIGEST_ALONE = re.compile("[0-9a-f]{64}")
_LONGEST_PATH = 255


def pull_policy(image: str) -> str:
    """Return the pull policy. An image tagged `latest`, explicitly or by default, is always pulled. What is no
    reference to an image has no tag.
    """
    found = _REFERENCE.fullmatch(image)
    if found is None or _DIGEST_ALONE.fullmatch(image) or len(_repository(found["name"])) > _LONGEST_PATH:
        return "IfNotPresent"
    tag, digest = found["tag"], found["digest"]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def _repository(name: str) -> str:
    """Return the path of a repository in its registry."""
    host, slash, rest = name.partition("/")
    if not slash:
        return f"library/{name}"
    has_host = "." in host or ":" in host or host == "localhost" or host != host.lower()
    return rest if has_host else name


def _containers(spec: Object) -> Iterator[Object]:
    for field in ("containers", "initContainers", "ephemeralContainers"):
        yield from own_items(spec, field)


def _default_container(container: Object) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    for port in own_items(container, "ports"):
        port.setdefault("protocol", "TCP")
    for variable in own_items(container, "env"):
        if source := own(variable, "valueFrom"):
            _default_field_refs(source)
            if (file := own(source, "fileKeyRef")) is not None:
                file.setdefault("optional", False)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := own(container, name)) is not None:
            _default_probe(probe)
    for hook in ("postStart", "preStop"):
        if handler := own(container, "lifecycle", hook):
            _default_http_get(handler)


def _default_probe(probe: Object) -> None:
    _default_http_get(probe)
    if (grpc := own(probe, "grpc")) is not None:
        grpc.setdefault("service", "")
    for field, value in (
        ("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3),
    ):  # fmt: skip
        if not probe.get(field):
            probe[field] = value


def _default_http_get(handler: Object) -> None:
    if (action := own(handler, "httpGet")) is not None:
        for field, value in (("path", "/"), ("scheme", "HTTP")):
            if not action.get(field):
                action[field] = value


def _default_field_refs(source: Object) -> None:
    if (field := own(source, "fieldRef")) is not None:
        field.setdefault("apiVersion", "v1")
    if (resource := own(source, "resourceFieldRef")) is not None:
        resource.setdefault("divisor", "0")


_WITH_MODE = frozenset(("secret", "configMap", "downwardAPI", "projected"))
_ONLY_WITH_MODE = frozenset(("name", "secret", "configMap"))
"""The fields of volumes that have no other defaults."""


def _default_volume(volume: Object) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}
    for kind in _WITH_MODE & volume.keys():
        if (source := own(volume, kind)) is not None:
            source.setdefault("defaultMode", _MODE)
    if volume.keys() <= _ONLY_WITH_MODE:
        return
    if (path := own(volume, "hostPath")) is not None:
        path.setdefault("type", "")
    if (image := own(volume, "image")) is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = pull_policy(image.get("reference", ""))
    if (iscsi := own(volume, "iscsi")) is not None and not iscsi.get("iscsiInterface"):
        iscsi["iscsiInterface"] = "default"
    template = own(volume, "ephemeral", "volumeClaimTemplate")
    if template is not None:
        template.setdefault("metadata", {})
        template.setdefault("spec", {})
        default_claim_spec(own(template, "spec"))
    _default_files(volume)
    for part in own_items(own(volume, "projected") or {}, "sources"):
        _default_files(part)
        if (token := own(part, "serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", _TOKEN_SECONDS)


def _default_files(parent: Object) -> None:
    """Set the defaults of a `downwardAPI`."""
    for file in own_items(own(parent, "downwardAPI") or {}, "items"):
        _default_field_refs(file)


def _same_addresses(status: Object) -> None:
    """Set `podIP` to the first of `podIPs`."""
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address and (not addresses or addresses[0].get("ip") != address):
        status["podIPs"] = [{"ip": address}]
    elif addresses:
        status["podIP"] = addresses[0].get("ip", "")
