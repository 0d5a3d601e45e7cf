"""The deltas that each predicate accepts, as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from controller_bench import Site, child, site
from msgspec.structs import replace

from kubeshard import when
from kubeshard.cache import Added, Deleted, Delta, Updated
from kubeshard.controller import Watch
from kubeshard.core import InvalidSelector

OLD, NEW = site("a", 1, generation=1), site("a", 2, generation=1)
SPEC = site("a", 2, generation=2)
GOING = site("a", 2, generation=1, deletion_timestamp="2026-01-01T00:00:00Z")
ANOTHER = Site(metadata=replace(NEW.metadata, uid="another"), spec=NEW.spec)
LABELLED = site("a", 2, generation=1, labels={"app": "web"})
ANNOTATED = site("a", 2, generation=1, annotations={"note": "x"})

TABLE = [
    ("always", when.always, Updated(OLD, NEW), True),
    ("never", when.never, Added(NEW), False),
    ("generation: same", when.generation_changed, Updated(OLD, NEW), False),
    ("generation: other", when.generation_changed, Updated(OLD, SPEC), True),
    ("generation: deletion began", when.generation_changed, Updated(OLD, GOING), True),
    ("generation: being deleted", when.generation_changed, Updated(GOING, GOING), False),
    ("generation: another object", when.generation_changed, Updated(OLD, ANOTHER), True),
    ("generation: went back", when.generation_changed, Updated(NEW, OLD), True),
    ("generation: added", when.generation_changed, Added(NEW), True),
    ("generation: deleted", when.generation_changed, Deleted(NEW), True),
    (
        "generation: kind without one",
        when.generation_changed,
        Updated(child("c"), child("c", version=2)),
        True,
    ),
    ("labels: same", when.labels_changed, Updated(OLD, SPEC), False),
    ("labels: other", when.labels_changed, Updated(OLD, LABELLED), True),
    ("labels: none and empty", when.labels_changed, Updated(OLD, site("a", 2, labels={})), False),
    ("annotations: same", when.annotations_changed, Updated(OLD, LABELLED), False),
    ("annotations: other", when.annotations_changed, Updated(OLD, ANNOTATED), True),
    ("version", when.resource_version_changed, Updated(OLD, NEW), True),
    ("version: same", when.resource_version_changed, Updated(OLD, OLD), False),
    ("selector: added, matches", when.label_selector("app=web"), Added(LABELLED), True),
    ("selector: added, does not", when.label_selector("app=web"), Added(NEW), False),
    ("selector: enters", when.label_selector("app=web"), Updated(OLD, LABELLED), True),
    ("selector: leaves", when.label_selector("app=web"), Updated(LABELLED, NEW), True),
    ("matching", when.matching(lambda obj: obj.metadata.name == "b"), Updated(OLD, NEW), False),
    ("changed", when.changed(lambda obj: obj.spec.theme), Updated(OLD, site("a", 2, theme="x")), True),
    ("changed: same", when.changed(lambda obj: obj.spec.theme), Updated(OLD, NEW), False),
    ("on: default", when.on(updated=lambda old, new: False), Added(NEW), True),
    ("on: updated", when.on(updated=lambda old, new: False), Updated(OLD, NEW), False),
    ("on: deleted", when.on(deleted=lambda obj: False), Deleted(NEW), False),
    ("and", when.generation_changed & when.labels_changed, Updated(OLD, SPEC), False),
    ("or", when.generation_changed | when.labels_changed, Updated(OLD, SPEC), True),
    ("not", ~when.generation_changed, Updated(OLD, NEW), True),
    ("not: added", ~when.generation_changed, Added(NEW), False),
    ("composed", (when.generation_changed | when.labels_changed) & ~when.never, Updated(OLD, LABELLED), True),
]


@pytest.mark.parametrize(
    ("predicate", "delta", "passes"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_predicates_pass_what_the_table_says(
    predicate: when.Predicate[Any], delta: Delta[Any], passes: bool
) -> None:
    assert predicate(delta) is passes


def test_a_wrong_selector_is_refused_when_it_is_declared() -> None:
    with pytest.raises(InvalidSelector):
        when.label_selector("app in web")


def is_dark(obj: Site) -> bool:
    return obj.spec.theme == "dark"


NAMES: list[tuple[when.Predicate[Any], str]] = [
    (when.generation_changed, "generation_changed"),
    (when.changed(is_dark), "changed(is_dark)"),
    (when.changed(lambda obj: obj.metadata.name), "changed(lambda)"),
    (when.changed(is_dark).named("lights"), "lights"),
    (when.matching(is_dark), "matching(is_dark)"),
    (when.label_selector("x"), 'label_selector("x")'),
    (when.label_selector("app=web, !old"), 'label_selector("app=web,!old")'),
    (when.on(added=is_dark, deleted=lambda obj: False), "on(added=is_dark, deleted=lambda)"),
    (when.Predicate(bool), "Predicate(bool)"),
    (~when.never, "~never"),
    (~~when.never, "~~never"),
    (
        when.generation_changed | when.annotations_changed & ~when.label_selector("x"),
        'generation_changed | annotations_changed & ~label_selector("x")',
    ),
    ((when.always | when.never) & when.labels_changed, "(always | never) & labels_changed"),
    (when.labels_changed & (when.always | when.never), "labels_changed & (always | never)"),
    (~(when.always & when.never), "~(always & never)"),
    (~(when.always | when.never) | when.always, "~(always | never) | always"),
    (when.always | when.never | when.labels_changed, "always | never | labels_changed"),
    ((when.always & when.never).named("both") & when.labels_changed, "both & labels_changed"),
]


@pytest.mark.parametrize(("predicate", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_predicate_reads_like_the_expression_that_made_it(
    predicate: when.Predicate[Any], name: str
) -> None:
    assert repr(predicate) == name
    assert name in repr(Watch(Site, when=predicate))


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: when.generation_changed and when.labels_changed,
        lambda: when.generation_changed or when.labels_changed,
        lambda: not when.generation_changed,
    ],
)
def test_a_predicate_that_python_would_ignore_is_refused(mistake: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="predicates are combined with"):
        mistake()


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: when.changed("spec.theme"), r"changed\('spec.theme'\): give a function of the object"),  # type: ignore[arg-type] # the mistake
        (lambda: when.matching(True), r"matching\(True\): give a function of the object"),  # type: ignore[arg-type] # the mistake
        (lambda: Watch(Site, when=True), "when=True is not a predicate"),  # type: ignore[arg-type] # the mistake
        (lambda: Watch(Site, when=when.matching), "when=matching is not a predicate"),  # type: ignore[arg-type] # the mistake
        (when.generation_changed, "generation_changed is a predicate: pass it without calling it"),
        (
            when.generation_changed & when.labels_changed,
            r"pass it .* as in when=generation_changed & labels_changed$",
        ),
    ],
)
def test_what_is_not_a_predicate_is_refused_where_it_is_declared(
    mistake: Callable[[], object], says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        mistake()
