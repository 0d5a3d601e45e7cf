"""What a URL path of the Kubernetes API names. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

_OF_NAMESPACES = ("status", "finalize")


class ResourcePath(NamedTuple):
    """`namespace` and `name` are empty where the path has none. `watch`: the old form `/api/v1/watch/...`.
    `below`: whether the path goes on after the subresource.
    """

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    below: bool = False


def resource_path(path: str) -> ResourcePath | None:
    """None for what is not a path of a resource (discovery documents, health, nonsense)."""
    return (_read if len(path) <= _LONGEST_KEPT else _read.__wrapped__)(path)


_LONGEST_KEPT = 1024


@lru_cache(2048)
def _read(path: str) -> ResourcePath | None:
    parts = [unquote(part) for part in path.strip("/").split("/")]
    match parts:
        case ["api", version, *rest] if rest:
            return _resource("", version, rest)
        case ["apis", group, version, *rest] if rest:
            return _resource(group, version, rest)
    return None


def _resource(group: str, version: str, rest: list[str]) -> ResourcePath | None:
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _OF_NAMESPACES):
        namespace, rest = rest[1], rest[2:]
    if not all(rest[:3]):
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    return ResourcePath(group, version, plural, namespace, name, subresource, watch, len(rest) > 3)
