"""Admission and conversion as functions of typed objects.

    @validates(App)
    def no_latest(app: App) -> None:
        if app.spec.image.endswith(":latest"):
            raise Denied("say which version of the image: latest may change")

    @defaults(App)
    def one_replica(app: App) -> App | None: ...

    @converts(OldApp, App)
    def upgrade(old: OldApp) -> App: ...

The functions can still be called directly, as in tests; `Webhooks` serves and registers them. Each may be `async`.

| the function | result |
|---|---|
| returns | allowed; changes by a defaulting function are stored |
| returns an AdmissionAnswer | that answer |
| raises Denied | refused, with its message; a conversion fails with it |
| gets an object that does not fit the class | refused, with the reason, under the policy Fail |
| raises anything else, hangs, returns something else | `failure_policy`: refused, or allowed with a warning |

Guaranteed: defaulting preserves fields that the class does not declare. Not guaranteed: that a conversion keeps fields
that a class does not declare; the classes of a conversion must declare all fields.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import isfunction, signature
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, cast, get_args, overload

import msgspec

from kubeshard.core.encoding import encode
from kubeshard.core.names import safe_name
from kubeshard.core.objects import KubeObject, form_of
from kubeshard.core.overlay import spliced
from kubeshard.core.patches import json_patch
from kubeshard.core.selectors import InvalidSelector, LabelSelector, Selector
from kubeshard.webhook.app import Webhook
from kubeshard.webhook.review import AdmissionAnswer, AdmissionHandler, AdmissionRequest, UnexpectedObject
from kubeshard.webhook.subresources import subresources_of

T = TypeVar("T", bound=KubeObject)
S = TypeVar("S", bound=KubeObject)

_MARK = "__kubeshard_webhook__"

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
Policy = Literal["Fail", "Ignore"]


class Denied(Exception):
    """The user's request is refused with this message, and the HTTP status `code`."""

    def __init__(self, message: str, code: int = 403) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class When(TypedDict, total=False):
    """When the API server calls, and what happens on failure. Omitted entries have the API server's defaults."""

    operations: tuple[Operation, ...]
    """Default: CREATE and UPDATE; of a subresource, what there is. On DELETE, the function gets the object to be
    deleted, both as the new and as the old one.
    """
    failure_policy: Policy
    """Default: Fail."""
    subresource: str
    """Writes of a subresource, such as `status`, instead of the object. Of many, the function gets an object of another
    kind, such as a `Scale` (`kubeshard.webhook.subresources`).
    """
    timeout: int
    """Seconds, 1 to 30; default 10."""
    namespaces: LabelSelector
    objects: LabelSelector
    conditions: Mapping[str, str]
    """CEL expressions by name; all must be true."""


@dataclass(frozen=True, slots=True)
class Admits:
    """The declaration by `validates` or `defaults`."""

    does: Literal["validate", "default"]
    target: type[KubeObject]
    when: When

    def __post_init__(self) -> None:
        decorator = f"@{self.does}s"
        if isfunction(self.target):
            raise TypeError(f"{decorator} takes the kind: {decorator}(App)")
        if unknown := self.when.keys() - When.__annotations__.keys():
            raise TypeError(f"{decorator} takes no {', '.join(sorted(unknown))}")
        allowed, operations = get_args(Operation), self.when.get("operations", ())
        if not set(operations) <= set(allowed):
            raise ValueError(f"{decorator}: operations={operations!r} are not some of {', '.join(allowed)}")
        self._check_subresource(decorator)
        policy = self.when.get("failure_policy", "Fail")
        if policy not in get_args(Policy):
            raise ValueError(f"{decorator}: failure_policy={policy!r} is not Fail or Ignore")
        for name in ("namespaces", "objects"):
            try:
                Selector.from_label_selector(self.when.get(name) or LabelSelector())  # type: ignore[arg-type]
            except InvalidSelector as error:
                raise ValueError(f"{decorator}: {name}: {error}") from None

    def _check_subresource(self, decorator: str) -> None:
        """Raises ValueError for what the API server never calls."""
        name = self.when.get("subresource", "")
        if not name:
            if "CONNECT" in self.when.get("operations", ()):
                raise ValueError(
                    f'{decorator}: objects are not connected to: give subresource="exec", or another of a Pod'
                )
            return
        kind = form_of(self.target).kind
        there = subresources_of(kind)
        if name not in there:
            raise ValueError(
                f"{decorator}: {kind.kind} has no subresource {name!r} that is reviewed: give one of "
                f"{', '.join(sorted(there))}"
            )
        only = there[name].operation
        if self.when.get("operations", (only,)) != (only,):
            raise ValueError(
                f"{decorator}: operations={self.when['operations']!r}: the only operation on {kind.plural}/{name} is "
                f'{only}: leave operations out, or give ("{only}",)'
            )

    @property
    def reviewed(self) -> type[KubeObject]:
        """The class of the objects that the function gets."""
        name = self.when.get("subresource", "")
        return (name and subresources_of(self.target.KIND)[name].reviews) or self.target

    @property
    def operations(self) -> tuple[str, ...]:
        name = self.when.get("subresource", "")
        every = (subresources_of(self.target.KIND)[name].operation,) if name else ("CREATE", "UPDATE")
        return self.when.get("operations", every)


@dataclass(frozen=True, slots=True)
class Converts:
    """The declaration by `converts`."""

    old: type[KubeObject]
    new: type[KubeObject]


_Verdict = AdmissionAnswer | None
_Changed = KubeObject | AdmissionAnswer | None
V = TypeVar("V", bound=_Verdict | Awaitable[_Verdict])
C = TypeVar("C", bound=_Changed | Awaitable[_Changed])


class _Validates(Protocol[T]):
    @overload
    def __call__(self, function: Callable[[T], V], /) -> Callable[[T], V]: ...
    @overload
    def __call__(self, function: Callable[[T, T | None], V], /) -> Callable[[T, T | None], V]: ...
    @overload
    def __call__(
        self, function: Callable[[T, T | None, AdmissionRequest], V], /
    ) -> Callable[[T, T | None, AdmissionRequest], V]: ...


class _Defaults(Protocol[T]):
    @overload
    def __call__(self, function: Callable[[T], C], /) -> Callable[[T], C]: ...
    @overload
    def __call__(self, function: Callable[[T, T | None], C], /) -> Callable[[T, T | None], C]: ...
    @overload
    def __call__(
        self, function: Callable[[T, T | None, AdmissionRequest], C], /
    ) -> Callable[[T, T | None, AdmissionRequest], C]: ...


class _Converts(Protocol[S, T]):
    @overload
    def __call__(self, function: Callable[[S], T], /) -> Callable[[S], T]: ...
    @overload
    def __call__(self, function: Callable[[S], Coroutine[Any, Any, T]], /) -> Callable[[S], Awaitable[T]]: ...


@overload
def validates(target: type[Any], *, reviews: type[S], **when: Unpack[When]) -> _Validates[S]: ...
@overload
def validates(target: type[T], **when: Unpack[When]) -> _Validates[T]: ...
def validates(target: type[Any], *, reviews: type[Any] | None = None, **when: Unpack[When]) -> Any:
    """Declares a validating function of the new object, of new and old object (None on CREATE), or of these and the
    `AdmissionRequest`. With `reviews`, the class that a `subresource` sends, type checkers know what it gets.

        @validates(App, subresource="scale", reviews=Scale)
        def at_most_five(scale: Scale) -> None: ...

    Raises ValueError for what the API server never calls, TypeError for what it sends otherwise.
    """
    return partial(_mark, _declared(Admits("validate", target, when), reviews))


@overload
def defaults(target: type[Any], *, reviews: type[S], **when: Unpack[When]) -> _Defaults[S]: ...
@overload
def defaults(target: type[T], **when: Unpack[When]) -> _Defaults[T]: ...
def defaults(target: type[Any], *, reviews: type[Any] | None = None, **when: Unpack[When]) -> Any:
    """Like `validates`, but the function returns the object to store (`kubeshard.replace`), or None for no change."""
    return partial(_mark, _declared(Admits("default", target, when), reviews))


def _declared(says: Admits, reviews: type[Any] | None) -> Admits:
    if reviews is not None and reviews.KIND != says.reviewed.KIND:
        raise TypeError(
            f"@{says.does}s: the API server sends a {says.reviewed.KIND} for review, not a {reviews.KIND}: "
            f"give reviews={says.reviewed.__name__}, or leave it out"
        )
    return says


def converts(old: type[S], new: type[T]) -> _Converts[S, T]:
    """Declares a conversion function from one version of a kind to another.

    Not every pair of versions needs a function: a hub that all others convert to and from is enough. The name and the
    rest of the object's identity are kept; labels and annotations are those of the result, unless it has no
    `metadata`.
    """
    if old.KIND._replace(version="") != new.KIND._replace(version=""):
        raise TypeError(f"{old.KIND} and {new.KIND} are not versions of one kind")
    return cast(_Converts[S, T], partial(_mark, Converts(old, new)))


def _mark(says: Admits | Converts, function: Any) -> Any:
    if says_of(function) is not None:
        raise TypeError(f"{function.__qualname__} is decorated twice: write a function for each")
    if isinstance(says, Admits):
        form_of(says.target)
        _arity(function)
    setattr(function, _MARK, says)
    return function


def says_of(function: Any) -> Admits | Converts | None:
    """The function's declaration; None if it is not decorated."""
    found: Admits | Converts | None = getattr(function, _MARK, None)
    return found


def name_of(function: Any) -> str:
    """The function's name in names and paths: `no_latest` becomes `no-latest`. Valid there, whatever it is."""
    name = str(function.__name__)
    return safe_name((name.strip("_") or name).replace("_", "-").lower())


def webhook_of(function: Any) -> Webhook:
    says = says_of(function)
    assert isinstance(says, Admits)
    policy = says.when.get("failure_policy", "Fail")
    answered = _validated if says.does == "validate" else _defaulted
    return Webhook(_handler(function, says, policy == "Fail", answered), on_failure=policy)


_Answered = Callable[[Any, AdmissionRequest, Any, Any], AdmissionAnswer]


def _handler(function: Any, says: Admits, strict: bool, answered: _Answered) -> AdmissionHandler:
    arity, target = _arity(function), says.reviewed

    def handle(request: AdmissionRequest) -> AdmissionAnswer | Awaitable[AdmissionAnswer]:
        try:
            new, old = request.whole(target), request.whole_old(target)
        except UnexpectedObject as error:
            if not strict:
                raise
            return AdmissionAnswer(allowed=False, code=422, message=str(error))
        if new is None:
            new = old  # DELETE
        try:
            result = function(*(new, old, request)[:arity])
            if isinstance(result, Awaitable):
                return later(request, new, result)
            return answered(target, request, new, result)
        except Denied as denied:
            return _refusal(denied)

    async def later(request: AdmissionRequest, new: Any, result: Awaitable[Any]) -> AdmissionAnswer:
        try:
            return answered(target, request, new, await result)
        except Denied as denied:
            return _refusal(denied)

    return handle


def _refusal(denied: Denied) -> AdmissionAnswer:
    return AdmissionAnswer(allowed=False, code=denied.code, message=denied.message)


def _validated(target: type[Any], request: AdmissionRequest, new: Any, result: Any) -> AdmissionAnswer:
    if result is None:
        return AdmissionAnswer()
    if isinstance(result, AdmissionAnswer):
        return result
    raise TypeError(f"a validator returns None or an AdmissionAnswer, not {type(result).__name__}")


def _defaulted(target: type[Any], request: AdmissionRequest, new: Any, result: Any) -> AdmissionAnswer:
    if result is None or result is new:
        return AdmissionAnswer()
    if isinstance(result, AdmissionAnswer):
        return result
    if not isinstance(result, target):
        raise TypeError(
            f"a function of defaults returns {target.__name__} or None, not {type(result).__name__}"
        )
    whole = request.whole(dict) or {}
    had, has = (msgspec.json.decode(encode(obj)) for obj in (new, result))
    return AdmissionAnswer(patch=tuple(json_patch(whole, spliced(whole, had, has))))


def _arity(function: Any) -> int:
    """The number of arguments of (new, old, request) that it takes. Raises TypeError."""
    taken = signature(function)
    for arity in (3, 2, 1):
        try:
            taken.bind(*[None] * arity)
        except TypeError:
            continue
        return arity
    raise TypeError(
        f"{function.__qualname__} takes other arguments than (new), (new, old) or (new, old, request)"
    )
