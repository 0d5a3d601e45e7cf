"""What an apply removes, beside the rule of structured-merge-diff as it is written there: in sets of fields, in three
steps.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeshard_apiserver.apply.field_manager import remove
from kubeshard_apiserver.apply.fieldset import fields_of, from_fields_v1, paths_of
from kubeshard_apiserver.apply.shape import SCALAR, Path, Shape, item_element, parts

ITEMS = Shape("list", items=Shape("map", {"k": SCALAR, "v": SCALAR}), list_type="map", keys={"k": None})
SET, ATOMIC = Shape("list", items=SCALAR, list_type="set"), Shape("list", items=SCALAR)
INNER = Shape("map", {"items": ITEMS, "set": SET, "list": ATOMIC, "x": SCALAR})
SHAPE = Shape(
    "map", {"spec": INNER, "status": Shape("map", {"inner": INNER, "free": Shape("map", items=INNER)})}
)

Paths = frozenset[Path]

names = st.sampled_from("ab")
scalars = st.sampled_from([None, 1])
sets = st.lists(names, unique=True, max_size=2)
items = st.lists(
    st.fixed_dictionaries({"k": names}, optional={"v": scalars}), max_size=2, unique_by=lambda item: item["k"]
)
maybe = st.none() | st.just({})
inner = st.fixed_dictionaries(
    {}, optional={"items": items | st.none(), "set": sets, "list": sets, "x": scalars}
)
status = st.fixed_dictionaries(
    {}, optional={"inner": inner | maybe, "free": st.dictionaries(names, inner | maybe)}
)
values = st.fixed_dictionaries({}, optional={"spec": inner | maybe, "status": status | maybe})


def paths(value: Any) -> Paths:
    return frozenset(paths_of(fields_of(SHAPE, value)))


def tree(fields: Paths) -> Any:
    root: dict[str, Any] = {}
    for path in fields:
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return from_fields_v1(root)


@st.composite
def owned(draw: st.DrawFn) -> tuple[Any, Paths, Paths]:
    """An object, what its applier owned before, and what anybody owns now. Who owns an item owns its key."""
    value, before = draw(values), draw(values)
    of_both = sorted(paths(value) | paths(before))
    some = st.frozensets(st.sampled_from(of_both)) if of_both else st.just(frozenset())
    last, kept = (
        fields | {(*path, "f:k") for path in fields if path[-1][0] == "k"}
        for fields in (draw(some), draw(some))
    )
    return value, last, kept


def with_declared(fields: Paths) -> Paths:
    """With the declared fields in which these are: they are no members of the set by themselves."""
    return fields | {
        path[:length] for path in fields for length in range(len(path)) if declared(path[:length])
    }


def declared(path: Path) -> bool:
    shape, is_declared = SHAPE, False
    for element in path:
        inner = shape.fields.get(element[2:]) if element.startswith("f:") else None
        shape, is_declared = inner or shape.items or Shape(), inner is not None
    return is_declared


def members(value: Any) -> Paths:
    return with_declared(paths(value))


def without(shape: Shape, value: Any, gone: Paths) -> Any:
    """The value without these fields and all that is in them."""
    inner = parts(shape, value)
    if not inner or not gone:
        return value
    left = {
        element: without(
            part.shape, part.value, frozenset(path[1:] for path in gone if path[0] == element) - {()}
        )
        for element, part in inner.items()
        if (element,) not in gone
    }
    if not left:
        return None
    if isinstance(value, dict):
        return {element[2:]: part for element, part in left.items()}
    return [left[element] for item in value if (element := item_element(shape, item)) in left]


@given(owned())
def test_an_apply_removes_what_the_three_steps_of_the_server_remove(case):
    value, last, kept = case
    last, all_ = with_declared(last), members(value)
    pruned = without(SHAPE, value, last)
    still_owned = without(SHAPE, value, all_ - (members(pruned) | with_declared(kept)))
    expected = without(SHAPE, value, (all_ - members(still_owned)) & last)
    assert remove(SHAPE, value, tree(last), tree(kept)) == expected
