"""Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers and ControllerRevisions.

Source: k8s.io/kubernetes `pkg/apis/apps`, `pkg/apis/apps/validation`, `pkg/registry/apps`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeshard_apiserver.apply.shape import Path
from kubeshard_apiserver.objects import JsonObject, Object, own, own_items, with_metadata
from kubeshard_apiserver.resources.claims import claim_spec_errors
from kubeshard_apiserver.resources.field_rules import changed_errors, field_rule_errors
from kubeshard_apiserver.resources.metadata import label_name
from kubeshard_apiserver.resources.pod_defaults import default_claim_spec, default_template
from kubeshard_apiserver.resources.pod_rules import template_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.resources.value_rules import at_most_all, label_selector_errors, selects, share_of
from kubeshard_apiserver.schema.internal import internal
from kubeshard_apiserver.status import (
    FieldError,
    forbidden_field,
    immutable,
    invalid_value,
    required,
    unsupported,
)

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_MISMATCH = "`selector` does not match template `labels`"


def _selector_and_template_errors(
    spec: JsonObject, kind: str, unsound: str, *, owner: str = ""
) -> list[FieldError]:
    """Validate the selector and template. `kind` and `unsound` are used in the messages for an empty selector and for
    an invalid one. `owner` is the kind named in the message that deadlines are not supported.
    """
    selector, template = spec.get("selector"), spec.get("template") or {}
    errors = _selector_errors(selector, kind)
    if errors and not _usable(selector):
        return [*errors, invalid_value("spec.selector", shown_selector(selector), unsound)]
    errors += match_errors("spec.template", selector, template)
    return (
        errors
        + template_errors("spec.template", template)
        + _always_running("spec.template", template, owner)
    )


def _selector_errors(selector: JsonObject | None, kind: str) -> list[FieldError]:
    if selector is None:
        return [required("spec.selector")]
    return label_selector_errors("spec.selector", selector) + _empty_selector_errors(selector, kind)


def _empty_selector_errors(selector: JsonObject, kind: str) -> list[FieldError]:
    if selector.get("matchLabels") or selector.get("matchExpressions"):
        return []
    return [invalid_value("spec.selector", {}, f"empty selector is invalid for {kind}")]


def match_errors(path: str, selector: JsonObject | None, template: JsonObject) -> list[FieldError]:
    given = (template.get("metadata") or {}).get("labels")
    if selects(selector, given):
        return []
    return [invalid_value(f"{path}.metadata.labels", shown_labels(given), _MISMATCH)]


def _always_running(path: str, template: JsonObject, owner: str) -> list[FieldError]:
    """Check the rules for pods of workloads that never complete."""
    spec, errors = template.get("spec") or {}, []
    if (policy := spec.get("restartPolicy")) != "Always":
        errors.append(unsupported(f"{path}.spec.restartPolicy", policy, ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        problem = f"activeDeadlineSeconds in {owner} is not Supported"
        errors.append(forbidden_field(f"{path}.spec.activeDeadlineSeconds", problem))
    return errors


def unchanged_selector(new: JsonObject, old: JsonObject) -> list[FieldError]:
    if new.get("selector") == old.get("selector"):
        return []
    return [immutable("spec.selector", shown_selector(new.get("selector")))]


def _replicas_errors(status: JsonObject, fields: Iterable[str], ready: str) -> list[FieldError]:
    """Validate the replica counts in a status: none exceeds the total, and available pods are ready. `ready` is what
    messages call `readyReplicas`.
    """
    errors = [
        invalid_value(f"status.{field}", status.get(field, 0), "cannot be greater than status.replicas")
        for field in fields
        if status.get(field, 0) > status.get("replicas", 0)
    ]
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        errors.append(invalid_value("status.availableReplicas", available, f"cannot be greater than {ready}"))
    return errors


def _collision_errors(new: JsonObject, old: JsonObject) -> list[FieldError]:
    before, after = old["status"].get("collisionCount"), new["status"].get("collisionCount")
    if before is None or (after is not None and after >= before):
        return []
    return [invalid_value("status.collisionCount", after or 0, "cannot be decremented")]


def shown_labels(labels: Mapping[str, str] | None) -> dict[str, str] | None:
    """Format labels as messages show them."""
    return dict(sorted(labels.items())) if labels else None


def shown_selector(selector: JsonObject | None) -> Any:
    return internal("*meta.v1.LabelSelector", selector)


def _usable(selector: JsonObject | None) -> bool:
    expressions = (selector or {}).get("matchExpressions") or ()
    return all(one.get("operator") in _OPERATORS for one in expressions) and not label_selector_errors(
        "", selector
    )


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
        return self.validate(new) + unchanged_selector(new["spec"], old["spec"])


class Deployments(Workload):
    """Deployments. A change of annotations also increases the generation; the status cannot change labels."""

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        default_template(own(spec, "template"))
        strategy = own(spec, "strategy")
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy["rollingUpdate"] = rolling = {**strategy.get("rollingUpdate", {})}
            for share in _SHARES:
                rolling.setdefault(share, "25%")
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
        errors = field_rule_errors("apps.v1.DeploymentSpec#replicas", "spec", spec)
        errors += _selector_and_template_errors(
            spec, "deployment", "invalid label selector", owner="ReplicaSet"
        )
        errors += _deployment_strategy("spec.strategy", spec["strategy"])
        deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds", 0)
        errors += field_rule_errors("apps.v1.DeploymentSpec", "spec", spec)
        if deadline is not None and deadline <= ready:
            problem = "must be greater than minReadySeconds"
            errors.append(invalid_value("spec.progressDeadlineSeconds", deadline, problem))
        return errors

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        status = new["status"]
        errors = field_rule_errors("apps.v1.DeploymentStatus", "status", status)
        bounded = ("updatedReplicas", "readyReplicas", "availableReplicas")
        errors += _replicas_errors(status, bounded, "readyReplicas")
        return errors + _collision_errors(new, old)


class ReplicaSets(Workload):
    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        spec.setdefault("template", {})
        default_template(own(spec, "template"))

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors = field_rule_errors("apps.v1.ReplicaSetSpec", "spec", spec)
        return errors + _selector_and_template_errors(
            spec, "deployment", "invalid label selector", owner="ReplicaSet"
        )

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return _replica_status_errors(new["status"])


class ReplicationControllers(Workload):
    selectable = ("metadata.name", "metadata.namespace", "status.replicas")

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        if (template := own(spec, "template")) is not None:
            default_template(template)
            if labels := template["metadata"].get("labels"):
                spec.setdefault("selector", labels)
                obj["metadata"].setdefault("labels", labels)

    def validate(self, obj: Object) -> list[FieldError]:
        spec, template = obj["spec"], obj["spec"].get("template")
        errors = field_rule_errors("apps.v1.ReplicaSetSpec", "spec", spec)
        selector = spec.get("selector")
        if not selector:
            errors.append(required("spec.selector"))
        if template is None:
            return [*errors, required("spec.template")]
        if selector:
            errors += match_errors("spec.template", {"matchLabels": selector}, template)
        errors += template_errors("spec.template", template)
        return errors + _always_running("spec.template", template, "ReplicationController")

    def validate_change(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate(new)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return _replica_status_errors(new["status"])

    def selector_problem(self, path: str) -> str:
        return f"field label not supported: {path}"


class DaemonSets(Workload):
    """DaemonSets. An annotation counts the changes of the template."""

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        default_template(own(spec, "template"))
        strategy = own(spec, "updateStrategy")
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy["rollingUpdate"] = rolling = {**strategy.get("rollingUpdate", {})}
            for share, value in zip(_SHARES, (1, 0), strict=True):
                rolling.setdefault(share, value)
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
        errors += match_errors("spec.template", selector, template) if selector != {} else []
        if selector is not None:
            errors += _empty_selector_errors(selector, "daemonset")
        errors += template_errors("spec.template", template)
        errors += _always_running("spec.template", template, "DaemonSet")
        errors += _daemon_strategy("spec.updateStrategy", spec["updateStrategy"])
        return errors + field_rule_errors("apps.v1.DaemonSetSpec", "spec", spec)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return field_rule_errors("apps.v1.DaemonSetStatus", "status", new["status"]) + _collision_errors(
            new, old
        )


class ControllerRevisions(Typed):
    def validate(self, obj: Object) -> list[FieldError]:
        errors, data = field_rule_errors("apps.v1.ControllerRevision", "", obj), obj.get("data")
        if data is None:
            errors.append(required("data", "data is mandatory"))
        elif not isinstance(data, dict):
            errors.append(required("data", "data must be a valid JSON object"))
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return field_rule_errors("apps.v1.ControllerRevision", "", new) + changed_errors(
            "", ("data",), new, old
        )


def _replica_status_errors(status: JsonObject) -> list[FieldError]:
    """Validate the status of a ReplicaSet or ReplicationController."""
    bounded = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    errors = field_rule_errors("apps.v1.ReplicaSetStatus", "status", status)
    return errors + _replicas_errors(status, bounded, "readyReplicas")


def _deployment_strategy(path: str, strategy: JsonObject) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        problem = "may not be specified when strategy `type` is 'Recreate'"
        return [] if rolling is None else [forbidden_field(f"{path}.rollingUpdate", problem)]
    if kind != "RollingUpdate" or rolling is None:
        shown = internal("apps.v1.DeploymentStrategy", strategy)
        return [unsupported(path, shown, ("Recreate", "RollingUpdate"))]
    at = f"{path}.rollingUpdate.maxUnavailable"
    unavailable, surge = rolling["maxUnavailable"], rolling["maxSurge"]
    errors = field_rule_errors("apps.v1.RollingUpdateDeployment", f"{path}.rollingUpdate", rolling)
    if share_of(unavailable) == 0 and share_of(surge) == 0:
        errors.append(invalid_value(at, unavailable, "may not be 0 when `maxSurge` is 0"))
    return errors + at_most_all(at, unavailable)


def _daemon_strategy(path: str, strategy: JsonObject) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        return []
    if kind != "RollingUpdate" or rolling is None:
        shown = internal("apps.v1.DaemonSetUpdateStrategy", strategy)
        return [unsupported(path, shown, ("RollingUpdate", "OnDelete"))]
    errors = field_rule_errors("apps.v1.RollingUpdateDaemonSet", f"{path}.rollingUpdate", rolling)
    unavailable, surge = (share_of(rolling[share]) for share in _SHARES)
    if unavailable and surge:
        problem = "may not be set when maxUnavailable is non-zero"
        errors.append(invalid_value(f"{path}.rollingUpdate.maxSurge", rolling["maxSurge"], problem))
    if not unavailable and not surge:
        problem = "cannot be 0 when maxSurge is 0"
        errors.append(required(f"{path}.rollingUpdate.maxUnavailable", problem))
    return errors


def _template_generation(obj: JsonObject) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION, "")
    return int(text) if text.isdecimal() else 0


def _count_template(obj: Object, generation: int) -> None:
    meta = obj["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), _TEMPLATE_GENERATION: str(generation)}


class StatefulSets(Workload):
    """StatefulSets."""

    name_rule = staticmethod(label_name)

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        default_template(own(spec, "template"))
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = own(spec, "updateStrategy")
        if "type" not in strategy:
            strategy["type"] = "RollingUpdate"
            strategy.setdefault("rollingUpdate", {})
        if strategy["type"] == "RollingUpdate" and (rolling := own(strategy, "rollingUpdate")) is not None:
            rolling.setdefault("partition", 0)
            rolling.setdefault("maxUnavailable", 1)
        spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        retention = own(spec, "persistentVolumeClaimRetentionPolicy")
        for moment in ("whenDeleted", "whenScaled"):
            retention.setdefault(moment, "Retain")
        spec.setdefault("revisionHistoryLimit", 10)
        for claim in own_items(spec, "volumeClaimTemplates"):
            claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
            default_claim_spec(own(claim, "spec"))
            own(claim, "status").setdefault("phase", "Pending")

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj["spec"], []
        for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            errors += claim_spec_errors(f"spec.volumeClaimTemplates[{index}].spec", claim["spec"])
        errors += field_rule_errors("apps.v1.StatefulSetSpec#service", "spec", spec)
        return errors + _spec_errors(spec)

    def validate_change(self, new: Object, old: Object) -> list[FieldError]:
        errors = _spec_errors(new["spec"])
        before, after = old["spec"], new["spec"]
        errors += unchanged_selector(after, before)
        if after.get("volumeClaimTemplates") != before.get("volumeClaimTemplates"):
            shown = internal("[]core.v1.PersistentVolumeClaim", after.get("volumeClaimTemplates") or None)
            errors.append(immutable("spec.volumeClaimTemplates", shown))
        fields = ("serviceName", "podManagementPolicy")
        return errors + changed_errors("spec", fields, after, before, absent="")

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        status = new["status"]
        bounded = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
        errors = field_rule_errors("apps.v1.StatefulSetStatus", "status", status)
        errors += _replicas_errors(status, bounded, "status.readyReplicas")
        return errors + _collision_errors(new, old)


def _spec_errors(spec: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("apps.v1.StatefulSetSpec#pods", "spec", spec)
    errors += _strategy_errors("spec.updateStrategy", spec["updateStrategy"])
    errors += field_rule_errors("apps.v1.StatefulSetSpec", "spec", spec)
    return errors + _selector_and_template_errors(
        {**spec, "template": _with_claims(spec)}, "statefulset", "", owner="StatefulSet"
    )


def _with_claims(spec: JsonObject) -> JsonObject:
    """Return the template with a volume for every claim, and without the hostname and subdomain, which each pod gets
    from its StatefulSet.
    """
    template, claims = spec["template"], spec.get("volumeClaimTemplates") or ()
    names = [claim["metadata"].get("name", "") for claim in claims]
    volumes: list[JsonObject] = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(names)
    ]
    inner = {name: value for name, value in template["spec"].items() if name not in ("hostname", "subdomain")}
    volumes += [volume for volume in inner.get("volumes") or () if volume.get("name") not in names]
    return {**template, "spec": {**inner, "volumes": volumes}}


def _strategy_errors(path: str, strategy: JsonObject) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "RollingUpdate":
        return field_rule_errors("apps.v1.StatefulSetUpdateStrategy", path, strategy)
    if kind == "OnDelete":
        if rolling is None:
            return []
        problem = "only allowed for updateStrategy 'RollingUpdate'"
        shown = internal("apps.v1.RollingUpdateStatefulSetStrategy", rolling)
        return [invalid_value(f"{path}.rollingUpdate", shown, problem)]
    shown = internal("apps.v1.StatefulSetUpdateStrategy", strategy)
    return [invalid_value(path, shown, "must be 'RollingUpdate' or 'OnDelete'")]
