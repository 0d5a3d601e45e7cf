"""What a change to a CustomResourceDefinition breaks: stored objects, and clients that read or write them.

| change | breaks |
|---|---|
| group, kind, plural or scope; the definition is removed | everything |
| a version is removed or no longer served | its clients; stored objects, if it was stored |
| the storage version changes without a conversion webhook | fields that the new one lacks |
| a field is removed | its readers; its stored values are pruned |
| a narrower type, format or enumeration, a tighter bound, a new pattern or rule, no more null | objects and clients |
| a field becomes required and has no default | objects and clients without it |
| a list or map gets another merge strategy | clients that apply |
| a subresource is added or removed, a field is no longer selectable | clients that use it, or wrote status without it |

All other differences are reported as well: new fields, wider types, other defaults. Descriptions do not count.

Guaranteed: no narrowed type, enumeration or bound and no newly required or removed field is missed. Not guaranteed:
that an equivalent `anyOf`, `not` or rule in another form is recognized; it counts as breaking. Since Kubernetes 1.33,
an update may keep an unchanged value that is no longer valid (ratcheting); a new object may not contain one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeshard.crd.manifests import Manifest, name_of, schema_in, versions_of
from kubeshard.crd.schema import Schema

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_RULES = "x-kubernetes-validations"
_LOWER = ("minimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "maxLength", "maxItems", "maxProperties")
_MERGES = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")
_LOGIC = ("anyOf", "allOf", "oneOf", "not", "x-kubernetes-embedded-resource", "dependencies")
_WIDER = {("integer", "number"), ("int32", "int64"), ("float", "double")}


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference. `version` is empty if it concerns the whole definition, `path` if it does not concern a field."""

    definition: str
    version: str
    path: str
    breaking: bool
    message: str

    def __str__(self) -> str:
        where = " ".join(filter(None, (self.definition, self.version, self.path)))
        return f"{'breaking' if self.breaking else 'ok':9}{where}: {self.message}"


Found = Iterator[tuple[str, bool, str]]
"""The path, whether the change is breaking, and the message."""


def compared(old: Iterable[Manifest], new: Iterable[Manifest]) -> list[SchemaChange]:
    """The differences between two sets of definitions, matched by name."""
    before, after = ({name_of(each): each for each in some} for some in (old, new))
    found = []
    for name in sorted({*before, *after}):
        if name not in after:
            found.append(SchemaChange(name, "", "", True, "the definition is gone, and with it all objects"))
        elif name not in before:
            found.append(SchemaChange(name, "", "", False, "the definition is new"))
        else:
            found += [
                SchemaChange(name, version, path, breaking, message)
                for version, (path, breaking, message) in _definitions(
                    before[name]["spec"], after[name]["spec"]
                )
            ]
    return found


def _definitions(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[str, bool, str]]]:
    for where, before, after in (
        ("group", old["group"], new["group"]),
        ("scope", old["scope"], new["scope"]),
        ("kind", old["names"]["kind"], new["names"]["kind"]),
        ("plural", old["names"]["plural"], new["names"]["plural"]),
    ):
        if before != after:
            yield "", ("", True, f"another {where}: {before} became {after}")
    for name in _gone(old["names"].get("shortNames"), new["names"].get("shortNames")):
        yield "", ("", True, f"the short name {name} is gone")
    if _strategy(old) == "Webhook" and _strategy(new) != "Webhook":
        yield "", ("", True, "no webhook converts between versions any more")
    before, after = versions_of({"spec": old}), versions_of({"spec": new})
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after:
            stored = "; objects are stored in it" if before[name].get("storage") else ""
            yield name, ("", True, f"the version is gone{stored}")
        elif name not in before:
            yield name, ("", False, "the version is new")
        else:
            yield from ((name, found) for found in _versions(before[name], after[name]))
    yield from _stored(before, after, _strategy(new) == "Webhook")


def _strategy(spec: Mapping[str, Any]) -> str:
    return str((spec.get("conversion") or {}).get("strategy", "None"))


def _stored(
    before: Mapping[str, Any], after: Mapping[str, Any], converted: bool
) -> Iterator[tuple[str, tuple[str, bool, str]]]:
    """If the storage version changes: without a webhook, the new one must have every field of the old one."""
    was, now = (
        next((name for name, version in versions.items() if version.get("storage")), "")
        for versions in (before, after)
    )
    if was == now or not was or not now:
        return
    yield now, ("", False, f"objects are stored in this version, no longer in {was}")
    if not converted:
        for path, breaking, message in _schemas(schema_in(before[was]), schema_in(after[now]), ""):
            if breaking:
                yield now, (path, True, f"{message}, compared with {was}, and no webhook converts")


def _versions(old: Mapping[str, Any], new: Mapping[str, Any]) -> Found:
    if old.get("served") and not new.get("served"):
        yield "", True, "the version is no longer served"
    if new.get("deprecated") and not old.get("deprecated"):
        yield "", False, "the version is deprecated"
    before, after = (version.get("subresources") or {} for version in (old, new))
    for name in _gone(before, after):
        yield "", True, f"the subresource {name} is gone"
    for name in _gone(after, before):
        yield (
            "",
            name == "status",
            f"there is a subresource {name}"
            + (": who wrote status with the object writes it in vain" if name == "status" else ""),
        )
    for name in _gone(_paths(old), _paths(new)):
        yield name, True, "the field can no longer be selected by"
    yield from _schemas(schema_in(old), schema_in(new), "")


def _paths(version: Mapping[str, Any]) -> list[str]:
    return [str(field.get("jsonPath")) for field in version.get("selectableFields") or ()]


def _schemas(old: Schema, new: Schema, path: str) -> Found:
    """Yields what `old` accepts and `new` does not, and other differences."""
    yield from _types(old, new, path)
    yield from _values(old, new, path)
    yield from _bounds(old, new, path)
    yield from _rules(old, new, path)
    for word in _MERGES:
        if old.get(word) != new.get(word):
            yield path, True, f"{word} was {_said(old.get(word))}, is {_said(new.get(word))}"
    for word in _LOGIC:
        if old.get(word) != new.get(word):
            yield path, bool(new.get(word)), f"another {word}"
    yield from _fields(old, new, path)
    if "items" in old and "items" in new:
        yield from _schemas(old["items"], new["items"], f"{path}[]")


def _types(old: Schema, new: Schema, path: str) -> Found:
    before, after = _type(old), _type(new)
    if before != after:
        wider = (
            not after
            or (before, after) in _WIDER
            or (after == "integer or string" and before in ("integer", "string"))
        )
        yield path, not wider, f"the type was {before or 'anything'}, is {after or 'anything'}"
    if old.get("nullable") and not new.get("nullable"):
        yield path, True, "null is no longer allowed"
    same_type = before == after
    before, after = old.get("format", ""), new.get("format", "")
    if before != after and same_type:
        wider = not after or (before, after) in _WIDER
        yield path, not wider, f"the format was {_said(before)}, is {_said(after)}"


def _type(schema: Schema) -> str:
    return "integer or string" if schema.get("x-kubernetes-int-or-string") else str(schema.get("type", ""))


def _values(old: Schema, new: Schema, path: str) -> Found:
    before, after = old.get("enum"), new.get("enum")
    if after is not None and before is None:
        yield path, True, f"only {_listed(after)} may be there"
    elif after is not None and before is not None:
        if gone := _gone(before, after):
            yield path, True, f"{_listed(gone)} may no longer be there"
        if more := _gone(after, before):
            yield path, False, f"{_listed(more)} may be there, too"
    if old.get("default") != new.get("default"):
        yield path, False, f"the default was {_said(old.get('default'))}, is {_said(new.get('default'))}"


def _bounds(old: Schema, new: Schema, path: str) -> Found:
    for words, sign in ((_LOWER, 1), (_UPPER, -1)):
        for word in words:
            before, after = old.get(word), new.get(word)
            exclusive = f"exclusive{word.capitalize()}"
            if before == after:
                if after is not None and new.get(exclusive) and not old.get(exclusive):
                    yield path, True, f"{word} {after} itself is no longer allowed"
                continue
            tighter = after is not None and (before is None or (after - before) * sign > 0)
            if before is None and after == 0 and word in _LOWER[1:]:
                tighter = False  # no length is below 0
            yield path, tighter, f"{word} was {_said(before)}, is {_said(after)}"
    before, after = old.get("multipleOf"), new.get("multipleOf")
    if before != after:
        yield (
            path,
            after is not None and not (before and before % after == 0),
            (f"multipleOf was {_said(before)}, is {_said(after)}"),
        )
    before, after = old.get("pattern"), new.get("pattern")
    if before != after:
        yield path, after is not None, f"the pattern was {_said(before)}, is {_said(after)}"


def _rules(old: Schema, new: Schema, path: str) -> Found:
    before, after = ([rule.get("rule") for rule in schema.get(_RULES) or ()] for schema in (old, new))
    yield from ((path, True, f"a rule is new: {rule}") for rule in _gone(after, before))
    yield from ((path, False, f"a rule is gone: {rule}") for rule in _gone(before, after))


def _fields(old: Schema, new: Schema, path: str) -> Found:
    before, after = old.get("properties") or {}, new.get("properties") or {}
    values = old.get("additionalProperties"), new.get("additionalProperties")
    open_end = bool(new.get(_PRESERVE))
    if old.get(_PRESERVE) and not open_end and not values[1]:
        yield path, True, "unknown fields are no longer kept"
    if isinstance(values[0], Mapping) and isinstance(values[1], Mapping):
        yield from _schemas(dict(values[0]), dict(values[1]), f"{path}[*]")
    elif bool(values[0]) and not values[1] and not open_end:
        yield path, True, "arbitrary keys are no longer kept"
    elif isinstance(values[1], Mapping) and not values[0] and old.get(_PRESERVE):
        yield path, True, "arbitrary values now have to fit a schema"
    for name, inner in before.items():
        if name in after:
            yield from _schemas(inner, after[name], f"{path}.{name}")
        elif isinstance(values[1], Mapping):
            yield from _schemas(inner, dict(values[1]), f"{path}.{name}")
        else:
            lost = "is kept, but no longer described" if open_end else "is gone; stored values are pruned"
            yield f"{path}.{name}", not open_end, f"the field {lost}"
    for name in _gone(after, before):
        yield f"{path}.{name}", False, "the field is new"
    for name in _gone(new.get("required"), old.get("required")):
        spared = "default" in after.get(name, {})
        yield (
            f"{path}.{name}",
            not spared,
            "the field is required" + (", and has a default" if spared else ""),
        )
    for name in sorted({*(old.get("required") or ())} & {*(new.get("required") or ())}):
        if "default" in before.get(name, {}) and "default" not in after.get(name, {"default": 0}):
            yield f"{path}.{name}", True, "the field is required and has no default any more"


def _gone(before: Iterable[Any] | None, after: Iterable[Any] | None) -> list[Any]:
    """The items of `before` that `after` lacks, in order."""
    kept = list(after or ())
    return [each for each in before or () if each not in kept]


def _said(value: Any) -> str:
    return "none" if value is None or value == "" else repr(value) if isinstance(value, str) else str(value)


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))
