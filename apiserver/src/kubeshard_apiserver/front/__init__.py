"""The HTTP face of the model: paths, verbs, content types, discovery and streams.

`Front` turns one request into one reply and knows nothing of connections; `app` puts it under an ASGI server,
`memory` under a client in the same process. No rule about objects lives here.
"""

from kubeshard_apiserver.front.app import ApiServerApp
from kubeshard_apiserver.front.handlers import Front
from kubeshard_apiserver.front.identity import Identity
from kubeshard_apiserver.front.memory import InMemoryTransport

__all__ = ["ApiServerApp", "Front", "Identity", "InMemoryTransport"]
