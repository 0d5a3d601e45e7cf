"""The command `kubeshard init`."""

from __future__ import annotations

import keyword
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

import click

from kubeshard.commands.options import Command, version_option
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import default_plural
from kubeshard.core.yaml_output import scalar
from kubeshard.version import __version__

_SUFFIX = ".template"
"""The suffix of template files that become files of the project."""

_PROJECT = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,39}")
_TAKEN = frozenset(
    (
        *("Any", "AsyncIterator", "Client", "Condition", "ConfigMap", "Context", "Controller"),
        *("CustomResource", "KubeObject", "LeaderElection", "Manager", "ObjectMeta", "Path", "Reconciler"),
        *("Column", "Denied", "KubeApi", "Settings", "Sharding", "Struct", "Watch", "Webhooks"),
    )
)
"""Kinds whose classes would shadow names that the project's modules import."""

_CONTROLLERS = re.compile(r"Manager\(\s*\[\s*controller\b")
"""Where `main.py` lists its controllers."""

_TWO_SHARDS = """
Outside a pod, a shard has the name of the host. For a second one on the same machine, in the second shell:

```
kubeshard run {package}.main --shard-name second{no_webhooks}
```
"""
"""The part of the README on several shards on one machine."""

_ONE_WORKS = """
Of several instances, one works, and the others wait: `leader_election` in `main.py`. For all to share the work, write
`{sharding}` in its place, import `Sharding` instead of `LeaderElection`, and render
`manifests/operator.yaml` again, as below. A project that was created with `--sharding` begins like that.
"""
"""The same part without shards."""

_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")


@click.command(
    cls=Command,
    short_help="Create the project of a new operator.",
    examples=(
        "kubeshard init my-operator",
        "kubeshard init web-operator --kind Website --group web.example.com --webhook",
        "kubeshard init . --kind Another",
    ),
)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--kind",
    default="Greeting",
    show_default=True,
    metavar="KIND",
    help="The kind that the operator reconciles.",
)
@click.option(
    "--group", metavar="GROUP", help="The API group of the kind (default: example.com, or the project's)."
)
@click.option(
    "--sharding", is_flag=True, help="All instances share the work, and one of them is the sharder."
)
@click.option("--webhook", is_flag=True, help="With a webhook that validates objects of the kind.")
@version_option
def init(folder: Path, kind: str, group: str | None, sharding: bool, webhook: bool) -> None:
    """Create a small but complete operator in FOLDER: its kind, a reconciler, tests, manifests, a Containerfile and CI.
    The project is named after the folder.

    In the folder of such a project, add another kind to it: `kubeshard init . --kind Another`.
    """
    project = folder.resolve().name
    package = project.replace("-", "_")
    another = _is_project(folder, package)
    group = group or (_group_of(folder / package) if another else "example.com")
    for what, text, pattern, example in (
        ("project name", project, _PROJECT, "my-operator"),
        ("--kind", kind, _KIND, "Website"),
        ("--group", group, _GROUP, "web.example.com"),
    ):
        if not pattern.fullmatch(text):
            raise ConfigurationError(f"{what} {text!r}: give one such as {example}")
    if keyword.iskeyword(package):
        raise ConfigurationError(f"project name {project!r}: a package cannot have this name; choose another")
    if package in sys.stdlib_module_names or package in ("kubeshard", "manifests", "tests"):
        raise ConfigurationError(
            f"project name {project!r}: a module of that name exists already; choose another"
        )
    if kind in _TAKEN:
        raise ConfigurationError(
            f"--kind {kind!r}: the project imports another class of this name; choose another"
        )
    values = {**_values(project, kind, group, sharding, webhook), "clone": _clone(folder)}
    if another:
        _check_another(folder, values, sharding or webhook)
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} exists and is not an empty folder: choose another")
    try:
        written = [*(_added if another else _written)(folder, values), *_generated(folder, values)]
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}") from error
    for file in (
        written
    ):  # only now: a reader that closes the pipe early, as `head` does, must not leave half a project
        click.echo(file)
    there = "" if folder.samefile(Path()) else f"cd {shlex.quote(str(folder))}, and "
    click.echo(f"\nIt is ready to run: {there}see README.md", err=True)


def _clone(folder: Path) -> str:
    """The clone of kubeshard that runs, seen from the project; a placeholder if it is installed otherwise."""
    clone = Path(__file__).parents[4]
    if all((clone / each / "pyproject.toml").is_file() for each in ("kubeshard", "apiserver")):
        return shlex.quote(os.path.relpath(clone, folder.resolve()))
    return "path/to/kubeshard"


def _is_project(folder: Path, package: str) -> bool:
    """Whether `init` has been here."""
    return all((folder / package / name).is_file() for name in ("main.py", "types.py"))


def _group_of(package: Path) -> str:
    found = re.search(r'group="([^"]+)"', (package / "types.py").read_text())
    return found[1] if found else "example.com"


def _check_another(folder: Path, values: Mapping[str, str], choices: bool) -> None:
    package = values["package"]
    if choices:
        raise ConfigurationError(f"{folder} is a project already: --sharding and --webhook are for a new one")
    if (place := folder / package / f"{values['module']}.py").exists():
        raise ConfigurationError(
            f"{place} exists: the project has that kind already, or choose another --kind"
        )
    if not _CONTROLLERS.search((folder / package / "main.py").read_text()):
        raise ConfigurationError(
            f"{folder / package / 'main.py'} has no `Manager(` with a list `[controller`, to which the controller of "
            "another kind could be added"
        )


def _written(folder: Path, values: Mapping[str, str]) -> Iterator[Path]:
    for path, content in _project(values):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        yield file


def _added(folder: Path, values: Mapping[str, str]) -> Iterator[Path]:
    """Adds another kind to a project, and its controller to the manager."""
    package, module = values["package"], values["module"]
    templates = files("kubeshard.cli") / "templates"
    for path, template in (
        (Path(package, f"{module}.py"), templates / "another" / "kind.py.template"),
        (Path("tests", f"test_{module}.py"), templates / "another" / "test_kind.py.template"),
        (Path("manifests", f"example-{module}.yaml"), templates / "manifests" / "example.yaml.template"),
    ):
        (folder / path).write_text(Template(template.read_text()).substitute(values))
        yield folder / path
    main = folder / package / "main.py"
    text = _CONTROLLERS.sub(rf"\g<0>, {module}.controller", main.read_text(), count=1)
    modules = re.search(rf"^from {package} import (.+)\n", text, re.MULTILINE)
    names = {module, *(modules[1].split(", ") if modules else ())}
    line = f"from {package} import {', '.join(sorted(names))}\n"
    start, end = modules.span() if modules else (text.index(f"from {package}."),) * 2
    main.write_text(f"{text[:start]}{line}{text[end:]}")
    yield main


def _generated(folder: Path, values: Mapping[str, str]) -> Iterator[Path]:
    """Generates the manifests from the project's code, with the commands that its README names."""
    package, project = values["package"], values["project"]
    modules = [
        f"{package}.{file.stem}"
        for file in sorted((folder / package).glob("*.py"))
        if file.stem == "types" or "@CustomResource" in file.read_text()
    ]
    operator = ["manifests", "operator", f"{package}.main", "--name", project]
    for name, arguments in (
        ("crd.yaml", ["crd", *modules]),
        ("operator.yaml", [*operator, "--set", f"image={project}:latest"]),
    ):
        file = folder / "manifests" / name
        command = [sys.executable, "-m", "kubeshard", *arguments]
        file.write_bytes(subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True).stdout)  # noqa: S603
        yield file


def _values(project: str, kind: str, group: str, sharding: bool, webhook: bool) -> dict[str, str]:
    lower, package = kind.lower(), project.replace("-", "_")
    names = ["ConfigMap", "Controller", *([] if sharding else ["LeaderElection"]), "Manager", "Settings"]
    names += [*(["Sharding"] if sharding else []), "Watch", "run", "when"]
    shards = f'sharding=Sharding("{project}", mode="both", delivery="ranges")'
    no_webhooks = " --no-webhooks" if webhook else ""
    return {
        "names_of_main": ", ".join(names),
        "import_webhooks": f"from {package}.webhooks import webhooks\n" if webhook else "",
        "servers": "\n        servers=[webhooks]," if webhook else "",
        "right": shards if sharding else f'leader_election=LeaderElection(name="{project}")',
        "several": _TWO_SHARDS.format(package=package, no_webhooks=no_webhooks)
        if sharding
        else _ONE_WORKS.format(sharding=shards),
        "module": f"{lower}_" if keyword.iskeyword(lower) else lower,
        "webhook": "webhook" if webhook else "",
        "project": project,
        "package": project.replace("-", "_"),
        "kind": kind,
        "kinds": f"{kind}s",
        "lower": lower,
        "plural": default_plural(kind),
        "group": group,
        "kubeshard": __version__,
        "kind_in_yaml": scalar(kind),
    }


def _project(values: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    for path, template in _files(files("kubeshard.cli") / "templates", Path()):
        *folders, name = path.parts
        if folders[:1] == ["another"] or (folders[:1] == ["webhook"] and not values["webhook"]):
            continue
        folders = ["package" if folder == "webhook" else folder for folder in folders]
        renamed = [values["package"] if folder == "package" else folder for folder in folders]
        yield Path(*renamed, name.removesuffix(_SUFFIX)), Template(template.read_text()).substitute(values)


def _files(folder: Traversable, path: Path) -> Iterator[tuple[Path, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files(entry, path / entry.name)
        elif entry.name.endswith(_SUFFIX):
            yield path / entry.name, entry
