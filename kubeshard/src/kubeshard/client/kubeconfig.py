"""Finding and reading the configuration: by path, environment, home directory or the pod's service account.

Kubeconfig files follow the rules of client-go:

| what | rule |
|---|---|
| several files | the first that defines a cluster, user or context wins, and so does the first `current-context` |
| paths | relative to the file that contains them |
| `*-data` | wins over the file of the same name; base64, with or without line breaks |
| `tokenFile` | wins over `token`, which is used while the file cannot be read; both, and a user name, win over `exec` |
| `as-uid`, `as-groups`, `as-user-extra` | need `as` |
| `proxy-url` | http, https or socks5; wins over the environment |
| a server without TLS | is sent no credentials, and `certificate-authority` and others mean nothing |

Unlike there, the files are read again when they change, the kubeconfig itself included: what the same context says of
TLS and credentials then counts. A mistake raises ConfigurationError in one line that names file and field.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kubeshard.client.config import (
    PROXY_VARIABLES,
    Auth,
    BasicAuth,
    BearerToken,
    ClusterConfig,
    ExecPlugin,
    Files,
    TokenFile,
    checked_proxy,
)
from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime import environ
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.tls import Tls

_log = get_logger("kubeshard.client")


async def load_config(kubeconfig: str | Path | None = None, context: str | None = None) -> ClusterConfig:
    """The configuration by the usual order: the given path, `$KUBECONFIG` (several files are merged),
    `~/.kube/config`, the pod's service account.

    Raises ConfigurationError, in one line that names the file and field, or everything that was tried.
    """
    return read_config(kubeconfig, context)


def in_cluster_config(service_account: Path = environ.SERVICE_ACCOUNT) -> ClusterConfig:
    """The configuration of a pod. Raises ConfigurationError outside a cluster, or if no token is mounted."""
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
    # Some set it by hand in brackets, for clients that do not add them.
    bare = host.removeprefix("[").removesuffix("]")
    server = f"https://{f'[{bare}]' if ':' in bare else bare}:{port}"
    return ClusterConfig(
        server=server,
        tls=Tls(ca=ca),
        auth=TokenFile(token),
        namespace=environ.pod_namespace(service_account) or "default",
        proxy=checked_proxy(PROXY_VARIABLES, environ.proxy_for(server)),
        files=Files((service_account / "ca.crt",), lambda: in_cluster_config(service_account)),
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
    extensions: tuple[_NamedExtension, ...] = ()


class _NamedExtension(_Part):
    name: str = ""
    extension: Any = None


class ExecVariable(_Part):
    name: str = ""
    value: str = ""


class Exec(_Part, rename="camel", kw_only=True):
    command: str = ""
    api_version: str = ""
    args: tuple[str, ...] = ()
    env: tuple[ExecVariable, ...] = ()
    install_hint: str = ""
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
    impersonate_groups: tuple[str, ...] = msgspec.field(default=(), name="as-groups")
    impersonate_extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict, name="as-user-extra")


class Context(_Part, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class _NamedCluster(_Part):
    name: str = ""
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)


class _NamedUser(_Part):
    name: str = ""
    user: User = msgspec.field(default_factory=User)


class _NamedContext(_Part):
    name: str = ""
    context: Context = msgspec.field(default_factory=Context)


class _File(_Part, kw_only=True):
    kind: str = "Config"
    api_version: str = msgspec.field(default="v1", name="apiVersion")
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()
    current_context: str = ""


class _Merged:
    """All files merged; every entry keeps the file that it is from."""

    def __init__(self) -> None:
        self.current = ""
        self.clusters: dict[str, tuple[Path, _Cluster]] = {}
        self.users: dict[str, tuple[Path, User]] = {}
        self.contexts: dict[str, tuple[Path, Context]] = {}

    def add(self, path: Path, file: _File) -> None:
        """Raises ConfigurationError for a name that is twice in the file."""
        for what, given in (("clusters", file.clusters), ("users", file.users), ("contexts", file.contexts)):
            names = Counter(each.name for each in given)
            if twice := next((name for name, times in names.items() if times > 1), None):
                raise ConfigurationError(f"{path}: {what}: {twice!r} is there twice: remove one")
        self.clusters = {each.name: (path, each.cluster) for each in file.clusters} | self.clusters
        self.users = {each.name: (path, each.user) for each in file.users} | self.users
        self.contexts = {each.name: (path, each.context) for each in file.contexts} | self.contexts
        self.current = self.current or file.current_context


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
    if (
        cluster.server and "://" not in cluster.server and user == User()
    ):  # otherwise it is a forgotten https://
        cluster.server = f"http://{cluster.server}"
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
    user_in = f"{user_path}: user {chosen.user!r}"
    tls, auth = Tls(), None
    if cluster.server.startswith("https://"):
        tls = _tls(cluster_path, cluster_in, cluster, user_path, user_in, user)
        auth = _auth(user_path, user_in, user)
        if isinstance(auth, ExecPlugin):
            auth = replace(auth, cluster_config=_for_plugins(cluster))
    elif user != User():
        _log.warning(
            "The API server is sent no credentials, as by kubectl, because it has no TLS",
            server=cluster.server,
        )
    return ClusterConfig(
        server=cluster.server,
        tls=tls,
        auth=auth,
        namespace=chosen.namespace or "default",
        proxy=_proxy(cluster_in, cluster),
        context=name,
        impersonate=_impersonation(user_in, user),
        files=Files(
            (*paths, *_referenced(cluster_path, cluster, user_path, user)),
            # By the context's name, because another may be the current one by then.
            lambda: load_kubeconfig(paths, name),
        ),
    )


def _referenced(cluster_path: Path, cluster: _Cluster, user_path: Path, user: User) -> tuple[Path, ...]:
    """The files with certificates and keys."""
    given = (
        (cluster_path, cluster.certificate_authority),
        (user_path, user.client_certificate),
        (user_path, user.client_key),
    )
    return tuple(_relative(path, file) for path, file in given if file)


def _read_file(path: Path) -> _File:
    from kubeshard.core.yaml_input import Unreadable, documents_in, without_nulls  # which a pod does not need

    try:
        found = documents_in(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot read the kubeconfig: {error.strerror or error}") from error
    except Unreadable as error:
        raise ConfigurationError(f"{path}: {error}") from error
    try:
        file = msgspec.convert(without_nulls(found[0] if found else {}), _File)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path}: not a kubeconfig: {error}") from error
    except RecursionError:
        raise ConfigurationError(f"{path}: not a kubeconfig: it is nested too deeply") from None
    if (file.kind or "Config", file.api_version or "v1") != ("Config", "v1"):
        raise ConfigurationError(
            f"{path}: not a kubeconfig: it has kind {file.kind} of {file.api_version}, not Config of v1"
        )
    return file


def _for_plugins(cluster: _Cluster) -> Any:
    name = "client.authentication.k8s.io/exec"
    return next((each.extension for each in cluster.extensions if each.name == name), None)


def _tls(
    cluster_path: Path, cluster_in: str, cluster: _Cluster, user_path: Path, user_in: str, user: User
) -> Tls:
    certificate = _pem(
        user_path, user_in, "client-certificate", user.client_certificate_data, user.client_certificate
    )
    key = _pem(user_path, user_in, "client-key", user.client_key_data, user.client_key)
    if key is None and certificate is not None:
        raise ConfigurationError(f"{user_in}: client-certificate and client-key must be given together")
    if certificate is None and key is not None:
        _log.warning("A client-key is not used without a client-certificate, as by kubectl", user=user_in)
        key = None
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


_NO_BREAKS = str.maketrans("", "", "\r\n")


def _pem(path: Path, where: str, field: str, data: str | None, file: str | None) -> str | None:
    if data:
        try:
            return base64.b64decode(data.translate(_NO_BREAKS), validate=True).decode()
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
    named = bool(user.username or user.password)
    if user.token and not user.token.isprintable():
        raise ConfigurationError(f"{where}: token: contains a line break or another invalid character")
    if user.token and named:
        raise ConfigurationError(f"{where}: has a token, and a user name or password: remove one of them")
    if user.exec is not None and user.auth_provider is not None:
        raise ConfigurationError(f"{where}: has exec and auth-provider: remove the latter")
    if user.token_file:
        return TokenFile(_relative(path, user.token_file), user.token or "")
    if user.token:
        return BearerToken(user.token)
    if named:
        return BasicAuth(user.username or "", user.password or "")
    if user.exec is not None:
        return _exec(path, where, user.exec)
    if user.auth_provider:
        name = user.auth_provider.get("name", "")
        raise ConfigurationError(
            f"{where}: auth-provider {name!r} is no longer supported; use its exec plugin"
        )
    return None


def _exec(path: Path, where: str, given: Exec) -> ExecPlugin:
    if not given.command:
        raise ConfigurationError(f"{where}: exec: command: there is none")
    if not all(variable.name for variable in given.env):
        raise ConfigurationError(f"{where}: exec: env: a variable has no name")
    if given.interactive_mode not in ("Never", "IfAvailable", "Always"):
        raise ConfigurationError(
            f"{where}: exec: interactiveMode: {given.interactive_mode!r} must be Never, IfAvailable or Always"
        )
    if given.interactive_mode == "Always":
        raise ConfigurationError(f"{where}: exec: interactiveMode Always: {given.command} cannot prompt here")
    if given.api_version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise ConfigurationError(
            f"{where}: exec: apiVersion: {given.api_version!r} must be .../v1 or .../v1beta1"
        )
    command = str(_relative(path, given.command)) if "/" in given.command else given.command
    return ExecPlugin(
        command=command,
        args=given.args,
        env={variable.name: variable.value for variable in given.env},
        api_version=given.api_version,
        install_hint=given.install_hint.strip(),
        provide_cluster_info=given.provide_cluster_info,
    )


def _proxy(where: str, cluster: _Cluster) -> str | None:
    if cluster.proxy_url:
        return checked_proxy(f"{where}: proxy-url", cluster.proxy_url)
    return checked_proxy(PROXY_VARIABLES, environ.proxy_for(cluster.server))


def _impersonation(where: str, user: User) -> Mapping[str, str | Sequence[str]]:
    if not user.impersonate:
        if user.impersonate_uid or user.impersonate_groups or user.impersonate_extra:
            raise ConfigurationError(
                f"{where}: as-uid, as-groups and as-user-extra say more of the user in `as`: add it, or remove them"
            )
        return {}
    headers = {
        "Impersonate-User": (user.impersonate,),
        "Impersonate-Uid": (user.impersonate_uid,) if user.impersonate_uid else (),
        "Impersonate-Group": user.impersonate_groups,
        **{f"Impersonate-Extra-{_as_header(name)}": each for name, each in user.impersonate_extra.items()},
    }
    if not all(value.isprintable() for values in headers.values() for value in values):
        raise ConfigurationError(
            f"{where}: as, as-groups or as-user-extra: contains a line break or the like"
        )
    return {name: each[0] if len(each) == 1 else each for name, each in headers.items() if each}


_NOT_IN_HEADERS = re.compile(rb"[^!#$&'*+.^_`|~0-9A-Za-z-]")


def _as_header(name: str) -> str:
    """The name with what a header's name cannot have as `%XX`, which the API server takes back."""
    return _NOT_IN_HEADERS.sub(lambda found: f"%{ord(found[0]):02X}".encode(), name.encode()).decode()


def _relative(path: Path, file: str) -> Path:
    return path.parent / Path(file).expanduser()


def _where(paths: Iterable[Path]) -> str:
    return ", ".join(map(str, paths))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
