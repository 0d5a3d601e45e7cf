"""The names that expressions of policies and match conditions may use, with the types that the server declares.

Source: k8s.io/apiserver `admission/plugin/cel`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_KIND = ("group", "version", "kind")
_RESOURCE = ("group", "version", "resource")
_STRINGS = (
    *(f"{name}.{field}" for name in ("kind", "requestKind") for field in _KIND),
    *(f"{name}.{field}" for name in ("resource", "requestResource") for field in _RESOURCE),
    *(
        "subResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
        "userInfo.username",
        "userInfo.uid",
    ),
)
REQUEST = (
    "request",
    *(f"request.{field}: string" for field in _STRINGS),
    "request.userInfo.groups: list(string)",
    "request.dryRun: bool",
)
_METADATA = ("name", "generateName", "namespace", "uid", "resourceVersion")
NAMESPACE = (
    "namespaceObject",
    *(f"namespaceObject.metadata.{field}: string" for field in _METADATA),
    *(f"namespaceObject.metadata.{field}: map(string, string)" for field in ("labels", "annotations")),
    "namespaceObject.status.phase: string",
)
NAMES = ("object", "oldObject", "authorizer", *REQUEST, *NAMESPACE)

_MEMBERS = {
    "request": {*(name.partition(".")[0] for name in _STRINGS), "dryRun", "options", "object", "oldObject"},
    "request.kind": {*_KIND},
    "request.resource": {*_RESOURCE},
    "request.userInfo": {"username", "uid", "groups", "extra"},
    "namespaceObject": {"apiVersion", "kind", "metadata", "spec", "status"},
    "namespaceObject.spec": {"finalizers"},
    "namespaceObject.status": {"phase", "conditions"},
}
_PATH = re.compile(r"(?<![\w.'\"])(request|namespaceObject|variables)((?:\.[A-Za-z_]\w*)+)(?!\w*\s*\()")

_PRESENCE = re.compile(
    r"\bhas\(\s*(request|namespaceObject|variables)\b|\b(request|namespaceObject|variables)\b[\w.]*(\.|\[)\?"
)


def asks_for_presence(expression: str) -> bool:
    """Report whether the expression tests the presence of a member of a variable with declared members."""
    return _PRESENCE.search(expression) is not None


def undefined_field(expression: str, names: Iterable[str]) -> str:
    """Return the compiler's message for the first undefined member, or an empty string if all are defined."""
    composed = {
        name.partition(": ")[0].removeprefix("variables.") for name in names if name.startswith("variables.")
    }
    members = {**_MEMBERS, "variables": composed}
    for mention in _PATH.finditer(expression):
        parent, at = mention[1], mention.start(2)
        for field in mention[2][1:].split("."):
            if field not in members.get(parent, {field}):
                return _undefined(expression, at, field)
            parent, at = f"{parent}.{field}", at + len(field) + 1
    return ""


def _undefined(expression: str, at: int, name: str) -> str:
    before = expression[:at]
    row, column = before.count("\n") + 1, at - before.rfind("\n")
    line = expression.split("\n")[row - 1]
    return f"ERROR: <input>:{row}:{column}: undefined field '{name}'\n | {line}\n | {'.' * (column - 1)}^"
