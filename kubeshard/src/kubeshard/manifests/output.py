"""Objects as JSON, and what marks a file as made from them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

GENERATED = "# Made by `make manifests`; do not edit.\n"
"""The first line of files that are checked in."""


def as_json(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def listed(objects: Iterable[Any]) -> str:
    return as_json({"apiVersion": "v1", "kind": "List", "items": list(objects)})
