"""The API server on a socket: TLS, who may come in, the kubeconfig that leads there, and a clean end.

`embedded` is the server as a library; `credentials` what it shows and what it asks for.
"""

from kubeshard_apiserver.serving.credentials import Credentials
from kubeshard_apiserver.serving.embedded import EmbeddedServer, embedded_in_thread

__all__ = ["Credentials", "EmbeddedServer", "embedded_in_thread"]
