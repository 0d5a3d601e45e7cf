"""Validation of the schemas in definitions: they must be structural and use only supported keywords.

Rules in them must compile against the types of the schema, and defaults must conform to the schema and satisfy its
rules. Source: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/validation.go` (structure),
`pkg/apis/apiextensions/validation` (keywords), `pkg/apiserver/schema/defaulting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from kubeshard.core.errors import ConfigurationError
from kubeshard_apiserver.cel import CelError
from kubeshard_apiserver.cel.schema_types import TypedScope, Untyped
from kubeshard_apiserver.resources.custom import Embedded
from kubeshard_apiserver.resources.custom_rules import RULES, Rules, uses_old
from kubeshard_apiserver.resources.field_paths import find_field
from kubeshard_apiserver.resources.rule_costs import Budget, PlaceOfRules
from kubeshard_apiserver.schema import Validator, prune
from kubeshard_apiserver.schema.formats import searching
from kubeshard_apiserver.schema.structural import NOTHING, same
from kubeshard_apiserver.status import FieldError, forbidden_field, invalid_value, required, unsupported

Schema = Mapping[str, Any]

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_META = ("apiVersion", "kind", "metadata")
_PRESERVES = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_EMBEDDED = "x-kubernetes-embedded-resource"
_LIST_TYPE, _LIST_KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
_MAP_TYPE = "x-kubernetes-map-type"
_EITHER = [{"type": "integer"}, {"type": "string"}]
_AT_ROOT = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_ROOT_NAMES = frozenset(
    "externalDocs" if name == "ExternalDocs" else name[0].lower() + name[1:] for name in _AT_ROOT.split()
) | {_PRESERVES, "x-kubernetes-validations"}
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_NESTED = (
    ("type", "must be empty to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    (_PRESERVES, "must be false to be structural"),
    (_EMBEDDED, "must be false to be structural"),
    (_INT_OR_STRING, "must be false to be structural"),
    (_LIST_KEYS, "must be empty to be structural"),
    (_LIST_TYPE, "must be undefined to be structural"),
    (_MAP_TYPE, "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)


def root_errors(schema: Schema, path: str, *, has_status: bool) -> Iterator[FieldError]:
    """Validate the root. With a status subresource, the schema's root may contain only certain fields."""
    if has_status:
        if schema.get("type") not in (None, "", "object"):
            problem = (
                'only "object" is allowed as the type at the root of the schema if the status subresource is '
            )
            yield invalid_value(f"{path}.type", schema["type"], f"{problem}enabled")
        elif any(
            value not in (None, "", [], {}, False) and name not in _ROOT_NAMES
            for name, value in schema.items()
        ):
            problem = f"only [{_AT_ROOT}] fields are allowed at the root of the schema if the status subresource is "
            yield invalid_value(path, dict(schema), f"{problem}enabled")
    if schema.get("nullable"):
        yield forbidden_field(f"{path}.nullable", "nullable cannot be true at the root")


def schemas_in(schema: Schema) -> Iterator[Schema]:
    """Yield the schema and all below it."""
    yield schema
    for name in ("items", "additionalProperties", "not"):
        if isinstance(inner := schema.get(name), Mapping):
            yield from schemas_in(inner)
    for inner in (schema.get("properties") or {}).values():
        yield from schemas_in(inner)
    for name in ("allOf", "anyOf", "oneOf"):
        for inner in schema.get(name) or ():
            yield from schemas_in(inner)


def unstructured(schema: Schema) -> str:
    """Return what a schema has, or one below it, that no structural schema can express; empty if there is nothing."""
    for each in schemas_in(schema):
        if isinstance(each.get("items"), list):
            return "OpenAPIV3Schema 'items' must be a schema, but is an array"
        for name in ("$schema", *_UNSUPPORTED):
            if each.get(name) not in (None, "", {}, []):
                return f"OpenAPIV3Schema '{name.removeprefix('$') if name == '$schema' else name}' is not supported"
    return ""


def structural_errors(schema: Schema, path: str) -> list[FieldError]:
    """Return the errors sorted by text, as on the real server."""
    return sorted(_structural(schema, path, "root"), key=str)


def _structural(schema: Schema, path: str, level: str) -> Iterator[FieldError]:
    type_, properties = schema.get("type") or "", schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    if isinstance(items := schema.get("items"), Mapping):
        yield from _structural(items, f"{path}.items", "item")
    elif type_ == "array":
        yield required(f"{path}.items", "must be specified")
    for name, inner in properties.items():
        yield from _structural(inner, f"{path}.properties[{name}]", "field")
    if additional is not None:
        if level == "root":
            yield forbidden_field(f"{path}.additionalProperties", "must not be used at the root")
        if isinstance(additional, Mapping):
            yield from _structural(additional, f"{path}.additionalProperties", "field")
    if schema.get(_INT_OR_STRING):
        for name in (_PRESERVES, _EMBEDDED):
            if schema.get(name):
                yield invalid_value(f"{path}.{name}", True, f"must be false if {_INT_OR_STRING} is true")
    yield from _values(schema, path)
    yield from _type(schema, path, level)
    embedded = bool(schema.get(_EMBEDDED))
    if embedded and additional is not None:
        yield forbidden_field(f"{path}.additionalProperties", f"must not be used if {_EMBEDDED} is set")
    if level == "root" or embedded:
        yield from _meta_types(properties, path)
    if level == "root" and "metadata" in properties and not _is_plain_metadata(properties["metadata"]):
        problem = (
            "must not specify anything other than name and generateName, but metadata is implicitly specified"
        )
        yield forbidden_field(f"{path}.properties[metadata]", problem)
    if embedded and not schema.get(_PRESERVES) and not properties:
        problem = f"must not be empty if {_EMBEDDED} is true without {_PRESERVES}"
        yield required(f"{path}.properties", problem)


def _type(schema: Schema, path: str, level: str) -> Iterator[FieldError]:
    type_, where = schema.get("type") or "", f"{path}.type"
    if schema.get(_EMBEDDED) and type_ != "object":
        problem = f"must be object if {_EMBEDDED} is true"
        yield invalid_value(where, type_, problem) if type_ else required(where, problem)
    elif not type_ and not schema.get(_INT_OR_STRING) and not schema.get(_PRESERVES):
        place = {
            "root": "at the root",
            "item": "for specified array items",
            "field": "for specified object fields",
        }
        yield required(where, f"must not be empty {place[level]}")
    if level == "root" and type_ and type_ != "object":
        yield invalid_value(where, type_, "must be object at the root")


def _meta_types(properties: Mapping[str, Schema], path: str) -> Iterator[FieldError]:
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        if name in properties and (given := properties[name].get("type") or "") != wanted:
            yield invalid_value(f"{path}.properties[{name}].type", given, f"must be {wanted}")


def _is_plain_metadata(schema: Schema) -> bool:
    named = (schema.get("properties") or {}).keys()
    said = {name for name, value in schema.items() if value not in (None, "", [], {}, False)}
    return said <= {"type", "default", "properties"} and named <= {"name", "generateName"}


def _values(schema: Schema, path: str, *, nested: bool = False) -> Iterator[FieldError]:
    """Check the parts that only validate values and add nothing to the structure."""
    all_of = schema.get("allOf") or ()
    if nested or schema.get("anyOf") != _EITHER:
        for index, inner in enumerate(schema.get("anyOf") or ()):
            yield from _nested(inner, f"{path}.anyOf[{index}]")
    for index, inner in enumerate(all_of):
        exempt = not nested and index == 0 and inner.get("anyOf") == _EITHER
        yield from _nested({**inner, "anyOf": ()} if exempt else inner, f"{path}.allOf[{index}]")
    for index, inner in enumerate(schema.get("oneOf") or ()):
        yield from _nested(inner, f"{path}.oneOf[{index}]")
    if isinstance(negated := schema.get("not"), Mapping):
        yield from _nested(negated, f"{path}.not")
    if pattern := schema.get("pattern"):
        try:
            searching(pattern)
        except ValueError as error:
            problem = f"must be a valid regular expression, but isn't: {error}"
            yield invalid_value(f"{path}.pattern", pattern, problem)


def _nested(schema: Schema, path: str) -> Iterator[FieldError]:
    yield from _values(schema, path, nested=True)
    if isinstance(items := schema.get("items"), Mapping):
        yield from _nested(items, f"{path}.items")
    for name, inner in (schema.get("properties") or {}).items():
        yield from _nested(inner, f"{path}.properties[{name}]")
    for name, problem in _NESTED:
        given = schema.get(name)
        if given or (name in ("default", _LIST_TYPE, _MAP_TYPE) and given is not None):
            yield forbidden_field(f"{path}.{name}", problem)
    if schema.get("additionalProperties"):
        yield forbidden_field(f"{path}.additionalProperties", "must be undefined to be structural")
    if "metadata" in (schema.get("properties") or {}):
        yield forbidden_field(f"{path}.properties[metadata]", "must not be specified in a nested context")


class Place(NamedTuple):
    """The location of a schema. `undefaulted`: why defaults are not allowed here. `uncorrelated`: the path below which
    old values cannot be found.
    """

    undefaulted: str = ""
    in_metadata: bool = False
    uncorrelated: str = ""


def word_errors(schema: Schema, path: str, place: Place, *, is_root: bool = False) -> Iterator[FieldError]:
    """Validate the keywords of a schema and everything below it."""
    type_ = schema.get("type") or ""
    properties, items = schema.get("properties") or {}, schema.get("items")
    additional = schema.get("additionalProperties")
    if type_ and type_ not in _TYPES:
        yield unsupported(f"{path}.type", type_, _TYPES)
    if type_ == "null":
        yield forbidden_field(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if schema.get("default") is not None and place.undefaulted:
        yield forbidden_field(f"{path}.default", f"must not be set {place.undefaulted}")
    for name in _UNSUPPORTED:
        if schema.get(name) not in (None, "", {}, []):
            yield forbidden_field(f"{path}.{name}", f"{name} is not supported")
    if isinstance(items, list):
        yield forbidden_field(f"{path}.items", "items must be a schema object and not an array")
    if place.in_metadata and schema.get(_EMBEDDED):
        yield forbidden_field(f"{path}.{_EMBEDDED}", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        problem = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden_field(f"{path}.uniqueItems", problem)
    if additional is not None and properties and additional is not True:
        problem = "additionalProperties and properties are mutual exclusive"
        yield forbidden_field(f"{path}.additionalProperties", problem)
    if isinstance(additional, Mapping):
        inner = place
        if place.in_metadata:
            inner = place._replace(undefaulted="inside additionalProperties applying to object metadata")
        yield from word_errors(additional, f"{path}.additionalProperties", inner)
    for name, member in properties.items():
        inner = place
        if name in _META and (is_root or schema.get(_EMBEDDED)):
            undefaulted = f"in top-level {name}" if is_root else place.undefaulted
            inner = place._replace(in_metadata=True, undefaulted=undefaulted)
        yield from word_errors(member, f"{path}.properties[{name}]", inner)
    for name in ("allOf", "anyOf", "oneOf"):
        for index, member in enumerate(schema.get(name) or ()):
            yield from word_errors(member, f"{path}.{name}[{index}]", place)
    if isinstance(negated := schema.get("not"), Mapping):
        yield from word_errors(negated, f"{path}.not", place)
    if isinstance(items, Mapping):
        yield from word_errors(items, f"{path}.items", place)
    if schema.get(_PRESERVES) is False:
        yield invalid_value(f"{path}.{_PRESERVES}", False, "must be true or undefined")
    yield from _collections(schema, path, type_)


def _collections(schema: Schema, path: str, type_: str) -> Iterator[FieldError]:
    map_type, list_type, keys = schema.get(_MAP_TYPE), schema.get(_LIST_TYPE), schema.get(_LIST_KEYS) or []
    items = schema.get("items") if isinstance(schema.get("items"), Mapping) else None
    if map_type is not None:
        yield from _only(path, type_, "object", _MAP_TYPE)
        if map_type not in ("atomic", "granular"):
            yield unsupported(f"{path}.{_MAP_TYPE}", map_type, ("atomic", "granular"))
    if list_type is not None:
        yield from _only(path, type_, "array", _LIST_TYPE)
        if type_ == "array" and list_type == "set" and items is not None:
            yield from _set_items(items, f"{path}.items")
        if list_type not in ("atomic", "set", "map"):
            yield unsupported(f"{path}.{_LIST_TYPE}", list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        problem = f"must be map if {_LIST_KEYS} is non-empty"
        where = f"{path}.{_LIST_TYPE}"
        yield required(where, problem) if list_type is None else invalid_value(where, list_type, problem)
    if list_type == "map":
        yield from _map_items(items, keys, path)
    if items is not None and list_type in ("set", "map"):
        if items.get("nullable"):
            yield forbidden_field(
                f"{path}.items.nullable", f"cannot be nullable when {_LIST_TYPE} is {list_type}"
            )
        if list_type == "map":
            yield from _map_keys(items, keys, f"{path}.items")


def _only(path: str, type_: str, wanted: str, word: str) -> Iterator[FieldError]:
    problem = f"must be {wanted} if {word} is specified"
    if type_ != wanted:
        yield invalid_value(f"{path}.type", type_, problem) if type_ else required(f"{path}.type", problem)


def _set_items(items: Schema, path: str) -> Iterator[FieldError]:
    problem = f"must be atomic as item of a list with {_LIST_TYPE}=set"
    if items.get("type") == "array" and items.get(_LIST_TYPE) not in (None, "atomic"):
        yield invalid_value(f"{path}.{_LIST_TYPE}", items[_LIST_TYPE], problem)
    if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        yield invalid_value(f"{path}.{_MAP_TYPE}", items.get(_LIST_TYPE), problem)


def _map_items(items: Schema | None, keys: list[str], path: str) -> Iterator[FieldError]:
    if not keys:
        yield required(f"{path}.{_LIST_KEYS}", f"must not be empty if {_LIST_TYPE} is map")
    if items is None:
        yield required(f"{path}.items", f"must have a schema if {_LIST_TYPE} is map")
        return
    type_, properties = items.get("type") or "", items.get("properties") or {}
    if type_ != "object":
        yield invalid_value(
            f"{path}.items.type", type_, f"must be object if parent array's {_LIST_TYPE} is map"
        )
        return
    for index, key in enumerate(keys):
        if key not in properties:
            yield invalid_value(f"{path}.{_LIST_KEYS}", keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            problem = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
            yield invalid_value(f"{path}.items.properties[{key}].type", type_, problem)
        if key in keys[:index]:
            yield invalid_value(f"{path}.{_LIST_KEYS}", keys, "must not contain duplicate entries")


def _map_keys(items: Schema, keys: list[str], path: str) -> Iterator[FieldError]:
    properties = items.get("properties") or {}
    for key in keys:
        if key not in properties:
            continue
        where, said = f"{path}.properties[{key}]", f"this property is in {_LIST_KEYS}, so it"
        if key not in (items.get("required") or ()) and properties[key].get("default") is None:
            yield required(f"{where}.default", f"{said} must have a default or be a required property")
        if properties[key].get("nullable"):
            yield forbidden_field(f"{where}.nullable", f"{said} cannot be nullable")


_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def form_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    """Validate the form of the rules in a schema and below it, before they are compiled."""
    for index, said in enumerate(schema.get(RULES) or ()):
        yield from _form(said, schema, f"{path}.{RULES}[{index}]")
    for inner, below in _below(schema, path):
        yield from form_errors(inner, below)


def _form(said: Mapping[str, Any], schema: Schema, path: str) -> Iterator[FieldError]:
    rule, message = said.get("rule") or "", said.get("message") or ""
    expression, field = said.get("messageExpression") or "", said.get("fieldPath") or ""
    if not rule.strip():
        yield required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid_value(f"{path}.message", message, "must be non-empty if specified")
    elif _has_breaks(message.strip()):
        yield invalid_value(f"{path}.message", message, "must not contain line breaks")
    elif _has_breaks(rule.strip()) and not message.strip():
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    if expression and not expression.strip():
        yield required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    if (reason := said.get("reason")) is not None and reason not in _REASONS:
        yield unsupported(f"{path}.reason", reason, _REASONS)
    if field and not field.strip():
        yield invalid_value(f"{path}.fieldPath", field, "must be non-empty if specified")
    if _has_breaks(field):
        yield invalid_value(f"{path}.fieldPath", field, "must not contain line breaks")
    if field:
        try:
            find_field(field, schema)
        except ValueError:
            yield invalid_value(f"{path}.fieldPath", field, "must be a valid path")


def _has_breaks(text: str) -> bool:
    return "\n" in text or "\r" in text


def compile_errors(schema: Schema, path: str, *, limits_rules: bool = True) -> Iterator[FieldError]:
    """Compile the rules, and add up their costs. `limits_rules` says whether the cost of each is limited."""
    budget = Budget(limits_rules=limits_rules)
    yield from _compile_below(schema, path, budget, PlaceOfRules(schema, is_root=True))
    yield from budget.total_errors(path)


def _compile_below(
    schema: Schema,
    path: str,
    budget: Budget,
    place: PlaceOfRules,
    *,
    is_root: bool = True,
    uncorrelated: str = "",
) -> Iterator[FieldError]:
    """`uncorrelated` is the path below which old values cannot be found."""
    rules = schema.get(RULES) or ()
    if rules:
        try:
            scope = TypedScope(schema, is_root=is_root)
        except ConfigurationError as error:
            yield invalid_value(f"{path}.{RULES}", list(rules), str(error))
            return
        except Untyped:
            yield FieldError(f"{path}.{RULES}", "InternalError", f"Internal error: {_UNTYPED}")
            return
        for index, said in enumerate(rules):
            where = f"{path}.{RULES}[{index}]"
            yield from _compile(said, scope, where, uncorrelated, budget, place)
    items = schema.get("items")
    for inner, below in _below(schema, path):
        here = uncorrelated
        if inner is items and schema.get("x-kubernetes-list-type") != "map":
            here = here or path
        under = place.below(inner)
        yield from _compile_below(inner, below, budget, under, is_root=False, uncorrelated=here)


_UNTYPED = (
    f"internal error: failed to construct type information for {RULES} rules: unable to convert structural schema to "
    "CEL declarations"
)


def _compile(
    said: Mapping[str, Any],
    scope: TypedScope,
    path: str,
    uncorrelated: str,
    budget: Budget,
    place: PlaceOfRules,
) -> Iterator[FieldError]:
    rule, optional = said["rule"], bool(said.get("optionalOldSelf"))
    shown = _in_go(said)
    try:
        typed = scope.check(rule, optional_old=optional)
        if typed.returns != "bool":
            yield invalid_value(f"{path}.rule", shown, "cel expression must evaluate to a bool")
        else:
            yield from budget.rule_errors(f"{path}.rule", typed, place)
            if said.get("messageExpression"):
                yield from _compile_message(said, scope, path, budget, place)
        compiles = True
    except CelError as error:
        yield invalid_value(f"{path}.rule", shown, str(error))
        compiles = False
    if compiles and uses_old(rule):
        if uncorrelated:
            problem = (
                f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
            )
            yield invalid_value(f"{path}.rule", rule, problem)
    elif said.get("optionalOldSelf") is not None:
        problem = "may not be set if oldSelf is not used in rule"
        yield invalid_value(f"{path}.optionalOldSelf", said["optionalOldSelf"], problem)


def _compile_message(
    said: Mapping[str, Any], scope: TypedScope, path: str, budget: Budget, place: PlaceOfRules
) -> Iterator[FieldError]:
    where = f"{path}.messageExpression"
    try:
        typed = scope.check(said["messageExpression"], optional_old=bool(said.get("optionalOldSelf")))
        if typed.returns != "string":
            yield invalid_value(where, _in_go(said), "messageExpression must evaluate to a string")
        else:
            yield from budget.message_errors(where, typed, place)
    except CelError as error:
        yield invalid_value(where, _in_go(said), f"messageExpression {error}")


def _in_go(said: Mapping[str, Any]) -> dict[str, Any]:
    """Format a rule as messages show it."""
    return {
        "Rule": said.get("rule") or "",
        "Message": said.get("message") or "",
        "MessageExpression": said.get("messageExpression") or "",
        "Reason": said.get("reason"),
        "FieldPath": said.get("fieldPath") or "",
        "OptionalOldSelf": said.get("optionalOldSelf"),
    }


def _below(schema: Schema, path: str) -> Iterator[tuple[Schema, str]]:
    for name, inner in (schema.get("properties") or {}).items():
        yield inner, f"{path}.properties[{name}]"
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), Mapping):
            yield inner, f"{path}.{name}"


def default_errors(schema: Schema, path: str, *, is_root: bool = True) -> Iterator[FieldError]:
    default = schema.get("default")
    if default is not None:
        yield from _of(schema, default, f"{path}.default")
    if isinstance(items := schema.get("items"), Mapping):
        yield from default_errors(items, f"{path}.items", is_root=False)
    for name, inner in (schema.get("properties") or {}).items():
        if not (is_root and name in ("apiVersion", "kind", "metadata")):
            yield from default_errors(inner, f"{path}.properties[{name}]", is_root=False)


def _of(schema: Schema, default: Any, path: str) -> Iterator[FieldError]:
    pruned = deepcopy(default)
    prune(schema, pruned)
    if not same(pruned, default):
        yield invalid_value(path, default, "must not have unknown fields")
    if errors := Embedded(schema).errors(default):
        yield from (error._replace(path=f"{path}{error.path}") for error in errors)
    elif errors := Validator(schema).errors(default, under=path):
        yield from errors
    elif RULES in repr(schema):
        rules = Rules(schema, is_root=False)
        yield from rules.errors(default, default, path=path) or rules.errors(default, NOTHING, path=path)
