"""API servers for tests, embedded or real, and the pytest plugin that provides them.

`EmbeddedApi` and `MemoryApi` are the embedded API server, with and without a socket; `RealApi` is a kube-apiserver
with etcd; `plugin` provides them as pytest fixtures. A test that uses `KubeApi` runs unchanged on either kind.

Names are imported lazily, because pytest imports this package in every test run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeshard_apiserver.testing.embedded import EmbeddedApi
    from kubeshard_apiserver.testing.kube_api import KubeApi
    from kubeshard_apiserver.testing.memory import MemoryApi
    from kubeshard_apiserver.testing.real import RealApi

__all__ = ["EmbeddedApi", "KubeApi", "MemoryApi", "RealApi"]

_MODULES = {"EmbeddedApi": "embedded", "KubeApi": "kube_api", "MemoryApi": "memory", "RealApi": "real"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
