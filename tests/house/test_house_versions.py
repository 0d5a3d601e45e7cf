"""What the oldest tested Python does otherwise than the ones that most tests run on: 3.11.2, that of Debian 12."""

from __future__ import annotations

import ast

from source_tree import PACKAGES, parsed


def test_nothing_is_awaited_or_raised_in_a_handler_of_exception_groups() -> None:
    """Python before 3.11.4 wraps what leaves `except*` in a group, CancelledError as well: a task that is cancelled
    there looks as if it had failed.
    """
    found = [
        f"{path}:{node.lineno}"
        for package in PACKAGES
        for path in sorted(package.rglob("*.py"))
        for group in ast.walk(parsed(path))
        if isinstance(group, ast.TryStar)
        for handler in group.handlers
        for node in ast.walk(handler)
        if isinstance(node, ast.Await | ast.AsyncWith | ast.AsyncFor | ast.Raise)
    ]
    assert not found
