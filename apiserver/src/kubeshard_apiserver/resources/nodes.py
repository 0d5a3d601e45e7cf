"""Nodes and RuntimeClasses. Source: k8s.io/kubernetes `pkg/apis/core/validation`, `pkg/registry/core/node`,
`pkg/apis/node/validation`. The admission plugins TaintNodesByCondition and RuntimeClass are not implemented.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeshard_apiserver.objects import JsonObject, Object
from kubeshard_apiserver.resources.addresses import parsed_block
from kubeshard_apiserver.resources.field_rules import changed_errors, field_rule_errors
from kubeshard_apiserver.resources.pod_resources import quantity_errors, resource_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.name_formats import label_value, qualified_name, wrong
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
)


class Nodes(Typed):
    """Nodes. A new node may have a status."""

    selectable = ("metadata.name", "spec.unschedulable")

    def set_defaults(self, obj: Object) -> None:
        spec, status = obj["spec"], obj["status"]
        first, blocks = spec.get("podCIDR"), spec.get("podCIDRs") or []
        if first and first not in blocks[:1]:
            spec["podCIDRs"] = [first]
        elif blocks:
            spec["podCIDR"] = blocks[0]
        if status.get("capacity") is not None and status.get("allocatable") is None:
            status["allocatable"] = dict(status["capacity"])

    def prepare_create(self, obj: Object) -> None:
        obj["spec"].pop("configSource", None)
        obj["status"].pop("config", None)

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        if not old["spec"].get("configSource"):
            new["spec"].pop("configSource", None)

    def validate(self, obj: Object) -> list[FieldError]:
        blocks = obj["spec"].get("podCIDRs") or ()
        errors = _taints(obj["spec"].get("taints") or ()) + _amounts(obj["status"])
        errors += field_rule_errors("core.v1.NodeSpec", "spec", obj["spec"])
        families = {found.version for found in map(parsed_block, blocks) if found}
        if len(blocks) > 1 and (len(families) < 2 or len(blocks) > 2):
            problem = "may specify no more than one CIDR for each IP family"
            errors.append(invalid_value("spec.podCIDRs", blocks, problem))
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        spec, before = new["spec"], old["spec"]
        errors = _amounts(new["status"])
        addresses = new["status"].get("addresses") or []
        for index, address in enumerate(addresses):
            if address in addresses[:index]:
                shown = {"Type": address.get("type", ""), "Address": address.get("address", "")}
                errors.append(duplicate(f"status.addresses[{index}]", shown))
        had = before.get("podCIDRs") or []
        if had and spec.get("podCIDRs") != had:
            problem = 'node updates may not change podCIDR except from "" to valid'
            errors.append(forbidden_field("spec.podCIDRs", problem))
        if before.get("providerID") and spec.get("providerID") != before["providerID"]:
            errors.append(invalid_value("spec.providerID", None, "field cannot be modified once set"))
        errors += _taints(spec.get("taints") or ())
        if spec.get("externalID") != before.get("externalID"):
            errors.append(forbidden_field("spec.externalID", "may not be updated"))
        return errors

    def fields_for_selection(self, obj: Object) -> dict[str, str]:
        fields = super().fields_for_selection(obj)
        return {**fields, "spec.unschedulable": fields["spec.unschedulable"] or "false"}


class RuntimeClasses(Typed):
    def validate(self, obj: Object) -> list[FieldError]:
        errors = field_rule_errors("node.v1.RuntimeClass", "", obj)
        if overhead := obj.get("overhead"):
            errors += resource_errors("overhead", {"limits": overhead.get("podFixed")}, ())
        return errors + field_rule_errors("node.v1.RuntimeClass#scheduling", "", obj)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return changed_errors("", ("handler",), new, old, declared=True)


def _taints(taints: Sequence[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(field, "") for field in ("key", "value", "effect"))
        errors += wrong(f"{at}.key", key, qualified_name)
        if problems := label_value(value):
            errors.append(invalid_value(f"{at}.value", value, ";".join(problems)))
        errors += field_rule_errors("core.v1.Taint", at, taint)
        if (key, effect) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            found = duplicate(at, shown)
            problem = f"{found.message}: taints must be unique by key and effect pair"
            errors.append(found._replace(message=problem))
        seen.add((key, effect))
    return errors


def _amounts(status: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in ("capacity", "allocatable"):
        for name, amount in (status.get(field) or {}).items():
            errors += quantity_errors(f"status.{field}.{name}", name, amount)
    return errors
