"""What others add to a selector of the webhook: what narrows it is kept, and nothing that widens it counts as that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.managed_fields import ManagedMeta
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.selectors import LabelSelector, Selector
from kubeshard.sharder.webhook_config import narrows, with_narrowing
from kubeshard.sharding.names import SELECTOR_ANNOTATION

KEYS, VALUES = st.sampled_from("ab"), st.sampled_from("xyz")


def _expression(key: str, operator: str, values: list[str]) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": values} if "In" in operator else {})}


EXPRESSIONS = st.builds(
    _expression,
    KEYS,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(VALUES, min_size=1, max_size=3, unique=True),
)
SELECTORS = st.builds(
    lambda labels, expressions: {
        **({"matchLabels": labels} if labels else {}),
        **({"matchExpressions": expressions} if expressions else {}),
    },
    st.dictionaries(KEYS, VALUES, max_size=2),
    st.lists(EXPRESSIONS, max_size=3),
)
ALL_LABELS = [
    {key: value for key, value in (("a", a), ("b", b)) if value} for a in ("", *"xyzw") for b in ("", *"xyzw")
]


def selected(selector: dict[str, Any]) -> list[dict[str, str]]:
    compiled = Selector.from_label_selector(msgspec.convert(selector, LabelSelector))
    return [labels for labels in ALL_LABELS if compiled.matches(labels)]


def stricter(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both at once, as far as matchLabels can say it."""
    labels = {**other.get("matchLabels", {}), **one.get("matchLabels", {})}
    expressions = [*one.get("matchExpressions", ()), *other.get("matchExpressions", ())]
    return {"matchLabels": labels, "matchExpressions": expressions}


@given(SELECTORS, SELECTORS)
def test_what_counts_as_narrower_selects_nothing_else(found: dict[str, Any], ours: dict[str, Any]) -> None:
    if narrows(found, ours):
        assert all(labels in selected(ours) for labels in selected(found))


@given(SELECTORS, SELECTORS)
def test_whatever_is_added_to_a_selector_narrows_it(ours: dict[str, Any], added: dict[str, Any]) -> None:
    assert narrows(stricter(ours, added), ours)


@given(SELECTORS, SELECTORS, SELECTORS)
def test_a_new_selector_of_ours_keeps_what_was_added_to_the_former_one_and_nothing_of_that(
    former: dict[str, Any], added: dict[str, Any], ours: dict[str, Any]
) -> None:
    annotations = {SELECTOR_ANNOTATION: msgspec.json.encode(former).decode()}
    there = {"name": "w", "namespaceSelector": stricter(former, added), "objectSelector": {}}
    found = MutatingWebhookConfiguration(metadata=ManagedMeta(annotations=annotations), webhooks=(there,))
    desired = {"webhooks": [{"name": "w", "namespaceSelector": ours, "objectSelector": {}}]}
    now = with_narrowing(desired, found)["webhooks"][0]["namespaceSelector"]
    assert all(labels in selected(ours) for labels in selected(now))
    assert narrows(now, ours)
    both = [labels for labels in selected(there["namespaceSelector"]) if labels in selected(ours)]
    assert all(labels in selected(now) for labels in both)
    beyond = [labels for labels in selected(ours) if labels in selected(added)]
    assert all(labels in selected(now) for labels in beyond), "what only the former one left out"


@pytest.mark.parametrize(
    "bad",
    [
        {"matchExpressions": [{"key": "a", "operator": "Foo"}]},
        {"matchExpressions": [{"key": "a", "operator": "In"}]},
        {"matchLabels": {"a b": "c"}},
    ],
)
@pytest.mark.parametrize("there", [{"matchLabels": {"a": "x"}}, {}, None])
def test_a_new_selector_that_is_none_is_left_to_the_api_server_to_refuse(bad: Any, there: Any) -> None:
    """What others had added to the former one cannot be added to it."""
    annotations = {SELECTOR_ANNOTATION: msgspec.json.encode(there or {}).decode()}
    webhook = {"name": "w", "namespaceSelector": there, "objectSelector": {}}
    found = MutatingWebhookConfiguration(metadata=ManagedMeta(annotations=annotations), webhooks=(webhook,))
    desired = {"webhooks": [{"name": "w", "namespaceSelector": bad, "objectSelector": {}}]}
    assert with_narrowing(desired, found) == desired


@pytest.mark.parametrize("annotation", ["", "{", "5", '"x"', '{"matchLabels": 7}', "[" * 100_000])
def test_an_annotation_that_is_no_selector_is_as_good_as_none(annotation: str) -> None:
    meta = ManagedMeta(annotations={SELECTOR_ANNOTATION: annotation})
    webhook = {"name": "w", "namespaceSelector": {"matchLabels": {"a": "x"}}, "objectSelector": {}}
    desired = {
        "webhooks": [{"name": "w", "namespaceSelector": {"matchLabels": {"b": "y"}}, "objectSelector": {}}]
    }
    found = MutatingWebhookConfiguration(metadata=meta, webhooks=(webhook,))
    assert with_narrowing(desired, found) == desired
