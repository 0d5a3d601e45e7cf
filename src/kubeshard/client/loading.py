"""Finding the configuration: by path, environment, home directory or the pod's service account."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kubeshard.client.config import PROXY_VARIABLES, ClusterConfig, TokenFile, checked_proxy
from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime import environ
from kubeshard.runtime.tls import Tls


async def load_config(kubeconfig: str | Path | None = None, context: str | None = None) -> ClusterConfig:
    """The configuration by the usual order: the given path, `$KUBECONFIG` (several files are merged),
    `~/.kube/config`, the pod's service account.

    Raises ConfigurationError, in one line that names the file and field, or everything that was tried.
    """
    return read_config(kubeconfig, context)


def in_cluster_config(service_account: Path = environ.SERVICE_ACCOUNT) -> ClusterConfig:
    """The configuration of a pod. Raises ConfigurationError outside a cluster, or if the token is not
    mounted.
    """
    host, port = environ.variable("KUBERNETES_SERVICE_HOST"), environ.variable("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigurationError(
            "no cluster configured: pass a kubeconfig, set KUBECONFIG, create ~/.kube/config, or run in a pod"
        )
    token = service_account / "token"
    if not token.exists():
        raise ConfigurationError(
            f"{token} is missing: set automountServiceAccountToken, or project a token there"
        )
    try:
        ca = (service_account / "ca.crt").read_text()
    except OSError as error:
        raise ConfigurationError(f"cannot read the cluster's CA: {error}") from error
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return ClusterConfig(
        server=server,
        tls=Tls(ca=ca),
        auth=TokenFile(token),
        namespace=environ.pod_namespace(service_account) or "default",
        proxy=checked_proxy(PROXY_VARIABLES, environ.proxy_for(server)),
    )


def read_config(kubeconfig: str | Path | None, context: str | None) -> ClusterConfig:
    """`load_config` as a plain function. Raises ConfigurationError."""
    if kubeconfig is not None:
        return _read([Path(kubeconfig).expanduser()], context)
    if named := environ.variable("KUBECONFIG"):
        paths = [Path(part).expanduser() for part in named.split(":") if part]
        existing = [path for path in paths if path.exists()]
        if not existing:
            raise ConfigurationError(f"KUBECONFIG={named}: no such file; correct the variable or unset it")
        return _read(existing, context)
    home = environ.home()
    if home is not None and (path := home / ".kube" / "config").exists():
        return _read([path], context)
    if context is not None:
        raise ConfigurationError(f"context {context!r} needs a kubeconfig: give its path, or set KUBECONFIG")
    return in_cluster_config()


def _read(paths: Sequence[Path], context: str | None) -> ClusterConfig:
    from kubeshard.client.kubeconfig import load_kubeconfig  # it needs YAML, of which a pod has none to read

    return load_kubeconfig(paths, context)
