"""One rule for namespaces (`kubeshard.core.namespaces`): one table for client, cache, map functions and contexts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from controller_bench import Bench, Site, Theme, json_answer, site

from kubeshard.cache import watcher
from kubeshard.controller import Context
from kubeshard.controller.context import run_of, with_run
from kubeshard.core import (
    ALL,
    AllNamespaces,
    ConfigMap,
    Kind,
    KubeObject,
    MergePatch,
    Namespace,
    ObjectMeta,
    WrongNamespace,
    to_dict,
)
from kubeshard.core.namespaces import namespace_of
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_lab.virtual_time import virtual_time

MISSING = "has namespaces: say"
REFUSED = "has no namespaces: leave"

Given = str | AllNamespaces | None
Result = Sequence[KubeObject]
Verb = Callable[[Context, type[KubeObject], Any], Awaitable[Any]]


def there(cls: type[KubeObject], namespace: str) -> KubeObject:
    return cls(metadata=ObjectMeta(name="c", namespace=namespace, uid=f"u-{namespace}", resource_version="1"))


OBJECTS = (
    site("a", namespace="own"),
    there(ConfigMap, "own"),
    there(ConfigMap, "other"),
    there(Theme, ""),
)


def answer(request: HttpRequest) -> HttpResponse:
    """Responds like an API server that has these objects, judging by the path."""
    path = request.target.partition("?")[0].strip("/").split("/")
    cls = Theme if "themes" in path else ConfigMap
    namespace = path[path.index("namespaces") + 1] if "namespaces" in path else None
    found = [obj for obj in OBJECTS if isinstance(obj, cls) and namespace in (None, obj.metadata.namespace)]
    if path[-1] == "c":
        return json_answer(found[0])
    body = {
        "apiVersion": cls.KIND.api_version,
        "kind": f"{cls.KIND.kind}List",
        "metadata": {"resourceVersion": "1"},
        "items": [to_dict(obj) for obj in found],
    }
    return HttpResponse(200, {"content-type": "application/json"}, msgspec.json.encode(body))


async def _in_cache(ctx: Context, cls: type[KubeObject], given: Any) -> Any:
    return ctx.cache.get(cls, "c", given)


async def _in_map_function(ctx: Context, cls: type[KubeObject], given: Any) -> Any:
    return run_of(ctx).reader.get(cls, "c", given)


async def _all_in_cache(ctx: Context, cls: type[KubeObject], given: Any) -> Any:
    return ctx.cache.list(cls, given)


async def _all_in_map_function(ctx: Context, cls: type[KubeObject], given: Any) -> Any:
    return run_of(ctx).reader.list(cls, given)


async def _streamed(ctx: Context, cls: type[KubeObject], given: Any) -> Any:
    return [obj async for obj in ctx.client.list(cls, given)]


GET: Mapping[str, Verb] = {
    "client.get": lambda ctx, cls, given: ctx.client.get(cls, "c", given),
    "client.patch": lambda ctx, cls, given: ctx.client.patch(cls, "c", given, MergePatch({})),
    "cache.get": _in_cache,
    "reader.get": _in_map_function,
}
GET_IN_CONTEXT: Mapping[str, Verb] = {
    "ctx.get": lambda ctx, cls, given: ctx.get(cls, "c", given),
    "ctx.get, live": lambda ctx, cls, given: with_run(ctx, run_of(ctx).reading_live()).get(cls, "c", given),
}
LIST: Mapping[str, Verb] = {
    "client.list": _streamed,
    "client.list_all": lambda ctx, cls, given: ctx.client.list_all(cls, given),
    "cache.list": _all_in_cache,
    "reader.list": _all_in_map_function,
}
LIST_IN_CONTEXT: Mapping[str, Verb] = {
    "ctx.list": lambda ctx, cls, given: ctx.list(cls, given),
    "ctx.list, live": lambda ctx, cls, given: with_run(ctx, run_of(ctx).reading_live()).list(cls, given),
}

# kind, given namespace, and where the object is found, or why not: in general, and in a context
ONE: list[tuple[type[KubeObject], Given, str, str]] = [
    (ConfigMap, "other", "other", "other"),
    (ConfigMap, None, MISSING, "own"),
    (ConfigMap, "", MISSING, MISSING),
    (Theme, None, "", ""),
    (Theme, "", "", ""),
    (Theme, "own", REFUSED, REFUSED),
]
MANY: list[tuple[type[KubeObject], Given, str | set[str], str | set[str]]] = [
    (ConfigMap, "other", {"other"}, {"other"}),
    (ConfigMap, ALL, {"own", "other"}, {"own", "other"}),
    (ConfigMap, None, MISSING, {"own"}),
    (ConfigMap, "", MISSING, MISSING),
    (Theme, None, {""}, {""}),
    (Theme, "", {""}, {""}),
    (Theme, ALL, {""}, {""}),
    (Theme, "own", REFUSED, REFUSED),
]


def rows(
    table: Sequence[tuple[type[KubeObject], Given, Any, Any]],
    elsewhere: Mapping[str, Verb],
    in_context: Mapping[str, Verb],
) -> list[Any]:
    return [
        pytest.param(verb, cls, given, expected, id=f"{name}({cls.__name__}, {given!r})")
        for cls, given, outside, inside in table
        for verbs, expected in ((elsewhere, outside), (in_context, inside))
        for name, verb in verbs.items()
    ]


def outcome(verb: Verb, cls: type[KubeObject], given: Given) -> Any:
    """Returns what the verb returned or raised in a reconcile of `own/a`."""
    outcomes: list[Any] = []

    @virtual_time
    async def run() -> None:
        async def reconcile(ctx: Context, obj: Site) -> None:
            try:
                outcomes.append(await verb(ctx, cls, given))
            except WrongNamespace as error:
                outcomes.append(error)

        async with Bench(reconcile, reads=[ConfigMap, Theme], answer=answer).running(*OBJECTS):
            pass

    run()
    return outcomes[0]


@pytest.mark.parametrize(("verb", "cls", "given", "expected"), rows(ONE, GET, GET_IN_CONTEXT))
def test_one_object_is_in_its_namespace_or_in_none(
    verb: Verb, cls: type[KubeObject], given: Given, expected: str
) -> None:
    found = outcome(verb, cls, given)
    if isinstance(found, WrongNamespace):
        assert expected in (MISSING, REFUSED)
        assert expected in str(found)
    else:
        assert found.metadata.namespace == expected


@pytest.mark.parametrize(("verb", "cls", "given", "expected"), rows(MANY, LIST, LIST_IN_CONTEXT))
def test_many_objects_are_in_a_namespace_or_in_all_and_that_is_said(
    verb: Verb, cls: type[KubeObject], given: Given, expected: str | set[str]
) -> None:
    found = outcome(verb, cls, given)
    if isinstance(found, WrongNamespace):
        assert isinstance(expected, str)
        assert expected in str(found)
    else:
        assert {obj.metadata.namespace for obj in found} == expected


async def _watched(ctx: Context, cls: type[KubeObject], given: Any) -> None:
    ctx.client.watch(cls, given)


async def _heard(ctx: Context, cls: type[KubeObject], given: Any) -> None:
    await anext(watcher(ctx.client, cls, given))


WITHOUT_ANSWER: Mapping[str, Verb] = {
    "client.watch": _watched,
    "client.current_version": lambda ctx, cls, given: ctx.client.current_version(cls, given),
    "client.delete": lambda ctx, cls, given: ctx.client.delete(cls, "c", given),
    "client.delete_collection": lambda ctx, cls, given: ctx.client.delete_collection(cls, given),
    "client.create": lambda ctx, cls, given: ctx.client.create(
        cls(metadata=ObjectMeta(name="c", namespace=given or ""))
    ),
    "client.apply": lambda ctx, cls, given: ctx.client.apply(
        cls(metadata=ObjectMeta(name="c", namespace=given or ""))
    ),
    "watcher": _heard,
}


@pytest.mark.parametrize("verb", WITHOUT_ANSWER.values(), ids=WITHOUT_ANSWER.keys())
@pytest.mark.parametrize(
    ("cls", "given", "why"), [(ConfigMap, None, MISSING), (ConfigMap, "", MISSING), (Theme, "own", REFUSED)]
)
def test_every_other_verb_refuses_the_same(verb: Verb, cls: type[KubeObject], given: Given, why: str) -> None:
    found = outcome(verb, cls, given)
    assert isinstance(found, WrongNamespace)
    assert why in str(found)


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}, MISSING),
        (
            {"apiVersion": "example.com/v1", "kind": "Theme", "metadata": {"name": "c", "namespace": "own"}},
            REFUSED,
        ),
    ],
    ids=["missing", "refused"],
)
def test_a_manifest_names_its_namespace(manifest: Mapping[str, Any], why: str) -> None:
    async def applied(ctx: Context, cls: type[KubeObject], given: Any) -> None:
        async def kind(*_: Any, **__: Any) -> Any:
            return (ConfigMap if why is MISSING else Theme).KIND

        ctx.client.discovery.kind = kind  # type: ignore[method-assign] # no discovery in this test
        await ctx.client.apply_manifest(manifest)

    found = outcome(applied, ConfigMap, None)
    assert isinstance(found, WrongNamespace)
    assert why in str(found)


class Zone(KubeObject, group="example.com", version="v1"):
    pass


class Farm(KubeObject, group="example.com", version="v1", namespaced=False):
    pass


@pytest.mark.regression
@pytest.mark.parametrize(
    ("kind", "namespace", "remedy"),
    [
        (
            Zone.KIND,
            "",
            "if its objects at the API server have none, write namespaced=False in the class of Zone",
        ),
        (Farm.KIND, "default", "have one, remove namespaced=False from the class of Farm"),
        (ConfigMap.KIND, "", "say in which one 'a' is"),
        (Namespace.KIND, "default", "leave 'default' out"),
    ],
)
def test_a_scope_that_the_class_says_wrongly_is_told_with_what_to_write_in_it(
    kind: Kind, namespace: str, remedy: str
) -> None:
    with pytest.raises(WrongNamespace, match=f"{remedy}$"):
        namespace_of(kind, "a", namespace)
