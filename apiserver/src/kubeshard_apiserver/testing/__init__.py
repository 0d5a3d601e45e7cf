"""API servers for tests, embedded or real, and the pytest plugin that provides them.

`EmbeddedApi` and `MemoryApi` are the embedded API server, with and without a socket; `RealApi` is a kube-apiserver
with etcd; `plugin` provides them as pytest fixtures. A test that uses `KubeApi` runs unchanged on either kind.
`ControlPlane` starts etcd, kube-apiserver and more on loopback, and stops them.

Names are imported lazily, because pytest imports this package in every test run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeshard_apiserver.testing.assets import RELEASE
    from kubeshard_apiserver.testing.control_plane import ControlPlane, ControlPlaneFailed, wait_until
    from kubeshard_apiserver.testing.kube_api import EmbeddedApi, KubeApi, RealApi
    from kubeshard_apiserver.testing.memory import MemoryApi

__all__ = [
    "RELEASE",
    "ControlPlane",
    "ControlPlaneFailed",
    "EmbeddedApi",
    "KubeApi",
    "MemoryApi",
    "RealApi",
    "wait_until",
]

_MODULES = {
    "RELEASE": "assets",
    "ControlPlane": "control_plane",
    "ControlPlaneFailed": "control_plane",
    "EmbeddedApi": "kube_api",
    "KubeApi": "kube_api",
    "MemoryApi": "memory",
    "RealApi": "kube_api",
    "wait_until": "control_plane",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
