"""Finding and reading the configuration: by path, environment, home directory or the pod's service account.

Kubeconfig files follow the rules of client-go: with several files, the first that defines a cluster, user or context
wins, and so does the first `current-context`; relative paths are relative to the file that contains them; inline data
wins over a file. A mistake raises ConfigurationError in one line that names file and field.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kubeshard.client.config import (
    PROXY_VARIABLES,
    Auth,
    BasicAuth,
    BearerToken,
    CertificateFiles,
    ClusterConfig,
    ExecPlugin,
    TokenFile,
    checked_proxy,
)
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
    return load_kubeconfig(paths, context)


class _Part(msgspec.Struct, rename="kebab", gc=False):
    """One of the YAML maps; unknown fields are skipped."""


class _Cluster(_Part, kw_only=True):
    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class ExecVariable(_Part):
    name: str
    value: str


class Exec(_Part, rename="camel", kw_only=True):
    command: str
    api_version: str = ""
    args: tuple[str, ...] | None = None
    env: tuple[ExecVariable, ...] | None = None
    install_hint: str | None = None
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False


class User(_Part, kw_only=True):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    exec: Exec | None = None
    auth_provider: dict[str, Any] | None = None
    impersonate: str | None = msgspec.field(default=None, name="as")
    impersonate_uid: str | None = msgspec.field(default=None, name="as-uid")
    impersonate_groups: tuple[str, ...] | None = msgspec.field(default=None, name="as-groups")


class Context(_Part, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class _NamedCluster(_Part):
    name: str
    cluster: _Cluster | None = None


class _NamedUser(_Part):
    name: str
    user: User | None = None


class _NamedContext(_Part):
    name: str
    context: Context | None = None


class _File(_Part, kw_only=True):
    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None
    current_context: str | None = None


class _Merged:
    """All files merged; every entry keeps the file that it is from."""

    def __init__(self) -> None:
        self.current = ""
        self.clusters: dict[str, tuple[Path, _Cluster]] = {}
        self.users: dict[str, tuple[Path, User]] = {}
        self.contexts: dict[str, tuple[Path, Context]] = {}

    def add(self, path: Path, file: _File) -> None:
        for cluster in file.clusters or ():
            self.clusters.setdefault(cluster.name, (path, cluster.cluster or _Cluster()))
        for user in file.users or ():
            self.users.setdefault(user.name, (path, user.user or User()))
        for context in file.contexts or ():
            self.contexts.setdefault(context.name, (path, context.context or Context()))
        if file.current_context and not self.current:
            self.current = file.current_context


def load_kubeconfig(paths: Sequence[Path], context: str | None = None) -> ClusterConfig:
    """The given (or current) context of the merged files. Raises ConfigurationError."""
    merged = _Merged()
    for path in paths:
        merged.add(path, _read_file(path))
    name = context or merged.current
    if not name:
        raise ConfigurationError(
            f"{paths[0]}: no current-context; set it (kubectl config use-context) or name a context"
        )
    if name not in merged.contexts:
        raise ConfigurationError(
            f"{_where(paths)}: context {name!r} does not exist; existing contexts: {_listed(merged.contexts)}"
        )
    context_path, chosen = merged.contexts[name]
    if chosen.cluster not in merged.clusters:
        raise ConfigurationError(
            f"{context_path}: context {name!r}: cluster {chosen.cluster!r} does not exist"
        )
    if chosen.user and chosen.user not in merged.users:
        raise ConfigurationError(f"{context_path}: context {name!r}: user {chosen.user!r} does not exist")
    cluster_path, cluster = merged.clusters[chosen.cluster]
    user_path, user = merged.users.get(chosen.user, (context_path, User()))
    cluster_in = f"{cluster_path}: cluster {chosen.cluster!r}"
    if not cluster.server.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"{cluster_in}: server: {cluster.server!r} is not a URL with http:// or https://"
        )
    try:
        has_host = bool(urlsplit(cluster.server).hostname) and urlsplit(cluster.server).port != 0
    except ValueError:
        has_host = False
    if not has_host:
        raise ConfigurationError(
            f"{cluster_in}: server: {cluster.server!r} does not name a host and a port: write https://HOST:PORT"
        )
    return ClusterConfig(
        server=cluster.server,
        tls=_tls(cluster_path, cluster_in, cluster, user_path, chosen.user, user),
        auth=_auth(user_path, f"{user_path}: user {chosen.user!r}", user),
        namespace=chosen.namespace or "default",
        proxy=_proxy(cluster_in, cluster),
        context=name,
        impersonate=_impersonation(f"{user_path}: user {chosen.user!r}", user),
        certificate_files=_certificate_files(user_path, user),
    )


def _read_file(path: Path) -> _File:
    import yaml  # of which a pod has none to read

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        parsed = yaml.load(path.read_text(), loader)  # noqa: S506 - a safe loader
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{path}: cannot read the kubeconfig: {reason}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" on line {mark.line + 1}" if mark else ""
        raise ConfigurationError(f"{path}: not YAML{line}: {getattr(error, 'problem', error)}") from error
    try:
        return msgspec.convert(parsed or {}, _File)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path}: not a kubeconfig: {error}") from error


def _tls(
    cluster_path: Path, cluster_in: str, cluster: _Cluster, user_path: Path, user_name: str, user: User
) -> Tls:
    user_in = f"{user_path}: user {user_name!r}"
    certificate = _pem(
        user_path, user_in, "client-certificate", user.client_certificate_data, user.client_certificate
    )
    key = _pem(user_path, user_in, "client-key", user.client_key_data, user.client_key)
    if (certificate is None) != (key is None):
        raise ConfigurationError(f"{user_in}: client-certificate and client-key must be given together")
    ca = _pem(
        cluster_path,
        cluster_in,
        "certificate-authority",
        cluster.certificate_authority_data,
        cluster.certificate_authority,
    )
    if ca and cluster.insecure_skip_tls_verify:
        raise ConfigurationError(
            f"{cluster_in}: certificate-authority and insecure-skip-tls-verify exclude each other"
        )
    return Tls(ca, cluster.insecure_skip_tls_verify, cluster.tls_server_name or None, certificate, key)


def _certificate_files(path: Path, user: User) -> CertificateFiles | None:
    if (
        user.client_certificate_data
        or user.client_key_data
        or not (user.client_certificate and user.client_key)
    ):
        return None
    return CertificateFiles(_relative(path, user.client_certificate), _relative(path, user.client_key))


def _pem(path: Path, where: str, field: str, data: str | None, file: str | None) -> str | None:
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, ValueError) as error:
            raise ConfigurationError(f"{where}: {field}-data: not base64 of PEM text") from error
    if not file:
        return None
    try:
        return _relative(path, file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"{_relative(path, file)}: {error.strerror}" if isinstance(error, OSError) else error
        raise ConfigurationError(f"{where}: {field}: {problem}") from error


def _auth(path: Path, where: str, user: User) -> Auth:
    if user.exec is not None:
        return _exec(path, where, user.exec)
    if user.token:
        if not user.token.isprintable():
            raise ConfigurationError(f"{where}: token: contains a line break or another invalid character")
        return BearerToken(user.token)
    if user.token_file:
        return TokenFile(_relative(path, user.token_file))
    if user.username or user.password:
        return BasicAuth(user.username or "", user.password or "")
    if user.auth_provider:
        name = user.auth_provider.get("name", "")
        raise ConfigurationError(
            f"{where}: auth-provider {name!r} is no longer supported; use its exec plugin"
        )
    return None


def _exec(path: Path, where: str, given: Exec) -> ExecPlugin:
    if given.interactive_mode == "Always":
        raise ConfigurationError(f"{where}: exec: interactiveMode Always: {given.command} cannot prompt here")
    if given.api_version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise ConfigurationError(
            f"{where}: exec: apiVersion: {given.api_version!r} must be .../v1 or .../v1beta1"
        )
    command = str(_relative(path, given.command)) if "/" in given.command else given.command
    return ExecPlugin(
        command=command,
        args=given.args or (),
        env={variable.name: variable.value for variable in given.env or ()},
        api_version=given.api_version,
        install_hint=(given.install_hint or "").strip(),
        provide_cluster_info=given.provide_cluster_info,
    )


def _proxy(where: str, cluster: _Cluster) -> str | None:
    if cluster.proxy_url:
        return checked_proxy(f"{where}: proxy-url", cluster.proxy_url)
    return checked_proxy(PROXY_VARIABLES, environ.proxy_for(cluster.server))


def _impersonation(where: str, user: User) -> Mapping[str, str]:
    if len(user.impersonate_groups or ()) > 1:
        raise ConfigurationError(f"{where}: as-groups: only one group is supported")
    headers = {"Impersonate-User": user.impersonate, "Impersonate-Uid": user.impersonate_uid}
    # The API server only reads several groups from repeated header lines, which we cannot send.
    if user.impersonate_groups:
        headers["Impersonate-Group"] = user.impersonate_groups[0]
    return {name: value for name, value in headers.items() if value}


def _relative(path: Path, file: str) -> Path:
    return path.parent / Path(file).expanduser()


def _where(paths: Iterable[Path]) -> str:
    return ", ".join(map(str, paths))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
