"""Merges an applied configuration into a live value, and removes fields that no longer have an owner. Pure; the
results share parts with the arguments, which are not modified.
"""

from __future__ import annotations

from typing import Any

from kubeshard_apiserver.apply.fieldset import FieldSet
from kubeshard_apiserver.apply.shape import Path, Shape, item_element, parts


def merge(shape: Shape, live: Any, applied: Any) -> Any:
    """Merges granular parts and replaces leaves; a null leaves granular parts as they are. Items of lists keep the live
    order; new ones follow.
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
    return [
        merge(part.shape, part.value, ours[element].value) if element in ours else part.value
        for element, part in theirs.items()
    ] + [part.value for element, part in ours.items() if element not in theirs]


def remove(shape: Shape, value: Any, paths: FieldSet, kept: FieldSet) -> Any:
    """Returns the value without `paths`, and without the declared fields that contain them, except where something in
    or below them is in `kept`.
    """
    safe = {path[:length] for path in kept for length in range(1, len(path) + 1)}
    above = {path[:length] for path in paths for length in range(1, len(path))}
    return _remove(shape, value, (), (paths, above), safe)


def _remove(shape: Shape, value: Any, path: Path, doomed: tuple[FieldSet, set[Path]], safe: set[Path]) -> Any:
    inner = parts(shape, value)
    if inner is None:
        return value
    paths, above = doomed
    left: dict[str, Any] = {}
    for element, part in inner.items():
        here = (*path, element)
        if here in safe or not (here in paths or (part.declared and here in above)):
            left[element] = _remove(part.shape, part.value, here, doomed, safe)
    if isinstance(value, dict):
        return {element[2:]: rest for element, rest in left.items()}
    return [left[element] for item in value if (element := item_element(shape, item)) in left]
