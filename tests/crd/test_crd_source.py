"""Classes from schemas: the source is as expected here, compiles, and passes strict type checking."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import yaml

from kubeshard import KubeObject
from kubeshard.core import Kind, decode
from kubeshard.core.objects import form_of
from kubeshard.crd import definition
from kubeshard.crd.manifests import definitions_in, described, kind_in, referred
from kubeshard.crd.source import UnknownField, source_of, wanted_fields
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
(VAULT,) = definitions_in(yaml.safe_load_all((GOLDEN / "vault_crd.yaml").read_text()))
OPENAPI = yaml.safe_load((GOLDEN / "openapi.yaml").read_text())
ROLLOUT = Kind("apps", "v1", "Rollout", "rollouts")


def of_vault(*fields: str, version: str = "") -> str:
    kind, schema = kind_in(VAULT, version)
    return source_of(kind, schema, wanted_fields(fields), command="kubeshard types vault_crd.yaml")


def of_rollout(*fields: str) -> str:
    return source_of(
        ROLLOUT,
        described(OPENAPI, ROLLOUT),
        wanted_fields(fields),
        resolve=lambda name: referred(OPENAPI, name),
    )


WRITTEN = {
    "vault.py": of_vault(),
    "vault_parts.py": of_vault("spec.doors.name", "spec.shelves", "status.openedAt"),
    "rollout.py": of_rollout(),
    "rollout_parts.py": of_rollout("spec.template.tasks.image", "spec.first.port", "spec.replicas"),
}


def loaded(source: str) -> ModuleType:
    module = ModuleType("written")
    sys.modules[module.__name__] = module  # annotations are resolved in it
    exec(compile(source, "written.py", "exec"), vars(module))
    return module


@pytest.mark.parametrize("name", WRITTEN)
def test_the_source_is_as_it_is_written_here(name: str) -> None:
    assert WRITTEN[name] == (GOLDEN / name).read_text()


@pytest.mark.system
def test_type_checkers_find_nothing_in_it() -> None:
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "mypy", "--strict", *(str(GOLDEN / name) for name in WRITTEN)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout


def test_its_classes_read_what_the_server_stores() -> None:
    stored = {
        "apiVersion": "storage.example.com/v1",
        "kind": "Vault",
        "metadata": {"name": "a"},
        "spec": {
            "class": "Gold",
            "doors": [{"name": "front", "locks": [{"turns": 2, "x-code": "s"}], "unknown": 1}],
            "clusterIPs": ["1.2.3.4"],
            "port": "http",
            "anything": [1, {}],
            "shelves": {"top": {"field": True, "str": "x"}},
        },
    }
    vault: Any = decode(form_of(loaded(of_vault()).Vault), msgspec.json.encode(stored))
    assert vault.spec.class_ == "Gold"
    assert vault.spec.doors[0].locks[0].x_code == "s"
    assert vault.spec.cluster_ips == ("1.2.3.4",)
    assert vault.spec.shelves["top"].field_ is True
    written = msgspec.json.decode(msgspec.json.encode(vault.spec))
    del stored["spec"]["doors"][0]["unknown"]
    assert written == stored["spec"]


def test_only_the_fields_that_are_asked_for_are_declared_for_all_uses_of_a_class_together() -> None:
    module = loaded(of_rollout("spec.template.tasks.image", "spec.first.port"))
    assert module.Task.__struct_fields__ == ("image", "port")
    assert module.RolloutSpec.__struct_fields__ == ("template", "first")
    assert "metadata" not in module.Template.__struct_fields__
    assert loaded(of_rollout("spec.first", "spec.first.port")).Task.__struct_fields__ == (
        "name",
        "image",
        "port",
        "limits",
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (["spec.replica"], "Rollout.spec has no field replica; it has first, replicas, template, tree"),
        (["spec.replicas.more"], "Rollout.spec.replicas has no field more; it has no fields that are known"),
    ],
)
def test_a_field_that_is_not_there_is_refused(fields: list[str], says: str) -> None:
    with pytest.raises(UnknownField) as refused:
        of_rollout(*fields)
    assert str(refused.value) == says


def test_another_version_than_the_stored_one_can_be_chosen() -> None:
    assert 'version="v1beta1"' in of_vault(version="v1beta1")
    with pytest.raises(ValueError, match=r"has no version v9; it has v1beta1, v1"):
        of_vault(version="v9")


def shape(schema: Any) -> Any:
    """Returns names and types of fields, without defaults, bounds and descriptions."""
    match schema:
        case {"properties": dict(properties)}:
            return {name: shape(inner) for name, inner in properties.items()}
        case {"items": items}:
            return [shape(items)]
        case {"additionalProperties": dict(values)}:
            return {"*": shape(values)}
    return schema.get("type")


@pytest.mark.parametrize(
    "manifest", [controller_ring_crd(), definition(ControllerRing)], ids=["crd", "class"]
)
def test_from_a_definition_to_classes_and_back_the_fields_stay(manifest: dict[str, Any]) -> None:
    kind, schema = kind_in(manifest)
    cls: type[KubeObject] = vars(loaded(source_of(kind, schema)))[kind.kind]
    again, back = kind_in(definition(cls))
    assert again == kind == ControllerRing.KIND
    assert shape(back) == shape(schema)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"kind": "CustomResourceDefinition"}, "without a name is not of apiextensions.k8s.io/v1"),
        (
            {
                "kind": "CustomResourceDefinition",
                "apiVersion": "apiextensions.k8s.io/v1",
                "metadata": {"name": "a"},
            },
            "a lacks group, names, scope or versions",
        ),
    ],
)
def test_what_is_not_a_definition_is_refused(document: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace(".", r"\.")):
        definitions_in([document])


def test_definitions_are_found_in_lists_and_beside_other_objects() -> None:
    assert definitions_in([None, {"kind": "Pod"}, {"kind": "List", "items": [VAULT]}]) == [VAULT]
