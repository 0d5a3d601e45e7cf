"""Objects as text: the same bytes for the same objects."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import yaml

GENERATED = "# Made by `make manifests`; do not edit.\n"
"""The first line of files that are checked in."""


class _Dumper(yaml.SafeDumper):
    """Writes no aliases, and strings of several lines as block scalars."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(document: Any) -> str:
    """One document, without a separator."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)
    return text


def documents(objects: Iterable[Any]) -> str:
    """YAML documents for `kubectl apply -f -`."""
    return "---\n".join(map(as_yaml, objects))


def as_json(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def listed(objects: Iterable[Any]) -> str:
    """A `List` as JSON."""
    return as_json({"apiVersion": "v1", "kind": "List", "items": list(objects)})
