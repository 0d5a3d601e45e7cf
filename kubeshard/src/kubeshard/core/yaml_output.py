"""Objects as YAML that every parser reads as the same JSON.

Kubernetes reads YAML with sigs.k8s.io/yaml, which knows words and numbers that PyYAML writes as text: `y` is `true`
there, also as a key, and `1e3` is a number. Parsers of YAML 1.2 know others. So a text is written without quotes only
if it can be nothing but text: it does not begin like a number and is no word of any version, or it is a number with a
unit.

Guaranteed: the same bytes for the same objects, and keys in their order; kubectl, PyYAML and a parser of YAML 1.2 read
what was written, for all JSON with numbers that they can hold. Raises yaml.YAMLError for what JSON does not have.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

import yaml

_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", ".nan", ".inf"))
"""In lower case: what some version of YAML, or of its parsers, reads as something else."""

_TEXT = re.compile(r"[A-Za-z_/$^(]|--[A-Za-z]|\.[A-Za-z]")
"""How a text begins that no version takes for a number, as paths, options and most names do."""

_QUANTITY = re.compile(r"(?:0(?![bBoOxX])|[1-9][0-9]*)[A-Za-z]+")

_ESCAPED = re.compile("[\x85\u2028\u2029\ufeff]")
"""Line breaks in one version and not in another, and a mark that some parsers drop."""


class _Dumper(yaml.SafeDumper):
    """Writes no aliases, and strings of several lines as block scalars."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _style(text: str) -> str | None:
    """The style to write it in. The dumper itself prefers quotes where the rest of the text needs them."""
    if _ESCAPED.search(text):
        return '"'
    if "\n" in text:
        return '"' if text[0] in " \n" else "|"
    if _QUANTITY.fullmatch(text) or (_TEXT.match(text) and text.lower() not in _WORDS):
        return None
    return "'"


def _represented(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


_Dumper.add_representer(str, _represented)


def as_yaml(document: Any) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=sys.maxsize, allow_unicode=True)
    return text


def documents(objects: Iterable[Any]) -> str:
    """YAML documents for `kubectl apply -f -`."""
    return "---\n".join(map(as_yaml, objects))


def scalar(text: str) -> str:
    """A text of one line as the value of a key in block style; a name also in flow style."""
    return as_yaml([text]).removeprefix("- ").removesuffix("\n")
