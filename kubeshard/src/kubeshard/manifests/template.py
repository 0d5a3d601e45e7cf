"""One description that is rendered in two ways: as a manifest for given values, or as a template for Helm.

A description is a manifest with some parts chosen at installation:

| part | meaning | for Helm |
|---|---|---|
| `Chosen("replicas")` | the value | `{{ .Values.replicas | toJson }}` |
| `f"sharder.{Chosen('namespace')}.svc"` | a text with values in it | `{{ printf ... }}` |
| `When("policies.enabled", what)` | an optional entry or item | `{{- if .Values.policies.enabled }}` |
| `Made(by, "sharder.config")` | what a function computes from the values | `{{ include "sharder.config" . }}` |
| `Each("podLabels")` | all entries of a mapping, or items of a list, beside others | `{{- range ... }}` |
| `File("dashboards/sharder.json", text)` | the text, from a file of the chart | `{{ .Files.Get ... }}` |
| `Named("name", ".Release.Name")` | the value, or what Helm knows instead of it | `{{ .Release.Name | toJson }}` |
| `Item()` | the item for which a `Part` is repeated | `{{ $item | toJson }}` |

Within a text, a value is a mark, which is a DNS label: so code that makes manifests from names can make descriptions,
too, from `str(Chosen("namespace"))`.

A `Part` is what a switch includes as a whole, or what is repeated for each item of a list; the chart has a file for it.

Guaranteed: both ways yield the same object for the same values, as long as the functions of `Made` agree with the
templates that they name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from kubeshard.core.yaml_output import as_yaml

Values = Mapping[str, Any]


class Place:
    """Where a value goes. Within a text, its mark stands for it; none is part of another, nor of two that meet."""

    expression: str
    """What Helm evaluates."""

    def __str__(self) -> str:
        mark = f"kubeshard-{re.sub('[^a-z]', '', self.expression.lower())}-chosen"
        assert _PLACES.setdefault(mark, self) == self, mark
        return mark

    def of(self, values: Values) -> Any:
        raise NotImplementedError


_PLACES: dict[str, Place] = {}
"""By the marks that stand for them. It only grows by what descriptions declare."""
_PLACE = re.compile("kubeshard-[a-z]+-chosen")


@dataclass(frozen=True)
class Chosen(Place):
    """The value at a dotted path, or `otherwise` if that is empty."""

    path: str
    otherwise: str = ""

    def of(self, values: Values) -> Any:
        return _without_null(
            at(values, self.path) or self.otherwise if self.otherwise else at(values, self.path)
        )

    @property
    def expression(self) -> str:  # type: ignore[override]
        value = f".Values.{self.path}"
        return f"({value} | default {json.dumps(self.otherwise)})" if self.otherwise else value


@dataclass(frozen=True)
class Named(Place):
    """What Helm names by an expression of its own, for example of the release; where there is no release, it is the
    value at the path. Without a path, it is for Helm only.
    """

    path: str
    expression: str

    def of(self, values: Values) -> Any:
        return at(values, self.path)


@dataclass(frozen=True)
class Item(Place):
    """The item of the list for which a part is repeated."""

    expression: str = "$item"

    def of(self, values: Values) -> Any:
        return values[self.expression]


def pieces(text: str) -> list[str | Place]:
    """A text as what is fixed in it, and the places of values."""
    fixed, marks = _PLACE.split(text), _PLACE.findall(text)
    pairs = zip_longest(fixed, (_PLACES[mark] for mark in marks))
    return [each for pair in pairs for each in pair if each]


@dataclass(frozen=True, slots=True)
class When:
    """`then` if the switch at the path is on (or off, if `is_on` is False); otherwise the entry or item is absent.
    `either` is another switch, of which it is enough that it is on.
    """

    path: str
    then: Any
    is_on: bool = True
    either: str = ""

    def holds(self, values: Values) -> bool:
        return bool(at(values, self.path)) is self.is_on or bool(self.either and at(values, self.either))

    @property
    def helm(self) -> str:
        first = f"{'' if self.is_on else 'not '}.Values.{self.path}"
        if not self.either:
            return f"{{{{- if {first} }}}}"
        return f"{{{{- if or {first if self.is_on else f'({first})'} .Values.{self.either} }}}}"


@dataclass(frozen=True, slots=True)
class Made:
    """A text that `by` computes. For Helm it is the named template, piped into a function."""

    by: Callable[[Values], str]
    template: str
    then: str = "toJson"

    @property
    def helm(self) -> str:
        return f'{{{{ include "{self.template}" . | {self.then} }}}}'


@dataclass(frozen=True, slots=True)
class Each:
    """All items of the list at the path, in a list; or, under any key of a mapping, all entries of the mapping."""

    path: str

    def helm(self, *, mapping: bool) -> tuple[str, str]:
        """What begins the repetition, and the line to repeat."""
        if mapping:
            return f"{{{{- range $key, $value := .Values.{self.path} }}}}", (
                "{{ $key | toJson }}: {{ $value | toJson }}"
            )
        return f"{{{{- range .Values.{self.path} }}}}", "- {{ . | toJson }}"


@dataclass(frozen=True, slots=True)
class File:
    """A text that is also a file of the chart, which may then contain braces."""

    path: str
    text: str

    @property
    def helm(self) -> str:
        return f'{{{{ .Files.Get "{self.path}" | toJson }}}}'


@dataclass(frozen=True, slots=True)
class Part:
    """Objects that belong together. `switch` is the value that includes them, and `also` another one that has to be on;
    with `each`, they are repeated for each item of that list.
    """

    name: str
    objects: tuple[Any, ...]
    switch: str = ""
    is_on: bool = True
    also: str = ""
    each: str = ""

    def holds(self, values: Values) -> bool:
        """Whether these values include it."""
        return all(each.holds(values) for each in self._conditions)

    def resolved(self, values: Values) -> list[Any]:
        """The manifests for these values; none if they do not include it."""
        if not self.holds(values):
            return []
        if not self.each:
            return [resolved(obj, values) for obj in self.objects]
        return [
            resolved(obj, {**values, Item().expression: item})
            for item in at(values, self.each)
            for obj in self.objects
        ]

    @property
    def helm(self) -> str:
        text = "---\n".join(helm(obj) for obj in self.objects)
        if self.each:
            begin, end = f"{{{{ range $item := .Values.{self.each} }}}}{{{{ with $ }}}}", "{{ end }}{{ end }}"
            text = f"{begin}\n---\n{text}{end}\n"
        for condition in reversed(self._conditions):
            text = f"{condition.helm.replace('{{-', '{{', 1)}\n{text}{{{{ end }}}}\n"
        return text

    @property
    def files(self) -> dict[str, str]:

        def within(description: Any) -> dict[str, str]:
            match description:
                case File():
                    return {description.path: description.text}
                case Mapping():
                    return within([*description.values()])
                case list() | tuple():
                    return {path: text for each in description for path, text in within(each).items()}
                case _:
                    return {}

        return within(self.objects)

    @property
    def _conditions(self) -> list[When]:
        switches = ((self.switch, self.is_on), (self.also, True))
        return [When(path, None, is_on) for path, is_on in switches if path]


def _without_null(value: Any) -> Any:
    """Helm leaves a value out that a file sets to null."""
    if isinstance(value, Mapping):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    return value


def at(values: Values, path: str) -> Any:
    """The value at a dotted path. Raises KeyError."""
    found: Any = values
    for part in path.split("."):
        found = found[part]
    return found


def resolved(description: Any, values: Values) -> Any:
    match description:
        case Place():
            return description.of(values)
        case str():
            match pieces(description):
                case [Place() as whole]:
                    return whole.of(values)
                case parts:
                    return "".join(each if isinstance(each, str) else str(each.of(values)) for each in parts)
        case Made():
            return description.by(values)
        case File():
            return description.text
        case Mapping():
            found: dict[str, Any] = {}
            for key, item in description.items():
                if isinstance(item, Each):
                    found |= at(values, item.path)
                elif _is_there(item, values):
                    found[key] = resolved(_content(item), values)
            return found
        case list() | tuple():
            return [
                each
                for item in description
                if _is_there(item, values)
                for each in (
                    at(values, item.path) if isinstance(item, Each) else [resolved(_content(item), values)]
                )
            ]
        case _:
            return description


def helm(description: Any) -> str:
    places: list[Any] = []
    text = as_yaml(_marked(description, places))
    return "".join(_line(line, places) for line in text.splitlines())


def _is_there(item: Any, values: Values) -> bool:
    return not isinstance(item, When) or item.holds(values)


def _content(item: Any) -> Any:
    return item.then if isinstance(item, When) else item


_MARK = re.compile(r"^(?P<indent> *)(?P<before>.*?)PLACE-(?P<number>\d+)$")


def _marked(description: Any, places: list[Any]) -> Any:
    match description:
        case str() if not _PLACE.search(description):
            return description
        case str() | Place() | When() | Made() | Each() | File():
            places.append(description)
            return f"PLACE-{len(places) - 1}"
        case Mapping():
            return {key: _marked(item, places) for key, item in description.items()}
        case list() | tuple():
            return [_marked(item, places) for item in description]
        case _:
            return description


def _line(line: str, places: list[Any]) -> str:
    found = _MARK.match(line)
    if found is None:
        return line.replace("{{", '{{ "{{" }}') + "\n"
    place, indent, before = places[int(found["number"])], found["indent"], found["before"]
    if isinstance(place, Each):
        begin, repeated = place.helm(mapping=before != "- ")
        return f"{indent}{begin}\n{indent}{repeated}\n{indent}{{{{- end }}}}\n"
    if isinstance(place, str | Place):
        return f"{indent}{before}{{{{ {_expression(str(place))} | toJson }}}}\n"
    if not isinstance(place, When):
        return f"{indent}{before}{place.helm}\n"
    if before == "- ":
        inside: Any = [place.then]
    else:
        assert re.fullmatch(r"[^- ].*: ", before), f"a condition cannot begin an item: {line}"
        inside = {before[:-2]: place.then}
    lines = "".join(f"{indent}{each}\n" for each in helm(inside).splitlines())
    return f"{indent}{place.helm}\n{lines}{indent}{{{{- end }}}}\n"


def _expression(text: str) -> str:
    match pieces(text):
        case [Place() as whole]:
            return whole.expression
        case parts:
            words = "".join(each.replace("%", "%%") if isinstance(each, str) else "%v" for each in parts)
            given = "".join(f" {each.expression}" for each in parts if isinstance(each, Place))
            return f"printf {json.dumps(words, ensure_ascii=False)}{given}"
