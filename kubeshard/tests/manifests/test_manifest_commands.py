"""`kubeshard manifests`: where its input comes from, and mistakes in it that are said before anything is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeshard.cli.program import cli
from kubeshard.cli.yaml_files import read_documents
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.namespaces import NAMESPACE_NAME_LABEL
from kubeshard.manifests.ring import ring_objects

RESOURCES = [{"group": "", "resource": "configmaps"}]


def ring(name: str = "r", **spec: Any) -> str:
    """A file of one."""
    return json.dumps(
        {
            "apiVersion": "sharding.timebertt.dev/v1alpha1",
            "kind": "ControllerRing",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def printed(*arguments: str, given: str = "") -> Any:
    done = CliRunner().invoke(cli, ["manifests", *arguments, "-o", "json"], given, catch_exceptions=False)
    return json.loads(done.stdout)["items"]


def refused(*arguments: str, given: str | bytes = "") -> str:
    with pytest.raises(ConfigurationError) as error:
        CliRunner().invoke(cli, arguments, given, catch_exceptions=False)
    return str(error.value)


def test_a_ring_and_values_may_come_from_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "ring.yaml"
    file.write_text(ring(resources=RESOURCES))
    assert printed("ring", "-", given=file.read_text()) == printed("ring", str(file))
    assert printed("sharder", "--values=-", given="replicas: 7") == printed("sharder", "--set=replicas=7")
    assert refused("manifests", "ring", "-").startswith("standard input has no ControllerRing")
    assert refused("manifests", "ring", "-", given="a: [").startswith("standard input: not YAML on line 2: ")
    assert refused("manifests", "sharder", "--values=-", given="[1]").startswith(
        "standard input: expected one"
    )


def test_a_program_without_standard_input_and_a_file_that_is_no_text_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ring.yaml"
    file.write_bytes(b"a: \xff")
    problem = "not YAML: invalid leading UTF-8 octet"
    assert refused("manifests", "ring", str(file)) == f"{file}: {problem}"
    assert refused("manifests", "ring", "-", given=file.read_bytes()) == f"standard input: {problem}"
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ConfigurationError, match="there is no standard input"):
        read_documents(Path("-"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (ring(resorces=RESOURCES), "ControllerRing r: unknown field spec.resorces (did you mean resources?)"),
        (
            ring(resources=[{**RESOURCES[0], "controlledResource": []}]),
            "unknown field spec.resources[0].controlledResource (did you mean controlledResources?)",
        ),
        (ring("Upper", resources=RESOURCES), "invalid ControllerRing name 'Upper'"),
    ],
)
def test_a_mistake_in_a_ring_is_named(given: str, says: str) -> None:
    assert says in refused("manifests", "ring", "-", given=given)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ring", "-", "--sharder", "Sys:sharder"], "--sharder Sys:sharder: write NAMESPACE:NAME"),
        (["ring", "-", "--shards", "sys:my_shard"], "--shards sys:my_shard: write NAMESPACE:NAME"),
        (["sharder", "--set", "image=two words"], "value image: expected an image, as in"),
        (["sharder", "--set", "image=registry.example.com/Upper"], "value image: expected an image, as in"),
        (["operator", "nosuch"], "there is no module nosuch"),
        (["operator", "nosuch", "--set", "image=x"], "there is no module nosuch"),
    ],
)
def test_a_name_that_cannot_be_is_refused(arguments: list[str], says: str) -> None:
    assert says in refused("manifests", *arguments, given=ring(resources=RESOURCES))


def test_the_name_of_an_operator_leaves_room_for_that_of_its_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quiet_operator.py").write_text("from kubeshard import Manager\nmanager = Manager([])\n")
    monkeypatch.chdir(tmp_path)
    for name in ("My_Operator", "x" * 56):
        found = refused("manifests", "operator", "quiet_operator", "--set", "image=x", "--name", name)
        assert f"--name '{name}': a name has at most 55 lower-case letters" in found
    assert printed("operator", "quiet_operator", "--set", "image=x", "--name", "x" * 55)


def test_a_namespace_of_rules_that_cannot_be_is_refused() -> None:
    assert "--resource 'My_System'" in refused("monitoring", "rules", "--resource", "My_System")


@pytest.mark.parametrize(
    "image",
    [
        "kubeshard:0.1.0.dev0",
        "REGISTRY/kubeshard:TAG",
        "localhost:5000/team/kube-shard:v1.2_3",
        "registry.example.com/kubeshard:v1@sha256:" + "a" * 64,
    ],
)
def test_every_form_of_an_image_is_taken(image: str) -> None:
    found = printed("sharder", "--set", f"image={image}")
    (deployment,) = (obj for obj in found if obj["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {NAMESPACE_NAME_LABEL: "a"}},
        {"matchExpressions": [{"key": NAMESPACE_NAME_LABEL, "operator": "In", "values": ["a"]}]},
    ],
    ids=("labels", "expressions"),
)
def test_secrets_are_read_and_written_only_in_the_namespaces_that_a_ring_names(
    selector: dict[str, Any],
) -> None:
    rules = {
        (role["kind"], role["metadata"].get("namespace")): role["rules"]
        for role in ring_objects(
            ring_over("secrets", "configmaps", selector=selector), ("sharding-system", "sharder")
        )
        if role["kind"] in ("Role", "ClusterRole")
    }
    assert rules == {
        ("ClusterRole", None): [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "patch"]},
            {
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": ["mutatingwebhookconfigurations"],
                "resourceNames": ["controllerring-r"],
                "verbs": ["create", "patch"],
            },
        ],
        ("Role", "a"): [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch", "patch"]}
        ],
    }


@pytest.mark.parametrize(
    "selector",
    [
        None,
        {},
        {"matchLabels": {"team": "a"}},
        {"matchExpressions": [{"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": ["a"]}]},
    ],
    ids=("none", "empty", "labels", "expressions"),
)
def test_secrets_are_written_everywhere_if_a_ring_names_no_namespaces(
    selector: dict[str, Any] | None,
) -> None:
    made = list(ring_objects(ring_over("secrets", selector=selector), ("sharding-system", "sharder")))
    assert [each["kind"] for each in made] == ["ControllerRing", "ClusterRole", "ClusterRoleBinding"]


def ring_over(*resources: str, selector: dict[str, Any] | None) -> dict[str, Any]:
    spec = {
        "resources": [{"group": "", "resource": each} for each in resources],
        "namespaceSelector": selector,
    }
    return {
        "apiVersion": "sharding.timebertt.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": "r"},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }
