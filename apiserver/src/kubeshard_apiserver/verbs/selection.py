"""The objects that a list or watch selects, by scope, label selector and field selector."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kubeshard.core.selectors import FieldSelector, InvalidSelector
from kubeshard_apiserver.model import Target
from kubeshard_apiserver.objects import Object, labels_of
from kubeshard_apiserver.resources.strategy import Strategy
from kubeshard_apiserver.status import bad_request
from kubeshard_apiserver.verbs.label_selectors import LabelTerms, parse_label_selector

_BARE_TERM = re.compile(r"[^=!]*")


@dataclass(frozen=True)
class Selection:
    strategy: Strategy
    namespace: str
    name: str
    labels: LabelTerms
    fields: FieldSelector

    def selects(self, obj: Object) -> bool:
        meta = obj["metadata"]
        if self.namespace and meta.get("namespace") != self.namespace:
            return False
        if self.name and meta["name"] != self.name:
            return False
        if self.labels and not self.labels.matches(labels_of(obj)):
            return False
        return not self.fields or self.fields.matches(self.strategy.fields_for_selection(obj))

    @property
    def narrows(self) -> bool:
        """Whether there is a selector in addition to the scope."""
        return bool(self.labels or self.fields)


def select(target: Target, label_selector: str = "", field_selector: str = "") -> Selection:
    """Parses the selectors. Raises Invalid (400) for selectors that the server does not accept."""
    strategy = target.resource.strategy
    labels, fields = check_selectors(label_selector, field_selector)
    for requirement in fields.requirements:
        if requirement.path not in strategy.selectable:
            raise bad_request(strategy.selector_problem(requirement.path))
    return Selection(strategy, target.namespace, target.name, labels, fields)


def check_selectors(label_selector: str, field_selector: str) -> tuple[LabelTerms, FieldSelector]:
    """Parses the selectors, of whatever fields. Raises Invalid (400)."""
    labels = parse_label_selector(label_selector)
    try:
        return labels, FieldSelector.parse(field_selector)
    except InvalidSelector:
        terms = field_selector.split(",")
        term = next((part for part in terms if _BARE_TERM.fullmatch(part)), terms[0])
        raise bad_request(f"invalid selector: '{field_selector}'; can't understand '{term}'") from None
