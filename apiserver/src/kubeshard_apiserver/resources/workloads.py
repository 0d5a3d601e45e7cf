"""Deployments, ReplicaSets, DaemonSets, ReplicationControllers and ControllerRevisions.

Source: k8s.io/kubernetes `pkg/apis/apps`, `pkg/registry/apps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.apply.shape import Path
from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.resources import workload_rules as rules
from kubeshard_apiserver.resources.facts import changed_errors, fact_errors
from kubeshard_apiserver.resources.pod_defaults import default_template
from kubeshard_apiserver.resources.pod_rules import template_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.resources.value_rules import at_most_all, label_selector_errors, share_of
from kubeshard_apiserver.status import (
    FieldError,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)

Given = Mapping[str, Any]
_SHARES = ("maxUnavailable", "maxSurge")
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class Workload(Typed):
    """A kind with a pod template, and a status that a controller writes."""

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        obj["status"] = {**self.zero["status"]}

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource == "status":
            return self.validate_status(new, old)
        return self.validate_change(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return []

    def validate_change(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate(new) + rules.unchanged_selector(new["spec"], old["spec"])


class Deployments(Workload):
    """Deployments. A change of annotations also increases the generation; the status cannot change labels."""

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        default_template(spec["template"])
        strategy = spec["strategy"]
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            for share in _SHARES:
                strategy.setdefault("rollingUpdate", {}).setdefault(share, "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        before, after = old["metadata"], new["metadata"]
        if subresource == "status":
            new |= with_metadata(new, labels=before.get("labels"))
        super().prepare_update(new, old, subresource)
        if subresource != "status" and after.get("annotations") != before.get("annotations"):
            new["metadata"]["generation"] = before.get("generation", 0) + 1

    def resets(self, subresource: str, path: Path) -> bool:
        return super().resets(subresource, path) or (
            subresource == "status" and path[:2] == ("f:metadata", "f:labels")
        )

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors = fact_errors("apps.v1.DeploymentSpec#replicas", "spec", spec)
        errors += rules.selector_and_template_errors(
            spec, "deployment", "invalid label selector", owner="ReplicaSet"
        )
        errors += _deployment_strategy("spec.strategy", spec["strategy"])
        deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds", 0)
        errors += fact_errors("apps.v1.DeploymentSpec", "spec", spec)
        if deadline is not None and deadline <= ready:
            problem = "must be greater than minReadySeconds"
            errors.append(invalid_value("spec.progressDeadlineSeconds", deadline, problem))
        return errors

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        status = new["status"]
        errors = fact_errors("apps.v1.DeploymentStatus", "status", status)
        bounded = ("updatedReplicas", "readyReplicas", "availableReplicas")
        errors += rules.replicas_errors(status, bounded, "readyReplicas")
        return errors + rules.collision_errors(new, old)


class ReplicaSets(Workload):
    def set_defaults(self, obj: Object) -> None:
        obj["spec"].setdefault("replicas", 1)
        default_template(obj["spec"].setdefault("template", {}))

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors = fact_errors("apps.v1.ReplicaSetSpec", "spec", spec)
        return errors + rules.selector_and_template_errors(
            spec, "deployment", "invalid label selector", owner="ReplicaSet"
        )

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return replica_status_errors(new["status"])


class ReplicationControllers(Workload):
    selectable = ("metadata.name", "metadata.namespace", "status.replicas")

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        if (template := spec.get("template")) is not None:
            default_template(template)
            if labels := template["metadata"].get("labels"):
                spec.setdefault("selector", labels)
                obj["metadata"].setdefault("labels", labels)

    def validate(self, obj: Object) -> list[FieldError]:
        spec, template = obj["spec"], obj["spec"].get("template")
        errors = fact_errors("apps.v1.ReplicaSetSpec", "spec", spec)
        selector = spec.get("selector")
        if not selector:
            errors.append(required("spec.selector"))
        if template is None:
            return [*errors, required("spec.template")]
        if selector:
            errors += rules.match_errors("spec.template", {"matchLabels": selector}, template)
        errors += template_errors("spec.template", template)
        return errors + rules.always_running("spec.template", template, "ReplicationController")

    def validate_change(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate(new)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return replica_status_errors(new["status"])

    def selector_problem(self, path: str) -> str:
        return f"field label not supported: {path}"


class DaemonSets(Workload):
    """DaemonSets. An annotation counts the changes of the template."""

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        default_template(spec["template"])
        strategy = spec["updateStrategy"]
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            for share, value in zip(_SHARES, (1, 0), strict=True):
                strategy.setdefault("rollingUpdate", {}).setdefault(share, value)
        spec.setdefault("revisionHistoryLimit", 10)
        _count_template(obj, _template_generation(obj))

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        _count_template(obj, max(_template_generation(obj), 1))

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        changed = new["spec"]["template"] != old["spec"]["template"]
        _count_template(new, _template_generation(old) + changed)

    def validate(self, obj: Object) -> list[FieldError]:
        spec, template, selector = obj["spec"], obj["spec"]["template"], obj["spec"].get("selector")
        errors = label_selector_errors("spec.selector", selector)
        errors += rules.match_errors("spec.template", selector, template) if selector != {} else []
        if selector is not None:
            errors += rules.empty_selector_errors(selector, "daemonset")
        errors += template_errors("spec.template", template)
        errors += rules.always_running("spec.template", template, "DaemonSet")
        errors += _daemon_strategy("spec.updateStrategy", spec["updateStrategy"])
        return errors + fact_errors("apps.v1.DaemonSetSpec", "spec", spec)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return fact_errors("apps.v1.DaemonSetStatus", "status", new["status"]) + rules.collision_errors(
            new, old
        )


class ControllerRevisions(Typed):
    def validate(self, obj: Object) -> list[FieldError]:
        errors, data = fact_errors("apps.v1.ControllerRevision", "", obj), obj.get("data")
        if data is None:
            errors.append(required("data", "data is mandatory"))
        elif not isinstance(data, dict):
            errors.append(required("data", "data must be a valid JSON object"))
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return fact_errors("apps.v1.ControllerRevision", "", new) + changed_errors("", ("data",), new, old)


def replica_status_errors(status: Given) -> list[FieldError]:
    """Validate the status of a ReplicaSet or ReplicationController."""
    bounded = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    errors = fact_errors("apps.v1.ReplicaSetStatus", "status", status)
    return errors + rules.replicas_errors(status, bounded, "readyReplicas")


def _deployment_strategy(path: str, strategy: Given) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        problem = "may not be specified when strategy `type` is 'Recreate'"
        return [] if rolling is None else [forbidden_field(f"{path}.rollingUpdate", problem)]
    if kind != "RollingUpdate" or rolling is None:
        return [unsupported(path, rules.shown_strategy(strategy, _SHARES), ("Recreate", "RollingUpdate"))]
    at = f"{path}.rollingUpdate.maxUnavailable"
    unavailable, surge = rolling["maxUnavailable"], rolling["maxSurge"]
    errors = fact_errors("apps.v1.RollingUpdateDeployment", f"{path}.rollingUpdate", rolling)
    if share_of(unavailable) == 0 and share_of(surge) == 0:
        errors.append(invalid_value(at, unavailable, "may not be 0 when `maxSurge` is 0"))
    return errors + at_most_all(at, unavailable)


def _daemon_strategy(path: str, strategy: Given) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        return []
    if kind != "RollingUpdate" or rolling is None:
        return [unsupported(path, rules.shown_strategy(strategy, _SHARES), ("RollingUpdate", "OnDelete"))]
    errors = fact_errors("apps.v1.RollingUpdateDaemonSet", f"{path}.rollingUpdate", rolling)
    unavailable, surge = (share_of(rolling[share]) for share in _SHARES)
    if unavailable and surge:
        problem = "may not be set when maxUnavailable is non-zero"
        errors.append(invalid_value(f"{path}.rollingUpdate.maxSurge", rolling["maxSurge"], problem))
    if not unavailable and not surge:
        problem = "cannot be 0 when maxSurge is 0"
        errors.append(required(f"{path}.rollingUpdate.maxUnavailable", problem))
    return errors


def _template_generation(obj: Given) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION, "")
    return int(text) if text.isdecimal() else 0


def _count_template(obj: Object, generation: int) -> None:
    meta = obj["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), _TEMPLATE_GENERATION: str(generation)}
