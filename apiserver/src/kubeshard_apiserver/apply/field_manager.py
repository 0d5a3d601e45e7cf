"""Field management: the fields that an update takes from other managers, and server-side apply.

`updated` and `applied` return the object with its new managedFields. `applied` does not modify its arguments; `updated`
modifies the metadata of the new object, which belongs to its caller alone. Guaranteed: an
apply sets exactly the fields in its configuration, removes the fields that it applied before and that nobody else
owns, and raises Conflict if a value differs from one that another manager owns, unless forced; a time in managedFields
changes only if the fields or values of that manager changed. The first server-side apply by the manager `kubectl` takes
over what client-side apply has set, from the annotation with the configuration that it last applied. Source: KEP-555,
k8s.io/apimachinery/pkg/util/managedfields.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import msgspec

from kubeshard.core.errors import Conflict
from kubeshard_apiserver.apply.fieldset import (
    EMPTY,
    Comparison,
    FieldSet,
    compare,
    difference,
    fields_of,
    has_fields,
    intersection,
    is_member,
    paths_of,
    union,
)
from kubeshard_apiserver.apply.managed_fields import (
    ManagedFieldsEntry,
    Manager,
    Managers,
    read_managers,
    shown,
    without,
    written,
)
from kubeshard_apiserver.apply.shape import (
    UNTYPED,
    Part,
    Path,
    Repeated,
    Shape,
    item_element,
    parts,
    readable,
)
from kubeshard_apiserver.apply.validation import validation_errors
from kubeshard_apiserver.objects import JsonObject, Object, with_metadata
from kubeshard_apiserver.status import escaped, internal


def merge(shape: Shape, live: Any, applied: Any) -> Any:
    """Merges granular parts and replaces leaves; a null leaves granular parts as they are. Items of lists come in the
    applied order; those of `live` alone keep their places before the applied ones that follow them.
    """
    ours, theirs = parts(shape, applied), parts(shape, live)
    if applied is None and theirs:
        return live
    if ours is None or theirs is None:
        return applied
    if isinstance(applied, dict):
        merged = dict(live)
        for element, part in ours.items():
            name = element[2:]
            merged[name] = merge(part.shape, live[name], part.value) if name in live else part.value
        return merged
    return _merged_items(theirs, ours)


def _merged_items(live: Mapping[str, Part], applied: Mapping[str, Part]) -> list[Any]:
    merged: list[Any] = []
    pending = iter(applied.items())
    shared = deque(element for element in applied if element in live)
    for element, part in live.items():
        if element not in applied:
            merged += part.value if isinstance(part.value, Repeated) else [part.value]
        elif element == shared[0]:
            shared.popleft()
            for name, own in pending:
                merged.append(merge(own.shape, live[name].value, own.value) if name in live else own.value)
                if name == element:
                    break
    return merged + [
        merge(own.shape, live[name].value, own.value) if name in live else own.value for name, own in pending
    ]


def remove(shape: Shape, value: Any, paths: FieldSet, kept: FieldSet) -> Any:
    """Returns the value without `paths`, and without the declared fields that contain them, where they, or what
    contains them from the outermost of `paths` on, are not in `kept`: an item goes with what others own in it. What
    loses all of its parts becomes null.
    """
    return _remove(shape, value, paths, kept, False, False)[0]


def _remove(
    shape: Shape, value: Any, paths: FieldSet, kept: FieldSet, is_within: bool, is_free: bool
) -> tuple[Any, bool]:
    """`is_within`: of something in the paths; `is_free`: and since there of something that is not kept. Returns also
    whether something is left that anybody can own if all that is free is gone.
    """
    inner = parts(shape, value)
    if not inner:
        return value, inner is None or value == {}
    left: dict[str, Any] = {}
    remaining: list[bool] = []
    for element, part in inner.items():
        named, held = paths.get(element), kept.get(element)
        is_named = named is not None and (part.declared or is_member(named))
        is_kept = held is not None and (part.declared or is_member(held))
        within = is_within or is_named
        counts = within and not _owns_nothing(part)
        free = is_free or (counts and not is_kept)
        rest, is_owned = _remove(part.shape, part.value, named or EMPTY, held or EMPTY, within, free)
        is_owned |= not part.declared
        if not free:
            remaining.append(is_owned)
        if not (is_named and counts and (free or not is_owned)):
            left[element] = rest
    return _assembled(shape, value, left), any(remaining) or not remaining


def _assembled(shape: Shape, value: Any, left: Mapping[str, Any]) -> Any:
    if not left:
        return None
    if isinstance(value, dict):
        return {element[2:]: rest for element, rest in left.items()}
    rests = [left.get(item_element(shape, item), _GONE) for item in value]
    return [
        item if isinstance(rest, Repeated) else rest
        for item, rest in zip(value, rests, strict=True)
        if rest is not _GONE
    ]


_GONE = object()


def _owns_nothing(part: Part) -> bool:
    """Whether nobody can own anything in this declared field: it is an empty list whose items would have owners, or an
    object of nothing but such fields. The empty object and null have owners.
    """
    return part.declared and part.value not in (None, {}) and not has_fields(part.shape, part.value)


_KUBECTL = "kubectl"
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def _upgradable(shape: Shape, live: Object, api_version: str) -> FieldSet:
    """The fields that still have the values set by client-side apply. An apply may take them from any owner."""
    try:
        stated = msgspec.json.decode(_annotation(live))
    except msgspec.DecodeError:
        return EMPTY
    if not isinstance(stated, dict) or stated.get("apiVersion") != api_version:
        return EMPTY
    comparison = compare(shape, stated, live)
    return difference(fields_of(shape, stated), reduce(union, comparison))


def _kept_up(obj: Object, config: Object) -> Object:
    """The object after `config` was applied, with its annotation updated if it has one."""
    if not _annotation(obj):
        return obj
    annotations = config.get("metadata", {}).get("annotations") or {}
    others = {name: value for name, value in annotations.items() if name != ANNOTATION}
    stated = with_metadata(config, annotations=others) if annotations else config
    text = escaped(msgspec.json.encode(stated, order="sorted").decode())
    return with_metadata(obj, annotations={**obj["metadata"]["annotations"], ANNOTATION: f"{text}\n"})


def _annotation(obj: Object) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(ANNOTATION, ""))


_NEVER_OWNED: FieldSet = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        name: {}
        for name in (
            ".", "f:clusterName", "f:creationTimestamp", "f:generation", "f:managedFields", "f:name", "f:namespace",
            "f:resourceVersion", "f:selfLink", "f:uid",
        )
    },
}  # fmt: skip
_MOST_UPDATERS = 10
_ANCIENT = "ancient-changes"
_BEFORE_APPLY = "before-first-apply"


class Writer(NamedTuple):
    """Who writes, when, and in which version and subresource. `resets` says of a subresource which fields a write to it
    cannot change, by the first two elements of their paths. `zero` is an empty object of the kind.
    """

    manager: str
    api_version: str
    subresource: str
    now: str
    resets: Callable[[str, Path], bool] = lambda subresource, path: False
    zero: Mapping[str, Any] = {}
    is_custom: bool = False
    siblings: Mapping[str, Shape] = {}
    """The shapes of other versions of a custom resource, by `apiVersion`."""
    reads_anew: bool = False
    """Whether the live object may have been written with another schema."""

    def manager_for(self, operation: str) -> Manager:
        version = self.api_version if operation == "Update" else ""
        return Manager(self.manager or "unknown", operation, self.subresource, version)


def updated(shape: Shape, live: Object | None, new: Object, writer: Writer) -> Object:
    """Returns `new` with the managedFields that result from writing it over `live` (None for a create)."""
    managers = _managers_of_request(live, new, writer)
    if writer.is_custom and _misfits(shape, new, writer, live or {}):
        # What the write cannot change is not validated, and may have any type; then the owners stay as they were.
        return _owned_as_before(live, new)
    if not managers and live is not None:
        # Fields of this object are not managed yet; the first apply starts that.
        return _owned(new, None)
    if writer.siblings and _misfit(managers, writer, *(_bare(obj) for obj in (live, new) if obj is not None)):
        return _owned_as_before(live, new)
    return _owned(new, written(_after_update(shape, managers, live, new, writer)))


def _owned_as_before(live: Object | None, new: Object) -> Object:
    return _owned(new, live["metadata"].get("managedFields") if live else None)


def _owned(new: Object, managed: list[dict[str, Any]] | None) -> Object:
    if managed is None:
        new["metadata"].pop("managedFields", None)
    else:
        new["metadata"]["managedFields"] = managed
    return new


def _misfit(managers: Managers, writer: Writer, *objects: Object) -> str:
    """Says why an object is none in a version in which somebody wrote it: without a webhook, conversion changes the
    version and leaves all fields.
    """
    if not writer.siblings:
        return ""
    versions = {owned.api_version for owned in managers.values()} - {writer.api_version}
    for version in sorted(versions & writer.siblings.keys()):
        for obj in objects:
            if problems := validation_errors(writer.siblings[version], {**obj, "apiVersion": version}):
                return problems[0]
    return ""


def _misfits(shape: Shape, obj: Object, writer: Writer, live: JsonObject) -> list[str]:
    """What does not fit of the fields that validation does not make fit. The fields of the live object fit, unless the
    schema was another one or takes what does not.
    """
    doubtful = {
        name: value
        for name, value in obj.items()
        if name not in _TYPE_AND_METADATA
        and (value is not live.get(name) or writer.reads_anew or _is_lenient(shape, name))
        and (
            (writer.subresource == "status" and name != "status")
            or writer.resets(writer.subresource, (f"f:{name}",))
            or _is_lenient(shape, name)
        )
    }
    return validation_errors(shape, doubtful, with_repeated=True) if doubtful else []


_TYPE_AND_METADATA = ("apiVersion", "kind", "metadata")


def _is_lenient(shape: Shape, name: str) -> bool:
    return (shape.fields.get(name) or shape.items or UNTYPED).lenient


def applied(shape: Shape, live: Object, config: Object, writer: Writer, *, force: bool) -> Object:
    """Returns `live` after applying `config`. Raises a Conflict that names managers and fields."""
    managers = read_managers(live, stored=True)
    if not managers and live["metadata"].get("uid"):
        managers = _after_update(shape, {}, None, live, writer._replace(manager=_BEFORE_APPLY))
    manager = writer.manager_for("Apply")
    before = _bare(live)
    last = managers.get(manager)
    if writer.is_custom and (unfit := _misfits(shape, before, writer, {})):
        meta, version = before["metadata"], writer.api_version
        where = f"({meta.get('namespace', '')}/{meta['name']}; {version}, Kind={before['kind']})"
        failed = (
            f"failed to create manager for existing fields: failed to convert new object {where} to smd typed"
        )
        raise internal(f"{failed}: {unfit[0]}")
    merged = merge(shape, before, config)
    ours = _unreset(difference(fields_of(shape, config), _NEVER_OWNED), writer)
    managers[manager] = ManagedFieldsEntry(ours, writer.api_version, last.time if last else None)
    if last is not None:
        kept = reduce(union, (owned.fields for owned in managers.values()), _NEVER_OWNED)
        merged = remove(shape, merged, last.fields, kept)
    if problem := _misfit(managers, writer, before, merged):
        raise internal(problem)
    comparison = compare(shape, before, merged)
    effect = _effect(comparison, writer)
    conflicts = {
        other: (owned, fields)
        for other, owned in managers.items()
        if other != manager and (fields := intersection(owned.fields, effect(owned).taken))
    }
    if conflicts and not force:
        free = _upgradable(shape, before, writer.api_version) if writer.manager == _KUBECTL else EMPTY
        if left := {
            one: (owned, rest)
            for one, (owned, fields) in conflicts.items()
            if (rest := difference(fields, free))
        }:
            raise conflicting(left)
    managers = {
        other: owned if other == manager else without(owned, effect(owned).lost)
        for other, owned in managers.items()
    }
    if any(comparison) or merged != before:  # owning more, or less, of what there is already is no news
        managers[manager] = managers[manager]._replace(time=writer.now)
    if writer.manager == _KUBECTL:
        merged = _kept_up(merged, config)
    return with_metadata(merged, managedFields=written(_owning(managers)))


def _after_update(
    shape: Shape, managers: Managers, live: Object | None, new: Object, writer: Writer
) -> Managers:
    after = _bare(new)
    empty = {"apiVersion": after.get("apiVersion"), "kind": after.get("kind"), "metadata": {}, **writer.zero}
    before = _bare(live) if live else empty
    effect = _effect(compare(shape, before, after), writer)
    taken, lost = effect()
    manager, ours = writer.manager_for("Update"), difference(taken, _NEVER_OWNED)
    left: Managers = {}
    for other, owned in managers.items():
        if (other != manager or not ours) and (kept := without(owned, effect(owned).lost)).fields:
            left[other] = kept
    if ours:
        mine = managers[manager].fields if manager in managers else EMPTY
        fields = union(difference(mine, difference(lost, ours)), ours)
        left[manager] = ManagedFieldsEntry(fields, writer.api_version, writer.now)
    return _capped(left) if len(left) > _MOST_UPDATERS else left


def _managers_of_request(live: Object | None, new: Object, writer: Writer) -> Managers:
    """Returns the managers before the write. An update of the object itself may edit managedFields, or reset them with
    an empty list or a list of one empty entry.
    """
    if not writer.subresource:
        sent = new["metadata"].get("managedFields")
        if sent in ([], [{}]):
            return {}
        is_edited = live is None or sent != live["metadata"].get("managedFields")
        if is_edited and (given := read_managers(new)):
            return given
    return read_managers(live or {}, stored=True)


def _bare(obj: Object) -> Object:
    if "metadata" not in obj:
        return obj
    meta = {**obj["metadata"]}
    meta.pop("managedFields", None)
    if None in meta.values():
        meta = {name: value for name, value in meta.items() if value is not None}
    return {**obj, "metadata": meta}


class Effect(NamedTuple):
    """What the writer has changed or added, and this with what it has removed."""

    taken: FieldSet
    lost: FieldSet


def _effect(comparison: Comparison, writer: Writer) -> Callable[..., Effect]:
    """Returns the effect of a write, and that on an entry if one is given. What this kind of write cannot change has no
    effect; but the server knows of a custom resource itself only what it cannot change in the version that is written.
    """
    changed = union(comparison.modified, comparison.added)
    taken = _unreset(changed, writer)
    heeded = Effect(taken, union(taken, _unreset(comparison.removed, writer)))

    def effect(owned: ManagedFieldsEntry | None = None) -> Effect:
        if (
            owned is None
            or owned.api_version == writer.api_version
            or writer.subresource
            or not writer.is_custom
        ):
            return heeded
        return Effect(changed, union(changed, comparison.removed))

    return effect


def _unreset(fields: FieldSet, writer: Writer) -> FieldSet:
    """Returns the fields without those that this kind of write cannot change."""
    if not fields:
        return fields
    where, of = writer.subresource, writer.resets
    reset: FieldSet = {}
    for first, below in fields.items():
        named = {
            second: below[second] for second in below if second != "." and _resets(of, where, (first, second))
        }
        if (not below or "." in below) and _resets(of, where, (first,)):
            reset[first] = {".": {}, **named} if named else named
        elif named:
            reset[first] = named
    return difference(fields, reset) if reset else fields


@lru_cache(1024)
def _resets(of: Callable[[str, Path], bool], subresource: str, path: Path) -> bool:
    return of(subresource, path)


def _owning(managers: Managers) -> Managers:
    return {manager: owned for manager, owned in managers.items() if owned.fields}


def _capped(managers: Managers) -> Managers:
    """Merges the oldest updaters into one entry per version if there are too many."""
    updaters = sorted(
        (manager for manager in managers if manager.operation == "Update"),
        key=lambda manager: managers[manager].time or "",
    )
    capped = dict(managers)
    excess = len(updaters) - _MOST_UPDATERS
    for manager in updaters[: excess + 1] if excess > 0 else ():
        owned = capped.pop(manager)
        bucket = Manager(_ANCIENT, "Update", "", owned.api_version)
        earlier = capped[bucket].fields if bucket in capped else EMPTY
        capped[bucket] = owned._replace(fields=union(earlier, owned.fields))
    return capped


def conflicting(conflicts: Mapping[Manager, tuple[ManagedFieldsEntry, FieldSet]]) -> Conflict:
    """Returns the error that names the managers and the fields that they own."""
    causes = []
    sections: dict[str, list[str]] = {}
    for manager, (owned, fields) in conflicts.items():
        name = shown(manager, owned)
        paths = sorted(readable(path) for path in paths_of(fields))
        sections.setdefault(name, []).extend(paths)
        causes += [
            {"reason": "FieldManagerConflict", "message": f"conflict with {name}", "field": path}
            for path in paths
        ]
    if len(causes) == 1:
        listed = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = []
        for name in sorted(sections):
            lines.append(f"conflicts with {name}:")
            lines += [f"- {path}" for path in sections[name]]
        listed = f"{len(causes)} conflicts: " + "\n".join(lines)
    return Conflict(f"Apply failed with {listed}", code=409, reason="Conflict", details={"causes": causes})
