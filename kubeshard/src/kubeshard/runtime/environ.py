"""The environment of the process: environment variables, host name, mounted files.

Read only while a configuration is being loaded; nothing is cached here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder in which the kubelet mounts a pod's token, CA and namespace."""


def variable(name: str) -> str | None:
    """The environment variable's value; None when unset or empty."""
    return os.environ.get(name) or None


def variables() -> dict[str, str]:
    return dict(os.environ)


def home() -> Path | None:
    """The user's home directory, or None if there is none (a container with an arbitrary uid)."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def hostname() -> str:
    return socket.gethostname()


def pod_namespace(service_account: Path = SERVICE_ACCOUNT) -> str | None:
    """The namespace of the pod this process runs in, or None outside of a cluster."""
    try:
        return (service_account / "namespace").read_text().strip() or None
    except OSError:
        return None


def proxy_for(url: str, environment: Mapping[str, str] | None = None) -> str | None:
    """The proxy that `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` (either case) prescribe for a URL, or None.

    `NO_PROXY` lists host names (which include their subdomains), `.suffixes`, IP addresses, CIDR blocks and
    `*`, each with an optional port: the rules of Go's httpproxy, because clusters are configured for those. The
    local host is never proxied.
    """
    given = os.environ if environment is None else environment
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    name = f"{parts.scheme}_proxy"
    proxy = given.get(name.upper()) or given.get(name)
    if not proxy or host == "localhost" or _is_loopback(host):
        return None
    excluded = given.get("NO_PROXY") or given.get("no_proxy") or ""
    if any(
        _covers(entry.strip().lower(), host.lower(), port) for entry in excluded.split(",") if entry.strip()
    ):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _covers(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        pass
    name, _, own_port = entry.rpartition(":")
    if name and own_port.isdecimal():
        if int(own_port) != port:
            return False
        if name.startswith("["):  # an IPv6 address, which may be written in several ways
            return _covers(name[1:].removesuffix("]"), host, port)
        entry = name
    entry = entry.removeprefix("*")
    return host.endswith(entry) if entry.startswith(".") else host == entry or host.endswith(f".{entry}")
