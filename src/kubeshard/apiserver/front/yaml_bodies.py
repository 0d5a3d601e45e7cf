"""YAML as a body of a request: JSON's types, and no document that costs more than its bytes.

Guaranteed: nesting beyond `DEEPEST` and aliases that unfold to more than `MOST_NODES` are refused before they
are built (libyaml would crash on the first, encoding would never end on the second).
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

DEEPEST = 1000
MOST_NODES = 1_000_000

_Fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Fast):  # type: ignore[misc]  # which one is known at run time only
    """JSON's types only: a timestamp stays the text it is."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def decode_yaml(body: bytes) -> Any:
    """Raises yaml.YAMLError, UnicodeDecodeError."""
    has_aliases = _check_depth(body)
    document = yaml.load(body, Loader=_Loader)  # noqa: S506 - a safe loader
    if has_aliases:
        _check_size(document)
    return document


def _check_depth(body: bytes) -> bool:
    """Whether there are aliases."""
    depth, has_aliases = 0, False
    for event in yaml.parse(body, Loader=_Loader):
        if isinstance(event, CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise yaml.YAMLError(f"exceeded max depth of {DEEPEST}")
        elif isinstance(event, CollectionEndEvent):
            depth -= 1
        elif isinstance(event, AliasEvent):
            has_aliases = True
    return has_aliases


def _check_size(document: Any) -> None:
    left, nodes = [document], 0
    while left:
        node = left.pop()
        nodes += 1
        if nodes > MOST_NODES:
            raise yaml.YAMLError("document contains excessive aliasing")
        if isinstance(node, dict):
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)
