"""The Helm chart of the sharder.

Guaranteed: for the same values, it renders the same objects as `kubeshard manifests sharder`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kubeshard.core.yaml_output import as_yaml
from kubeshard.manager.config_file import DURATION, Duration
from kubeshard.manifests.output import GENERATED, as_json
from kubeshard.manifests.sharder import CERT_MANAGER, CERTIFICATE, base_config, dashboard_files, parts
from kubeshard.manifests.template import When, helm
from kubeshard.manifests.values import SharderValues, described, plain
from kubeshard.sharder.config import API_VERSION, KIND, SharderConfig
from kubeshard.sharder.webhook_config import SECRET_NAME
from kubeshard.sharding.api import ControllerRing
from kubeshard.version import __version__


def chart() -> Mapping[str, str]:
    """The text of each file, by its path in the chart's folder."""
    templates = {f"templates/{part.name}.yaml": _template(part) for part in parts()}
    return {
        "Chart.yaml": GENERATED + as_yaml(_about()),
        "README.md": _readme(),
        "values.yaml": GENERATED + "".join(_commented()),
        "values.schema.json": as_json(_schema()),
        "templates/_config.tpl": _config(),
        "templates/NOTES.txt": _NOTES,
        "templates/extra-objects.yaml": GENERATED + _EXTRA,
        **dashboard_files(),
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


def _schema() -> Mapping[str, Any]:
    """The chart's schema. Of `config` it knows the fields of SharderConfig, all the way down. It forbids null there,
    which Helm would keep and `kubeshard manifests` refuses.
    """
    (values, config), definitions = msgspec.json.schema_components(
        [SharderValues, SharderConfig], schema_hook=_schema_of, ref_template="#/$defs/{name}"
    )
    found = {name: _closed(definition) for name, definition in definitions.items()}
    header = {"apiVersion": {"const": API_VERSION}, "kind": {"const": KIND}}
    found["SharderConfig"]["properties"] |= header
    in_values = found["SharderValues"]["properties"]["config"]
    found["SharderValues"]["properties"]["config"] = {"description": in_values["description"], **config}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **values, "$defs": found}


def _schema_of(type_: Any) -> dict[str, Any]:
    if type_ is Duration:
        return {"type": "string", "pattern": DURATION}
    raise NotImplementedError


def _closed(schema: Any) -> Any:
    """The schema without null, defaults and unknown fields."""
    match schema:
        case {"anyOf": [only, {"type": "null"}], **rest}:
            return _closed({**rest, **only})
        case {"properties": properties, **rest}:
            fields = {name: _closed(each) for name, each in properties.items()}
            return {**_closed(rest), "properties": fields, "additionalProperties": False}
        case dict():
            return {key: _closed(each) for key, each in schema.items() if key != "default"}
        case list():
            return [_closed(each) for each in schema]
        case _:
            return schema


def _readme() -> str:
    """What the chart is, and all its values, from the schema."""
    schema, defaults = _schema(), plain(SharderValues())
    rows = [
        f"| `{path}` | {kind} | {_shown(default)} | {about} |"
        for path, kind, default, about in _values(schema, schema["$defs"]["SharderValues"], defaults)
    ]
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
        "| value | type | default | |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _values(
    schema: Mapping[str, Any], of: Mapping[str, Any], defaults: Any, path: str = ""
) -> Iterator[tuple[str, str, Any, str]]:
    """Path, type, default and description of each value, down to those that are set as a whole."""
    for name, found in of["properties"].items():
        place, default = f"{path}{name}", defaults.get(name) if isinstance(defaults, Mapping) else None
        inner = schema["$defs"].get(found.get("$ref", "").rpartition("/")[2], {})
        if "properties" not in inner or place == "config":
            yield place, _type(schema, found), default, found.get("description", "")
            continue
        if about := found.get("description"):
            yield place, "object", "", about
        yield from _values(schema, inner, default, f"{place}.")


def _type(schema: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if reference := found.get("$ref"):
        return _type(schema, schema["$defs"][reference.rpartition("/")[2]])
    if "anyOf" in found:
        return " or ".join(_type(schema, each) for each in found["anyOf"])
    if "enum" in found:
        return ", ".join(f"`{each}`" for each in found["enum"] if each != "")
    return str(found.get("type", "object"))


def _shown(default: Any) -> str:
    if default in ("", None):
        return ""
    text = json.dumps(default, ensure_ascii=False)
    return f"`{text}`" if len(text) < 60 else "see values.yaml"


def _commented() -> Iterator[str]:
    defaults = plain(SharderValues())
    for name, text in described(SharderValues):
        yield f"\n# {text}\n{as_yaml({name: defaults[name]})}"


def _template(part: Any) -> str:
    text = "---\n".join(helm(obj) for obj in part.objects)
    if part.switch:
        condition = When(part.switch, None, part.is_on).helm.replace("{{-", "{{", 1)
        text = f"{condition}\n{text}{{{{ end }}}}\n"
    return GENERATED + text


def _config() -> str:
    return (
        '{{- define "sharder.base" }}\n'
        f"{helm(base_config())}"
        "{{- end }}\n\n"
        '{{- define "sharder.config" -}}\n'
        '{{- mergeOverwrite (include "sharder.base" . | fromYaml) (deepCopy .Values.config) | toPrettyJson -}}\n'
        "{{- end -}}\n\n"
        '{{- define "sharder.image" -}}\n'
        '{{- if kindIs "string" .Values.image }}{{ .Values.image }}{{ else }}'
        "{{ .Values.image.repository }}"
        "{{ if .Values.image.tag }}:{{ .Values.image.tag }}"
        "{{ else if not .Values.image.digest }}:{{ .Chart.AppVersion }}{{ end }}"
        "{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ end }}{{ end -}}\n"
        "{{- end -}}\n\n"
        '{{- define "sharder.level" -}}\n'
        "{{- if .Values.hostNetwork }}privileged{{ else }}restricted{{ end -}}\n"
        "{{- end -}}\n\n"
        '{{- define "sharder.ca" -}}\n'
        f"{{{{- if .Values.{CERT_MANAGER} }}}}{CERTIFICATE}{{{{ else }}}}{SECRET_NAME}{{{{ end -}}}}\n"
        "{{- end -}}\n"
    )
