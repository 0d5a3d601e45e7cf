"""The API server on a socket: TLS, authentication, a kubeconfig, and an orderly shutdown.

`embedded` is the server as a library; `credentials` contains its certificates and tokens.
"""

from kubeshard_apiserver.serving.credentials import Credentials
from kubeshard_apiserver.serving.embedded import EmbeddedServer, embedded_in_thread

__all__ = ["Credentials", "EmbeddedServer", "embedded_in_thread"]
