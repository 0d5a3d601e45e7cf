"""Testing controllers: a real control plane on demand, and virtual time.

`ControlPlane` starts etcd and kube-apiserver (and more) on loopback and stops them; `virtual_time` runs
asyncio code whose timers fire at once. Users' tests may import everything here; production code imports
nothing of it.
"""

from kubeshard.testing.assets import RELEASE, cache_folder, find_assets
from kubeshard.testing.child import Child, is_running
from kubeshard.testing.control_plane import ControlPlane, ControlPlaneFailed, free_port, wait_until

__all__ = [
    "RELEASE",
    "Child",
    "ControlPlane",
    "ControlPlaneFailed",
    "cache_folder",
    "find_assets",
    "free_port",
    "is_running",
    "wait_until",
]
