"""The Helm chart of the sharder.

Guaranteed: for the same values, it renders the same objects as `kubeshard manifests sharder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.yaml_output import as_yaml
from kubeshard.manifests.image import WITH_APP_VERSION
from kubeshard.manifests.output import GENERATED, as_json
from kubeshard.manifests.sharder import CERT_MANAGER, CERTIFICATE, base_config, parts
from kubeshard.manifests.template import helm
from kubeshard.manifests.values import SharderValues, plain
from kubeshard.manifests.values_schema import commented, components, schema, table
from kubeshard.sharder.config import API_VERSION, KIND, SharderConfig
from kubeshard.sharder.webhook_config import SECRET_NAME
from kubeshard.sharding.api import ControllerRing
from kubeshard.version import __version__


def chart() -> Mapping[str, str]:
    templates = {f"templates/{part.name}.yaml": GENERATED + part.helm for part in parts()}
    return {
        "Chart.yaml": GENERATED + as_yaml(_about()),
        "README.md": _readme(),
        "values.yaml": GENERATED + commented(SharderValues, plain(SharderValues())),
        "values.schema.json": as_json(_schema()),
        "templates/_config.tpl": _config(),
        "templates/NOTES.txt": _NOTES,
        "templates/extra-objects.yaml": GENERATED + _EXTRA,
        **{path: text for part in parts() for path, text in part.files.items()},
        **templates,
    }


KUBERNETES = ">=1.28.0-0"
"""Versions of Kubernetes with what the sharder needs; admission policies need 1.30 (docs/install.md)."""
REFERENCE = "https://github.com/timebertt/kubernetes-controller-sharding"

_EXTRA = """{{- range .Values.extraObjects }}
---
{{ . | toJson }}
{{- end }}
"""
_NOTES = """The sharder runs in the namespace {{ .Values.namespace }} as soon as its pods are ready:

  kubectl --namespace {{ .Values.namespace }} rollout status deployment/sharder

Then install a ring for each operator, with the sharder's rights on its resources:

  kubeshard manifests ring ring.yaml \\
    --sharder {{ .Values.namespace }}:{{ .Values.serviceAccount.name | default "sharder" }} \\
    | kubectl apply --server-side -f -

See whether everything is well:

  kubectl shard doctor{{ if ne .Values.namespace "sharding-system" }} --namespace {{ .Values.namespace }}{{ end }}
{{- if not .Values.policies.enabled }}

Without policies.enabled, nothing confines a stolen credential of the sharder to Leases and webhooks of rings.
{{- end }}
{{- if not .Values.crds.keep }}

With crds.keep=false, `helm uninstall` deletes all rings.
{{- end }}
"""


def _about() -> Mapping[str, Any]:
    return {
        "apiVersion": "v2",
        "name": "kubeshard-sharder",
        "description": "Spreads the objects of Kubernetes controllers over their live instances.",
        "type": "application",
        "version": _semantic(__version__),
        "appVersion": __version__,
        "kubeVersion": KUBERNETES,
        "keywords": ["controllers", "sharding", "scalability", "operators"],
        "sources": [REFERENCE],
        "annotations": {
            "artifacthub.io/category": "integration-delivery",
            "artifacthub.io/license": "Apache-2.0",
            "artifacthub.io/prerelease": str(".dev" in __version__).lower(),
            "artifacthub.io/crds": as_yaml(
                [
                    {
                        "kind": ControllerRing.KIND.kind,
                        "version": ControllerRing.KIND.version,
                        "name": ControllerRing.KIND.plural,
                        "displayName": ControllerRing.KIND.kind,
                        "description": "A set of controller instances, and the resources that are spread over them.",
                    }
                ]
            ),
        },
    }


def _semantic(version: str) -> str:
    """A Python version as a semantic version: `0.1.0.dev0` becomes `0.1.0-dev.0`."""
    release, _, development = version.partition(".dev")
    return f"{release}-dev.{development}" if development else release


def _schema() -> dict[str, Any]:
    """With the fields of SharderConfig, all the way down, without null, which Helm would keep."""
    (values, config), found = components(SharderValues, SharderConfig)
    header = {"apiVersion": {"const": API_VERSION}, "kind": {"const": KIND}}
    found["SharderConfig"]["properties"] |= header
    in_values = found["SharderValues"]["properties"]["config"]
    found["SharderValues"]["properties"]["config"] = {"description": in_values["description"], **config}
    return schema(values, found)


def _readme() -> str:
    """What the chart is, and all its values, from the schema."""
    head = [
        f"<!-- {GENERATED.removeprefix('# ').strip()} -->",
        "# kubeshard-sharder",
        "",
        _about()["description"],
        "",
        "It renders the same objects as `kubeshard manifests sharder` and as kustomize. Fields of `config` are those of"
        " SharderConfig, which the schema checks, too.",
        "",
        "From a clone: `helm install sharder deploy/helm --set image=REGISTRY/kubeshard:TAG`.",
        "",
    ]
    return "\n".join([*head, *table(_schema(), SharderValues, plain(SharderValues()))]) + "\n"


def _config() -> str:
    return (
        '{{- define "sharder.base" }}\n'
        f"{helm(base_config())}"
        "{{- end }}\n\n"
        '{{- define "sharder.config" -}}\n'
        '{{- mergeOverwrite (include "sharder.base" . | fromYaml) (deepCopy .Values.config) | toPrettyJson -}}\n'
        "{{- end -}}\n\n"
        '{{- define "sharder.image" -}}\n'
        f"{WITH_APP_VERSION}\n"
        "{{- end -}}\n\n"
        '{{- define "sharder.level" -}}\n'
        "{{- if .Values.hostNetwork }}privileged{{ else }}restricted{{ end -}}\n"
        "{{- end -}}\n\n"
        '{{- define "sharder.ca" -}}\n'
        f"{{{{- if .Values.{CERT_MANAGER} }}}}{CERTIFICATE}{{{{ else }}}}{SECRET_NAME}{{{{ end -}}}}\n"
        "{{- end -}}\n"
    )
