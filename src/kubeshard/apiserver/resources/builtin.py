"""The built-in kinds: scope, plural, short names and categories of release 1.36, for what controllers
commonly use.

Kinds with a strategy of their own behave as on the real server. The others are `loose`: names, labels,
generations, finalizers and the status subresource are right, but their specs are stored as they come, without
defaults, validation or merge keys.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeshard.apiserver.resources.configuration import ConfigMaps, Secrets
from kubeshard.apiserver.resources.definitions import Definitions
from kubeshard.apiserver.resources.leases import Leases
from kubeshard.apiserver.resources.namespaces import Namespaces
from kubeshard.apiserver.resources.registry import Resource
from kubeshard.apiserver.resources.strategy import untyped
from kubeshard.core.kinds import Kind

_STATUS = frozenset({"status"})
_SINGLE_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
_LOOSE = """
v1 Pod pods po all status
v1 Service services svc all status
v1 Endpoints endpoints ep - -
v1 ServiceAccount serviceaccounts sa - -
v1 PersistentVolumeClaim persistentvolumeclaims pvc - status
v1 ResourceQuota resourcequotas quota - status
v1 LimitRange limitranges limits - -
v1 Event events ev - -
v1 Node* nodes no - status
v1 PersistentVolume* persistentvolumes pv - status
apps/v1 Deployment deployments deploy all status
apps/v1 ReplicaSet replicasets rs all status
apps/v1 StatefulSet statefulsets sts all status
apps/v1 DaemonSet daemonsets ds all status
apps/v1 ControllerRevision controllerrevisions - - -
batch/v1 Job jobs - all status
batch/v1 CronJob cronjobs cj all status
networking.k8s.io/v1 Ingress ingresses ing - status
networking.k8s.io/v1 NetworkPolicy networkpolicies netpol - -
networking.k8s.io/v1 IngressClass* ingressclasses - - -
rbac.authorization.k8s.io/v1 Role roles - - -
rbac.authorization.k8s.io/v1 RoleBinding rolebindings - - -
rbac.authorization.k8s.io/v1 ClusterRole* clusterroles - - -
rbac.authorization.k8s.io/v1 ClusterRoleBinding* clusterrolebindings - - -
policy/v1 PodDisruptionBudget poddisruptionbudgets pdb - status
autoscaling/v2 HorizontalPodAutoscaler horizontalpodautoscalers hpa all status
discovery.k8s.io/v1 EndpointSlice endpointslices - - -
events.k8s.io/v1 Event events ev - -
storage.k8s.io/v1 StorageClass* storageclasses sc - -
"""
"""apiVersion, kind (`*`: cluster-scoped), plural, short name, category, subresource; `-` for none."""


def builtin_resources() -> Iterator[Resource]:
    yield Resource(Namespaces(), "namespace", ("ns",), verbs=_SINGLE_VERBS)
    yield Resource(ConfigMaps(), "configmap", ("cm",))
    yield Resource(Secrets(), "secret")
    yield Resource(Leases(), "lease")
    yield Resource(Definitions(), "customresourcedefinition", ("crd", "crds"), ("api-extensions",))
    for line in _LOOSE.split("\n"):
        if line:
            yield _loose(*line.split())


def _loose(api_version: str, name: str, plural: str, short: str, category: str, subresource: str) -> Resource:
    group, _, version = api_version.rpartition("/")
    kind = Kind(group, version, name.rstrip("*"), plural, namespaced=not name.endswith("*"))
    strategy = untyped(kind, subresources=_STATUS if subresource == "status" else frozenset())
    return Resource(strategy, kind.kind.lower(), _words(short), _words(category))


def _words(word: str) -> tuple[str, ...]:
    return () if word == "-" else (word,)
