"""The files that a user names are read as kubectl reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeshard import Client, KubeObject, Struct, field
from kubeshard.cli.run import _applied
from kubeshard.cli.yaml_files import Given, objects_in
from kubeshard.client import ClusterConfig
from kubeshard.core import ConfigMap, ConfigurationError
from kubeshard.crd import definition
from kubeshard_apiserver import ApiServer, InMemoryTransport


def config_map(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


def listed(kind: str, *items: Any, version: str = "v1") -> str:
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": {}, "items": items})


def read(path: Path, text: str) -> list[dict[str, Any]]:
    path.write_text(text)
    return [each.manifest for each in objects_in(path)]


ONE, TWO = config_map("one"), config_map("two")


@pytest.mark.parametrize(
    "text",
    [
        listed("List", ONE, TWO),
        listed("ConfigMapList", {"metadata": {"name": "one"}}, {"metadata": {"name": "two"}}),
        listed("List", {"kind": "List", "apiVersion": "v1", "items": [ONE]}, TWO),
        json.dumps(ONE, indent="\t") + json.dumps(TWO, indent="\t"),
        f"---\n{json.dumps(ONE)}\n---\n---\n{json.dumps(TWO)}\n",
        f"\ufeff{json.dumps(ONE)}\r\n---\r\n{json.dumps(TWO)}\r\n",
    ],
)
def test_every_form_of_two_objects_is_two_objects(tmp_path: Path, text: str) -> None:
    assert read(tmp_path / "two", text) == [ONE, TWO]


def test_an_empty_list_has_no_object(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no object in it"):
        read(tmp_path / "none.json", listed("List"))


def test_of_a_folder_the_files_that_kubectl_reads_are_read(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yml", "c.json", "d.txt"):
        (tmp_path / name).write_text(json.dumps(config_map(name)))
    assert [each.source.rpartition("/")[2] for each in objects_in(tmp_path)] == ["a.yaml", "b.yml", "c.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: ConfigMap\n", "no kind or no metadata.name"),
        (listed("List", {"kind": "ConfigMap"}), "no kind or no metadata.name"),
        (listed("List", None), "no kind or no metadata.name"),
        ("kind: ConfigMap\nmetadata: {name: a}\n", "ConfigMap a: apiVersion: None is not GROUP/VERSION"),
        ("apiVersion: 1\nkind: ConfigMap\nmetadata: {name: a}\n", "apiVersion: 1 is not"),
        ("apiVersion: v1\nkind: [x]\nmetadata: {name: a}\n", r"kind: \['x'\] is not text"),
        ("apiVersion: v1\nkind: X\nmetadata: {name: 12}\n", "metadata.name: 12 is not text"),
        ("apiVersion: v1\nkind: X\nmetadata: {name: a, namespace: 5}\n", "metadata.namespace: 5 is not text"),
        (
            "apiVersion: v1\nkind: X\nmetadata: {name: a, namespace: no}\n",
            "metadata.namespace: False is not text",
        ),
        ("apiVersion: a/b/c\nkind: X\nmetadata: {name: a}\n", "apiVersion: 'a/b/c' is not"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {~: x}\n", "write it in quotes"),
    ],
)
def test_what_is_no_object_is_one_line_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    with pytest.raises(ConfigurationError, match=message) as caught:
        read(path, text)
    assert str(caught.value).startswith(f"{path}: ")


class Spec(Struct):
    size: int = 1


class Thing(KubeObject, group="example.com", version="v1"):
    spec: Spec = field(default_factory=Spec)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"spec": {"sise": 2}}, "Thing default/one: .spec.sise: field not declared in schema"),
        ({"spec": {"size": "x"}}, "Thing default/one: .+spec.size.+"),
        ({"apiVersion": "example.com/v2"}, "Thing default/one: the server does not serve .+"),
    ],
)
async def test_a_mistake_in_an_object_is_told_with_its_file(manifest: dict[str, Any], message: str) -> None:
    config = ClusterConfig("http://in-memory")
    async with Client(config, transport=InMemoryTransport(ApiServer())) as client:
        thing = {
            "apiVersion": "example.com/v1",
            "kind": "Thing",
            "metadata": {"name": "one", "namespace": "default"},
        }
        given = [Given("typo.yaml", thing | manifest), Given("crd.yaml", definition(Thing))]
        with pytest.raises(ConfigurationError, match=rf"^typo\.yaml: {message}$"):
            await _applied(client, given)


async def test_an_object_without_a_namespace_is_applied_in_that_of_the_context() -> None:
    config = ClusterConfig("http://in-memory", namespace="kube-public")
    async with Client(config, transport=InMemoryTransport(ApiServer())) as client:
        await _applied(client, [Given("map.yaml", ONE)])
        assert (await client.get(ConfigMap, "one", "kube-public")).metadata.name == "one"
