"""An image among the values: a reference, or its parts, as mirrors replace them; once for manifests, once for Helm."""

from __future__ import annotations

from typing import Any

_PARTS = (
    "{{ .Values.image.repository }}"
    "{{ if .Values.image.tag }}:{{ .Values.image.tag }}"
    '{{ else if not .Values.image.digest }}:{{ .Chart.AppVersion | replace "+" "_" }}{{ end }}'
    "{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ end }}"
)

WITH_APP_VERSION = (
    f'{{{{- if kindIs "string" .Values.image }}}}{{{{ .Values.image }}}}{{{{ else }}}}{_PARTS}{{{{ end -}}}}'
)
"""What `image_of` says, for Helm, with the chart's `appVersion` as the default tag."""

PARTS_WITH_APP_VERSION = f"{{{{- {_PARTS.removeprefix('{{ ').removesuffix(' }}')} -}}}}"
"""The same for a chart whose image is given in parts only."""


def image_of(image: Any, default_tag: str) -> str:
    """The reference of an image that is given as one, or in parts. Parts without tag and digest get the default tag,
    with `_` for the `+` of a version, which a tag cannot have.
    """
    if isinstance(image, str):
        return image
    tag, digest = image.get("tag", ""), image.get("digest", "")
    tag = tag or ("" if digest else default_tag.replace("+", "_"))
    return f"{image['repository']}{':' if tag else ''}{tag}{'@' if digest else ''}{digest}"


def image_parts(reference: str) -> dict[str, str]:
    """The parts of a reference: `repository`, and `tag` and `digest` if it has them."""
    named, _, digest = reference.partition("@")
    folder, slash, last = named.rpartition("/")
    last, _, tag = last.partition(":")
    parts = {"repository": f"{folder}{slash}{last}", "tag": tag, "digest": digest}
    return {key: each for key, each in parts.items() if each}
