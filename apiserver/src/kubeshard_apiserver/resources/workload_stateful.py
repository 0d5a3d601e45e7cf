"""StatefulSets. Source: k8s.io/kubernetes `pkg/apis/apps`, `pkg/registry/apps/statefulset`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources import workload_rules as rules
from kubeshard_apiserver.resources.claims import claim_spec_errors
from kubeshard_apiserver.resources.facts import fact_errors
from kubeshard_apiserver.resources.metadata import label_name
from kubeshard_apiserver.resources.pod_defaults import default_claim_spec, default_template
from kubeshard_apiserver.resources.workloads import Workload
from kubeshard_apiserver.status import FieldError, forbidden_field, invalid_value

Given = Mapping[str, Any]
_CHANGEABLE = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip
_ROLLING = ("partition", "maxUnavailable")


class StatefulSets(Workload):
    """StatefulSets. `maxUnavailable` is dropped because its feature gate is off."""

    name_rule = staticmethod(label_name)

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        default_template(spec["template"])
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec["updateStrategy"]
        if "type" not in strategy:
            strategy["type"] = "RollingUpdate"
            strategy.setdefault("rollingUpdate", {})
        if strategy["type"] == "RollingUpdate" and (rolling := strategy.get("rollingUpdate")) is not None:
            rolling.setdefault("partition", 0)
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        for moment in ("whenDeleted", "whenScaled"):
            retention.setdefault(moment, "Retain")
        spec.setdefault("revisionHistoryLimit", 10)
        for claim in spec.get("volumeClaimTemplates") or ():
            claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
            default_claim_spec(claim["spec"])
            claim["status"].setdefault("phase", "Pending")

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        (obj["spec"]["updateStrategy"].get("rollingUpdate") or {}).pop("maxUnavailable", None)

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        (new["spec"]["updateStrategy"].get("rollingUpdate") or {}).pop("maxUnavailable", None)
        super().prepare_update(new, old, subresource)

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj["spec"], []
        for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            errors += claim_spec_errors(f"spec.volumeClaimTemplates[{index}].spec", claim["spec"])
        errors += fact_errors("apps.v1.StatefulSetSpec#service", "spec", spec)
        return errors + _spec_errors(spec)

    def validate_change(self, new: Object, old: Object) -> list[FieldError]:
        errors = _spec_errors(new["spec"])
        before, after = (
            {name: value for name, value in obj["spec"].items() if name not in _CHANGEABLE}
            for obj in (old, new)
        )
        if before != after:
            *first, last = (f"'{name}'" for name in _CHANGEABLE)
            problem = f"updates to statefulset spec for fields other than {', '.join(first)} and {last} are forbidden"
            errors.append(forbidden_field("spec", problem))
        return errors

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        status = new["status"]
        bounded = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
        errors = fact_errors("apps.v1.StatefulSetStatus", "status", status)
        errors += rules.replicas_errors(status, bounded, "status.readyReplicas")
        return errors + rules.collision_errors(new, old)


def _spec_errors(spec: Given) -> list[FieldError]:
    errors = fact_errors("apps.v1.StatefulSetSpec#pods", "spec", spec)
    errors += _strategy_errors("spec.updateStrategy", spec["updateStrategy"])
    errors += fact_errors("apps.v1.StatefulSetSpec", "spec", spec)
    return errors + rules.selector_and_template_errors(
        {**spec, "template": _with_claims(spec)}, "statefulset", "", owner="StatefulSet"
    )


def _with_claims(spec: Given) -> Given:
    """Return the template with a volume for every claim, and without the hostname and subdomain, which each pod gets
    from its StatefulSet.
    """
    template, claims = spec["template"], spec.get("volumeClaimTemplates") or ()
    names = [claim["metadata"].get("name", "") for claim in claims]
    volumes: list[Given] = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(names)
    ]
    inner = {name: value for name, value in template["spec"].items() if name not in ("hostname", "subdomain")}
    volumes += [volume for volume in inner.get("volumes") or () if volume.get("name") not in names]
    return {**template, "spec": {**inner, "volumes": volumes}}


def _strategy_errors(path: str, strategy: Given) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "RollingUpdate":
        return fact_errors("apps.v1.StatefulSetUpdateStrategy", path, strategy)
    if kind == "OnDelete":
        if rolling is None:
            return []
        problem = "only allowed for updateStrategy 'RollingUpdate'"
        shown = rules.shown_rolling({"partition": 0, **rolling}, _ROLLING)
        return [invalid_value(f"{path}.rollingUpdate", shown, problem)]
    shown = rules.shown_strategy(strategy, _ROLLING)
    return [invalid_value(path, shown, "must be 'RollingUpdate' or 'OnDelete'")]
