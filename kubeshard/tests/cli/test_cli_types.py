"""`kubeshard types`: classes from files, and mistakes reported in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError

GOLDEN = Path(__file__).parents[1] / "crd" / "golden"
FILE = str(GOLDEN / "vault_crd.yaml")


def printed(*arguments: str) -> str:
    return CliRunner().invoke(cli, ["types", *arguments], catch_exceptions=False).output


def test_a_definition_in_a_file_becomes_classes() -> None:
    assert printed(FILE) == (GOLDEN / "vault.py").read_text()


def test_fields_may_be_listed_or_repeated_and_the_source_says_how_it_was_written() -> None:
    listed = printed(FILE, "--fields", "spec.doors.name, spec.port")
    assert listed == printed(FILE, "--fields", "spec.doors.name", "--fields", "spec.port")
    assert "# Written by: kubeshard types vault_crd.yaml --fields spec.doors.name,spec.port\n" in listed


def test_a_long_list_of_fields_is_broken_into_lines() -> None:
    names = ["doors", "class", "clusterIPs", "selector", "weight", "port", "extras", "anything", "shelves"]
    source = printed(FILE, "--fields", ",".join(f"spec.{name}" for name in names))
    comment = [line for line in source.splitlines() if line.startswith("#")]
    assert len(comment) > 1
    assert all(len(line) <= 110 for line in comment)


def two_definitions(folder: Path) -> str:
    other = yaml.safe_load((GOLDEN / "vault_crd.yaml").read_text())
    other["spec"]["names"]["kind"] = "Safe"
    file = folder / "both.yaml"
    file.write_text(f"{yaml.safe_dump(other)}---\n{(GOLDEN / 'vault_crd.yaml').read_text()}")
    return str(file)


def test_of_several_definitions_one_is_named(tmp_path: Path) -> None:
    file = two_definitions(tmp_path)
    assert "class Safe(KubeObject" in printed(f"{file}:Safe", "--version", "v1beta1")
    with pytest.raises(ConfigurationError, match=r"it has Safe, Vault: choose one, as in \S+both\.yaml:Safe"):
        printed(str(file))


def test_several_kinds_become_one_module(tmp_path: Path) -> None:
    file = two_definitions(tmp_path)
    source = printed(f"{file}:Safe", FILE)
    assert "# Written by: kubeshard types both.yaml:Safe vault_crd.yaml\n" in source
    assert "class Safe(KubeObject" in source
    assert "class Vault(KubeObject" in source


def test_fields_are_chosen_for_all_kinds_or_for_one(tmp_path: Path) -> None:
    file = two_definitions(tmp_path)
    source = printed(f"{file}:Safe", FILE, "--fields", "spec.port,Vault:spec.weight")
    safe, vault = source.partition("class VaultSpec")[::2]
    assert ("    port:" in safe, "    weight:" in safe) == (True, False)
    assert ("    port:" in vault, "    weight:" in vault) == (True, True)
    with pytest.raises(ConfigurationError, match="--fields names Door, which is not one of the kinds: Vault"):
        printed(FILE, "--fields", "Door:spec.port")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.yaml"], "missing.yaml: No such file"),
        ([str(GOLDEN / "openapi.yaml")], "which CustomResourceDefinition\\? it has none"),
        ([FILE, "--version", "v9"], "has no version v9; it has v1beta1, v1"),
        ([FILE, "--fields", "spec.size"], "Vault.spec has no field size; it has anything, class, "),
    ],
)
def test_a_mistake_is_said(arguments: list[str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        printed(*arguments)
