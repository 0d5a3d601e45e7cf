"""The pod, boot and machine of this process. Read while a configuration is being loaded.

Guaranteed: a value is right or absent. The pod is read from the claims of the token that the kubelet
projects into it, not from the host name, which is the node's on the host network and otherwise truncated to 63
characters.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import NamedTuple

import msgspec

from kubeshard.runtime.environ import SERVICE_ACCOUNT

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Pod(NamedTuple):
    name: str
    uid: str


def this_pod(service_account: Path = SERVICE_ACCOUNT) -> Pod | None:
    """The pod of this process. None outside a cluster, without a mounted token, and with tokens that are not bound to a
    pod (before Kubernetes 1.21).
    """
    try:
        payload = (service_account / "token").read_text().split(".")[1]
        claims = msgspec.json.decode(
            base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims
        )
    except (OSError, IndexError, UnicodeDecodeError, binascii.Error, msgspec.DecodeError):
        return None
    pod = claims.kubernetes.pod if claims.kubernetes else None
    return Pod(pod.name, pod.uid) if pod is not None and pod.name and pod.uid else None


def boot_id(path: Path = BOOT_ID) -> str:
    """The boot ID of the running kernel, `""` if the system has none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class _PodClaim(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Bound(msgspec.Struct):
    pod: _PodClaim | None = None


class _Claims(msgspec.Struct):
    kubernetes: _Bound | None = msgspec.field(name="kubernetes.io", default=None)
