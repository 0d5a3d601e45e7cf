"""The Helm chart of the sharder.

Guaranteed: for the same values, it renders the same objects as `kubeshard manifests sharder`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kubeshard.core.yaml_output import as_yaml
from kubeshard.manager.config_file import DURATION, Duration
from kubeshard.manifests.output import GENERATED, as_json
from kubeshard.manifests.sharder import CERT_MANAGER, CERTIFICATE, base_config, parts
from kubeshard.manifests.template import When, helm
from kubeshard.manifests.values import SharderValues, described, plain
from kubeshard.sharder.config import API_VERSION, KIND, SharderConfig
from kubeshard.sharder.webhook_config import SECRET_NAME
from kubeshard.version import __version__


def chart() -> Mapping[str, str]:
    """The text of each file, by its path in the chart's folder."""
    templates = {f"templates/{part.name}.yaml": _template(part) for part in parts()}
    return {
        "Chart.yaml": GENERATED + as_yaml(_about()),
        "values.yaml": GENERATED + "".join(_commented()),
        "values.schema.json": as_json(_schema()),
        "templates/_config.tpl": _config(),
        **templates,
    }


def _about() -> Mapping[str, Any]:
    return {
        "apiVersion": "v2",
        "name": "kubeshard-sharder",
        "description": "Spreads the objects of Kubernetes controllers over their live instances.",
        "type": "application",
        "version": _semantic(__version__),
        "appVersion": __version__,
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
        '{{- define "sharder.ca" -}}\n'
        f"{{{{- if .Values.{CERT_MANAGER} }}}}{CERTIFICATE}{{{{ else }}}}{SECRET_NAME}{{{{ end -}}}}\n"
        "{{- end -}}\n"
    )
