"""The objects that a list or watch selects, by scope, labels, fields and hash.

Selectors are parsed and refused as the API server does: `Selector.parse` and `FieldSelector.parse` of kubeshard, which
clients use, know neither the operators `<` and `>` nor the server's words.
Source: k8s.io/apimachinery `pkg/labels/selector.go`, `pkg/fields/selector.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from kubeshard.core.objects import Key
from kubeshard.core.selectors import FieldRequirement, FieldSelector
from kubeshard_apiserver.model import Target
from kubeshard_apiserver.objects import Object, labels_of
from kubeshard_apiserver.resources.strategy import Strategy
from kubeshard_apiserver.schema.name_formats import label_value, qualified_name
from kubeshard_apiserver.states import State
from kubeshard_apiserver.status import aggregated, bad_request, invalid_value
from kubeshard_apiserver.verbs.shard_selectors import ShardRanges, parse_shard_selector

Labels = Mapping[str, str]

_WORD = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+|$)")
_OF_SETS = ("in", "notin")
_OPERATORS = ("in", "notin", "=", "==", "!=", ">", "<")
_EXPECTED = "in, notin, =, ==, !=, gt, lt"
_INTEGER = re.compile(r"[+-]?[0-9]+").fullmatch


class Term(NamedTuple):
    """One requirement. `operator` is one of `in`, `notin`, `exists`, `absent`, `>` and `<`."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        number, (limit,) = _integer(value or ""), map(int, self.values)
        return number is not None and (number > limit if self.operator == ">" else number < limit)


class LabelTerms(tuple[Term, ...]):
    """A parsed selector: all terms must match."""

    __slots__ = ()

    def matches(self, labels: Labels) -> bool:
        for term in self:  # every watch asks this of every change, most often about one value of one label
            if term.operator == "in":
                if labels.get(term.key) not in term.values:
                    return False
            elif not term.matches(labels):
                return False
        return True


def _parse_label_selector(text: str) -> LabelTerms:
    """Parses the query parameter `labelSelector`. Raises Invalid (400)."""
    return LabelTerms(_Parser(text).terms()) if text else _EVERYTHING


_EVERYTHING = LabelTerms()


class _Parser:
    def __init__(self, text: str) -> None:
        self._words = _WORD.findall(text)  # the last one is empty: the end
        self._at = 0

    def terms(self) -> list[Term]:
        terms: list[Term] = []
        while (ahead := self._ahead) != "":
            if not _is_name(ahead) and ahead != "!":
                problem = "identifier after ','" if terms else "!, identifier, or 'end of string'"
                raise bad_request(f"found '{ahead}', expected: {problem}")
            terms.append(self._term())
            after = self._next()
            if after == "":
                break
            if after != ",":
                raise bad_request(f"found '{after}', expected: ',' or 'end of string'")
            if self._ahead == "":
                raise bad_request("found '', expected: identifier after ','")
        return terms

    def _term(self) -> Term:
        key = self._next()
        negated = key == "!"
        if negated:
            key = self._next()
        if not _is_name(key):
            raise _unreadable(f"found '{key}', expected: identifier")
        if problems := qualified_name(key):
            raise _unreadable(str(invalid_value("<nil>", key, "; ".join(problems))))
        if negated or self._ahead in ("", ","):
            return Term(key, "absent" if negated else "exists")
        operator = self._next()
        if operator not in _OPERATORS:
            raise _unreadable(f"found '{operator}', expected: {_EXPECTED}")
        values = self._values() if operator in _OF_SETS else self._value()
        errors = []
        if operator in ("<", ">"):
            problem = "for 'Gt', 'Lt' operators, the value must be an integer"
            errors += [
                invalid_value(f"values[{index}]", value, problem)
                for index, value in enumerate(values)
                if _integer(value) is None
            ]
        for index, value in enumerate(values):
            if problems := label_value(value):
                errors.append(invalid_value(f"values[{index}][{key}]", value, "; ".join(problems)))
        if errors:
            raise _unreadable(aggregated(errors))
        plain = {"=": "in", "==": "in", "!=": "notin"}.get(operator, operator)
        return Term(key, plain, frozenset(values))

    def _values(self) -> list[str]:
        if (opening := self._next()) != "(":
            raise _unreadable(f"found '{opening}' expected: '('")
        ahead = self._ahead
        if ahead == ")":
            self._next()
            return [""]
        if not _is_name(ahead) and ahead != ",":
            raise _unreadable(f"found '{ahead}', expected: ',', ')' or identifier")
        found: set[str] = set()
        while (word := self._next()) != ")":
            if _is_name(word):
                found.add(word)
                if self._ahead not in (",", ")"):
                    raise _unreadable(f"found '{self._ahead}', expected: ',' or ')'")
            elif word != ",":
                raise _unreadable(f"found '{word}', expected: ',', or identifier")
            elif not found or self._ahead in (",", ")"):
                found.add("")
        return sorted(found)

    def _value(self) -> list[str]:
        if self._ahead in ("", ","):
            return [""]
        if not _is_name(word := self._next()):
            raise _unreadable(f"found '{word}', expected: identifier")
        return [word]

    @property
    def _ahead(self) -> str:
        return str(self._words[self._at])

    def _next(self) -> str:
        word = self._ahead
        self._at = min(self._at + 1, len(self._words) - 1)
        return word


def _is_name(word: str) -> bool:
    return word not in ("", "==", "!=", "=", "!", "(", ")", ",", "<", ">")


def _integer(text: str) -> int | None:
    """Returns the number if it is an integer of 64 bits."""
    number = int(text) if len(text) < 64 and _INTEGER(text) else None
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None


def _unreadable(problem: str) -> Exception:
    return bad_request(f"unable to parse requirement: {problem}")


@dataclass(frozen=True)
class Selection:
    strategy: Strategy
    namespace: str
    name: str
    labels: LabelTerms
    fields: FieldSelector
    ranges: ShardRanges | None = None

    def selects(self, obj: Object) -> bool:
        meta = obj["metadata"]
        if self.namespace and meta.get("namespace") != self.namespace:
            return False
        if self.name and meta["name"] != self.name:
            return False
        if self.labels and not self.labels.matches(labels_of(obj)):
            return False
        if self.fields and not self.fields.matches(self.strategy.fields_for_selection(obj)):
            return False
        return self.ranges is None or self.ranges.selects(obj)

    def may_select(self, key: Key, state: State) -> bool:
        """False if labels or hash, which are read without decoding the object, say that it is not selected."""
        if self.labels and not self.labels.matches(state.labels):
            return False
        return self.ranges is None or self.ranges.selects_stored(key, state)

    def selects_state(self, state: State | None) -> bool:
        """Whether there is an object that is selected."""
        return state is not None and (self._is_everything or self.selects(state.value))

    @cached_property
    def _is_everything(self) -> bool:
        return not (self.namespace or self.name or self.narrows or self.ranges)

    @property
    def narrows(self) -> bool:
        """Whether there is a selector in addition to the scope."""
        return bool(self.labels or self.fields)


def select(
    target: Target, label_selector: str = "", field_selector: str = "", shard_selector: str = ""
) -> Selection:
    """Parses the selectors. Raises Invalid (400) for selectors that the server does not accept, and ApiError (500) for
    a shard selector.
    """
    strategy = target.resource.strategy
    labels, fields = check_selectors(label_selector, field_selector)
    for requirement in fields.requirements:
        if requirement.path not in strategy.selectable:
            raise bad_request(strategy.selector_problem(requirement.path))
    ranges = parse_shard_selector(shard_selector)
    return Selection(strategy, target.namespace, target.name, labels, fields, ranges)


def check_selectors(label_selector: str, field_selector: str) -> tuple[LabelTerms, FieldSelector]:
    """Parses the selectors, of whatever fields. Raises Invalid (400)."""
    return _parse_label_selector(label_selector), _parse_field_selector(field_selector)


_PARTS = re.compile(r"(?:\\.|\\$|[^\\,])+", re.S)
_FIELD_TERM = re.compile(r"(.*?)(!=|==|=)(.*)", re.S)
_ESCAPE = re.compile(r"\\(.?)|[,=]", re.S)


def _parse_field_selector(text: str) -> FieldSelector:
    """Parses the query parameter `fieldSelector`. Raises Invalid (400)."""
    requirements = []
    for part in sorted(_PARTS.findall(text)):
        term = _FIELD_TERM.fullmatch(part)
        if term is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        value = _ESCAPE.sub(_unescaped, term[3])
        requirements.append(FieldRequirement(term[1], value, negated=term[2] == "!="))
    return FieldSelector(tuple(requirements))


def _unescaped(found: re.Match[str]) -> str:
    if found[1] is None:
        raise bad_request(f"invalid field selector: unescaped character in value: {ord(found[0])}")
    if found[1] not in ("\\", ",", "="):
        raise bad_request(f"invalid field selector: invalid escape sequence: {found[0]}")
    return found[1]
