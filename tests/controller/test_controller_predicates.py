"""The deltas that each predicate accepts, as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from controller_bench import Site, child, site
from msgspec.structs import replace

from kubeshard.cache import Added, Deleted, Delta, Updated
from kubeshard.controller import (
    Predicate,
    Watch,
    always,
    annotations_changed,
    changed,
    generation_changed,
    label_selector,
    labels_changed,
    matching,
    never,
    on,
    resource_version_changed,
)
from kubeshard.core import InvalidSelector

OLD, NEW = site("a", 1, generation=1), site("a", 2, generation=1)
SPEC = site("a", 2, generation=2)
GOING = site("a", 2, generation=1, deletion_timestamp="2026-01-01T00:00:00Z")
ANOTHER = Site(metadata=replace(NEW.metadata, uid="another"), spec=NEW.spec)
LABELLED = site("a", 2, generation=1, labels={"app": "web"})
ANNOTATED = site("a", 2, generation=1, annotations={"note": "x"})

TABLE = [
    ("always", always, Updated(OLD, NEW), True),
    ("never", never, Added(NEW), False),
    ("generation: same", generation_changed, Updated(OLD, NEW), False),
    ("generation: other", generation_changed, Updated(OLD, SPEC), True),
    ("generation: deletion began", generation_changed, Updated(OLD, GOING), True),
    ("generation: being deleted", generation_changed, Updated(GOING, GOING), False),
    ("generation: another object", generation_changed, Updated(OLD, ANOTHER), True),
    ("generation: went back", generation_changed, Updated(NEW, OLD), True),
    ("generation: added", generation_changed, Added(NEW), True),
    ("generation: deleted", generation_changed, Deleted(NEW), True),
    ("generation: kind without one", generation_changed, Updated(child("c"), child("c", version=2)), True),
    ("labels: same", labels_changed, Updated(OLD, SPEC), False),
    ("labels: other", labels_changed, Updated(OLD, LABELLED), True),
    ("labels: none and empty", labels_changed, Updated(OLD, site("a", 2, labels={})), False),
    ("annotations: same", annotations_changed, Updated(OLD, LABELLED), False),
    ("annotations: other", annotations_changed, Updated(OLD, ANNOTATED), True),
    ("version", resource_version_changed, Updated(OLD, NEW), True),
    ("version: same", resource_version_changed, Updated(OLD, OLD), False),
    ("selector: added, matches", label_selector("app=web"), Added(LABELLED), True),
    ("selector: added, does not", label_selector("app=web"), Added(NEW), False),
    ("selector: enters", label_selector("app=web"), Updated(OLD, LABELLED), True),
    ("selector: leaves", label_selector("app=web"), Updated(LABELLED, NEW), True),
    ("matching", matching(lambda obj: obj.metadata.name == "b"), Updated(OLD, NEW), False),
    ("changed", changed(lambda obj: obj.spec.theme), Updated(OLD, site("a", 2, theme="x")), True),
    ("changed: same", changed(lambda obj: obj.spec.theme), Updated(OLD, NEW), False),
    ("on: default", on(updated=lambda old, new: False), Added(NEW), True),
    ("on: updated", on(updated=lambda old, new: False), Updated(OLD, NEW), False),
    ("on: deleted", on(deleted=lambda obj: False), Deleted(NEW), False),
    ("and", generation_changed & labels_changed, Updated(OLD, SPEC), False),
    ("or", generation_changed | labels_changed, Updated(OLD, SPEC), True),
    ("not", ~generation_changed, Updated(OLD, NEW), True),
    ("not: added", ~generation_changed, Added(NEW), False),
    ("composed", (generation_changed | labels_changed) & ~never, Updated(OLD, LABELLED), True),
]


@pytest.mark.parametrize(
    ("predicate", "delta", "passes"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_predicates_pass_what_the_table_says(
    predicate: Predicate[Any], delta: Delta[Any], passes: bool
) -> None:
    assert predicate(delta) is passes


def test_a_wrong_selector_is_refused_when_it_is_declared() -> None:
    with pytest.raises(InvalidSelector):
        label_selector("app in web")


def is_dark(obj: Site) -> bool:
    return obj.spec.theme == "dark"


NAMES: list[tuple[Predicate[Any], str]] = [
    (generation_changed, "generation_changed"),
    (changed(is_dark), "changed(is_dark)"),
    (changed(lambda obj: obj.metadata.name), "changed(lambda)"),
    (changed(is_dark).named("lights"), "lights"),
    (matching(is_dark), "matching(is_dark)"),
    (label_selector("x"), 'label_selector("x")'),
    (label_selector("app=web, !old"), 'label_selector("app=web,!old")'),
    (on(added=is_dark, deleted=lambda obj: False), "on(added=is_dark, deleted=lambda)"),
    (Predicate(bool), "Predicate(bool)"),
    (~never, "~never"),
    (~~never, "~~never"),
    (
        generation_changed | annotations_changed & ~label_selector("x"),
        'generation_changed | annotations_changed & ~label_selector("x")',
    ),
    ((always | never) & labels_changed, "(always | never) & labels_changed"),
    (labels_changed & (always | never), "labels_changed & (always | never)"),
    (~(always & never), "~(always & never)"),
    (~(always | never) | always, "~(always | never) | always"),
    (always | never | labels_changed, "always | never | labels_changed"),
    ((always & never).named("both") & labels_changed, "both & labels_changed"),
]


@pytest.mark.parametrize(("predicate", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_predicate_reads_like_the_expression_that_made_it(predicate: Predicate[Any], name: str) -> None:
    assert repr(predicate) == name
    assert name in repr(Watch(Site, when=predicate))


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: generation_changed and labels_changed,
        lambda: generation_changed or labels_changed,
        lambda: not generation_changed,
    ],
)
def test_a_predicate_that_python_would_ignore_is_refused(mistake: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="predicates are combined with"):
        mistake()


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: changed("spec.theme"), r"changed\('spec.theme'\): give a function of the object"),  # type: ignore[arg-type] # the mistake
        (lambda: matching(True), r"matching\(True\): give a function of the object"),  # type: ignore[arg-type] # the mistake
        (lambda: Watch(Site, when=True), "when=True is not a predicate"),  # type: ignore[arg-type] # the mistake
        (lambda: Watch(Site, when=matching), "when=matching is not a predicate"),  # type: ignore[arg-type] # the mistake
        (generation_changed, "generation_changed is a predicate: pass it without calling it"),
        (generation_changed & labels_changed, r"pass it .* as in when=generation_changed & labels_changed$"),
    ],
)
def test_what_is_not_a_predicate_is_refused_where_it_is_declared(
    mistake: Callable[[], object], says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        mistake()
