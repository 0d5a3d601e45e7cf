"""Duplicate fields in request bodies, of which the last one wins, unknown fields in the operations of a JSON patch, and
what the server says of YAML that is none.

A JSON body without duplicates costs only one search for text that looks like a key. Source: sigs.k8s.io/json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.scanner import ScannerError

from kubeshard.core import yaml_input
from kubeshard.core.yaml_input import Repeated
from kubeshard_apiserver.model import NO_DUPLICATES, Duplicates


def read_yaml(body: bytes) -> tuple[Any, list[Repeated]]:
    """As `yaml_input.read_yaml`. Raises yaml.YAMLError with the server's message."""
    try:
        return yaml_input.read_yaml(body)
    except yaml.MarkedYAMLError as error:
        raise yaml.YAMLError(f"yaml: {_line(error)}{error.problem}") from None
    except yaml.reader.ReaderError as error:
        raise yaml.YAMLError(f"yaml: {error.reason}") from None


def _line(error: yaml.MarkedYAMLError) -> str:
    """Returns the line of an error. Lines count from 0, as on the server, except for errors of the scanner."""
    mark = error.problem_mark or error.context_mark
    line = 0 if mark is None or not mark.line else mark.line + isinstance(error, ScannerError)
    return f"line {line}: " if line else ""


_KEY = re.compile(rb'"\s*:')


def duplicates_in_json(body: bytes, document: Any, *, is_json_patch: bool = False) -> Duplicates:
    """Reports duplicate keys in a JSON body, and what is unknown in a JSON patch. `document` is the decoded body."""
    unknown = list(_unknown(document)) if is_json_patch else []
    if len(_KEY.findall(body)) == _keys(document):
        return _duplicates(unknown) if unknown else NO_DUPLICATES
    paths = list(dict.fromkeys(_repeated(json.loads(body, object_pairs_hook=_Pairs), "")))
    if not is_json_patch:
        return _duplicates([f'duplicate field "{path}"' for path in paths])
    found = [f'json patch duplicate field "{path}"' for path in paths] + unknown
    return _duplicates(found + [f'duplicate field "{path}"' for path in _patched(paths, document)])


def _unknown(operations: Any) -> Iterator[str]:
    for index, operation in enumerate(operations if isinstance(operations, list) else ()):
        for name in operation if isinstance(operation, dict) else ():
            if name not in ("op", "path", "from", "value"):
                yield f'json patch unknown field "[{index}].{name}"'


def duplicates_in_yaml(repeated: list[Repeated]) -> Duplicates:
    """Reports duplicate keys with their lines."""
    found = [f"line {line}: key {key} already set in map" for line, key in repeated]
    return Duplicates(tuple(found), "\n  ".join(("yaml: unmarshal errors:", *found)) if found else "")


def _duplicates(found: list[str]) -> Duplicates:
    return Duplicates(tuple(found), ", ".join(found))


class _Pairs(list[tuple[str, Any]]):
    """An object with all its members, duplicates included."""


def _keys(document: Any) -> int:
    count, left = 0, [document]
    while left:
        node = left.pop()
        kind = type(node)
        count += len(node) if kind is dict else 0
        members = node.values() if kind is dict else node if kind is list else ()
        left += [member for member in members if type(member) is dict or type(member) is list]
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
