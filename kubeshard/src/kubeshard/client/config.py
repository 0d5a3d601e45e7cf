"""The address of the API server and how to authenticate, as plain data.

A `ClusterConfig` is made by `kubeshard.client.kubeconfig` (kubeconfig files or the pod's service account) or by
hand; nothing in it is bound to an event loop, so several clients may share one. Credentials that change (token
files, exec plugins) are only described here: `kubeshard.client.credentials` implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.tls import Tls

__all__ = [
    "Auth",
    "BasicAuth",
    "BearerToken",
    "ClusterConfig",
    "ExecPlugin",
    "Files",
    "Tls",
    "TokenFile",
]


class Files(NamedTuple):
    """The files that a configuration was read from, and how it is read again when one of them has changed: every few
    seconds, after a 401, and when a connection fails. Only the TLS settings and `auth` are taken over, and nothing if
    the server is another one. `read` raises ConfigurationError while the files cannot be used.
    """

    paths: tuple[Path, ...]
    read: Callable[[], ClusterConfig]


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token that is never renewed: once it has expired, requests raise Unauthorized."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token in a file that others rotate: read again when it is a minute old, and after a 401. `fallback` is the
    token while the file cannot be read.
    """

    path: Path
    fallback: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class BasicAuth:
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A command that prints an ExecCredential (client.authentication.k8s.io v1 or v1beta1)."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provide_cluster_info: bool = False
    cluster_config: Any = None
    """What the cluster of the kubeconfig says for the plugin."""


Auth = BearerToken | TokenFile | BasicAuth | ExecPlugin | None
"""How to authenticate; None means anonymously, or with the client certificate alone."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One API server and one user. `namespace` is the context's default; `impersonate` contains request headers, each
    with its value or values. A copy with other TLS settings or another `auth` does not follow the files any more.
    """

    server: str
    tls: Tls = field(default_factory=Tls)
    auth: Auth = None
    namespace: str = "default"
    proxy: str | None = field(default=None, repr=False)
    """The proxy's URL, which may contain a password."""
    context: str = ""
    impersonate: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    files: Files | None = field(default=None, repr=False, compare=False)
    _said: tuple[Files | None, Tls, Auth] | None = field(default=None, repr=False, compare=False)
    """The files, and what they said."""

    def __post_init__(self) -> None:
        if self._said is None or self._said[0] is not self.files:
            object.__setattr__(self, "_said", (self.files, self.tls, self.auth))
        elif self._said[1:] != (self.tls, self.auth):
            object.__setattr__(self, "files", None)


PROXY_VARIABLES = "proxy variables of the environment"


def checked_proxy(source: str, proxy: str | None) -> str | None:
    """The URL, if a connection can be made with it. Raises ConfigurationError, which names the `source` and shows
    the URL without its credentials: messages end up in logs.
    """
    if not proxy:
        return None
    if not proxy.startswith(("http://", "https://", "socks5://", "socks5h://")):
        raise ConfigurationError(
            f"{source}: {_without_credentials(proxy)!r}: only http://, https:// and socks5:// proxies are supported"
        )
    try:
        parts = urlsplit(proxy)
        usable = bool(parts.hostname) and parts.port != 0 and not any(map(str.isspace, proxy))
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(
            f"{source}: {_without_credentials(proxy)!r} is not a proxy URL: write http://HOST:PORT"
        )
    return proxy


def _without_credentials(url: str) -> str:
    """The URL without user name and password. Also works for text that is not a URL."""
    before, _, rest = url.rpartition("://")
    credentials, _, host = rest.rpartition("@")
    return (
        f"{before}://{'***@' if credentials else ''}{host}"
        if before
        else f"{'***@' if credentials else ''}{host}"
    )
