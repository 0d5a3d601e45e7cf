"""An embedded Kubernetes API server: a sans-IO model of storage and rules, and an HTTP front over it.

Guaranteed: what it does, it does as kube-apiserver 1.36 does; one conformance suite runs against both. Not
guaranteed: that it does everything - docs/apiserver.md has the table. Beside the floors: it knows `core` and
`runtime` only.
"""

from kubeshard.apiserver.front import ApiServerApp, Front, Identity, InMemoryTransport
from kubeshard.apiserver.identity import ADMINISTRATOR, User
from kubeshard.apiserver.server import ApiServer

__all__ = ["ADMINISTRATOR", "ApiServer", "ApiServerApp", "Front", "Identity", "InMemoryTransport", "User"]
