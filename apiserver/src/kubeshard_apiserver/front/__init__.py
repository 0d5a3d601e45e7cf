"""The HTTP front end of the model: paths, verbs, content types, discovery and streams.

`Front` turns a request into a reply and is independent of connections; `app` connects it to an ASGI server, and
`memory` to a client in the same process. This package contains no rules about objects.
"""

from kubeshard_apiserver.front.app import ApiServerApp
from kubeshard_apiserver.front.gate import Identity
from kubeshard_apiserver.front.handlers import Front
from kubeshard_apiserver.front.memory import InMemoryTransport

__all__ = ["ApiServerApp", "Front", "Identity", "InMemoryTransport"]
