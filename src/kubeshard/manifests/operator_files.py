"""An operator's objects as files: a Helm chart, or a kustomization.

Guaranteed: for the same values, both render the objects that `kubeshard manifests operator` prints. The values with
which they are made are the chart's defaults. A value that the operator can do nothing with, such as a ring that it does
not declare, is none of the chart's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard.core.yaml_output import as_yaml, documents
from kubeshard.manager.manager import Manager
from kubeshard.manifests.chart import KUBERNETES
from kubeshard.manifests.operator import Dashboards, operator_parts
from kubeshard.manifests.output import as_json
from kubeshard.manifests.template import File, Part
from kubeshard.manifests.values import About, OperatorValues
from kubeshard.manifests.values_schema import commented, components, schema, table

Files = Mapping[str, str]
"""The text of each file, by its path."""

GENERATED = "# Made by `kubeshard manifests operator`; do not edit.\n"

_ABOUT_ONLY = ("about",)
_SWITCHED = {
    "ring": "ring.enabled",
    "serviceMonitor": "serviceMonitor.enabled",
    "watchNamespaces": "watchNamespaces",
}
"""The values that not every operator has, with the switch of their part."""

_TEMPLATES = """{{- define "operator.namespaces" -}}
{{- join "," .Values.watchNamespaces -}}
{{- end -}}
"""


def operator_chart(
    manager: Manager, target: str, name: str, values: OperatorValues, own_dashboards: Dashboards | None = None
) -> Files:
    """The files of the chart. Raises like `operator_parts`."""
    parts, chosen = operator_parts(manager, target, name, values, own_dashboards)
    switches = {part.switch for part in parts}
    missing = {value for value, switch in _SWITCHED.items() if switch not in switches}
    defaults = {key: each for key, each in chosen.items() if key not in (*missing, *_ABOUT_ONLY)}
    (root,), found = components(OperatorValues)
    properties = found["OperatorValues"]["properties"]
    found["OperatorValues"]["properties"] = {
        key: {**each, "maximum": 1} if key == "replicas" and not _takes_turns(manager) else each
        for key, each in properties.items()
        if key in defaults
    }
    found["OperatorValues"]["required"] = []  # the chart has defaults for all
    whole = schema(root, found)
    return {
        "Chart.yaml": GENERATED + as_yaml(_about(name, values)),
        "README.md": _readme(name, values.about, table(whole, OperatorValues, defaults)),
        "values.yaml": GENERATED + commented(OperatorValues, defaults),
        "values.schema.json": as_json(whole),
        "templates/_helpers.tpl": _TEMPLATES,
        **{f"templates/{part.name}.yaml": GENERATED + part.helm for part in parts},
        **_texts(parts),
    }


def operator_kustomization(
    manager: Manager, target: str, name: str, values: OperatorValues, own_dashboards: Dashboards | None = None
) -> Files:
    """A kustomization with a file for each part that these values include. Raises like `operator_parts`."""
    parts, chosen = operator_parts(manager, target, name, values, own_dashboards)
    made = {f"{part.name}.yaml": part.resolved(chosen) for part in parts}
    files = {path: GENERATED + documents(objects) for path, objects in made.items() if objects}
    body = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(files),
    }
    return {"kustomization.yaml": GENERATED + as_yaml(body), **files}


def _takes_turns(manager: Manager) -> bool:
    return manager.deployment_needs().takes_turns


def _about(name: str, values: OperatorValues) -> Mapping[str, Any]:
    about = values.about
    tag = values.image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    found = {
        "apiVersion": "v2",
        "name": name,
        "description": about.description or f"The operator {name}.",
        "type": "application",
        "version": about.version,
        "appVersion": tag or about.version,
        "kubeVersion": KUBERNETES,
        "home": about.url,
        "keywords": list(about.keywords),
        "maintainers": [{"name": each.name, "email": each.email} for each in about.maintainers],
    }
    return {key: each for key, each in found.items() if each}


def _readme(name: str, about: About, rows: Sequence[str]) -> str:
    head = [
        f"<!-- {GENERATED.removeprefix('# ').strip()} -->",
        f"# {about.display_name or name}",
        "",
        about.description or f"The operator {name}.",
        "",
        "It renders the same objects as `kubeshard manifests operator` and its kustomization.",
        "",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _texts(parts: Sequence[Part]) -> Files:
    """The files that templates read."""

    def within(description: Any) -> Files:
        match description:
            case File():
                return {description.path: description.text}
            case Mapping():
                return {path: text for each in description.values() for path, text in within(each).items()}
            case list() | tuple():
                return {path: text for each in description for path, text in within(each).items()}
            case _:
                return {}

    return within([part.objects for part in parts])
