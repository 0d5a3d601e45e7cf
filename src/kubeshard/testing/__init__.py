"""Tools for testing controllers: virtual time, processes that never outlive their test, and a real control plane.

`virtual_time` runs asyncio code whose timers fire at once; `ControlPlane` starts etcd and kube-apiserver (and more) on
loopback and stops them. Users' tests may import everything here; production code imports none of it. The embedded API
server and the pytest plugin are in `kubeshard_apiserver.testing`, which belongs to the other distribution.

Names are imported lazily, so using virtual time does not import what starts processes and makes certificates.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeshard.testing.assets import RELEASE
    from kubeshard.testing.control_plane import ControlPlane, ControlPlaneFailed, wait_until

__all__ = ["RELEASE", "ControlPlane", "ControlPlaneFailed", "wait_until"]

_MODULES = {
    "assets": ("RELEASE",),
    "control_plane": ("ControlPlane", "ControlPlaneFailed", "wait_until"),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
