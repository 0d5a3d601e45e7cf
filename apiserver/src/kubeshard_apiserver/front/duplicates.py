"""Duplicate fields in a body: the last one wins, and the client gets a warning.

A body without duplicates costs only one search for text that looks like a key. Source: sigs.k8s.io/json,
sigs.k8s.io/yaml.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kubeshard_apiserver.front.yaml_bodies import Repeated
from kubeshard_apiserver.model import NO_DUPLICATES, Duplicates

_KEY = re.compile(rb'"\s*:')


def duplicates_in_json(body: bytes, document: Any, *, is_json_patch: bool = False) -> Duplicates:
    """Reports duplicate keys in a JSON body. `document` is the decoded body."""
    if len(_KEY.findall(body)) == _keys(document):
        return NO_DUPLICATES
    paths = list(dict.fromkeys(_repeated(json.loads(body, object_pairs_hook=_Pairs), "")))
    if not is_json_patch:
        return _told([f'duplicate field "{path}"' for path in paths])
    told = [f'json patch duplicate field "{path}"' for path in paths]
    return _told(told + [f'duplicate field "{path}"' for path in _patched(paths, document)])


def duplicates_in_yaml(repeated: list[Repeated]) -> Duplicates:
    """Reports duplicate keys with their lines."""
    told = [f"line {line}: key {key} already set in map" for line, key in repeated]
    return Duplicates(tuple(told), "\n  ".join(("yaml: unmarshal errors:", *told)) if told else "")


def _told(told: list[str]) -> Duplicates:
    return Duplicates(tuple(told), ", ".join(told))


class _Pairs(list[tuple[str, Any]]):
    """An object with all its members, duplicates included."""


def _keys(document: Any) -> int:
    count, left = 0, [document]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            count += len(node)
            left.extend(member for member in node.values() if isinstance(member, dict | list))
        elif isinstance(node, list):
            left.extend(member for member in node if isinstance(member, dict | list))
    return count


def _repeated(node: Any, path: str) -> Iterator[str]:
    if isinstance(node, _Pairs):
        seen = set()
        for name, member in node:
            below = f"{path}.{name}" if path else name
            if name in seen:
                yield below
            seen.add(name)
            yield from _repeated(member, below)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _repeated(item, f"{path}[{index}]")


def _patched(paths: list[str], operations: Any) -> Iterator[str]:
    """Yields the paths in the patched object that correspond to duplicates in the values of the operations."""
    for path in paths:
        found = re.fullmatch(r"\[(\d+)\]\.value\.(.+)", path, re.S)
        if (
            found
            and isinstance(operations, list)
            and isinstance(operation := operations[int(found[1])], dict)
        ):
            yield ".".join((*str(operation.get("path", "")).split("/")[1:], found[2]))
