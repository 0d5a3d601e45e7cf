"""What processes an experiment has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Launch(NamedTuple):
    name: str
    role: str
    command: Sequence[str]
    environment: Mapping[str, str]
    metrics: str = ""
    """The URL of its metrics; `""` if it has none that can be read directly."""
    restart: bool = True


class Watched(NamedTuple):
    """A process that somebody else started and is to be watched."""

    name: str
    role: str
    pid: int
