"""What a desired object leaves of the live one, without a server."""

from collections.abc import Mapping
from typing import Any

from kubeshard.core import Struct, field
from kubeshard.core.overlay import overlaid


class Omitting(Struct, omit_defaults=True):
    count: int = 1
    tags: tuple[str, ...] = ()


class Open(Struct):
    """Anything may be in it."""

    anything: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)


def test_a_class_that_omits_defaults_leaves_fields_alone_that_have_them() -> None:
    live = Omitting(count=3, tags=("a",))
    assert overlaid(live, Omitting()) is live
    assert overlaid(live, Omitting(count=2)) == Omitting(count=2, tags=("a",))


def test_true_is_not_the_number_one_where_anything_may_be() -> None:
    live = Open(anything=1, options={"a": 1})
    desired = Open(anything=True, options={"a": True})
    found = overlaid(live, desired)
    assert found.anything is True
    assert found.options["a"] is True
