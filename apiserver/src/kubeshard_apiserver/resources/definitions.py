"""CustomResourceDefinitions: their own rules, their lifecycle, and the kinds that they add.

The lifecycle: names are accepted or conflict, the kind is served, the definition is deleted. On a real cluster
controllers do this, slightly later. Source: k8s.io/apiextensions-apiserver
`pkg/controller/status`, `establish`, `finalizer`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from kubeshard.core.kinds import GroupResource, Kind
from kubeshard_apiserver.objects import Object, copied, is_deleting, with_metadata
from kubeshard_apiserver.printing import custom_printer
from kubeshard_apiserver.resources.conversion_webhooks import ConversionWebhook
from kubeshard_apiserver.resources.custom import CustomResources
from kubeshard_apiserver.resources.definition_rules import (
    approval,
    approval_errors,
    column_errors,
    deprecation_errors,
    is_protected,
    name_errors,
    selectable_errors,
    spec_errors,
    stored_version_errors,
    subresource_errors,
    version_list_errors,
)
from kubeshard_apiserver.resources.definition_schema import (
    Place,
    compile_errors,
    default_errors,
    form_errors,
    root_errors,
    schemas_in,
    structural_errors,
    unstructured,
    word_errors,
)
from kubeshard_apiserver.resources.field_paths import find_field, scale_paths
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.numbers import whole_numbers, wide_numbers
from kubeshard_apiserver.schema.validation import known_format
from kubeshard_apiserver.status import FieldError, immutable, invalid_value, required

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
        definition = _with_condition(definition, "NamesAccepted", "False", *problem, now)
    else:
        told = ("NoConflicts", "no conflicts found")
        definition = _with_condition(definition, "NamesAccepted", "True", *told, now)
    if is_established(definition):
        return definition
    if problem:
        told = ("NotAccepted", "not all names are accepted")
        return _with_condition(definition, "Established", "False", *told, now)
    told = ("InitialNamesAccepted", "the initial names have been accepted")
    return _with_condition(definition, "Established", "True", *told, now)


def with_approval(definition: Object, now: str) -> Object:
    """Set the condition that reports whether a community group was approved; other groups are left unchanged."""
    if not is_protected(definition):
        return definition
    kind, message = approval(definition)
    status, reason = ("True" if kind == "Approved" else "False"), f"{kind}Annotation"
    return _with_condition(definition, "KubernetesAPIApprovalPolicyConformant", status, reason, message, now)


def terminating(definition: Object, now: str) -> Object:
    """Add the deletion timestamp, and the finalizer that keeps the definition until its objects are gone."""
    finalizers = [*(definition["metadata"].get("finalizers") or ()), CLEANUP_FINALIZER]
    return with_metadata(definition, deletionTimestamp=now, finalizers=list(dict.fromkeys(finalizers)))


def waiting_for_objects(definition: Object, now: str) -> Object:
    return _with_condition(definition, "Terminating", "True", *_ENDING, now)


def _with_condition(
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


DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")


class Definitions(Typed):
    qualified_finalizers = False

    def set_defaults(self, obj: Object) -> None:
        obj["spec"] = spec = copied(obj["spec"])
        wide_numbers(spec)
        names = spec["names"]
        if not names.get("singular") and names["kind"]:
            names["singular"] = names["kind"].lower()
        if not names.get("listKind") and names["kind"]:
            names["listKind"] = names["kind"] + "List"
        conversion = spec.setdefault("conversion", {"strategy": "None"})
        service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)

    def for_storage(self, obj: Object, live: Object | None = None) -> Object:
        obj["spec"] = copied(obj["spec"])
        whole_numbers(obj["spec"])
        return super().for_storage(obj)

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        obj["status"] = {**self.zero["status"], "storedVersions": _with_stored(obj, ()) or None}

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        if not subresource:
            stored = _with_stored(new, new["status"].get("storedVersions") or ())
            new["status"] = {**new["status"], "storedVersions": stored or None}

    def validate(self, obj: Object) -> list[FieldError]:
        return _errors(obj, None)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource == "status":
            return list(name_errors(new["status"].get("acceptedNames") or {}, "status.acceptedNames"))
        errors = _errors(new, old)
        after, before = new["spec"], old["spec"]
        if is_established(old):
            if after["scope"] != before["scope"]:
                errors.append(immutable("spec.scope", after["scope"]))
            if after["names"]["kind"] != before["names"]["kind"]:
                errors.append(immutable("spec.names.kind", after["names"]["kind"]))
        if after["group"] != before["group"]:
            errors.append(immutable("spec.group", after["group"]))
        if after["names"]["plural"] != before["names"]["plural"]:
            errors.append(immutable("spec.names.plural", after["names"]["plural"]))
        return errors

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        """Warn of what the old state does not have."""
        before = set(_warnings_of(old)) if old is not None else set()
        return [warning for warning in _warnings_of(new) if warning not in before]

    def prepare_delete(self, obj: Object) -> None:
        obj["metadata"].pop("deletionGracePeriodSeconds", None)

    def is_held(self, obj: Object) -> bool:
        """A definition is always held at first: the objects of its kind are deleted before it."""
        meta = obj["metadata"]
        return not meta.get("deletionTimestamp") or bool(meta.get("finalizers"))


def _schema(version: Mapping[str, Any]) -> Mapping[str, Any]:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def kinds_of(definition: Object) -> Iterator[Resource]:
    """Yield the served versions, the storage version first."""
    spec = definition["spec"]
    names = {**spec["names"], **(definition["status"].get("acceptedNames") or {})}
    webhook = _conversion_webhook(definition)
    stored = _stored_schema(definition, is_converted=webhook is not None)
    others = {f"{spec['group']}/{version['name']}": _schema(version) for version in spec["versions"]}
    for version in sorted(spec["versions"], key=lambda version: not version.get("storage")):
        if version.get("served"):
            kind = Kind(
                spec["group"], version["name"], names["kind"], names["plural"], spec["scope"] == "Namespaced"
            )
            subresources = version.get("subresources") or {}
            strategy = CustomResources(
                kind,
                _schema(version),
                subresources=frozenset({"status", "scale"} & subresources.keys()),
                scales=scale_paths(subresources.get("scale")),
                stored=stored,
                webhook=webhook,
                others=others if webhook is None and len(others) > 1 else None,
                versions=others.keys(),
                selectable=tuple(
                    field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()
                ),
            )
            yield Resource(
                strategy,
                names["singular"],
                tuple(names.get("shortNames") or ()),
                tuple(names.get("categories") or ()),
                list_kind=names["listKind"],
                own_printer=custom_printer(version.get("additionalPrinterColumns")),
                deprecation=_deprecation(spec, version),
                is_ending=is_deleting(definition),
            )


def _conversion_webhook(definition: Object) -> ConversionWebhook | None:
    spec = definition["spec"]
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    webhook = conversion["webhook"]
    return ConversionWebhook(
        f"conversion_webhook_for_{definition['metadata']['name']}",
        webhook["clientConfig"],
        next(name for name in webhook["conversionReviewVersions"] if name in ("v1", "v1beta1")),
        f"{spec['group']}/{_storage_version(definition)['name']}",
    )


def _storage_version(definition: Object) -> dict[str, Any]:
    return next(version for version in definition["spec"]["versions"] if version.get("storage"))


def _stored_schema(definition: Object, *, is_converted: bool) -> dict[str, Any] | None:
    """Return the schema of the storage version, or None if all objects are known to have been written with the current
    schema.
    """
    versions = definition["spec"]["versions"]
    if (
        not is_converted
        and definition["metadata"].get("generation", 1) == 1
        and all(version.get("schema") == versions[0].get("schema") for version in versions)
    ):
        return None
    return dict(_schema(_storage_version(definition)))


def resource_of(definition: Object) -> GroupResource:
    return GroupResource(definition["spec"]["group"], definition["spec"]["names"]["plural"])


def _deprecation(spec: Mapping[str, Any], version: Mapping[str, Any]) -> str:
    """Return the warning that responses in this version contain."""
    if not version.get("deprecated"):
        return ""
    if (said := version.get("deprecationWarning")) is not None:
        return str(said)
    group, kind, name = spec["group"], spec["names"]["kind"], version["name"]
    newer = [
        other["name"]
        for other in spec["versions"]
        if other.get("served") and not other.get("deprecated") and priority(other["name"]) > priority(name)
    ]
    told = f"{group}/{name} {kind} is deprecated"
    return f"{told}; use {group}/{max(newer, key=priority)} {kind}" if newer else told


def priority(version: str) -> tuple[int, int, int, str]:
    """Sort key: v2 before v1 before v1beta1 before v1alpha1, and all of these before other names."""
    found = re.fullmatch(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?", version)
    if found is None:
        return 0, 0, 0, "".join(chr(0x10FFFF - ord(char)) for char in version)
    return {"alpha": 1, "beta": 2, None: 3}[found[2]], int(found[1]), int(found[3] or 0), ""


def _with_stored(definition: Object, stored: Iterable[str]) -> list[str]:
    now = next((v.get("name", "") for v in definition["spec"]["versions"] or () if v.get("storage")), "")
    return [*stored, now] if now and now not in stored else list(stored)


def _errors(definition: Object, old: Object | None) -> list[FieldError]:
    spec = definition["spec"]
    versions = spec["versions"] or []
    name, wanted = definition["metadata"].get("name", ""), f"{spec['names']['plural']}.{spec['group']}"
    errors = []
    if old is None and name != wanted:
        errors.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    errors += spec_errors(spec)
    errors += version_list_errors(versions)
    errors += _version_errors(versions, [] if old is None else old["spec"]["versions"] or [])
    errors += stored_version_errors(definition["status"].get("storedVersions"), versions)
    errors += approval_errors(definition, old)
    return errors


def _version_errors(versions: list[dict[str, Any]], old: list[dict[str, Any]]) -> Iterator[FieldError]:
    """Validate the versions. Errors in a part that is the same in all versions are reported once, at its v1beta1 path,
    as on the server. The rules of a schema that has not changed may each cost as much as they did.
    """
    alike = {
        name
        for name in ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
        if versions and versions[0].get(name) and all(v.get(name) == versions[0][name] for v in versions)
    }
    for index, version in enumerate(versions):
        own = f"spec.versions[{index}]"
        yield from deprecation_errors(version, own)
        places = {name: "spec" if name in alike else own for name in _SAID}
        told = [name for name in _SAID if name not in alike or index == 0]
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield required(f"{own}.schema.openAPIV3Schema")
        elif "schema" in told:
            place = "spec.validation" if "schema" in alike else f"{own}.schema"
            has_status = (version.get("subresources") or {}).get("status") is not None
            kept = any(
                (one.get("name"), one.get("schema")) == (version.get("name"), version["schema"])
                for one in old
            )
            path = f"{place}.openAPIV3Schema"
            yield from _schema_errors(schema, path, has_status=has_status, limits_rules=not kept)
        if "subresources" in told:
            path = f"{places['subresources']}.subresources"
            yield from subresource_errors(version.get("subresources") or {}, path)
        if "additionalPrinterColumns" in told:
            path = f"{places['additionalPrinterColumns']}.additionalPrinterColumns"
            yield from column_errors(version.get("additionalPrinterColumns") or (), path)
        if "selectableFields" in told and schema is not None:
            yield from selectable_errors(
                version.get("selectableFields") or (),
                f"{places['selectableFields']}.selectableFields",
                partial(_selected, schema),
            )


_SAID = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")


def _selected(schema: Mapping[str, Any], path: str) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    names, _, found = find_field(path, schema, brackets=False)
    return names, found


def _schema_errors(
    schema: Mapping[str, Any], path: str, *, has_status: bool, limits_rules: bool
) -> list[FieldError]:
    """Validate a schema. Rules are compiled only if it is otherwise valid."""
    errors = list(root_errors(schema, path, has_status=has_status))
    words = [*word_errors(schema, path, Place(), is_root=True), *form_errors(schema, path)]
    if problem := unstructured(schema):
        return errors + (words or [invalid_value(path, "", problem)])
    structure = structural_errors(schema, path)
    if not structure and not words:
        compiling = list(compile_errors(schema, path, limits_rules=limits_rules))
        structure = [] if compiling else list(default_errors(schema, path))
        words = compiling
    return errors + structure + words


def _warnings_of(definition: Object) -> Iterator[str]:
    """Unknown formats come in the order of the schemas, and sets after them, sorted, each kind of set once."""
    schemas = [
        schema
        for version in definition["spec"]["versions"] or ()
        for schema in schemas_in((version.get("schema") or {}).get("openAPIV3Schema") or {})
    ]
    for schema in schemas:
        if (given := schema.get("format")) and not known_format(given, schema.get("type") or ""):
            yield f'unrecognized format "{given}"'
    sets = [schema.get("items") or {} for schema in schemas if schema.get("x-kubernetes-list-type") == "set"]
    for type_ in sorted({items.get("type") or "" for items in sets} & {"array", "object"}):
        yield (
            f'x-kubernetes-list-type: set for items of type "{type_}" is not supported by server-side apply or '
            "CEL validation rules"
        )
