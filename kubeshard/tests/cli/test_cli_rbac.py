"""`kubeshard rbac`: the roles of a manager as YAML, and mistakes reported in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kubeshard.cli.loading import program_name
from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError

OPERATOR = """
from kubeshard import ConfigMap, Controller, Context, LeaderElection, Manager

async def reconcile(ctx: Context, obj: ConfigMap) -> None: ...

def manager() -> Manager:
    controller = Controller(name="maps", reconciler=reconcile, primary=ConfigMap)
    return Manager([controller], leader_election=LeaderElection(name="maps", namespace="sys"))
"""


@pytest.fixture
def operator(tmp_path: Path) -> str:
    path = tmp_path / "my_operator.py"
    path.write_text(OPERATOR)
    return str(path)


def test_roles_are_named_after_the_module_and_bound_to_an_account(operator: str) -> None:
    done = CliRunner().invoke(cli, ["rbac", operator, "--service-account", "sys:bot"], catch_exceptions=False)
    found = list(yaml.safe_load_all(done.output))
    assert [(role["kind"], role["metadata"]["name"]) for role in found] == [
        ("ClusterRole", "my-operator"),
        ("ClusterRoleBinding", "my-operator"),
        ("Role", "my-operator"),
        ("RoleBinding", "my-operator"),
    ]
    named = CliRunner().invoke(cli, ["rbac", f"{operator}:manager", "--name", "maps"], catch_exceptions=False)
    assert [role["metadata"]["name"] for role in yaml.safe_load_all(named.output)] == ["maps", "maps"]


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("my_company.my_operator:manager", "my-operator"),
        ("my_operator", "my-operator"),
        ("my_operator.main", "my-operator"),
        ("my_operator/main.py", "my-operator"),
        ("./main.py", "main"),
        ("main", "main"),
    ],
)
def test_an_operator_is_named_after_its_package_if_the_module_is_main(reference: str, name: str) -> None:
    assert program_name(reference) == name


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kubeshard.version:__version__"], "is str, not a Manager"),
        (["no.such.module"], "there is no module"),
        (["{operator}", "--service-account", "bot"], "write NAMESPACE:NAME"),
    ],
)
def test_a_mistake_is_said(operator: str, arguments: list[str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        cli.main(["rbac", *(word.format(operator=operator) for word in arguments)], standalone_mode=False)
