"""Label and field selectors: the API type, the query string, and matching in this process.

Guaranteed: a `Selector` selects exactly what the API server selects for `str(selector)`; it is a frozen value
in a normal form, so equal selections written differently (`a in (x)`, `a=x`) compare and hash equal. Not
supported: the operators `<` and `>`, which a `LabelSelector` cannot express. Source: k8s.io/apimachinery/pkg/labels
and apis/meta/v1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kubeshard.core.names import is_label_key, is_label_value
from kubeshard.core.objects import Struct


class InvalidSelector(ValueError):
    """A selector that the API server would reject; the message names the field, key or operator."""


class LabelSelectorRequirement(Struct, omit_defaults=True):
    """`matchExpressions[]`. `operator` is `In`, `NotIn`, `Exists` or `DoesNotExist`."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Struct, omit_defaults=True):
    """metav1.LabelSelector as in specs. Empty selects everything."""

    match_labels: Mapping[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class Requirement(NamedTuple):
    """`operator` is `in`, `notin`, `exists` or `absent`; `values` is sorted and without duplicates."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "in":
                return labels.get(self.key) in self.values
            case "notin":
                return labels.get(self.key) not in self.values
            case "exists":
                return self.key in labels
            case _:
                return self.key not in labels

    def __str__(self) -> str:
        match self.operator, self.values:
            case "exists", _:
                return self.key
            case "absent", _:
                return f"!{self.key}"
            case "in", (value,):
                return f"{self.key}={value}"
            case "notin", (value,):
                return f"{self.key}!={value}"
            case operator, values:
                return f"{self.key} {operator} ({','.join(values)})"


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector: an object must meet all requirements. `str()` is the query parameter `labelSelector`."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def everything(cls) -> Selector:
        return cls()

    @classmethod
    def equals(cls, key: str, value: str) -> Selector:
        return _compile([_requirement(key, "in", [value])])

    @classmethod
    def exists(cls, key: str) -> Selector:
        return _compile([_requirement(key, "exists")])

    @classmethod
    def absent(cls, key: str) -> Selector:
        return _compile([_requirement(key, "absent")])

    @classmethod
    def any_of(cls, key: str, values: Iterable[str]) -> Selector:
        return _compile([_requirement(key, "in", values)])

    @classmethod
    def not_in(cls, key: str, values: Iterable[str]) -> Selector:
        """The label is absent or has none of the values."""
        return _compile([_requirement(key, "notin", values)])

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Parses the syntax of `kubectl -l`: `a=b,c!=d,e in (x,y),f notin (z),g,!h`. Raises InvalidSelector."""
        requirements = []
        position = 0
        text = text.strip()
        while position < len(text):
            term = _TERM.match(text, position)
            if term is None or (term.end() == len(text) and text.endswith(",")):
                raise InvalidSelector(f"label selector {text!r}: cannot read {text[position:]!r}")
            requirements.append(_from_term(term))
            position = term.end()
        return _compile(requirements)

    @classmethod
    def from_label_selector(cls, selector: LabelSelector) -> Selector:
        """That of a spec. Raises InvalidSelector, which names the expression and operator as the API server does."""
        requirements = [
            _requirement(key, "in", [value]) for key, value in (selector.match_labels or {}).items()
        ]
        for index, expression in enumerate(selector.match_expressions):
            operator = _OPERATORS.get(expression.operator)
            if operator is None:
                raise InvalidSelector(
                    f"matchExpressions[{index}].operator: {expression.operator!r} is not an operator"
                )
            if operator in ("exists", "absent") and expression.values:
                raise InvalidSelector(
                    f"matchExpressions[{index}].values: must be empty for operator {expression.operator}"
                )
            requirements.append(_requirement(expression.key, operator, expression.values))
        return _compile(requirements)

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        return all(requirement.matches(labels or {}) for requirement in self.requirements)

    def __and__(self, other: Selector) -> Selector:
        return _compile([*self.requirements, *other.requirements])

    def __bool__(self) -> bool:
        """Whether the selector restricts anything."""
        return bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


class FieldRequirement(NamedTuple):
    path: str
    value: str
    negated: bool = False

    def __str__(self) -> str:
        value = re.sub(r"[\\,=]", r"\\\g<0>", self.value)
        return f"{self.path}{'!=' if self.negated else '='}{value}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Equality on the few fields that API servers select by: `metadata.name`, `metadata.namespace`, some per kind."""

    requirements: tuple[FieldRequirement, ...] = ()

    @classmethod
    def everything(cls) -> FieldSelector:
        return cls()

    @classmethod
    def equals(cls, path: str, value: str) -> FieldSelector:
        return cls((_field(path, value, negated=False),))

    @classmethod
    def parse(cls, text: str) -> FieldSelector:
        """Parses a selector such as `metadata.name=x,status.phase!=Failed`. Raises InvalidSelector."""
        requirements = set()
        for part in filter(None, (part.strip() for part in _FIELD_COMMA.split(text))):
            term = _FIELD_TERM.fullmatch(part)
            if term is None:
                raise InvalidSelector(f"field selector {text!r}: {part!r} is not path=value or path!=value")
            requirements.add(_field(term[1], re.sub(r"\\(.)", r"\1", term[3]), negated=term[2] == "!="))
        return cls(tuple(sorted(requirements)))

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether it selects an object with these field values; an absent field counts as empty."""
        return all(
            (fields.get(path, "") == value) is not negated for path, value, negated in self.requirements
        )

    def __and__(self, other: FieldSelector) -> FieldSelector:
        return FieldSelector(tuple(sorted({*self.requirements, *other.requirements})))

    def without(self, other: FieldSelector) -> FieldSelector:
        """What is left when the requirements of the other one are taken away."""
        return FieldSelector(tuple(each for each in self.requirements if each not in other.requirements))

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
_TERM = re.compile(
    r"""\s*(?:
          !\s*(?P<absent>[^\s,()=!]+)
        | (?P<key>[^\s,()=!]+)
          (?: \s*(?P<equality>==|=|!=)\s*(?P<value>[^\s,()=!]*)
            | \s+(?P<set>in|notin)\s*\((?P<values>[^()]+)\)
          )?
        )\s*(?:,|$)""",
    re.VERBOSE,
)
_FIELD_PATH = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")
_FIELD_COMMA = re.compile(r"(?<!\\),")
_FIELD_TERM = re.compile(r"([^=!\\]+)(!=|==|=)((?:\\.|[^\\=])*)")


def _from_term(term: re.Match[str]) -> Requirement:
    if term["absent"]:
        return _requirement(term["absent"], "absent")
    if term["equality"]:
        return _requirement(term["key"], "notin" if term["equality"] == "!=" else "in", [term["value"]])
    if term["set"]:
        return _requirement(term["key"], term["set"], [value.strip() for value in term["values"].split(",")])
    return _requirement(term["key"], "exists")


def _requirement(key: str, operator: str, values: Iterable[str] = ()) -> Requirement:
    if not is_label_key(key):
        raise InvalidSelector(f"{key!r} is not a valid label key")
    kept = tuple(sorted(set(values)))
    if operator in ("in", "notin") and not kept:
        raise InvalidSelector(f"{key}: operator {operator} needs at least one value")
    for value in kept:
        if not is_label_value(value):
            raise InvalidSelector(f"{key}: {value!r} is not a valid label value")
    return Requirement(key, operator, kept)


def _field(path: str, value: str, *, negated: bool) -> FieldRequirement:
    if not _FIELD_PATH.fullmatch(path):
        raise InvalidSelector(f"field selector: {path!r} is not the path of a field, such as spec.nodeName")
    return FieldRequirement(path, value, negated)


def _compile(requirements: Iterable[Requirement]) -> Selector:
    return Selector(tuple(sorted(set(requirements))))
