"""Null in a field that cannot be null reads as the field's default, as in Go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kubeshard.client.listing import ListSplitter
from kubeshard.client.watching import EventDecoder
from kubeshard.core import KubeObject, ObjectMeta, Struct, UndecodableObject, decode, field, metadata_only
from kubeshard.core.objects import form_of


class Rule(Struct):
    verbs: tuple[str, ...] = ()
    level: int = 1


class Spec(Struct):
    rules: tuple[Rule, ...] = ()
    rule: Rule = field(default_factory=Rule)
    either: Rule | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, Rule] = field(default_factory=dict)
    free: Mapping[str, Any] = field(default_factory=dict)
    title: str = "untitled"
    replicas: int = 1
    nullable: int | None = 3


class Role(KubeObject, group="example.com", version="v1"):
    spec: Spec = field(default_factory=Spec)


FORM = form_of(Role)
META = ObjectMeta(name="a")


def read(spec: str) -> Spec:
    return decode(FORM, f'{{"kind":"Role","metadata":{{"name":"a"}},"spec":{spec}}}'.encode()).spec


@pytest.mark.regression
@pytest.mark.parametrize("name", ["rules", "rule", "data", "named", "free", "title", "replicas"])
def test_null_reads_as_the_fields_default(name: str) -> None:
    assert read(f'{{"{name}":null}}') == Spec()


@pytest.mark.regression
@pytest.mark.parametrize("body", [b'{"metadata":{"name":"a"},"spec":null}', b'{"metadata":{"name":"a"}}'])
def test_a_whole_part_that_is_null_reads_as_absent(body: bytes) -> None:
    assert decode(FORM, body) == Role(metadata=META)


@pytest.mark.regression
def test_null_is_the_default_at_any_depth() -> None:
    spec = read(
        '{"rules":[{"verbs":null},{"verbs":["get"],"level":null}],"rule":{"verbs":null},'
        '"either":{"level":null},"named":{"x":{"verbs":null}}}'
    )
    assert spec == Spec(rules=(Rule(), Rule(verbs=("get",))), either=Rule(), named={"x": Rule()})


class Needed(Struct):
    rules: tuple[Rule, ...]
    named: Mapping[str, Rule]


class Group(KubeObject, group="example.com", version="v1"):
    needed: Needed


def test_null_in_a_required_list_or_map_is_an_empty_one() -> None:
    body = b'{"kind":"Group","metadata":{"name":"a"},"needed":{"rules":null,"named":null}}'
    assert decode(form_of(Group), body).needed == Needed(rules=(), named={})


@pytest.mark.parametrize("needed", [b"null", b'{"rules":null}', b'{"rules":[null],"named":null}'])
def test_null_stands_for_nothing_else_that_is_required(needed: bytes) -> None:
    with pytest.raises(UndecodableObject):
        decode(form_of(Group), b'{"kind":"Group","metadata":{"name":"a"},"needed":%b}' % needed)


@pytest.mark.regression
def test_null_stays_where_it_means_something() -> None:
    assert read('{"rules":null,"nullable":null,"free":{"a":null,"b":{"c":null}}}') == Spec(
        nullable=None, free={"a": None, "b": {"c": None}}
    )


@pytest.mark.regression
@pytest.mark.parametrize("name", ["finalizers", "ownerReferences", "labels", "name", "creationTimestamp"])
@pytest.mark.parametrize("form", [FORM, metadata_only(Role)])
def test_metadata_may_be_null_too(form: Any, name: str) -> None:
    body = b'{"kind":"Role","metadata":{"namespace":"n","%b":null}}' % name.encode()
    assert decode(form, body).metadata == ObjectMeta(namespace="n")


@pytest.mark.regression
def test_lists_and_watches_read_null_as_the_default() -> None:
    good, nulls = (
        b'{"kind":"Role","metadata":{"name":"a"}}',
        b'{"kind":"Role","metadata":{"name":"a"},"spec":null}',
    )
    splitter = ListSplitter(FORM)
    splitter.feed(b'{"kind":"RoleList","apiVersion":"example.com/v1","metadata":{},"items":[')
    splitter.feed(good + b"," + nulls + b"]}")
    assert splitter.finish() == [Role(metadata=META)] * 2
    (event,) = EventDecoder(FORM).feed(b'{"type":"ADDED","object":' + nulls + b"}\n")
    assert event.object == Role(metadata=META)


@pytest.mark.parametrize(
    ("spec", "where"),
    [('{"rules":null,"replicas":"x"}', r"\$.spec.replicas"), ('{"rules":[null]}', r"\$.spec.rules\[0\]")],
)
def test_what_else_does_not_fit_is_still_undecodable(spec: str, where: str) -> None:
    with pytest.raises(UndecodableObject, match=where) as caught:
        read(spec)
    assert caught.value.key == ("", "a")


def test_a_required_field_may_not_be_null() -> None:
    class Strict(KubeObject, group="example.com", version="v1"):
        size: int

    with pytest.raises(UndecodableObject, match=r"\$.size"):
        decode(form_of(Strict), b'{"metadata":{},"size":null}')


def test_a_class_that_refers_to_itself_is_looked_through() -> None:
    body = b'{"metadata":{},"tree":{"children":[{"children":null},{"children":[{"children":null}]}]}}'
    tree = decode(form_of(Forest), body).tree
    assert msgspec.to_builtins(tree)["children"][1]["children"] == ({"children": ()},)


def test_large_numbers_beside_a_null_do_no_harm() -> None:
    body = b'{"metadata":{"name":"a"},"tree":{"children":null,"x":1' + b"0" * 400 + b"}}"
    assert decode(form_of(Forest), body).tree == Tree()


def test_what_is_nested_too_deeply_to_look_through_is_undecodable() -> None:
    deep = b'{"children":[' * 700 + b'{"children":null}' + b"]}" * 700
    with pytest.raises(UndecodableObject):
        decode(form_of(Forest), b'{"metadata":{"name":"a"},"tree":' + deep + b"}")


class Tree(Struct):
    children: tuple[Tree, ...] = ()


class Forest(KubeObject, group="example.com", version="v1"):
    tree: Tree = field(default_factory=Tree)
