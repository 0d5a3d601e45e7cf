"""The lifecycle of a definition: its names are accepted or conflict, its kind is served, the definition is deleted.

On a real cluster controllers do this, slightly later. Source: k8s.io/apiextensions-apiserver `pkg/controller/status`,
`establish`, `finalizer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.resources.definition_rules import approval, is_protected

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_ENDING = ("InstanceDeletionInProgress", "CustomResource deletion is in progress")


def is_established(definition: Object) -> bool:
    return _is_true(definition, "Established")


def established(definition: Object, others: Iterable[Object], now: str) -> Object:
    """Return the definition with its names checked. `others` are the definitions of the same group."""
    spec, status = definition["spec"], definition["status"]
    accepted, problem = _judged(spec["names"], status.get("acceptedNames") or {}, list(others))
    definition = {**definition, "status": {**status, "acceptedNames": accepted}}
    if problem:
        definition = with_condition(definition, "NamesAccepted", "False", *problem, now)
    else:
        told = ("NoConflicts", "no conflicts found")
        definition = with_condition(definition, "NamesAccepted", "True", *told, now)
    if is_established(definition):
        return definition
    if problem:
        told = ("NotAccepted", "not all names are accepted")
        return with_condition(definition, "Established", "False", *told, now)
    told = ("InitialNamesAccepted", "the initial names have been accepted")
    return with_condition(definition, "Established", "True", *told, now)


def with_approval(definition: Object, now: str) -> Object:
    """Set the condition that reports whether a community group was approved; other groups are left unchanged."""
    if not is_protected(definition):
        return definition
    kind, message = approval(definition)
    status, reason = ("True" if kind == "Approved" else "False"), f"{kind}Annotation"
    return with_condition(definition, "KubernetesAPIApprovalPolicyConformant", status, reason, message, now)


def terminating(definition: Object, now: str) -> Object:
    """Add the deletion timestamp, and the finalizer that keeps the definition until its objects are gone."""
    finalizers = [*(definition["metadata"].get("finalizers") or ()), CLEANUP_FINALIZER]
    return with_metadata(definition, deletionTimestamp=now, finalizers=list(dict.fromkeys(finalizers)))


def waiting_for_objects(definition: Object, now: str) -> Object:
    return with_condition(definition, "Terminating", "True", *_ENDING, now)


def with_condition(
    definition: Object, type_: str, status: str, reason: str, message: str, now: str
) -> Object:
    conditions = list(definition["status"].get("conditions") or ())
    made = {
        "type": type_,
        "status": status,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    for index, condition in enumerate(conditions):
        if condition["type"] == type_:
            if condition["status"] == status:
                made["lastTransitionTime"] = condition["lastTransitionTime"]
            conditions[index] = made
            break
    else:
        conditions.append(made)
    return {**definition, "status": {**definition["status"], "conditions": conditions}}


def _is_true(definition: Object, type_: str) -> bool:
    conditions = definition["status"].get("conditions") or ()
    return any((found["type"], found["status"]) == (type_, "True") for found in conditions)


def _judged(
    wanted: Mapping[str, Any], held: Mapping[str, Any], others: list[Object]
) -> tuple[dict[str, Any], tuple[str, str] | None]:
    """Return the accepted names, and the last conflict."""
    taken = [other["status"].get("acceptedNames") or {} for other in others]
    resources = {names.get(name) for names in taken for name in ("plural", "singular")}
    resources |= {name for names in taken for name in names.get("shortNames") or ()}
    kinds = {names.get(name) for names in taken for name in ("kind", "listKind")}
    accepted = {**held}
    problem: tuple[str, str] | None = None
    for name, used in (("plural", resources), ("singular", resources)):
        problem = _take(name, wanted, held, used, accepted) or problem
    own = held.get("shortNames") or ()
    clashes = [name for name in wanted.get("shortNames") or () if name not in own and name in resources]
    if clashes:
        listed = ", ".join(f'"{name}" is already in use' for name in clashes)
        problem = ("ShortNamesConflict", f"[{listed}]" if len(clashes) > 1 else listed)
    elif wanted.get("shortNames"):
        accepted["shortNames"] = wanted["shortNames"]
    else:
        accepted.pop("shortNames", None)
    for name, used in (("kind", kinds), ("listKind", kinds)):
        problem = _take(name, wanted, held, used, accepted) or problem
    if wanted.get("categories"):
        accepted["categories"] = wanted["categories"]
    else:
        accepted.pop("categories", None)
    return {"plural": "", "kind": "", **accepted}, problem


def _take(
    name: str, wanted: Mapping[str, Any], held: Mapping[str, Any], used: set[Any], accepted: dict[str, Any]
) -> tuple[str, str] | None:
    if wanted.get(name) != held.get(name) and wanted.get(name) in used:
        return f"{name[0].upper()}{name[1:]}Conflict", f'"{wanted[name]}" is already in use'
    accepted[name] = wanted.get(name) or ""
    return None
