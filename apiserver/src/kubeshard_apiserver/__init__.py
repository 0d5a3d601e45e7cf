"""An embedded Kubernetes API server: a sans-IO model of storage and rules, with an HTTP front end on top.

Guaranteed: whatever it implements behaves as in kube-apiserver 1.37; the same conformance suite runs against both. Not
guaranteed: that it implements everything - see the table in docs/apiserver.md. It depends only on kubeshard's `core`
and `runtime`. `cli` contains the command `kubeshard apiserver`, and `testing` the pytest plugin.

Names are imported lazily, because pytest imports this package in every test run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeshard_apiserver.access import ADMINISTRATOR, User
    from kubeshard_apiserver.admission.caller import AppCaller, HttpCaller
    from kubeshard_apiserver.front import ApiServerApp, Front, Identity, InMemoryTransport
    from kubeshard_apiserver.server import ApiServer

__version__ = "0.1.0.dev0"

__all__ = [
    "ADMINISTRATOR",
    "ApiServer",
    "ApiServerApp",
    "AppCaller",
    "Front",
    "HttpCaller",
    "Identity",
    "InMemoryTransport",
    "User",
]

_MODULES = {
    "ADMINISTRATOR": "access",
    "ApiServer": "server",
    "ApiServerApp": "front",
    "AppCaller": "admission.caller",
    "Front": "front",
    "HttpCaller": "admission.caller",
    "Identity": "front",
    "InMemoryTransport": "front",
    "User": "access",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
