"""Custom resources: the objects of a kind declared by a CustomResourceDefinition, in one of its versions.

With `x-kubernetes-embedded-resource` they contain complete objects, which have ordinary object metadata. Source:
k8s.io/apiextensions-apiserver `pkg/apiserver/schema/objectmeta`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from kubeshard.core.errors import Invalid
from kubeshard.core.kinds import Kind
from kubeshard_apiserver.apply.shape import Path, Shape, shape_of, shape_of_type
from kubeshard_apiserver.objects import Object, copied, identical, recoded
from kubeshard_apiserver.resources.conversion_webhooks import ConversionWebhook
from kubeshard_apiserver.resources.custom_rules import UNCHECKED, Rules, is_blocking
from kubeshard_apiserver.resources.field_paths import ScalePaths, scale_value_errors
from kubeshard_apiserver.resources.metadata import (
    STANDARD_FINALIZERS,
    segment_name,
    validate_metadata,
    without_empty,
)
from kubeshard_apiserver.resources.strategy import Strategy
from kubeshard_apiserver.schema import Validator, drop_nulls, fill, is_settled, prune
from kubeshard_apiserver.schema.catalog import object_meta
from kubeshard_apiserver.schema.decoding import DecodeState
from kubeshard_apiserver.schema.name_formats import dns_1035_label
from kubeshard_apiserver.schema.numbers import whole_numbers, wide_numbers
from kubeshard_apiserver.schema.structural import NOTHING, Check, list_check
from kubeshard_apiserver.status import FieldError, bad_request, invalid_value, required, shown, undecodable

Visit = Callable[[dict[str, Any], str], None]
Walk = Callable[[Any, str, Visit], None]


class Embedded:
    """The embedded objects in one schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._walk = _walk(schema)
        self.is_empty = self._walk is None

    def coerce(self, obj: dict[str, Any], kind: Kind) -> list[str]:
        """Decode the embedded metadata in place. Return the paths of dropped fields. `kind` is that of the outer
        object. Raises Invalid (400).
        """
        dropped: list[str] = []
        if self._walk is not None:
            state = DecodeState(kind.kind, kind.version)
            self._walk(obj, "", lambda found, path: _coerce(found, path, dropped, state))
        return dropped

    def errors(self, obj: dict[str, Any]) -> list[FieldError]:
        errors: list[FieldError] = []
        if self._walk is not None:
            self._walk(obj, "", lambda found, path: errors.extend(_errors(found, path)))
        return errors


def _walk(schema: Mapping[str, Any]) -> Walk | None:
    """Return a function that visits all embedded objects in a value."""
    of_items = _walk(schema["items"]) if isinstance(schema.get("items"), Mapping) else None
    properties = {
        name: found
        for name, inner in (schema.get("properties") or {}).items()
        if (found := _walk(inner)) is not None
    }
    given = schema.get("additionalProperties")
    additional = _walk(given) if isinstance(given, Mapping) else None
    is_embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    if not (of_items or properties or additional or is_embedded):
        return None

    def walk(value: Any, path: str, visit: Visit) -> None:
        if isinstance(value, list) and of_items is not None:
            for index, item in enumerate(value):
                of_items(item, f"{path}[{index}]", visit)
        if not isinstance(value, dict):
            return
        if is_embedded:
            visit(value, path)
        for name, member in value.items():
            if name in properties:
                properties[name](member, f"{path}.{name}" if path else name, visit)
            elif additional is not None:
                additional(member, f"{path}[{name}]", visit)

    return walk


class _Reading(DecodeState):
    def refused(self, problem: str) -> Exception:
        return bad_request(problem)


def _coerce(obj: dict[str, Any], path: str, dropped: list[str], around: DecodeState) -> None:
    for name in ("apiVersion", "kind"):
        if name in obj and not isinstance(obj[name], str):
            raise around.refused(str(invalid_value(f"{path}.{name}", obj[name], "must be a string")))
    if "metadata" not in obj:
        return
    state = _Reading("ObjectMeta", "v1")
    try:
        given = obj["metadata"]
        read = object_meta().decode({} if given is None else given, None, state)
    except Invalid as error:
        raise around.refused(str(invalid_value(f"{path}.metadata", obj["metadata"], error.message))) from None
    obj["metadata"] = without_empty(read)
    dropped += [f"{path}.metadata.{name.lstrip('.')}" for name in state.dropped]


def _errors(obj: dict[str, Any], path: str) -> Iterator[FieldError]:
    yield from (required(f"{path}.{name}") for name in ("apiVersion", "kind") if name not in obj)
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        where = f"{path}.{name}"
        if name not in obj:
            continue
        if not isinstance(value, str):
            yield invalid_value(where, value, "must be a string")
        elif not value:
            yield invalid_value(where, value, "must not be empty")
        elif name == "apiVersion" and value.count("/") > 1:
            yield invalid_value(where, value, f"unexpected GroupVersion string: {value}")
        elif name == "kind" and (problems := dns_1035_label(value.lower())):
            told = ",".join(problems)
            yield invalid_value(where, value, f"may have mixed case, but should otherwise match: {told}")
    meta = obj.get("metadata")
    if isinstance(meta, dict):
        named = {"metadata": {**meta, "name": meta.get("name") or "fakename"}}
        for error in validate_metadata(
            named, segment_name, namespaced=bool(meta.get("namespace")), qualified_finalizers=False
        ):
            yield error._replace(path=f"{path}.{error.path}")


class CustomResources(Strategy):
    """Custom resources are pruned and defaulted when decoded, and validated against the schema. If there is a status
    subresource, only it can change `status`.
    """

    unconditional_update = False
    qualified_finalizers = False
    counts_generations = True
    typed_items = True
    is_custom = True
    status_alone = True

    def __init__(
        self,
        kind: Kind,
        schema: Mapping[str, Any],
        *,
        subresources: frozenset[str],
        selectable: tuple[str, ...] = (),
        scales: ScalePaths | None = None,
        stored: Mapping[str, Any] | None = None,
        webhook: ConversionWebhook | None = None,
        others: Mapping[str, Mapping[str, Any]] | None = None,
        versions: Collection[str] = (),
    ) -> None:
        """`stored` is the schema of the storage version, if objects may have been written with another schema or are
        converted by a webhook. `others` are the schemas of all versions that are converted without one, and `versions`
        those that the definition has, as in `apiVersion`: another one can be that of a stored object.
        """
        super().__init__(kind, schema, subresources=subresources)
        self.scales = scales
        self.selectable = (*Strategy.selectable, *selectable)
        self._root = _without_implicit(schema)
        properties = self._root["properties"]
        self._status = {"properties": {name: inner for name, inner in properties.items() if name == "status"}}
        self._stored = None if stored is None else _without_implicit(stored)
        self.reads_anew = stored is not None
        self._webhook = webhook
        self.needs_webhook = webhook is not None
        self._others = others or {}
        self._versions = versions

    def decode(self, obj: Object, former: Object | None = None) -> list[str]:
        kind = self.kind
        if not obj.get("kind"):
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): Object 'Kind' is missing "
                f"in '{shown(obj)}'"
            )
        if (given := obj.get("apiVersion") or "") != kind.api_version:
            raise bad_request(
                f"the API version in the data ({given}) does not match the expected API version "
                f"({kind.api_version})"
            )
        dropped = self.decode_metadata(obj, former)
        fields = _fields(obj)
        known = {} if former is None or self.reads_anew else _in_both(fields, former)
        for name in fields:
            del obj[name]
        unknown = {name: value for name, value in fields.items() if name not in known}
        if not self.reads_anew and self._embedded.is_empty and _are_settled(self._root, known, unknown):
            obj.update({**fields, **known})
            return dropped
        unknown = copied(unknown)
        dropped += sorted(prune(self._root, unknown))
        drop_nulls(self._root, unknown)
        wide_numbers(unknown)
        dropped += self._embedded.coerce(unknown, kind)
        fill(self._root, unknown)
        obj.update(_merged({**fields, **known}, known, unknown))
        return dropped

    def complete(self, obj: Object) -> list[str]:
        self.decode_metadata(obj, None)
        fill(self._root, obj)
        return []

    def is_unchanged(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        """An integer differs from an equal float here, which is what a client may have sent."""
        return identical(new, old)

    def resets(self, subresource: str, path: Path) -> bool:
        if subresource == "status":
            return path[0] in (
                "f:metadata",
                "f:spec",
            )  # the server does not list what else there is beside them
        return super().resets(subresource, path)

    def read(self, obj: Object) -> Object:
        """Return the stored object, defaulted by the schema of the storage version and pruned by both schemas. An
        object in another version may be one that is not stored yet. Raises ApiError (500) for a version that the
        definition does not have any more.
        """
        if obj["apiVersion"] not in self._versions:
            meta, kind = obj["metadata"], self.kind
            place = "/".join(filter(None, (kind.group, kind.plural, meta.get("namespace"), meta["name"])))
            raise undecodable(obj, f"/{place}")
        fields = recoded(_fields(obj))
        if self._stored is not None and (self._webhook is None or obj["apiVersion"] == self._webhook.stored):
            prune(self._stored, fields)
            drop_nulls(self._stored, fields)
            fill(self._stored, fields)
        if self._webhook is not None:
            obj = self._webhook.converted(_with_fields(obj, fields), self.kind.api_version)
            fields = _fields(obj)
        prune(self._root, fields)
        drop_nulls(self._root, fields)
        return _with_fields(obj, fields)

    def for_storage(self, obj: Object, live: Object | None = None) -> Object:
        """Return the object as it is read again: an apply and webhooks do not prune it, and a create drops the status
        after defaults have been set.
        """
        if self._webhook is not None:
            obj = self._webhook.converted(obj, self._webhook.stored)
        schema = self._root if self._stored is None else self._stored
        fields = _fields(obj)
        known = (
            ()
            if live is None or self.reads_anew
            else [name for name, value in fields.items() if name in live and value is live[name]]
        )
        unknown = {name: value for name, value in fields.items() if name not in known}
        if "status" in fields and _are_settled(schema, known, unknown):
            return _with_fields(obj, fields)
        prune(schema, unknown)
        drop_nulls(schema, unknown)
        whole_numbers(unknown)
        fields = _merged(fields, known, unknown)
        if self._stored is None and "status" not in fields:
            fill(self._status, fields)
        return _with_fields(obj, fields)

    def validate(self, obj: Object) -> list[FieldError]:
        fields = _fields(obj)
        errors = self._validator.errors(obj)
        errors += self._embedded.errors(fields)
        if self._lists is not None:
            errors += self._lists(fields, "")
        errors += self._scale_errors(obj, ("spec", "status"))
        return errors + self._rule_errors(errors, obj, NOTHING)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        """Validate an update. Errors in unchanged parts are ignored."""
        if subresource == "status":
            errors = []
            if "status" in new:
                errors = self._status_validator.errors(new["status"], under="status", old=old.get("status"))
        else:
            errors = self._validator.errors(new, old=old) + self._embedded.errors(_fields(new))
        if self._lists is not None and not any(self._lists(_fields(old), "")):
            errors += self._lists(_fields(new), "")
        errors += self._scale_errors(new, ("status",) if subresource == "status" else ("spec", "status"))
        return errors + self._rule_errors(errors, new, old)

    def _rule_errors(self, errors: list[FieldError], new: Object, old: Any) -> list[FieldError]:
        if not self._rules:
            return []
        return [UNCHECKED] if is_blocking(errors) else self._rules.errors(new, old)

    def _scale_errors(self, obj: Object, parts: tuple[str, ...]) -> list[FieldError]:
        return [] if self.scales is None else scale_value_errors(obj, self.scales, parts)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        """Warn of finalizers without a domain."""
        before = (old or {}).get("metadata", {}).get("finalizers") or ()
        return [
            told
            for name in sorted(set(new["metadata"].get("finalizers") or ()) - set(before))
            if (told := _finalizer_warning(name))
        ]

    @cached_property
    def siblings(self) -> Mapping[str, Shape]:
        metadata = shape_of_type(object_meta())
        return {version: shape_of(schema, metadata) for version, schema in self._others.items()}

    @cached_property
    def _rules(self) -> Rules:
        return Rules(self.schema)

    @cached_property
    def _validator(self) -> Validator:
        return Validator(self.schema)

    @cached_property
    def _status_validator(self) -> Validator:
        return Validator((self._root.get("properties") or {}).get("status") or {})

    @cached_property
    def _embedded(self) -> Embedded:
        return Embedded(self._root)

    @cached_property
    def _lists(self) -> Check | None:
        return list_check(self._root)

    def selector_problem(self, path: str) -> str:
        return f"field label not supported: {path}"


def _finalizer_warning(name: str) -> str:
    if "/" in name or name in STANDARD_FINALIZERS:
        return ""
    including = " including a path (/)" if "." in name else ""
    told = f"prefer a domain-qualified finalizer name{including} to avoid accidental conflicts with other "
    told += "finalizer writers"
    return f'metadata.finalizers: "{name}": {told}'


_IMPLICIT = ("apiVersion", "kind", "metadata")


def _without_implicit(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    kept = {name: inner for name, inner in properties.items() if name not in _IMPLICIT}
    return {**schema, "properties": kept}


def _in_both(fields: Mapping[str, Any], former: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the former fields that have the same values in both."""
    return {
        name: former[name]
        for name, value in fields.items()
        if name in former and identical(value, former[name])
    }


def _merged(fields: Mapping[str, Any], known: Collection[str], others: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the known fields and the others, which may have become more or fewer, in the order of all fields."""
    kept = {name: value for name, value in fields.items() if name in known or name in others}
    return {**kept, **{name: value for name, value in others.items() if name not in known}}


def _are_settled(schema: Mapping[str, Any], known: Iterable[str], others: Mapping[str, Any]) -> bool:
    """Whether nothing has to be done to these fields; the known ones are only there."""
    return is_settled(schema, {**dict.fromkeys(known, ""), **others})


def _with_fields(obj: Object, fields: Mapping[str, Any]) -> Object:
    return {**{name: obj[name] for name in _IMPLICIT if name in obj}, **fields}


def _fields(obj: Object) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name not in _IMPLICIT}
