"""Predicates: filters that decide which changes of an object trigger a reconcile. `from kubeshard import when`

    Watch(Website, when=when.generation_changed | when.annotations_changed)
    Watch(Deployment, when=when.changed(is_ready))
    Watch(Secret, when=when.label_selector("app=web") & ~when.labels_changed)

A predicate tests deltas (`kubeshard.cache.deltas`). Those that compare (`changed`, `generation_changed`, ...) let
additions and deletions pass, because there is nothing to compare with. So every object passes once when a process
starts, and again in every resync. A change that a full list shows is also tested as an addition: after a restore of
etcd, the numbers that are compared come again with other contents (docs/design/outages.md).

In a controller with finalizers or daemons, the start of a deletion, and what daemons depend on, always pass; and so do
all changes of the members of a desired set that is not complete.

Caveats of all predicates: one that is too strict loses work until the next resync, so if in doubt let the change pass.
It only sees the fields that the object's class declares. It saves reconciles, not memory: objects that do not pass are
still cached (`Watch.scope` narrows that). If a predicate raises, the change passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar, overload

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.core.objects import KubeObject
from kubeshard.core.selectors import Selector
from kubeshard.core.versions import precedes

__all__ = [
    "Predicate",
    "always",
    "annotations_changed",
    "changed",
    "generation_changed",
    "label_selector",
    "labels_changed",
    "matching",
    "never",
    "on",
    "resource_version_changed",
]

T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)

_OR, _AND, _ATOM = 1, 2, 3
"""How tightly the outermost operator of an expression binds."""


class Predicate(Generic[T_contra]):
    """A test of deltas. Combine predicates with `&`, `|` and `~`. `test` must be pure and quick: it runs in the event
    loop.

    A predicate for a class is also one for its subclasses, and a combination accepts what both operands accept:
    `generation_changed | changed(theme)` is a predicate for websites if `theme` takes a website. A type checker infers
    the argument of a lambda directly in a `Watch`; in a combination it needs a function, or an annotated variable:

        status_changed: when.Predicate[Website] = when.changed(lambda website: website.status)

    `repr` is the expression, without the name of the module.
    """

    __slots__ = ("_binds", "_name", "test")

    def __init__(self, test: Callable[[Delta[T_contra]], bool], name: str = "") -> None:
        self.test = test
        """For who asks often: to call the predicate is another call."""
        self._name = name or f"Predicate({_called(test)})"
        self._binds = _ATOM

    def __call__(self, *delta: Delta[T_contra]) -> bool:
        if not delta:
            raise TypeError(f"{self} is a predicate: pass it without calling it, as in when={self}")
        return self.test(*delta)

    @overload
    def __and__(self: Predicate[KubeObject], other: Predicate[T]) -> Predicate[T]: ...

    @overload
    def __and__(self, other: Predicate[T_contra]) -> Predicate[T_contra]: ...

    def __and__(self, other: Predicate[Any]) -> Predicate[Any]:
        one, two = self.test, other.test
        return _combined(lambda delta: one(delta) and two(delta), _AND, " & ", self, other)

    @overload
    def __or__(self: Predicate[KubeObject], other: Predicate[T]) -> Predicate[T]: ...

    @overload
    def __or__(self, other: Predicate[T_contra]) -> Predicate[T_contra]: ...

    def __or__(self, other: Predicate[Any]) -> Predicate[Any]:
        one, two = self.test, other.test
        return _combined(lambda delta: one(delta) or two(delta), _OR, " | ", self, other)

    def __invert__(self) -> Predicate[T_contra]:
        """The negation, for all deltas.

        Caveat: `~generation_changed` passes no additions and deletions, and `~matching(test)` no updates in which the
        object starts or stops matching.
        """
        test = self.test
        return Predicate(lambda delta: not test(delta), f"~{self._within(_ATOM)}")

    def __bool__(self) -> NoReturn:
        raise TypeError("predicates are combined with `&`, `|` and `~`, not with `and`, `or` and `not`")

    def named(self, name: str) -> Predicate[T_contra]:
        """The same predicate with another name: `changed(lambda site: site.spec.theme).named("theme_changed")`."""
        return Predicate(self.test, name)

    def __repr__(self) -> str:
        return self._name

    def _within(self, binds: int) -> str:
        """The expression as an operand of an operator with this precedence."""
        return f"({self._name})" if self._binds < binds else self._name


def _combined(
    test: Callable[[Delta[T]], bool], binds: int, operator: str, *operands: Predicate[T]
) -> Predicate[T]:
    predicate = Predicate(test, operator.join(operand._within(binds) for operand in operands))
    predicate._binds = binds
    return predicate


def _called(function: Callable[..., Any]) -> str:
    """What to call a function in an expression; a lambda has no name."""
    name: str = getattr(function, "__qualname__", None) or repr(function)
    return "lambda" if name.endswith("<lambda>") else name.rpartition("<locals>.")[2]


def _check_function(predicate: str, given: object) -> None:
    """A wrong argument, such as a path as a string, would otherwise only be noticed at the first change."""
    if not callable(given):
        raise TypeError(
            f"{predicate}({given!r}): give a function of the object, as in {predicate}(lambda obj: obj.metadata.labels)"
        )


def changed(part: Callable[[T], Any]) -> Predicate[T]:
    """Passes updates in which `part` of the object has another value, and all additions and deletions.

    Caveats: values are compared with `!=`, so `part` must return something that compares by value. Two changes that
    cancel out may be seen as none, because a cache may skip intermediate states.
    """
    _check_function("changed", part)
    return Predicate(
        lambda delta: not isinstance(delta, Updated) or part(delta.old) != part(delta.new),
        f"changed({_called(part)})",
    )


def matching(test: Callable[[T], bool]) -> Predicate[T]:
    """Passes objects for which the test returns True. An update passes if the old or the new object does, so that an
    object that stops matching is noticed.

    Caveat: every update of a matching object passes, whatever changed. Combine: `matching(test) &
    generation_changed`.
    """
    _check_function("matching", test)
    return Predicate(
        lambda delta: (
            test(delta.old) or test(delta.new) if isinstance(delta, Updated) else test(delta.object)
        ),
        f"matching({_called(test)})",
    )


def label_selector(selector: Selector | str) -> Predicate[KubeObject]:
    """Passes objects whose labels match before or after an update. Raises InvalidSelector.

    Caveats: those of `matching`. Objects that do not match are still read and cached; with a selector in `Watch.scope`
    the API server omits them.
    """
    compiled = Selector.parse(selector) if isinstance(selector, str) else selector

    def matches(obj: KubeObject) -> bool:
        return compiled.matches(obj.metadata.labels)

    return matching(matches).named(f'label_selector("{compiled}")')


def on(
    *,
    added: Callable[[T], bool] | None = None,
    updated: Callable[[T, T], bool] | None = None,
    deleted: Callable[[T], bool] | None = None,
) -> Predicate[T]:
    """A test per class of delta; deltas without a test pass.

    Caveats: an addition may be an object that has existed for a long time (at the start of a process, or in a resync).
    A deletion means that the object left this cache: with a selector in the scope it may still exist.
    """

    def test(delta: Delta[T]) -> bool:
        match delta:
            case Added():
                return added is None or added(delta.object)
            case Updated():
                return updated is None or updated(delta.old, delta.new)
            case Deleted():
                return deleted is None or deleted(delta.object)

    given: dict[str, Callable[..., bool] | None] = {"added": added, "updated": updated, "deleted": deleted}
    arguments = ", ".join(f"{name}={_called(function)}" for name, function in given.items() if function)
    return Predicate(test, f"on({arguments})")


def _new_generation(old: KubeObject, new: KubeObject) -> bool:
    before, now = old.metadata, new.metadata
    return (
        now.generation == 0  # kinds without one (ConfigMap, Secret, Lease, ...): there, every update counts
        or before.generation != now.generation
        or before.deletion_timestamp != now.deletion_timestamp
        or before.uid != now.uid
        or precedes(now.resource_version, before.resource_version)
    )


def _labels(obj: KubeObject) -> object:
    return obj.metadata.labels or {}


def _annotations(obj: KubeObject) -> object:
    return obj.metadata.annotations or {}


def _resource_version(obj: KubeObject) -> object:
    return obj.metadata.resource_version


always: Predicate[KubeObject] = Predicate(lambda _: True, "always")
"""Passes every change. Caveat: a controller that writes to the objects it watches triggers itself with each write that
changes something; one that always finds something to write loops forever.
"""

never: Predicate[KubeObject] = Predicate(lambda _: False, "never")
"""Passes no change, not even in a resync: for a primary kind that only `sources` trigger. Kinds that are only read are
in `Controller.reads`.
"""

generation_changed: Predicate[KubeObject] = on(updated=_new_generation).named("generation_changed")
"""Passes changes of the spec, the start of a deletion, and updates that go back to an earlier version.

Caveats: changes of labels, annotations, finalizers and owner references do not change the generation. Changes of the
status do not either if it is a subresource: in a custom resource without one, every change of the status counts.
Updates of kinds without a generation (ConfigMap, Secret, ...) always pass.
"""

labels_changed: Predicate[KubeObject] = changed(_labels).named("labels_changed")
"""Passes changes of labels. Caveat: no other update passes, not even of the spec. Combine it:
`generation_changed | labels_changed`.
"""

annotations_changed: Predicate[KubeObject] = changed(_annotations).named("annotations_changed")
"""Passes changes of annotations. Caveats: those of `labels_changed`, and other controllers often write annotations."""

resource_version_changed: Predicate[KubeObject] = changed(_resource_version).named("resource_version_changed")
"""Passes updates in which anything changed. It is for deltas from other sources: an informer only reports changes, so
there it is the same as `always`.
"""
