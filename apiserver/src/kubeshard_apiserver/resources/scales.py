"""The Scale of a workload or of a custom resource: what its subresource `scale` shows and takes, and admission reviews.

Source: k8s.io/kubernetes `pkg/registry/apps/*/storage`; k8s.io/apiextensions-apiserver `pkg/registry/customresource`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.kinds import Kind
from kubeshard.core.selectors import LabelSelector, LabelSelectorRequirement, Selector
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.custom import CustomResources
from kubeshard_apiserver.resources.field_paths import ScalePaths, value_at, with_value
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.resources.strategy import Strategy
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.status import internal_error

KIND = Kind("autoscaling", "v1", "Scale", "scales")


class Scales(Typed):
    """The kind of the subresource's body, which is not itself a resource."""

    def __init__(self) -> None:
        Strategy.__init__(self, KIND, {})


SCALES = Scales()
SCALE = Resource(SCALES, "scale")
_BUILT_IN = ScalePaths()


def scale_of(obj: Object, resource: Resource) -> Object:
    """Returns the Scale of an object. Raises ApiError (500) for a custom resource without a replica count."""
    path = paths_of(resource).spec
    if resource.strategy.is_custom and value_at(obj, path) is None:
        raise internal_error(f'the spec replicas field ".{".".join(path)}" does not exist')
    return written_scale(obj, resource)


def written_scale(obj: Object, resource: Resource) -> Object:
    """Returns the Scale with which a write is answered. The replicas are missing if the schema does not know them."""
    paths = paths_of(resource)
    wanted, there = value_at(obj, paths.spec), value_at(obj, paths.status)
    if resource.strategy.is_custom:
        selector = value_at(obj, paths.selector) if paths.selector else ""
    else:
        selector = str(Selector.from_label_selector(_selector(obj["spec"].get("selector") or {})))
    meta = obj["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": KIND.kind,
        "apiVersion": KIND.api_version,
        "metadata": {name: meta[name] for name in shown if name in meta},
        "spec": {"replicas": wanted} if wanted else {},
        "status": {"replicas": there or 0, **({"selector": selector} if selector else {})},
    }


def reviewed_scale(obj: Object, resource: Resource) -> Object:
    """Returns the Scale that admission sees. A custom resource without a replica count has 0 there."""
    path = paths_of(resource).spec
    return written_scale(with_value(obj, path, value_at(obj, path) or 0), resource)


def with_scale(obj: Object, scale: Object, resource: Resource) -> Object:
    """Returns the object with the replicas of the Scale."""
    return with_value(obj, paths_of(resource).spec, (scale.get("spec") or {}).get("replicas") or 0)


def paths_of(resource: Resource) -> ScalePaths:
    strategy = resource.strategy
    return (strategy.scales if isinstance(strategy, CustomResources) else None) or _BUILT_IN


def _selector(given: Mapping[str, Any]) -> LabelSelector:
    if "matchLabels" not in given and "matchExpressions" not in given:
        # The selector of a ReplicationController is a plain map of labels.
        return LabelSelector(match_labels=given)
    expressions = tuple(
        LabelSelectorRequirement(
            key=one["key"], operator=one["operator"], values=tuple(one.get("values") or ())
        )
        for one in given.get("matchExpressions") or ()
    )
    return LabelSelector(match_labels=given.get("matchLabels"), match_expressions=expressions)
