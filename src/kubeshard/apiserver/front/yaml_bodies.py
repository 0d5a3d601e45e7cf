"""YAML as a body of a request: JSON's types, the first document only, and none that costs more than its bytes.

Guaranteed: nesting beyond `DEEPEST` and aliases that unfold to more than `MOST_NODES` are refused before they
are built (libyaml would crash on the first, encoding would never end on the second).
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec
import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, DocumentEndEvent
from yaml.nodes import ScalarNode

DEEPEST = 1000
MOST_NODES = 1_000_000

_Fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_TAG = "tag:yaml.org,2002:"
_TEXT = _TAG + "str"


class _Loader(_Fast):  # type: ignore[misc]  # which one is known at run time only
    """Words and numbers of YAML 1.1 as the server's parser reads them; a timestamp stays the text it is."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        self.flatten_mapping(node)
        # Before there is a dict of them: True and 1 are one key of it.
        node.value = [
            (
                key if key.tag == _TEXT else ScalarNode(_TEXT, _key(self.construct_object(key, deep=True))),
                value,
            )
            for key, value in node.value
        ]
        return cast("dict[str, Any]", super().construct_mapping(node, deep=deep))

    def construct_text(self, node: Any) -> str:
        return str(self.construct_yaml_binary(node).decode(errors="replace"))

    def construct_number(self, node: Any) -> int:
        digits = self.construct_scalar(node).replace("_", "")
        try:
            return int(digits, 0)
        except ValueError:
            return int(digits, 8)  # a leading zero alone


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int | float):
        return str(key).removesuffix(".0")
    raise yaml.YAMLError(f"unsupported map key of type: {type(key).__name__}")


_INT = r"[-+]?(?:0[bB][01_]+|0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]*|[1-9][0-9_]*)"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_BOOL = "y|Y|yes|Yes|YES|on|On|ON|true|True|TRUE|n|N|no|No|NO|off|Off|OFF|false|False|FALSE"
_NULL = "~|null|Null|NULL|"
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
    ("bool", _BOOL, "yYnNtTfFoO"),
    ("null", _NULL, ["~", "n", "N", ""]),
    ("merge", "<<", "<"),
):
    _Loader.add_implicit_resolver(_TAG + _tag, re.compile(rf"(?:{_pattern})\Z"), list(_first))
_Loader.add_constructor(_TAG + "binary", _Loader.construct_text)
_Loader.add_constructor(_TAG + "int", _Loader.construct_number)
_Loader.bool_values = {**_Loader.bool_values, "y": True, "n": False}


def decode_yaml(body: bytes) -> Any:
    """Raises yaml.YAMLError, UnicodeDecodeError."""
    if body.lstrip().startswith(b"{"):
        try:
            return msgspec.json.decode(body)  # much faster, and what most clients send
        except msgspec.DecodeError:
            pass
    has_aliases = _check_depth(body)
    loader = _Loader(body)
    try:
        document = loader.get_data() if loader.check_data() else None
    finally:
        loader.dispose()
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
        elif isinstance(event, DocumentEndEvent):
            break
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
