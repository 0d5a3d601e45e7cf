"""Objects to try an operator with: rendered from an author's template, or made up from the schema of their kind.

In a template, `$name` is the object's name, `$number` counts the requests, and `$random` is a word that is different
for each request.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Any

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.yaml_input import Unreadable, documents_in
from kubeshard.crd.manifests import kind_in
from kubeshard.crd.schema import Schema

Manifest = Mapping[str, Any]

_SKIP = object()
"""Instead of the value of a field that is left out."""


class ObjectTemplate:
    """A manifest with variables. `render` raises ConfigurationError for a template that renders no manifest."""

    def __init__(self, text: str) -> None:
        self._template = Template(text)

    def render(self, name: str, number: int, word: str) -> Manifest:
        try:
            text = self._template.substitute(name=name, number=number, random=word)
        except (KeyError, ValueError) as error:
            raise ConfigurationError(
                f"the template: {error}: it may use $name, $number and $random, and $$ for a dollar sign"
            ) from None
        try:
            documents = documents_in(text.encode())
        except Unreadable as error:
            raise ConfigurationError(f"what the template renders is {error}") from None
        found: Any = documents[0] if len(documents) == 1 else None
        metadata = found.get("metadata") if isinstance(found, dict) else None
        if (
            not isinstance(metadata, dict)
            or metadata.get("name") != name
            or not {"apiVersion", "kind"} <= set(found)
        ):
            raise ConfigurationError("the template needs apiVersion, kind and metadata.name: $name")
        return dict(found)


class MadeUp:
    """Objects of a defined kind, whose specs have a value in every field for which the schema lets one be guessed."""

    def __init__(self, definition: Manifest) -> None:
        self._kind, schema = kind_in(definition)
        self._spec = (schema.get("properties") or {}).get("spec") or {}

    def render(self, name: str, number: int, word: str) -> Manifest:
        """Raises ConfigurationError if a required field cannot be guessed."""
        spec = _value(self._spec, f"{self._kind.kind}.spec", number, word, required=True)
        return {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.kind,
            "metadata": {"name": name},
            **({"spec": spec} if isinstance(spec, dict) else {}),
        }


def _value(schema: Schema, path: str, number: int, word: str, *, required: bool) -> Any:
    """A value that fits the schema, or `_SKIP`: what nothing can be made up for is left out with the smallest part
    around it that may be absent. Raises ConfigurationError if that is the whole.
    """
    try:
        return _made_up(schema, path, number, word)
    except ConfigurationError:
        if required and schema and "default" not in schema:
            raise
        return _SKIP


def _made_up(schema: Schema, path: str, number: int, word: str) -> Any:
    """Another value for each number and word where possible."""
    match schema:
        case {"enum": [*values]}:
            return values[number % len(values)]
        case {"type": "string"} if not ("pattern" in schema or schema.get("format")):
            longest = schema.get("maxLength", len(word))
            return word[:longest].ljust(schema.get("minLength", 0), "x")
        case {"type": "integer"} | {"x-kubernetes-int-or-string": True}:
            low = schema.get("minimum", 0) + bool(schema.get("exclusiveMinimum"))
            high = max(low, schema.get("maximum", low + 9) - bool(schema.get("exclusiveMaximum")))
            return low + number % (high - low + 1)
        case {"type": "boolean"}:
            return number % 2 == 0
        case {"type": "object"}:
            needed = schema.get("required", ())
            found = {
                name: _value(inner, f"{path}.{name}", number, word, required=name in needed)
                for name, inner in (schema.get("properties") or {}).items()
            }
            return {name: value for name, value in found.items() if value is not _SKIP}
        case {"type": "array"} if schema.get("minItems", 0) <= 1 and "items" in schema:
            item = _value(schema["items"], f"{path}[]", number, word, required="minItems" in schema)
            return _SKIP if item is _SKIP else [item]
    raise ConfigurationError(f"no value can be made up for {path}: give an object with --template")
