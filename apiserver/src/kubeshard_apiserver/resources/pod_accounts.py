"""The admission plugin ServiceAccount: which account a pod runs as, and the volume with its token.

Unlike on a real cluster, the account `default` of a namespace need not exist: there it always does, because a
controller creates it. Not covered: accounts that restrict which Secrets a pod may mount. Source: k8s.io/kubernetes
`plugin/pkg/admission/serviceaccount`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.metadata import generated_name
from kubeshard_apiserver.status import forbidden

ACCOUNTS = GroupResource("", "serviceaccounts")
DEFAULT_ACCOUNT = "default"
_MIRROR = "kubernetes.io/config.mirror"
_VOLUME = "kube-api-access-"
_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_SECONDS = 3607
_SOURCES: tuple[dict[str, Any], ...] = (
    {"serviceAccountToken": {"expirationSeconds": _SECONDS, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
            ]
        }
    },
)


def give_account(pod: Object, name: str, accounts: Mapping[Key, Object], token: Callable[[], str]) -> None:
    """Changes the pod in place. `name` is its name in messages, `token` makes names unique. Raises Forbidden if the
    account that it names is missing.
    """
    spec, meta = pod["spec"], pod["metadata"]
    if _MIRROR in (meta.get("annotations") or {}):
        return
    account_name = spec.get("serviceAccountName") or DEFAULT_ACCOUNT
    spec["serviceAccountName"] = spec["serviceAccount"] = account_name
    account = accounts.get(Key(meta.get("namespace", ""), account_name))
    if account is None and account_name != DEFAULT_ACCOUNT:
        where = f"{meta.get('namespace', '')}/{account_name}"
        problem = f'error looking up service account {where}: serviceaccount "{account_name}" not found'
        raise forbidden(GroupResource("", "pods"), name, problem)
    account = account or {}
    mounts = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken"))
    if mounts is not False:
        _mount_token(spec, token)
    if not spec.get("imagePullSecrets") and (secrets := account.get("imagePullSecrets")):
        spec["imagePullSecrets"] = [{"name": secret.get("name", "")} for secret in secrets]


def _mount_token(spec: Object, token: Callable[[], str]) -> None:
    containers = [one for field in ("initContainers", "containers") for one in spec.get(field) or ()]
    lacking = [
        one
        for one in containers
        if not any(m.get("mountPath") == _PATH for m in one.get("volumeMounts") or ())
    ]
    volumes = spec.get("volumes") or []
    volume = next((one["name"] for one in volumes if one.get("name", "").startswith(_VOLUME)), "")
    if not lacking:
        return
    if not volume:
        volume = generated_name(_VOLUME, token())
        projected = {"sources": [dict(source) for source in _SOURCES], "defaultMode": 0o644}
        spec["volumes"] = [*volumes, {"name": volume, "projected": projected}]
    for container in lacking:
        mount = {"name": volume, "readOnly": True, "mountPath": _PATH}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
