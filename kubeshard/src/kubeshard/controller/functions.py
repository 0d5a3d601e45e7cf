"""What can be seen of an author's function before it is called."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction, isfunction, ismethod, signature, unwrap
from typing import Any


def is_plain(function: Callable[..., Any]) -> bool:
    """A `def` that is not an `async def`; a decorated `async def` may be either."""
    function = unwrap(function)
    return (isfunction(function) or ismethod(function)) and not iscoroutinefunction(function)


def takes_two(function: Callable[..., Any]) -> bool:
    """Whether it can be called with two positional arguments; True if unknown."""
    try:
        parameters = signature(function)
    except (TypeError, ValueError):  # some callables written in C have no signature
        return True
    try:
        parameters.bind(None, None)
    except TypeError:
        return False
    return True
