"""The version of this distribution, which requests name in their User-Agent, and how to get what an extra brings."""

from __future__ import annotations

__version__ = "0.1.0.dev0"


def how_to_install(extra: str) -> str:
    """From a clone as long as there is no release: until then anybody could put something else under our name into a
    package index.
    """
    return f"in a clone of kubeshard, pip install './kubeshard[{extra}]' ./apiserver ./lab"
