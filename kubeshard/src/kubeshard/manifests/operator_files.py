"""An operator's objects as files: a Helm chart, or a kustomization.

Guaranteed: for the same values, both render the objects that `kubeshard manifests operator` prints. The values with
which they are made are the chart's defaults. A chart has no values for what its operator cannot do: no ring, for
example, if the operator declares none.

The chart keeps Helm's conventions: it installs into the namespace of the release, which it does not create; objects are
named after release and chart, and have the labels that charts have. Helm keeps the definitions if
`crds.keep` says so. The names that the program itself declares, those
of its webhooks' Services and of its Leases, are the same in every release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kubeshard.core.yaml_output import as_yaml, documents
from kubeshard.manager.manager import Manager
from kubeshard.manifests.chart import KUBERNETES
from kubeshard.manifests.image import PARTS_WITH_APP_VERSION, image_of, image_parts
from kubeshard.manifests.operator import (
    LONGEST_OPERATOR,
    OWN_LABELS,
    Dashboards,
    operator_parts,
)
from kubeshard.manifests.output import as_json
from kubeshard.manifests.sharder import COMMON_ANNOTATIONS
from kubeshard.manifests.template import Each, Named, Part, When
from kubeshard.manifests.values import About, ChartValues, OperatorValues, described, plain
from kubeshard.manifests.values_schema import commented, components, schema, table

Files = Mapping[str, str]

GENERATED = "# Made by `kubeshard manifests operator`; do not edit.\n"

_NONE_OF_HELM = ("about", "namespace", "createNamespace")
"""The values that the chart's `Chart.yaml` or the release decides."""
_SWITCHED = {
    "ring": "ring.enabled",
    "serviceMonitor": "serviceMonitor.enabled",
    "podDisruptionBudget": "podDisruptionBudget.enabled",
    "watchNamespaces": "watchNamespaces",
    "flowSchema": "flowSchema.enabled",
}
"""The values that not every operator has, with the switch of their part."""

_LABELS = {
    "app.kubernetes.io/version": '(.Chart.AppVersion | replace "+" "_" | trunc 63 | trimAll "-_.")',
    "app.kubernetes.io/managed-by": ".Release.Service",
    "helm.sh/chart": '(include "operator.chart" .)',
}
"""The labels of all objects of a release, besides those that are also printed."""

_TEMPLATES = f"""{{{{- define "operator.name" -}}}}
{{{{- .Values.nameOverride | default .Chart.Name -}}}}
{{{{- end -}}}}

{{{{- define "operator.fullname" -}}}}
{{{{- $name := include "operator.name" . -}}}}
{{{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}}}
{{{{- .Values.fullnameOverride | default $both | trunc {LONGEST_OPERATOR} | trimSuffix "-" -}}}}
{{{{- end -}}}}

{{{{- define "operator.serviceAccountName" -}}}}
{{{{- .Values.serviceAccount.name | default (include "operator.fullname" .) -}}}}
{{{{- end -}}}}

{{{{- define "operator.chart" -}}}}
{{{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimAll "-_." -}}}}
{{{{- end -}}}}

{{{{- define "operator.image" -}}}}
{PARTS_WITH_APP_VERSION}
{{{{- end -}}}}

{{{{- define "operator.namespaces" -}}}}
{{{{- join "," .Values.watchNamespaces -}}}}
{{{{- end -}}}}
"""


def operator_chart(
    manager: Manager, target: str, name: str, values: OperatorValues, own_dashboards: Dashboards | None = None
) -> Files:
    """The files of the chart. Raises like `operator_parts`."""
    parts, chosen = operator_parts(manager, target, name, values, own_dashboards)
    needs = manager.deployment_needs()
    parts = [_of_release(part) for part in parts if part.name != "namespace"]
    switches = {part.switch for part in parts}
    missing = {value for value, switch in _SWITCHED.items() if switch not in switches}
    chosen |= {"nameOverride": "", "fullnameOverride": ""}
    chosen["image"] = _parts_of_image(chosen["image"])
    defaults = {
        key: chosen[key] for key, _ in described(ChartValues) if key not in (*missing, *_NONE_OF_HELM)
    }
    whole = _schema(defaults, takes_turns=needs.takes_turns)
    bound = {namespace for _, _, namespace in needs.services if namespace}
    check = {"templates/namespace.yaml": GENERATED + _bound(*bound)} if bound else {}
    return {
        "Chart.yaml": GENERATED + as_yaml(_about(name, values)),
        "README.md": _readme(name, chosen["namespace"], values.about, table(whole, ChartValues, defaults)),
        "values.yaml": GENERATED + commented(ChartValues, defaults),
        "values.schema.json": as_json(whole),
        "templates/_helpers.tpl": _TEMPLATES,
        "templates/NOTES.txt": _notes(parts),
        **check,
        **{f"templates/{part.name}.yaml": GENERATED + part.helm for part in parts},
        **{path: text for part in parts for path, text in part.files.items()},
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


def _of_release(part: Part) -> Part:
    """The part with the labels of a release, and definitions that outlive it."""

    def labelled(obj: Any) -> Any:
        labels = {**obj["metadata"]["labels"], **{key: Named("", each) for key, each in _LABELS.items()}}
        return {**obj, "metadata": {**obj["metadata"], "labels": labels}}

    kept = map(_kept, part.objects) if part.name == "crds" else part.objects
    return replace(part, objects=tuple(map(labelled, kept)))


def _kept(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """The definition, which Helm keeps, and so all objects of its kind, when the operator is uninstalled."""
    metadata = definition["metadata"]
    keep = {"helm.sh/resource-policy": When("crds.keep", "keep")}
    match metadata["annotations"]:
        case Mapping() as own:
            annotations: Any = {**own, **keep}
        case _:
            both = {"common": Each(COMMON_ANNOTATIONS), **keep}
            annotations = When("crds.keep", both, either=COMMON_ANNOTATIONS)
    return {**definition, "metadata": {**metadata, "annotations": annotations}}


def _parts_of_image(image: Any) -> Mapping[str, str]:
    """The parts of the image, but for a tag that is the chart's `appVersion`: it would stay beside another digest."""
    parts = image_parts(image) if isinstance(image, str) else image
    return {key: each for key, each in parts.items() if key != "tag" or "digest" in parts}


def _schema(defaults: Mapping[str, Any], *, takes_turns: bool) -> Mapping[str, Any]:
    """The chart's schema, which knows the values with a default only, and what this operator cannot do."""
    (root,), found = components(ChartValues)
    properties = found["ChartValues"]["properties"]
    more: dict[str, Any] = {
        "replicas": {} if takes_turns else {"maximum": 1},
        **{
            key: {"propertyNames": {"not": {"enum": sorted(OWN_LABELS)}}}
            for key in ("podLabels", "commonLabels")
        },
    }
    found["ChartValues"]["properties"] = {
        key: {**each, **more.get(key, {})} for key, each in properties.items() if key in defaults
    }
    found["ChartValues"]["required"] = []  # the chart has defaults for all
    return schema(root, found)


def _about(name: str, values: OperatorValues) -> Mapping[str, Any]:
    about = values.about
    image = image_of(plain(values)["image"], about.version)
    found = {
        "apiVersion": "v2",
        "name": name,
        "description": about.description or f"The operator {name}.",
        "type": "application",
        "version": about.version,
        "appVersion": image_parts(image).get("tag", about.version),
        "kubeVersion": KUBERNETES,
        "home": about.url,
        "keywords": list(about.keywords),
        "maintainers": [{"name": each.name, "email": each.email} for each in about.maintainers],
    }
    return {key: each for key, each in found.items() if each}


def _readme(name: str, namespace: str, about: About, rows: Sequence[str]) -> str:
    head = [
        f"<!-- {GENERATED.removeprefix('# ').strip()} -->",
        f"# {about.display_name or name}",
        "",
        about.description or f"The operator {name}.",
        "",
        "```sh",
        f"helm install {name} . --namespace {namespace} --create-namespace",
        "```",
        "",
        "It renders the same objects as `kubeshard manifests operator` and its kustomization, but for the Namespace,"
        " and with the labels of a release. Namespaces of the Pod Security level restricted admit its pods.",
        "",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _notes(parts: Sequence[Part]) -> str:
    kinds = [obj["spec"]["names"]["kind"] for part in parts if part.name == "crds" for obj in part.objects]
    lines = [
        '{{ .Chart.Name }} {{ .Chart.AppVersion }} runs as {{ include "operator.fullname" . }} in the namespace'
        " {{ .Release.Namespace }} as soon as its pods are ready:",
        "",
        '  kubectl --namespace {{ .Release.Namespace }} rollout status deployment/{{ include "operator.fullname" . }}',
        "",
        *([_brings(kinds), ""] if kinds else []),
        *(
            [
                "{{- if .Values.watchNamespaces }}",
                'It works in {{ join ", " .Values.watchNamespaces }} only.',
                "{{- end }}",
            ]
            if any(part.switch == "watchNamespaces" for part in parts)
            else []
        ),
        *(
            [
                "{{- if not .Values.ring.enabled }}",
                "Its objects are spread over the pods once there is a ring, which ring.enabled=true installs.",
                "{{- end }}",
            ]
            if any(part.switch == "ring.enabled" for part in parts)
            else []
        ),
        *(
            [
                "{{- if and .Values.crds.enabled (not .Values.crds.keep) }}",
                "With crds.keep=false, `helm uninstall` deletes all objects of these kinds.",
                "{{- end }}",
            ]
            if kinds
            else []
        ),
    ]
    return "\n".join(lines) + "\n"


def _brings(kinds: Sequence[str]) -> str:
    if len(kinds) == 1:
        return f"It brings the kind {kinds[0]}; `kubectl explain` describes it."
    return f"It brings the kinds {', '.join(kinds)}; `kubectl explain` describes them."


def _bound(namespace: str) -> str:
    """Helm says it at the installation, instead of an API server when it cannot call the webhooks."""
    says = f"the program's webhooks are called in the namespace {namespace}: install with --namespace {namespace}"
    return f'{{{{- if ne .Release.Namespace "{namespace}" }}}}\n{{{{- fail "{says}" }}}}\n{{{{- end }}}}\n'
