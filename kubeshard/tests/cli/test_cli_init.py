"""`kubeshard init`: the generated project is formatted, typed and tested and runs, whatever its name."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import partial
from importlib.resources import files
from pathlib import Path
from string import Template

import pytest
import yaml
from click.testing import CliRunner

from kubeshard import Client, ConfigMap, KubeObject, Struct, until, wait_for
from kubeshard.cli.init import _files, _values
from kubeshard.cli.program import cli
from kubeshard.client import install
from kubeshard.core import Condition, ConfigurationError, Form
from kubeshard_apiserver.front.bodies import read_yaml
from kubeshard_apiserver.serving import embedded_in_thread
from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.child import Child

ROOT = Path(__file__).parents[3]
TREE = os.pathsep.join((str(ROOT / "kubeshard" / "src"), str(ROOT / "apiserver" / "src")))
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("RUFF_")},
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONPATH": TREE,
    "MYPYPATH": TREE,
}
INSTALLED_HERE = ("pip install", "python3 -m venv", ". .venv/bin/activate")
"""What CI and README begin with, and this environment has already."""


def made(folder: Path, *options: str) -> Path:
    done = CliRunner().invoke(cli, ["init", str(folder), *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder


def run(folder: Path, *command: str) -> str:
    """Runs a program of this environment in the project. Fails the test if it fails."""
    return shell(folder, shlex.join([sys.executable, "-m", *command]))


def shell(folder: Path, command: str) -> str:
    """Runs a command in the project, as its author would. Fails the test if the command fails."""
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


class ShownStatus(Struct):
    conditions: tuple[Condition, ...] = ()


class Shown(KubeObject):
    status: ShownStatus | None = None


PROJECTS = [
    pytest.param("my-operator", ("--webhook",), id="webhook"),
    pytest.param("web", ("--kind", "Policy", "--group", "web.example.com", "--sharding"), id="sharding"),
    pytest.param("my-operator", ("--sharding", "--webhook"), id="both", marks=pytest.mark.nightly),
    pytest.param("my-operator", (), id="neither", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("name", "options"), PROJECTS)
@pytest.mark.system
def test_the_ci_of_a_new_project_passes_as_it_is(tmp_path: Path, name: str, options: tuple[str, ...]) -> None:
    project = made(tmp_path / name, *options)
    workflow = yaml.safe_load((project / ".github" / "workflows" / "test.yaml").read_text())
    (job,) = workflow["jobs"].values()
    steps = [step["run"] for step in job["steps"] if "run" in step]
    ran = {step: shell(project, step) for step in steps if not step.startswith(INSTALLED_HERE)}
    assert "2 passed" in ran["pytest"]
    assert len(ran) == len(steps) - 1, "one step installs"


@pytest.mark.parametrize("options", [(), ("--sharding",)])
@pytest.mark.system
def test_the_ci_passes_with_further_kinds_too(tmp_path: Path, options: tuple[str, ...]) -> None:
    project = made(tmp_path / "my-operator", *options)
    for kind in ("Farewell", "Import"):
        made(project, "--kind", kind)
    shell(project, "ruff check . && ruff format --check . && mypy && pytest -q -p no:cacheprovider")


def works_or_ended(instance: Child) -> bool:
    return "Acquired the Lease" in instance.log.read_text() or not instance.running


def test_no_template_has_lost_a_part_that_is_filled_in() -> None:
    templates = _files(files("kubeshard.cli") / "templates", Path())
    used = {name for _, each in templates for name in Template(each.read_text()).get_identifiers()}
    values = _values("demo", "Greeting", "example.com", sharding=True, webhook=True)
    assert values.keys() - used == {"webhook"}  # which says whether there is one


@pytest.mark.system
def test_the_readme_installs_folders_of_the_clone_that_can_be_installed(tmp_path: Path) -> None:
    project = made(tmp_path / "demo")
    lines = re.findall(r"^pip install ([^#\n]*/[^#\n]*)", (project / "README.md").read_text(), re.MULTILINE)
    folders = [project / folder for line in lines for folder in shlex.split(line)]
    assert [folder.resolve() for folder in folders] == [ROOT / "kubeshard", ROOT / "apiserver"]
    assert all("project" in tomllib.loads((folder / "pyproject.toml").read_text()) for folder in folders)


@pytest.mark.parametrize(("name", "options"), PROJECTS)
@pytest.mark.system
def test_the_commands_of_the_readme_run_as_they_are(
    tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    project = made(tmp_path / name, *options)
    blocks = re.findall(r"^```\n(.*?)^```", (project / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    commands = [
        line.partition("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()
    ]
    running = [each for each in commands if each.startswith("kubeshard run ")]
    assert len(running) == (2 if "--sharding" in options else 1)
    instances: list[Child] = []
    try:
        for number, command in enumerate(running):
            log = tmp_path / f"{number}.log"
            exported = re.match("export KUBECONFIG=(.+)", instances[0].log.read_text()) if instances else None
            environment = {**ENVIRONMENT, **({"KUBECONFIG": exported[1]} if exported else {})}
            instance = Child(
                f"instance {number}", ["bash", "-c", f"cd {project} && exec {command}"], log, environment
            )
            instances.append(instance)
            wait_until(partial(works_or_ended, instance), 60, f"{command} works")
            assert instance.running, instance.tail()
        wait_until(lambda: "applied" in instances[0].log.read_text(), 60, "the example is applied")
    finally:
        for instance in reversed(instances):
            instance.stop()
    others = [
        each
        for each in commands
        if each not in running and not each.startswith((*INSTALLED_HERE, "docker ", "kubectl "))
    ]
    assert {"pytest", "mypy"} <= {*others}
    for command in others:
        if command not in ("pytest", "mypy"):  # CI's, above
            shell(project, command)
    shell(project, f"kubeshard crd {name.replace('-', '_')}.types > manifests/crd.yaml")


@pytest.mark.system
def test_a_kind_hides_nothing_that_the_project_imports(tmp_path: Path) -> None:
    project = made(tmp_path / "web", "--kind", "Policy")
    modules = [ast.parse(file.read_text()) for file in project.rglob("*.py")]
    imports = [node for module in modules for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names if not alias.name.startswith("Policy")}
    classes = [name for name in names if name[0].isupper()]
    assert "ConfigMap" in classes
    for name in classes:
        with pytest.raises(ConfigurationError, match="the project imports another class"):
            cli.main(["init", str(tmp_path / "other"), "--kind", name], standalone_mode=False)


@pytest.mark.system
def test_the_manifests_are_of_the_kind(tmp_path: Path) -> None:
    folder = made(tmp_path / "web", "--kind", "Policy", "--group", "web.example.com") / "manifests"
    documents = [each for file in folder.iterdir() for each in yaml.safe_load_all(file.read_text())]
    names = {each["metadata"]["name"] for each in documents if each["kind"] == "CustomResourceDefinition"}
    assert names == {"policies.web.example.com"}
    (account,) = (each for each in documents if each["kind"] == "ServiceAccount")
    bindings = [each for each in documents if each["kind"].endswith("Binding")]
    assert {subject["name"] for each in bindings for subject in each["subjects"]} == {
        account["metadata"]["name"]
    }
    (example,) = (each for each in documents if each["kind"] == "Policy")
    assert example["apiVersion"] == "web.example.com/v1alpha1"


@pytest.mark.system
def test_another_kind_joins_the_project_with_its_group_and_a_second_time_changes_nothing(
    tmp_path: Path,
) -> None:
    project = made(tmp_path / "web", "--kind", "Policy", "--group", "web.example.com")
    made(project, "--kind", "Farewell")
    documents = [*yaml.safe_load_all((project / "manifests" / "operator.yaml").read_text())]
    names = {each["metadata"]["name"] for each in documents if each["kind"] == "CustomResourceDefinition"}
    assert names == {"policies.web.example.com", "farewells.web.example.com"}
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    for options, message in (
        (["--kind", "Farewell"], "the project has that kind already"),
        (["--kind", "Other", "--sharding"], "--sharding and --webhook are for a new one"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            cli.main(["init", str(project), *options], standalone_mode=False)
    main = project / "web" / "main.py"
    main.write_text("def manager(): ...\n")
    with pytest.raises(ConfigurationError, match=r"main\.py has no `Manager\(` with a list"):
        cli.main(["init", str(project), "--kind", "Other"], standalone_mode=False)
    main.write_bytes(before[main])
    assert before == {path: path.read_bytes() for path in before}
    assert not (project / "web" / "other.py").exists()


@pytest.mark.system
def test_names_that_are_words_of_yaml_stay_names(tmp_path: Path) -> None:
    folder = made(tmp_path / "on", "--kind", "Yes") / "manifests"
    found = [
        read_yaml(text.encode())[0] for file in folder.iterdir() for text in file.read_text().split("---\n")
    ]
    deployment = next(each for each in found if each["kind"] == "Deployment")
    assert (deployment["metadata"]["name"], deployment["metadata"]["namespace"]) == ("on", "on")
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "on"
    assert [each["metadata"]["name"] for each in found if each["kind"] == "Yes"] == ["first"]


@pytest.mark.system
async def test_the_rights_in_the_manifests_are_enough(tmp_path: Path) -> None:
    project = made(tmp_path / "web", "--kind", "Policy", "--group", "web.example.com")
    folder = project / "manifests"
    documents = [each for file in folder.iterdir() for each in yaml.safe_load_all(file.read_text())]
    with embedded_in_thread() as served:
        (tmp_path / "admin").write_text(served.kubeconfig)
        limited = yaml.safe_load(served.kubeconfig)
        limited["users"][0]["user"]["as"] = "system:serviceaccount:web:web"
        limited["contexts"][0]["context"]["namespace"] = "web"
        (tmp_path / "limited").write_text(yaml.safe_dump(limited))
        async with await Client.connect(tmp_path / "admin") as client:
            async for _ in install(client, sorted(documents, key=lambda each: each["kind"] != "Namespace")):
                pass
            command = [sys.executable, "-m", "kubeshard", "run", "web.main", "--kubeconfig"]
            environment = {**os.environ, "PYTHONPATH": TREE}
            operator = await asyncio.create_subprocess_exec(
                *command,
                str(tmp_path / "limited"),
                cwd=project,
                env=environment,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                policy = Form(await client.discovery.kind("web.example.com", kind="Policy"), Shown)
                found = await client.get(policy, "first", "default")
                await wait_for(client, found, until.condition("Ready"), timeout=30)
                maps = await client.get(ConfigMap, "first", "default")
                assert maps.data == {"greeting": "good morning"}
            finally:
                operator.terminate()
                _, log = await operator.communicate()
            assert b"policy is up to date" in log


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["My_Operator"], r"^project name 'My_Operator': give one such as my-operator$"),
        (
            ["operator"],
            r"^project name 'operator': a module of that name exists already; choose another$",
        ),
        (["web", "--kind", "website"], r"^--kind 'website': give one such as Website$"),
        (["web", "--group", "example"], r"^--group 'example': give one such as web\.example\.com$"),
        (["class"], r"^project name 'class': a package cannot have this name; choose another$"),
        (["tests"], r"^project name 'tests': a module of that name exists already; choose another$"),
        (
            ["web", "--kind", "ConfigMap"],
            r"^--kind 'ConfigMap': the project imports another class of this name; ",
        ),
        (["full"], r"^full exists and is not an empty folder: choose another$"),
        (["full/file"], r"^full/file exists and is not an empty folder: choose another$"),
    ],
)
def test_a_mistake_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(ConfigurationError, match=message):
        cli.main(["init", *arguments], standalone_mode=False)
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "file"]
    assert (tmp_path / "full" / "file").read_text() == "mine"


@pytest.mark.system
def test_a_project_is_complete_when_the_reader_of_its_list_goes_away(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        subprocess.run(
            [sys.executable, "-m", "kubeshard", "init", "my-operator"],
            cwd=tmp_path,
            stdout=writing,
            check=False,
        )
    finally:
        os.close(writing)
    assert {file.name for file in (tmp_path / "my-operator" / "manifests").iterdir()} == {
        "crd.yaml",
        "example.yaml",
        "operator.yaml",
    }
